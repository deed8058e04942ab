"""Where hosts keep their files: one private directory a user, and in it the files of each host."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from mempool_cli.errors import MempoolError
from mempool_cli.names import NAME
from mempool_cli.session.files import PREFIX, RUNTIME_DIR, SOCKET_PATH_BYTES, chosen_path, file_path

_JOURNAL = ".journal"
_OWN = f"choose a directory of your own that only you can write to, e.g. `{RUNTIME_DIR}=/tmp/mine`"


def check_name(name: str) -> str:
    """The name of a session, if it is one; MempoolError `bad-name` otherwise."""
    if NAME.fullmatch(name):
        return name
    raise MempoolError(
        "bad-name",
        f"{name!r} is no name for a session or program",
        hint="a letter or _, then at most 63 letters, digits, or _ . -",
    )


def chosen_directory() -> Path:
    """The directory of this user's hosts, which need not exist."""
    return Path(chosen_path())


def runtime_directory(*, create: bool) -> Path | None:
    """The directory of this user's hosts, after a look at who else could use it.

    None when it does not exist and `create` is false. MempoolError `runtime-directory` when someone else
    could read it, write to it, or put another in its place.
    """
    directory = chosen_directory()
    _check_parent(directory)
    if create:
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise _unusable(directory, f"cannot be created: {error.strerror}") from error
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(directory, f"cannot be read: {error.strerror}") from error
    _check_own(directory, found)
    return directory


def _check_parent(directory: Path) -> None:
    parent = directory.parent
    try:
        found = parent.stat()
    except OSError as error:
        raise _unusable(directory, f"its parent cannot be read: {error.strerror}") from error
    if found.st_uid not in (0, os.geteuid()):
        raise _unusable(directory, f"its parent {parent} belongs to uid {found.st_uid}")
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        raise _unusable(directory, f"its parent {parent} is writable by others, without the sticky bit")


def _check_own(directory: Path, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise _unusable(directory, "is a symbolic link")
    if not stat.S_ISDIR(found.st_mode):
        raise _unusable(directory, "is no directory")
    if found.st_uid != os.geteuid():
        raise _unusable(directory, f"belongs to uid {found.st_uid}, not to uid {os.geteuid()}")
    if found.st_mode & 0o077:
        # One that the user named may be there for others too: /tmp itself, closed, breaks the machine.
        ours = not os.environ.get(RUNTIME_DIR) and not found.st_mode & stat.S_ISVTX
        hint = f"look at what is in it, then `chmod 700 {directory}`" if ours else _OWN
        mode = stat.S_IMODE(found.st_mode)
        raise MempoolError("runtime-directory", f"{directory} is open to others: mode {mode:04o}", hint=hint)


def _unusable(directory: Path, why: str) -> MempoolError:
    return MempoolError("runtime-directory", f"{directory}: {why}", hint=_OWN)


class Place(msgspec.Struct, frozen=True):
    """The files of one host. Simulated and hardware hosts of one name are two hosts."""

    directory: Path
    simulated: bool
    name: str

    @property
    def socket(self) -> Path:
        """Where the host listens; MempoolError `runtime-directory` when no name is short enough for a socket."""
        path = self._file("socket")
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
            raise _unusable(self.directory, f"too long for a socket, whose path holds {SOCKET_PATH_BYTES} bytes")
        return path

    @property
    def lock(self) -> Path:
        """Held by a host for its life: whoever gets this lock knows that no host lives."""
        return self._file("lock")

    @property
    def journal(self) -> Path:
        """What a host holds. Found while the lock is free, it tells of a host that died."""
        return self._file("journal")

    @property
    def ended(self) -> Path:
        """What is to be told of a host that ended unasked. Found while the lock is free; the next start tells it."""
        return self._file("ended")

    @property
    def new(self) -> Path:
        """The next content of a file, while it is written."""
        return self._file("new")

    @property
    def log(self) -> Path:
        """Standard error of a host in the background, and the last words of one that crashes."""
        return self._file("log")

    @property
    def crash(self) -> Path:
        """The log of the host of this name that died last."""
        return self._file("crash")

    @property
    def mps(self) -> Path:
        """An empty directory: a driver that looks here for an MPS server finds none."""
        return self._file("mps")

    def write(self, path: Path, data: bytes) -> None:
        """Puts `data` at `path`, whole or not at all, for this user alone. The caller holds the lock; OSError."""
        self.new.unlink(missing_ok=True)
        fd = os.open(self.new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        self.new.replace(path)

    def clear(self) -> None:
        """Removes what a host leaves, but not its lock, its log and what is to be told of its end."""
        for path in (self.socket, self.new, self.journal):
            path.unlink(missing_ok=True)
        with suppress(OSError):
            self.mps.rmdir()

    def clear_log(self, *, clean: bool = False) -> None:
        """Removes the log of a host that does not live, unless something is in it; after a `clean` end, a traceback."""
        with suppress(FileNotFoundError):
            said = self.log.read_bytes()
            if not said or (clean and b"Traceback" not in said):
                self.log.unlink()

    def _file(self, kind: str) -> Path:
        return Path(file_path(os.fspath(self.directory), self.name, kind, simulated=self.simulated))


def place(name: str, *, simulated: bool) -> Place | None:
    """Where the host of this name would be; None when the directory does not exist, so that none can run."""
    check_name(name)
    directory = runtime_directory(create=False)
    return Place(directory, simulated, name) if directory else None


def made_place(name: str, *, simulated: bool) -> Place:
    """Where a host of this name can be started; makes the directory."""
    check_name(name)
    directory = runtime_directory(create=True)
    assert directory is not None
    return Place(directory, simulated, name)


def journals(*, simulated: bool) -> list[Path]:
    """The journal files of one name space, sorted by name."""
    directory = runtime_directory(create=False)
    found = directory.glob(f"{PREFIX[simulated]}*{_JOURNAL}") if directory else []
    return sorted(found, key=lambda path: path.name.removesuffix(_JOURNAL))
