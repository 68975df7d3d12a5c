#!/bin/sh
# SPDX-License-Identifier: MIT
# Programs under other tools while an agent has its breakpoint at the probe: Valgrind would run it by itself.
#   test_beside_agent.sh BUILD
# Run: script
set -u
build=$(cd "${1:?usage: test_beside_agent.sh BUILD}" && pwd)
gpuprof=$build/bin/gpuprof
if [ "${2:-}" != inside ]; then # a BPF file system of our own
    unshare --mount true 2>/dev/null || { echo "skipped: no mount namespace"; exit 77; }
    exec unshare --mount "$0" "$build" inside
fi
work=$(mktemp -d) || exit 1
agent=
trap '[ -z "$agent" ] || { kill "$agent"; wait "$agent"; } 2>/dev/null; umount "$work/bpf" 2>/dev/null; rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0 failed=0 skipped=0

check() { # WHAT STATUS
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED  $1" && tail -5 out; fi
}

mkdir bpf && mount -t bpf bpf bpf 2>/dev/null || { echo "skipped: no BPF file system"; exit 77; }
"$gpuprof" agent --pins bpf/g --no-discover --library "$build/lib/libgpuprof.so" >agent 2>&1 &
agent=$!
tries=0
until grep -q ready agent; do
    kill -0 "$agent" 2>/dev/null && [ $tries -lt 600 ] || { echo "skipped: no agent here" && tail -2 agent && exit 77; }
    tries=$((tries + 1))
    sleep 0.1
done

"$gpuprof" run --sim -- "$build/examples/train_rt" --steps 3 --pace 0 >out 2>&1
check "a program beside an agent" $?
if command -v valgrind >/dev/null; then
    "$gpuprof" run --sim -- valgrind -q "$build/examples/train_rt" --steps 3 --pace 0 >out 2>&1
    check "Valgrind beside an agent" $?
    "$gpuprof" run --sim -- \
        sh -c "echo \$\$ >pid; exec valgrind -q '$build/examples/train_rt' --steps 100000 --pace 50" >out 2>&1 &
    run=$! tries=0
    until [ -s pid ] && "$gpuprof" stat -p "$(cat pid)" 2>/dev/null | grep -q 'trouble: Valgrind runs this program' ||
        [ $tries = 100 ]; do
        tries=$((tries + 1))
        sleep 0.2
    done
    [ $tries != 100 ]
    check "stat says that no agent counts it" $?
    kill "$(cat pid)"
    wait "$run"
else
    echo "skipped: no Valgrind"
    skipped=2
fi
if command -v gdb >/dev/null; then
    "$gpuprof" run --sim -- gdb -q -batch -ex run -ex 'p $_exitcode' --args "$build/examples/train_rt" --steps 3 --pace 0 \
        >out 2>&1
    grep -q '^\$1 = 0' out
    check "gdb beside an agent" $?
else
    echo "skipped: no gdb"
    skipped=$((skipped + 1))
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
