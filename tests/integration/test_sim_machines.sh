#!/bin/sh
# SPDX-License-Identifier: MIT
# Programs on simulated GPUs that have nothing to do with each other have GPUs of their own, by UUID. The processes of one
# job have the same ones, also where each rank was started by itself, and so have those that share devices by name.
#   test_sim_machines.sh BUILD
# Run: script
set -u
build=$(cd "${1:?usage: test_sim_machines.sh BUILD}" && pwd)
gpuprof=$build/bin/gpuprof
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
unset GPUPROF_SIM_MACHINE RANK WORLD_SIZE
passed=0 failed=0

check() { # WHAT STATUS
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED  $1"; fi
}

# The UUIDs that two runs record, one a line. A run's arguments are: SPEC COMMAND...
uuids() {
    for file in "$@"; do
        "$gpuprof" report --json "$file" 2>/dev/null | sed -n 's/.*"uuid": "\(GPU-[^"]*\)".*/\1/p'
    done | sort -u
}
run() { # FILE SPEC
    "$gpuprof" run "--sim=$2" --record="$1" --force -- "$build/examples/train_rt" --steps 2 --pace 0 >out 2>&1 || cat out
}

run a.gpuprof devices=2
run b.gpuprof devices=2
check "two programs have different GPUs" $(($(uuids a.gpuprof b.gpuprof | wc -l) != 2))

"$gpuprof" run --sim --record='c.%p.gpuprof' -- sh -c "'$build/examples/train_rt' --steps 2 --pace 0; '$build/examples/train_rt' --steps 2 --pace 0" >out 2>&1
check "the processes of one program have the same" $(($(ls c.*.gpuprof | wc -l) != 2 || $(uuids c.*.gpuprof | wc -l) != 1))

for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "$gpuprof" run --sim --record=d.gpuprof -- \
        "$build/examples/train_rt" --steps 2 --pace 0 >out 2>&1
done
check "ranks that were started one by one have the same" $(($(ls d.rank?.gpuprof | wc -l) != 2 || $(uuids d.rank?.gpuprof | wc -l) != 1))

run e.gpuprof "shared=machines-$$"
run f.gpuprof "shared=machines-$$"
run g.gpuprof "shared=others-$$"
check "devices that are shared by name are the same" $(($(uuids e.gpuprof f.gpuprof | wc -l) != 1))
check "devices of another name are others" $(($(uuids e.gpuprof g.gpuprof | wc -l) != 2))

for i in 1 2; do
    "$gpuprof" run --sim -- sh -c "echo \$\$ >pid$i; exec '$build/examples/train_rt' --steps 100000 --pace 50" >/dev/null 2>&1 &
done
tries=0
until [ -s pid1 ] && [ -s pid2 ] && [ "$("$gpuprof" top -1 -p "$(cat pid1),$(cat pid2)" 2>/dev/null | grep -c 'live .*train_rt')" = 2 ] ||
    [ $tries = 200 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
"$gpuprof" top -1 -p "$(cat pid1),$(cat pid2)" --by=device >out 2>&1
check "top does not add up what two programs hold" $(($(grep -c '1 process' out) != 2))
kill "$(cat pid1)" "$(cat pid2)"
wait

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
