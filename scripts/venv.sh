#!/bin/sh
# Make the virtual environment DIR, unless it is there and right. The Makefile calls this, with
# an environment that does not mislead pip.
#
#   venv.sh run DIR [REQUIREMENT]    the package and what it needs
#   venv.sh dev DIR [REQUIREMENT]    that, and what linting and testing need
#
# A stamp in DIR, written last, says where DIR was made and from which pyproject.toml. Without
# the right stamp DIR is half made, moved, copied or out of date, and is made again.
set -eu

kind=$1 dir=$2 requirement=${3-}

fail() {
    printf 'mempool: %s\n' "$*" >&2
    exit 1
}

stamp() {
    printf '%s\n' "$(pwd -P)" "$(cksum <pyproject.toml)" "$requirement"
}

stamped() { # KIND
    [ "$(cat "$dir/stamp-$1" 2>/dev/null)" = "$(stamp)" ] && "$dir/bin/python" -I -c '' 2>/dev/null
}

# Inside a virtual environment the interpreter under it: the active one may be what we replace.
about='
import os, sys
if sys.version_info < (3, 11):
    sys.exit(3)
try:
    import ensurepip, venv
except ImportError:
    sys.exit(4)
base = getattr(sys, "_base_executable", None) or sys.executable
print(base if os.access(base, os.X_OK) else sys.executable)
'

# Sets $base. Every candidate is run: a name on PATH may be a shim that only says no.
find_python() {
    lacking=
    for name in ${PYTHON:-python3.15 python3.14 python3.13 python3.12 python3.11 python3}; do
        status=0
        base=$("$name" -I -c "$about" 2>/dev/null </dev/null) || status=$?
        [ "$status" -ne 0 ] || return 0
        [ "$status" -ne 4 ] || lacking=${lacking:-$name}
    done
    [ -z "$lacking" ] || fail "$lacking lacks the venv module (Debian, Ubuntu: apt install python3-venv)"
    fail "needs Python 3.11 or newer, and none of ${PYTHON:-python3.11 to python3.15, python3} on PATH is"
}

# Two makes at once: the second waits, and then finds all done. The lock ends with this script.
if command -v flock >/dev/null 2>&1; then
    exec 9<pyproject.toml
    flock 9
fi

! stamped "$kind" || exit 0

new=
stamped run || new=1
[ -z "$new" ] || find_python

trap 'rm -rf "$dir"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

if [ -n "$new" ]; then
    printf 'mempool: making %s with %s\n' "$dir" "$("$base" --version)"
    rm -rf "$dir"
    "$base" -I -m venv "$dir"
else
    printf 'mempool: adding the development tools to %s\n' "$dir"
    rm -f "$dir/stamp-dev"
fi
case $kind in
run) project=. stamps=run ;;
dev) project='.[dev]' stamps='run dev' ;;
esac
# -qq: errors only.
"$dir/bin/python" -I -m pip install -qq -e "$project" ${requirement:+"$requirement"}

for name in $stamps; do
    stamp >"$dir/stamp-$name"
done
trap - EXIT
