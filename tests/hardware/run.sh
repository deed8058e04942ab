#!/bin/sh
# All that a machine with two GPUs can tell, in one run of at most nine minutes: sh tests/hardware/run.sh [DIRECTORY]
#
# Each step goes into a file of its own in DIRECTORY (default: hardware-DATE, here), which has to be empty or new;
# summary.txt says what came of them, results.tar.gz has it all. Exit status: 0 as expected, 1 something differs or there
# was no time for it, 2 usage, 3 this machine cannot. PYTHON names the interpreter, in which all packages have to be
# installed: the tests start it without PYTHONPATH. SECONDS_IN_ALL is another limit.
set -u

root=$(cd "$(dirname "$0")/../.." && pwd -P) || exit 2
here=$root/tests/hardware
python=${PYTHON:-python3}
case $python in
/*) ;;
*/*) python=$PWD/$python ;; # the directory changes
esac
all=${SECONDS_IN_ALL:-540}
directory=${1:-hardware-$(date -u +%Y%m%d-%H%M%S)}

# The user's own settings would change what is shown. Of the stand-in driver library this one says where its machine is.
for name in $(env | sed -n 's/^\(MEMPOOL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    case $name in MEMPOOL_STANDIN_SOCKET) ;; *) unset "$name" ;; esac
done
unset PYTORCH_CUDA_ALLOC_CONF
export PYTHONPATH="$root"
with_tests=$root/tests:$root

cannot() {
    echo "run.sh: $1" >&2
    exit 3
}

mempool() {
    "$python" -P -m mempool_cli "$@"
}

missing() {
    "$python" -P - "$@" <<'END'
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        print(name, end=" ")
END
}

lacking=$(missing click msgspec rich junitparser cuda.bindings pytest xdist) || cannot "$python does not run"
[ -z "$lacking" ] || cannot "$python has no $lacking"
found=$(mempool --no-session --format json devices 2>/dev/null </dev/null) || cannot "$(mempool devices 2>&1 </dev/null)"
devices=$(echo "$found" | "$python" -c 'import json, sys; print(len(json.load(sys.stdin)["data"]["devices"]))')

mkdir -p "$directory" && directory=$(cd "$directory" && pwd -P) || exit 2
if [ -n "$(ls -A "$directory")" ]; then
    echo "run.sh: $directory is not empty" >&2
    exit 2
fi

# Not TMPDIR: a socket's path has to be short.
work=$(mktemp -d /tmp/mempool-run.XXXXXX) || exit 2
mkdir -m 700 "$work/sessions"
export MEMPOOL_RUNTIME_DIR="$work/sessions"
child=
finish() {
    trap '' HUP INT PIPE TERM
    if [ -n "$child" ]; then
        kill "$child" 2>/dev/null
        wait "$child"
    fi
    mempool session stop >/dev/null 2>&1 || mempool session stop --kill >/dev/null 2>&1
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 141' PIPE
trap 'exit 143' TERM

# --- steps ---

began=$(date +%s)
number=0
differs=0
line='%-32s %-7s %-9s %7s  %s\n'
# shellcheck disable=SC2059
printf "$line" step exit expected seconds verdict | tee "$directory/summary.txt"

record() { # EXIT EXPECTED SECONDS VERDICT
    # shellcheck disable=SC2059
    printf "$line" "${file%.txt}" "$@" | tee -a "$directory/summary.txt"
}

begin() { # NAME
    number=$((number + 1))
    file=$(printf '%02d-%s.txt' "$number" "$1")
}

not_run() { # NAME REASON
    begin "$1"
    echo "# not run: $2" >"$directory/$file"
    record - - - "not run: $2"
}

# Leaves the exit status in $status, empty for a step that was not run.
step() { # NAME EXPECTED LIMIT COMMAND...
    name=$1 expected=$2 limit=$3 status=
    shift 3
    start=$(date +%s)
    left=$((began + all - start))
    if [ "$left" -lt 5 ]; then
        not_run "$name" "the $all s are over"
        differs=1
        return
    fi
    begin "$name"
    [ "$limit" -le "$left" ] || limit=$left
    echo "$ $*" >"$directory/$file"
    # In the background, so that a signal does not wait for its end.
    timeout -k 5 "$limit" "$@" </dev/null >>"$directory/$file" 2>&1 &
    child=$!
    wait "$child"
    status=$?
    child=
    seconds=$(($(date +%s) - start))
    printf '\n# exit status %s, %s s\n' "$status" "$seconds" >>"$directory/$file"
    case "|$expected|" in
    *"|$status|"*) verdict=ok ;;
    *) verdict=differs differs=1 ;;
    esac
    record "$status" "$expected" "$seconds" "$verdict"
}

mempool_step() { # NAME EXPECTED LIMIT ARGUMENTS...
    name=$1 expected=$2 limit=$3
    shift 3
    step "$name" "$expected" "$limit" "$python" -P -m mempool_cli "$@"
}

needs_two() { # NAME, and a command that makes the step
    if [ "$devices" -ge 2 ]; then
        shift
        "$@"
    else
        not_run "$1" "needs 2 devices, this machine has $devices"
    fi
}

bug() { # NAME EXPECTED: the proof, and the same in C
    status=
    mempool_step "repro-$1" "$2" 90 repro "$1" --report "$directory/$1.json" --emit-c "$directory/$1.c"
    proved=$status
    if [ -z "$compiler" ] || [ -z "$cuda_h" ]; then
        not_run "repro-$1-c" "no C compiler, or no cuda.h"
    elif [ ! -s "$directory/$1.c" ]; then
        not_run "repro-$1-c" "no C program was written"
    else
        # shellcheck disable=SC2016
        step "repro-$1-c" "$proved" 90 sh -c 'cc -isystem "$1" "$2" -l:libcuda.so.1 -o "$3" && exec "$3"' \
            sh "$cuda_h" "$directory/$1.c" "$work/$1"
    fi
}

compiler=$(command -v cc)
cuda_h=$("$python" - "${CUDA_HOME:-/usr/local/cuda}/include" <<'END'
import pathlib, sys
beside = (file for path in sys.path if path for file in pathlib.Path(path).glob("nvidia/*/include/cuda.h"))
found = [file for file in (pathlib.Path(sys.argv[1], "cuda.h"), *beside) if file.exists()]
print(found[0].parent if found else "")
END
)

# --- the run: first what only this machine can say ---

mempool_step doctor 0 60 doctor -v
mempool_step devices 0 30 devices
needs_two grant mempool_step grant 0 30 grant 0 --to 1
mempool_step probe 0 30 probe --matrix
needs_two revoke mempool_step revoke 0 30 revoke 0 --from 1
mempool_step session-stop '0|5' 30 session stop
cd "$root" || exit 2
# shellcheck disable=SC2046
step contract 0 240 "$python" -m pytest -p no:cacheprovider -p no:benchmark -m 'gpu or gpu2' -n 0 -v -rsfE --durations 10 \
    $(grep -rlE --include='test_*.py' 'mark\.gpu2?\b' tests)
if [ "$status" = 0 ] && ! grep -q '^=.* passed' "$directory/$file"; then
    differs=1
    record "$status" - - "differs: every test was skipped"
fi
needs_two questions step questions 0 180 env PYTHONPATH="$with_tests" "$python" "$here/questions.py"
step questions-host 0 120 env PYTHONPATH="$with_tests" "$python" "$here/questions.py" --owner host --accessor 0
if [ "$devices" -ge 2 ]; then bug recycled-handle '0|1'; else bug recycled-handle 6; fi
needs_two repro-peer-write-lost bug peer-write-lost '0|1'
bug host-pool-revoke 0
bug pointer-flags 1
bug owner-in-batch 0
bug use-after-destroy 0
bug query-breaks-capture 0
bug grant-without-p2p '0|6'
mempool_step verify 0 120 verify --host --allow-faults -v --report "$directory/verify.json"
mempool_step check 0 120 check --data --allow-skips -v --junit "$directory/check.xml"
mempool_step snapshot 0 60 snapshot -o "$directory/snapshot.json"
if [ -z "$(missing torch)" ]; then
    step exec 0 120 "$python" "$here/watch_torch.py"
else
    not_run exec "PyTorch is not installed"
fi
step bench 0 240 env PYTHONPATH="$with_tests" "$python" benchmarks/bench.py --hardware --rounds 3

tar -C "$directory" -czf "$work/results.tar.gz" . && mv "$work/results.tar.gz" "$directory/results.tar.gz"
echo "in $directory: $(ls "$directory" | wc -l) files, all in results.tar.gz too"
exit "$differs"
