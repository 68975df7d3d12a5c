#!/bin/bash
# SPDX-License-Identifier: MIT
# Experts in a dry run: what PyTorch computes from the indices of a router on the GPU is what it computes of them on the host, and
# each expert gets as many words as the others, or with --imbalance=F the first 1/F of them get all.
#
#   tests/real/routing.sh [BUILD]
#
# The packages come from the index (the row "frameworks" of index.table), or are in the environment $GPUPROF_TORCH_ROOT; without them
# the test is skipped (exit status 77).
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || root=$(tests/real/index frameworks) || { echo "$root" | tail -n 1; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

check() { # NAME STATUS
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
        echo "ok      $1"
    else
        failed=$((failed + 1))
        echo "FAILED  $1"
        tail -n 8 "$work/out" | cut -c 1-300
    fi
}

dry() { # OPTION... -- SCRIPT...: its output and the answer go to $work/out
    timeout -k 10 600 "$build/bin/gpuprof" dryrun --gpu=h100-80g "$@" >"$work/out" 2>&1 </dev/null
}

dry -- "$root/bin/python3" tests/real/routing/values.py && grep -q '^equal$' "$work/out"
check "what follows from a top-k is the same on the GPU and on the host" $?
dry --imbalance=4 -- "$root/bin/python3" tests/real/routing/values.py 4 && grep -q '^equal$' "$work/out"
check "with --imbalance=4 a quarter of the candidates is taken" $?

for ranks in 0 all; do
    dry --world=2 --ranks=$ranks -- "$root/bin/python3" tests/real/routing/exchange.py && grep -q '^equal$' "$work/out"
    check "what ranks exchange of it, of two ranks $ranks" $?
done
dry -- "$root/bin/python3" tests/real/routing/places.py && grep -q '^all$' "$work/out"
check "each expert gets as many words wherever a program calls its router" $?
dry -- "$root/bin/python3" tests/real/routing/unchanged.py && sed '/^  GPU /,$d' "$work/out" >"$work/without" && [ -s "$work/without" ] &&
    dry -- "$root/bin/python3" tests/real/routing/unchanged.py topk && sed '/^  GPU /,$d' "$work/out" >"$work/with" &&
    diff "$work/without" "$work/with" >"$work/out"
check "a top-k changes no memory, type or number of what does not follow from it" $?
dry -- "$root/bin/python3" tests/real/routing/flat.py && grep -q '^flat$' "$work/out"
check "the memory of the host does not grow with the steps" $?

for factor in 1 2; do
    dry --imbalance=$factor -- "$root/bin/python3" tests/real/routing/mixtral.py
    experts=$((8 / factor)) peak=$(sed -n 's/^peak //p' "$work/out")
    # Each expert that has words multiplies twice.
    wanted=$(for ((i = 0; i < 2 * experts; i++)); do printf ' %d' $((4096 / experts)); done)
    grep -q "^words$wanted$" "$work/out" && grep -q 'assumed *torch: .*expert' "$work/out"
    check "Mixtral, --imbalance=$factor: $((4096 / experts)) words for each of $experts experts, peak $peak" $?
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
