#!/bin/sh
# SPDX-License-Identifier: MIT
# `make demo`: runs a training loop and a server on the simulated GPU and shows them with gpuprof.  On a terminal it shows
# the live view (q quits, r resets a peak), elsewhere the same as plain text.
set -eu
bin=${1:-build}/bin/gpuprof
examples=${1:-build}/examples
seconds=${DEMO_SECONDS:-600}
pids=
stop() {
    for pid in $pids; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
}
trap stop EXIT INT TERM
[ -t 1 ] || seconds=8
"$bin" run --sim=devices=2,memory=16GiB -- "$examples/train_rt" --seconds "$seconds" >/dev/null &
pids="$pids $!"
"$bin" run --sim=devices=2,memory=16GiB -- "$examples/serve" --seconds "$seconds" >/dev/null &
pids="$pids $!"
sleep 1
if [ -t 0 ] && [ -t 1 ]; then
    "$bin" top
else
    sleep 1
    # Only the programs of this demo: root would reset those of all users.
    list=
    for pid in $pids; do
        read -r child <"/proc/$pid/task/$pid/children" || true # the line has no end
        list=$list${list:+,}${child% }
    done
    for words in "top --once" "reset --allocated" stat; do
        echo "== gpuprof $words -p $list"
        # shellcheck disable=SC2086 # a list of words
        "$bin" $words -p "$list"
        echo
    done
fi
