#!/bin/bash
# SPDX-License-Identifier: MIT
# Megatron-LM's own functional tests in a dry run of one job of 8 GPUs, of which one or two ranks run: the allocated bytes and their
# peak that its last rank logs are those that NVIDIA's CI keeps as golden values, or at most 0.1 % beyond (0.2 in
# one).
#
#   GPUPROF_MEGATRON=REPOSITORY tests/real/megatron.sh [BUILD] [CASE...]
#
# REPOSITORY is a clone of NVIDIA/Megatron-LM.  The cases are those of megatron/cases.table.  Apex and NVIDIA's compiled softmax are
# stood in for (megatron/), by what they allocate; the words are made up, of the same number as GPT-2's.  PyTorch comes from the
# index (the row "frameworks" of index.table), or is in the environment $GPUPROF_TORCH_ROOT; without one of them the test is skipped
# (exit status 77).  It needs a C++ compiler.
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
shift
commit=d98e8a64ddf34856e74b24714e3bedb2f5a39553
tests=tests/functional_tests/test_cases/gpt
[ -n "${GPUPROF_MEGATRON:-}" ] || { echo "megatron.sh: GPUPROF_MEGATRON names no clone of NVIDIA/Megatron-LM"; exit 77; }
clone() { git -C "$GPUPROF_MEGATRON" "$@"; }
clone cat-file -e "$commit^{commit}" 2>/dev/null || { echo "megatron.sh: $GPUPROF_MEGATRON: no commit $commit"; exit 77; }
root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || root=$(tests/real/index frameworks) || { echo "$root" | tail -n 1; exit 77; }
parts=$(tests/real/index megatron) || { echo "$parts" | tail -n 1; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
clone archive "$commit" megatron pretrain_gpt.py gpt_builders.py model_provider.py | tar -x -C "$work" || exit 1
PYTHONPATH=$(echo "$parts"/lib/python3*/site-packages)
export PYTHONPATH
# As Megatron-LM's Makefile does it, with this Python.
# shellcheck disable=SC2046 # a list of words
c++ -O1 -shared -std=c++17 -fPIC $("$root/bin/python3" -m pybind11 --includes) "$work/megatron/core/datasets/helpers.cpp" -o \
    "$work/megatron/core/datasets/helpers_cpp$("$root/bin/python3" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')" ||
    exit 1

# The tests' own environment; and one cuBLAS workspace a stream that stays, as in the PyTorch of NVIDIA's containers.
export CUDA_DEVICE_MAX_CONNECTIONS=1 NVTE_ALLOW_NONDETERMINISTIC_ALGO=0 NCCL_ALGO=Ring CUBLAS_WORKSPACE_CONFIG=:4096:8
export TORCH_CUBLAS_WORKSPACE_CACHE=1 TORCHINDUCTOR_COMPILE_THREADS=1 OMP_NUM_THREADS=1

# The arguments of a test, without those of files and of steps.
arguments() { # CASE
    clone show "$commit:$tests/$1/model_config.yaml" | awk '
        /^MODEL_ARGS/ { on = 1; next }
        /^[A-Z]/ { on = 0 }
        on && NF {
            key = $1
            sub(/:$/, "", key)
            if (key !~ /^--((save|load|data|ckpt|dist-ckpt|async|use-persistent|use-checkpoint|verify)[-a-z_]*|eval-iters|vocab-file|merge-file|tensorboard-dir|train-iters)$/)
                print key, $2 == "true" ? "" : $2
        }'
}

passed=0 failed=0
while read -r name ranks iterations skipped limit; do
    [[ $name != \#* && -n $name ]] || continue
    [ $# = 0 ] || [[ " $* " = *" $name "* ]] || continue
    # shellcheck disable=SC2046 # a list of words
    MEGATRON_SKIP=$skipped timeout -k 10 900 "$build/bin/gpuprof" dryrun --gpu=h100-80g --json --world=8 --ranks="$ranks" -- \
        "$root/bin/python3" tests/real/megatron/train.py "$work" $(arguments "$name") --train-iters "$iterations" --eval-iters 0 \
        --mock-data --tokenizer-type NullTokenizer --vocab-size 50257 --tensorboard-dir "$work/board" >"$work/json" 2>"$work/error" \
        </dev/null
    status=$?
    for machine in dev_dgx_a100 dev_dgx_h100 dev_dgx_gb200 lts_dgx_a100; do
        clone show "$commit:$tests/$name/golden_values_$machine.json" >"$work/golden.$machine" 2>/dev/null || rm -f "$work/golden.$machine"
    done
    if [ $status = 0 ] && python3 tests/real/megatron/compare.py "$work" "$limit" >"$work/out" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $name, ranks $ranks of 8"
    else
        failed=$((failed + 1))
        echo "FAILED  $name, ranks $ranks of 8: exit $status"
        tail -n 12 "$work/error" | cut -c 1-400
    fi
    [ ! -e "$work/out" ] || cat "$work/out"
    rm -f "$work"/golden.* "$work/out"
done <tests/real/megatron/cases.table
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
