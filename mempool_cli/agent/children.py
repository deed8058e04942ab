"""Child interpreters get agents too: our directory stays first in the PYTHONPATH with which they are started.

The program does not see it there (see site/sitecustomize.py), so what it passes on itself lacks it: an assignment to
os.environ, or a copy of os.environ, as torchrun makes. An environment that has none of our variables is left alone.
"""

from __future__ import annotations

import _posixsubprocess
import os
import sys

from mempool_cli.agent.orders import NAME, SITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAME = os.fsencode(NAME)
_PATH = b"PYTHONPATH"
_ENVIRONMENT = 5  # the position of fork_exec's argument, from Python 3.2 to 3.14


def hand_on() -> None:
    """From now on, children of this process are started with our directory in their path. Once a process."""
    _hand_on_what_c_sees()
    _hand_on_lists()
    _hand_on_mappings()


def path_with_agent(path: str | None) -> str:
    """PYTHONPATH with our directory first. An empty path, which is not the same as none, has it twice."""
    if path is None or path.split(os.pathsep)[0] == SITE:
        return path or SITE
    return os.pathsep.join([SITE, path or SITE])


def _hand_on_what_c_sees() -> None:
    """What os.environ passes to C's environment, which os.system, os.execv and C functions pass on."""
    putenv, unsetenv = os.putenv, os.unsetenv

    def putenv_with_agent(name: Any, value: Any, /) -> None:
        ours = os.fsencode(name) == _PATH
        putenv(name, path_with_agent(os.fsdecode(value)) if ours else value)

    def unsetenv_with_agent(name: Any, /) -> None:
        if os.fsencode(name) == _PATH:
            putenv(name, SITE)
        else:
            unsetenv(name)

    os.putenv, os.unsetenv = putenv_with_agent, unsetenv_with_agent


def _hand_on_lists() -> None:
    """What subprocess and multiprocessing pass on when they are given an environment."""
    fork_exec = _posixsubprocess.fork_exec

    def fork_exec_with_agent(*arguments: Any) -> int:
        environment = arguments[_ENVIRONMENT]
        if environment is not None:
            arguments = (*arguments[:_ENVIRONMENT], _listed(environment), *arguments[_ENVIRONMENT + 1 :])
        return fork_exec(*arguments)

    # subprocess takes it from there when it is imported, which is after us unless some .pth file was first.
    _posixsubprocess.fork_exec = fork_exec_with_agent
    subprocess: Any = sys.modules.get("subprocess")
    if getattr(subprocess, "_fork_exec", None) is fork_exec:
        subprocess._fork_exec = fork_exec_with_agent


def _hand_on_mappings() -> None:
    """What the functions of os pass on that take an environment."""
    execve: Any = os.execve
    posix_spawn: Any = os.posix_spawn
    posix_spawnp: Any = os.posix_spawnp

    def execve_with_agent(path: Any, argv: Any, env: Any) -> Any:
        return execve(path, argv, _mapped(env))

    def posix_spawn_with_agent(path: Any, argv: Any, env: Any, /, **options: Any) -> Any:
        return posix_spawn(path, argv, _mapped(env), **options)

    def posix_spawnp_with_agent(path: Any, argv: Any, env: Any, /, **options: Any) -> Any:
        return posix_spawnp(path, argv, _mapped(env), **options)

    if execve in os.supports_fd:
        os.supports_fd.add(execve_with_agent)
    os.execve = execve_with_agent
    os.posix_spawn = posix_spawn_with_agent
    os.posix_spawnp = posix_spawnp_with_agent


def _listed(environment: Any) -> Any:
    pairs = [bytes(entry).partition(b"=") for entry in environment]
    variables = {name: value for name, _, value in pairs}
    if _NAME not in variables:
        return environment
    return [name + b"=" + value for name, value in _with_path(variables).items()]


def _mapped(environment: Any) -> Any:
    if not hasattr(environment, "items"):
        return environment
    variables = {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
    return _with_path(variables) if _NAME in variables else environment


def _with_path(variables: dict[bytes, bytes]) -> dict[bytes, bytes]:
    path = variables.get(_PATH)
    return {**variables, _PATH: os.fsencode(path_with_agent(None if path is None else os.fsdecode(path)))}
