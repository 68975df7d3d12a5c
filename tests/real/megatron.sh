#!/bin/bash
# SPDX-License-Identifier: MIT
# Megatron-LM's own functional tests in a dry run of a job of 4 to 768 GPUs, of which one or two ranks run: the allocated bytes and
# their peak that its last rank logs are those that NVIDIA's CI keeps as golden values, or a few in a thousand beyond (how many is in
# megatron/cases.table).
#
#   GPUPROF_MEGATRON=REPOSITORY tests/real/megatron.sh [BUILD] [CASE...]
#
# REPOSITORY is a clone of NVIDIA/Megatron-LM.  The cases are those of megatron/cases.table.  Apex, flash-attn and NVIDIA's compiled
# softmax are stood in for (megatron/), by what they allocate; the words are made up, of the same number as the test's.  PyTorch comes
# from the index (the row "frameworks" of index.table), or is in the environment $GPUPROF_TORCH_ROOT; without one of them the test is
# skipped (exit status 77).  It needs a C++ compiler.  Transformer Engine is NVIDIA's own, built by megatron/engine; where that fails,
# the cases that use it are skipped.
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
shift
commit=d98e8a64ddf34856e74b24714e3bedb2f5a39553
tests=tests/functional_tests/test_cases
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
export TORCH_CUBLAS_WORKSPACE_CACHE=1 TORCHINDUCTOR_COMPILE_THREADS=1 OMP_NUM_THREADS=1

# A part of a test's description as lines of names and values.
part() { # CASE NAME
    clone show "$commit:$tests/$1/model_config.yaml" | awk -v part="$2:" '
        /^[A-Z]/ { on = $1 == part; next }
        on && NF && $1 !~ /^#/ { key = $1; sub(/:$/, "", key); sub(/^[^:]*: */, ""); sub(/ +#.*/, ""); gsub(/"/, ""); print key, $0 }'
}
# The arguments of a test, one a line, without those of files and of steps.
arguments() { # CASE
    part "$1" MODEL_ARGS | while read -r key value; do
        [[ ! $key =~ ^--((save|load|data|fim|ckpt|dist-ckpt|async|use-persistent|use-checkpoint|verify|wandb)[-a-z_]*|eval-iters|exit-interval|vocab-size|vocab-file|merge-file|tokenizer-type|tokenizer-model|mock-data|tensorboard-dir|train-iters|train-samples|lr-decay-samples|lr-warmup-samples|step-batch-size-schedule)$ ]] ||
            continue
        echo "$key"
        case $key:$value in
            --hierarchical-context-parallel-sizes:*) echo "$value" | tr -d '[]' | tr ' ' '\n' ;;
            *:true) ;;
            *) echo "$value" ;;
        esac
    done
}

engine=
passed=0 failed=0 skipped=0
while read -r name gpu goldens world ranks iterations overflows words limit more; do
    [[ $name != \#* && -n $name ]] || continue
    [[ $name = */* ]] || name=gpt/$name
    [ $# = 0 ] || [[ " $* " = *" ${name#gpt/} "* ]] || continue
    mapfile -t options < <(arguments "$name")
    mapfile -t environment < <(part "$name" ENV_VARS | tr ' ' '=')
    extra=()
    for word in $more; do
        if [[ $word =~ ^[A-Z_]+= ]]; then environment+=("$word"); else extra+=("$word"); fi
    done
    path=$PYTHONPATH
    # Of experts, the router multiplies by Transformer Engine too.
    if [[ $name = moe/* || " ${options[*]} " = *" --transformer-impl transformer_engine "* ]]; then
        [ -n "$engine" ] || engine=$(tests/real/megatron/engine "$root" </dev/null) || engine="- $(echo "$engine" | tail -n 1)"
        if [[ $engine = -* ]]; then
            skipped=$((skipped + 1))
            echo "skipped $name, $gpu: $engine"
            continue
        fi
        path=$engine:$PWD/tests/real/megatron/beside-engine:$path
        environment+=(CURAND_HOME="$engine/nvidia/cu13") # the only library that PyTorch does not bring
    fi
    env "${environment[@]}" PYTHONPATH="$path" MEGATRON_SKIP="$overflows" timeout -k 10 1500 "$build/bin/gpuprof" dryrun --gpu="$gpu" --json \
        --world="$world" --ranks="$ranks" -- "$root/bin/python3" tests/real/megatron/train.py "$work" "${options[@]}" \
        --train-iters "$iterations" --eval-iters 0 --mock-data --tokenizer-type NullTokenizer --vocab-size "$words" \
        --tensorboard-dir "$work/board" "${extra[@]}" >"$work/json" 2>"$work/error" </dev/null
    status=$?
    for machine in ${goldens//,/ }; do
        clone show "$commit:$tests/$name/golden_values_$machine.json" >"$work/golden.$machine" 2>/dev/null || rm -f "$work/golden.$machine"
    done
    if [ $status = 0 ] && python3 tests/real/megatron/compare.py "$work" $((world - 1)) "$limit" >"$work/out" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $name, $gpu, ranks $ranks of $world"
    else
        failed=$((failed + 1))
        echo "FAILED  $name, $gpu, ranks $ranks of $world: exit $status"
        tail -n 12 "$work/error" | cut -c 1-400
    fi
    [ ! -e "$work/out" ] || cat "$work/out"
    rm -f "$work"/golden.* "$work/out"
done <tests/real/megatron/cases.table
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
