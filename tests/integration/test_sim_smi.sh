#!/bin/sh
# SPDX-License-Identifier: MIT
# nvidia-smi on the simulated GPU: found in PATH by programs that run there, with the numbers of the simulated driver.
#   test_sim_smi.sh BUILD
# Run: script
set -u
build=$(cd "${1:?usage: test_sim_smi.sh BUILD}" && pwd)
gpuprof=$build/bin/gpuprof
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
passed=0 failed=0

check() { # WHAT STATUS
    if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)) && echo "FAILED  $1" && cat out; fi
}

smi() { "$gpuprof" run --sim=gpu=h100-80g,devices=2 -- nvidia-smi "$@" >out 2>&1; }

smi --help
check "it is there" $?
smi -L
check "two GPUs" $(($(grep -c '^GPU [01]: NVIDIA H100 80GB HBM3 (UUID: GPU-[-0-9a-f]*)$' out) != 2))
smi --query-gpu=index,name,memory.total --format=csv
printf 'index, name, memory.total [MiB]\n0, NVIDIA H100 80GB HBM3, 81079 MiB\n1, NVIDIA H100 80GB HBM3, 81079 MiB\n' | cmp -s - out
check "a query as CSV" $?
smi -i 1 --query-gpu=index,utilization.gpu --format=csv,noheader,nounits
[ "$(cat out)" = "1, 0" ]
check "one GPU, without header and units" $?
smi -i 0,1 --query-gpu=index --format=csv,noheader
[ "$(cat out)" = "0
1" ]
check "two GPUs by a list" $?
for no in 2 1,2 GPU-none x; do
    smi -i $no --query-gpu=index --format=csv
    [ $? = 6 ] && [ "$(cat out)" = "No devices were found" ]
    check "-i $no: a GPU that is not there" $?
done
cat >one.sh <<'END'
uuid=$(nvidia-smi -L | sed -n 's/^GPU 1: .*UUID: \(.*\))/\1/p')
bus=$(nvidia-smi -i 1 --query-gpu=pci.bus_id --format=csv,noheader)
[ -n "$uuid" ] && [ -n "$bus" ] && nvidia-smi -i "$uuid" --query-gpu=index --format=csv,noheader &&
    nvidia-smi -i "$bus" --query-gpu=index --format=csv,noheader && nvidia-smi -L -i "$uuid"
END
"$gpuprof" run --sim=devices=2 -- sh one.sh >out 2>&1
[ "$(cut -c1-5 out | tr '\n' ' ')" = "1 1 GPU 1 " ]
check "a GPU by its UUID and its bus" $?
smi --query-gpu=index,no_such_field --format=csv
[ $? = 2 ] && grep -q 'no_such_field' out
check "a field that it does not know" $?

cat >wait.sh <<'END'
"$1/examples/train_rt" --steps 100000 --pace 20 >/dev/null &
train=$! tries=0
until nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader,nounits | grep "^$train, [1-9]" || [ $tries = 100 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
kill $train
[ $tries != 100 ]
END
"$gpuprof" run --sim=shared="smi-$$" -- sh wait.sh "$build" >out 2>&1
check "a process and its memory" $?

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
