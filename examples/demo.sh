#!/bin/sh
# SPDX-License-Identifier: MIT
# `make demo`: runs two training loops, a server and a program that leaks on two simulated GPUs, and shows them with
# gpuprof.  On a terminal it shows the live view (q quits, r resets a peak), elsewhere the same as plain text.
set -eu
build=${1:-build}
bin=$build/bin/gpuprof
examples=$build/examples
seconds=${DEMO_SECONDS:-600}
pids=
stop() {
    for pid in $pids; do kill "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
}
trap stop EXIT INT TERM
[ -t 1 ] || seconds=8
start() { # VISIBLE-DEVICES OPTIONS PROGRAM: the first visible device is the one that it uses
    # shellcheck disable=SC2086 # lists of words
    CUDA_VISIBLE_DEVICES=$1 "$bin" run --sim=devices=2,memory=24GiB $2 -- "$examples/"$3 --seconds "$seconds" >/dev/null &
    pids="$pids $!"
}
start 0,1 "" "serve --pace 0"
start 0,1 "" "leak_rt --pace 20"
start 0,1 --allocator=pytorch "train_rt --pace 1"
start 1,0 "" "train_rt --pace 1"
sleep 1
# A container has no locale, and without UTF-8 the bars are made of signs.
case ${LC_ALL:-${LC_CTYPE:-${LANG:-}}} in
*[Uu][Tt][Ff]*) ;;
*) export LC_ALL=C.UTF-8 ;;
esac
if [ -t 0 ] && [ -t 1 ]; then
    "$bin" top
    cat <<END
Try next, with a program of yours in place of the example:
  $bin run --sim --record=train.gpuprof -- $examples/train_rt --steps 40
  $bin report train.gpuprof -o report.html
END
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
