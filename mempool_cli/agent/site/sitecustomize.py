"""Starts mempool's agent in a program that `mempool exec` runs, and leaves no trace of how it came in.

Any Python 3 may find this file, of any version and without mempool: it must run in all of them, and never fail.
"""

import os
import sys

_OURS = ("mempool", "mempool_cli")
_BOOKKEEPER = "from multiprocessing.resource_tracker import main"


def _leave_the_path() -> None:
    """The program sees the sys.path and the PYTHONPATH that it would have had; its children inherit ours."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)
    inherited = os.environ.get("PYTHONPATH", "")
    first, more, original = inherited.partition(os.pathsep)
    if first != here:
        return
    if more:
        os.environ["PYTHONPATH"] = "" if original == here else original
    else:
        del os.environ["PYTHONPATH"]
    # What C functions see, and programs that are started without an environment of their own.
    os.putenv("PYTHONPATH", inherited)


def _is_helper() -> bool:
    """Whether this interpreter runs no program of the user's: mempool itself, or multiprocessing's bookkeeper."""
    what = _what_runs()
    return os.path.basename(what) in _OURS or what.startswith(_BOOKKEEPER)


def _what_runs() -> str:
    """The script, the module after -m, or the code after -c; empty when there is none of these."""
    arguments: list[str] = getattr(sys, "orig_argv", [])
    words = iter(arguments[1:])
    for word in words:
        if word == "-" or not word.startswith("-"):
            return word
        if word == "--check-hash-based-pycs":
            next(words, "")
        if word.startswith("--"):
            continue
        for at, letter in enumerate(word):
            if letter in "cmWX":
                value: str = word[at + 1 :] or next(words, "")
                if letter in "cm":
                    return value
                break
    return ""


def _in_main_interpreter() -> bool:
    try:
        import _xxsubinterpreters as interpreters  # type: ignore[import-not-found]
    except ImportError:
        import _thread

        is_main = getattr(_thread, "_is_main_interpreter", None)
        return is_main is None or bool(is_main())
    return bool(interpreters.get_current() == interpreters.get_main())


def _join() -> None:
    try:
        from mempool_cli.agent import join

        join()
    except Exception as error:
        _report("failed\n", os.environ.get("MEMPOOL_AGENT_SIGN_UP", ""))
        words = str(error).splitlines() or [""]
        line = f"mempool: no agent in this interpreter ({sys.executable}): {type(error).__name__}: {words[0]}\n"
        _write(2, line)


def _report(line: str, file: str) -> None:
    try:
        fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    except OSError:
        return
    _write(fd, line)
    os.close(fd)


def _write(fd: int, line: str) -> None:
    try:
        os.write(fd, line.encode("utf-8", "replace"))
    except OSError:
        pass


_leave_the_path()
if os.environ.get("MEMPOOL_AGENT") and not _is_helper() and _in_main_interpreter():
    _join()

# The module that this one shadows runs in its place; when there is none, or it fails, that is as without us.
sys.modules.pop("sitecustomize", None)
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
