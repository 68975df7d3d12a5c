#!/bin/bash
# SPDX-License-Identifier: MIT
# torchtitan's published benchmarks of December 2024 in a dry run: its own code of then trains Llama 3.1 as one rank of 8, 128 or
# 256, or as one of each stage of a pipeline of 512.  The memory that it logs and the answer of the dry run agree with each other
# (but for symmetric memory, which its log does not count), and within 2 % (pipelines without asynchronous tensor parallel 4 %) with
# what was measured on H100.
#
#   GPUPROF_TORCHTITAN=REPOSITORY tests/real/torchtitan.sh [BUILD] [NAME...]
#
# REPOSITORY is a clone of pytorch/torchtitan; NAME is a row of torchtitan/rows.table.  The packages come from the index (the row
# "torchtitan" of index.table), or are in the environment $GPUPROF_TORCH_ROOT; without one of them the test is skipped (exit status
# 77).  The pipelines need 8 GB of memory, and three minutes each beside a load of 4, with asynchronous tensor parallel 9 minutes of
# processor time; the other rows ten to 40 seconds.
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
shift
own=$PWD/tests/real/torchtitan
commit=9dec370ad26b5f8e9a7333a0e36165018262644b
[ -n "${GPUPROF_TORCHTITAN:-}" ] || { echo "torchtitan.sh: GPUPROF_TORCHTITAN names no clone of pytorch/torchtitan"; exit 77; }
root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || root=$(tests/real/index torchtitan) || { echo "$root" | tail -n 1; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git -C "$GPUPROF_TORCHTITAN" ls-tree -r --name-only $commit 2>/dev/null |
    grep -E '^(torchtitan/.*\.py|train\.py|train_configs/llama3_(8|70|405)b\.toml)$' >"$work/list"
while read -r file; do
    mkdir -p "$work/$(dirname "$file")"
    git -C "$GPUPROF_TORCHTITAN" show "$commit:$file" >"$work/$file" || exit 1
done <"$work/list"
[ -s "$work/train.py" ] || { echo "torchtitan.sh: $GPUPROF_TORCHTITAN: no commit $commit"; exit 77; }
cd "$work" || exit 1

# Llama's words are not free, but their number is known; and texts are made up.
python3 - <<'END'
import base64, itertools, json, os, random
words = itertools.chain.from_iterable(itertools.product(range(256), repeat=n) for n in (1, 2, 3))
with open("tokenizer.model", "w") as file:
    for rank, word in enumerate(itertools.islice(words, 128000)):
        print(base64.b64encode(bytes(word)).decode(), rank, file=file)
made = random.Random(1)
os.makedirs("tests/assets/c4_test")
with open("tests/assets/c4_test/data.json", "w") as file:
    for _ in range(400):
        text = " ".join("".join(made.choices("abcdefghijklmnop", k=made.randint(2, 9))) for _ in range(600))
        print(json.dumps({"text": text}), file=file)
END
export HF_HOME=$work/cache HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 OMP_NUM_THREADS=1 TORCHINDUCTOR_COMPILE_THREADS=1
export PYTHONPATH=$work${PYTHONPATH:+:$PYTHONPATH}
passed=0 failed=0
while read -r name model world ranks batch tensor schedule compile float8 async published limit; do
    [[ $name != \#* && -n $name ]] || continue
    [ $# = 0 ] || [[ " $* " = *" $name "* ]] || continue
    pipeline=1 activations="mode = 'full'"
    [ "$schedule" = - ] || pipeline=8
    [ "$model" != 8b ] || activations="mode = 'selective'"
    # Each row compiles anew: Inductor's cache does not know all settings.
    export TORCHINDUCTOR_CACHE_DIR=$work/inductor/$name TRITON_CACHE_DIR=$work/triton
    sed -e 's#^tokenizer_path.*#tokenizer_path = "./tokenizer.model"#' -e "s/^batch_size = .*/batch_size = $batch/" \
        -e 's/^dataset = .*/dataset = "c4_test"/' -e 's/^steps = .*/steps = 3/' -e 's/^warmup_steps = .*/warmup_steps = 1/' \
        -e 's/^log_freq = .*/log_freq = 1/' -e 's/^\(enable_profiling\|enable_tensorboard\) = .*/\1 = false/' \
        -e "s/^compile = .*/compile = $compile/" -e "s/^tensor_parallel_degree = .*/tensor_parallel_degree = $tensor/" \
        -e '/^enable_async_tensor_parallel/d' -e '/^enable_fsdp_float8/d' -e '/^precompute_float8/d' -e "s/^mode = .*/$activations/" \
        -e "s/^enable_float8_linear = .*/enable_float8_linear = $float8\nenable_fsdp_float8_all_gather = $float8\nprecompute_float8_dynamic_scale_for_fsdp = $float8/" \
        -e "s/^\[experimental\]/&\nenable_async_tensor_parallel = $async/" \
        -e "s/^pipeline_parallel_degree = .*/pipeline_parallel_degree = $pipeline\npipeline_parallel_schedule = \"${schedule/-/1F1B}\"/" \
        "train_configs/llama3_$model.toml" >train.toml
    timeout -k 10 2400 "$build/bin/gpuprof" dryrun --json --gpu=h200 --world="$world" --ranks="$ranks" -- "$root/bin/python3" "$own/run.py" \
        --job.config_file train.toml >json 2>error </dev/null
    status=$?
    if [ $status = 0 ] && python3 "$own/compare.py" "$published" "$limit" >out 2>&1; then
        passed=$((passed + 1))
        echo "ok      $name: $(cat out)"
    else
        failed=$((failed + 1))
        echo "FAILED  $name: exit $status"
        [ ! -e out ] || cat out
        tail -n 30 error | cut -c 1-300
    fi
    rm -f out
done <"$own/rows.table"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
