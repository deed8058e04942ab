#!/bin/sh
# Build the wheel and install it into an empty environment outside the checkout, for each Python that is here:
# without a compiler, without the sources, with its man pages.
#
#   wheel.sh PYTHON [PYTHON...]    builds with the first; tries all, or each python3.11 to python3.15 on PATH
set -eu

builder=$1
shift
[ $# -gt 0 ] || set -- python3.11 python3.12 python3.13 python3.14 python3.15

for name in $(env | sed -n 's/^\(MEMPOOL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    unset "$name"
done
unset CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER PYTHONPATH

# Not TMPDIR: a socket's path has to be short.
directory=$(mktemp -d /tmp/mempool-wheel.XXXXXX)
trap 'rm -rf "$directory"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

"$builder" -m pip wheel -qq --no-deps --wheel-dir "$directory" .
wheel=$(echo "$directory"/*.whl)
cd "$directory"
export MEMPOOL_RUNTIME_DIR="$directory/run"

tried=
for python in "$@"; do
    "$python" -c '' 2>/dev/null || continue
    rm -rf venv
    "$python" -m venv venv
    venv/bin/python -m pip install -qq --only-binary :all: "$wheel"
    venv/bin/mempool --sim 4 probe --matrix >matrix
    grep -q '^default:3 .*own$' matrix
    test -f venv/share/man/man1/mempool-probe.1
    if command -v man >/dev/null; then
        MANPATH="$directory/venv/share/man" man -w mempool >/dev/null
    fi
    tried="$tried $("$python" -c 'import platform; print(platform.python_version())')"
done
[ -n "$tried" ] || { echo 'mempool: there is no Python to try the wheel with' >&2; exit 1; }
printf 'mempool: %s works with Python%s\n' "${wheel##*/}" "$tried"
