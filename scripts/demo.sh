#!/bin/sh
# The main job, on a simulated machine: who may access what, change it, look again.
# Needs `mempool` on PATH. Leaves nothing behind: no session, no file.
set -eu

# The user's own settings would change what is shown.
for name in $(env | sed -n 's/^\(MEMPOOL_[A-Za-z0-9_]*\)=.*/\1/p'); do
    unset "$name"
done
unset CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER

# Not TMPDIR: a socket's path has to be short.
MEMPOOL_RUNTIME_DIR=$(mktemp -d /tmp/mempool-demo.XXXXXX)
export MEMPOOL_RUNTIME_DIR

stopped=
finish() {
    trap '' HUP INT PIPE TERM
    if [ -z "$stopped" ]; then
        mempool --sim dgx-h200 session stop >/dev/null 2>&1 ||
            mempool --sim dgx-h200 session stop --kill >/dev/null 2>&1 || :
    fi
    rm -rf "$MEMPOOL_RUNTIME_DIR"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 141' PIPE
trap 'exit 143' TERM

show() {
    printf '$ mempool --sim dgx-h200 %s\n' "$*"
    mempool --sim dgx-h200 "$@" </dev/null
    printf '\n'
}

show devices
show create 0 --name train
show grant train --to 1 2
show grant 0 --to 1-3
show probe --matrix
show revoke train --from 1
show probe train
show destroy train
show session stop
stopped=1

cat <<'END'
All of this was simulated (--sim dgx-h200): no GPU was asked or changed.
On a machine with GPUs, the same without --sim: .venv/bin/mempool probe --matrix
END
