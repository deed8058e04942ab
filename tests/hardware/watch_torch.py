"""A PyTorch program under `mempool exec`, looked at and changed from outside; prints all that a user would see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MEMPOOL = [sys.executable, "-P", "-m", "mempool_cli"]
PROGRAM = [sys.executable, str(Path(__file__).with_name("torch_program.py"))]
ALLOCATOR = {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}


def mempool(*arguments: str) -> bool:
    """Runs a command about the program; whether it succeeded."""
    print(f"$ mempool --session torch {' '.join(arguments)}", flush=True)
    return subprocess.run([*MEMPOOL, "--session", "torch", *arguments], check=False).returncode == 0


def main() -> int:
    """0 when each command and the program ended so."""
    command = [*MEMPOOL, "exec", "--name", "torch", "--", *PROGRAM]
    environment = {**os.environ, **ALLOCATOR}
    print("$ mempool exec --name torch -- python torch_program.py", flush=True)
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            print(program.stdout.readline(), end="", flush=True)
            good = [mempool("probe", "--matrix"), mempool("list")]
            print("\n", end="", file=program.stdin, flush=True)
            print(program.stdout.readline(), end="", flush=True)
            # PyTorch grants the access that its copies need.
            good += [mempool("probe", "--matrix")]
            good += [mempool("create", "host", "--name", "staging", "--to", "all"), mempool("probe", "--matrix")]
            good += [mempool("session", "stop")]
            print(program.communicate("\n")[0], end="", flush=True)
        except BaseException:
            program.kill()
            raise
    return int(not all(good) or program.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
