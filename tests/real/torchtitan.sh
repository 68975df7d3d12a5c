#!/bin/bash
# SPDX-License-Identifier: MIT
# torchtitan's published benchmark of December 2024 in a dry run: its own code of then trains Llama 3.1 8B on 8 ranks, and the
# memory that it logs and the answer of the dry run agree with each other, and within 2 % with what was measured on 8 H100, without
# torch.compile and with it.
#
#   GPUPROF_TORCHTITAN=REPOSITORY tests/real/torchtitan.sh [BUILD]
#
# REPOSITORY is a clone of pytorch/torchtitan.  The packages come from the index (the row "torchtitan" of index.table), or are in
# the environment $GPUPROF_TORCH_ROOT; without one of them the test is skipped (exit status 77).  It needs 10 GB of memory and,
# beside a load of 25, ten minutes.
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
commit=9dec370ad26b5f8e9a7333a0e36165018262644b
[ -n "${GPUPROF_TORCHTITAN:-}" ] || { echo "torchtitan.sh: GPUPROF_TORCHTITAN names no clone of pytorch/torchtitan"; exit 77; }
root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || root=$(tests/real/index torchtitan) || { echo "$root" | tail -n 1; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git -C "$GPUPROF_TORCHTITAN" ls-tree -r --name-only $commit 2>/dev/null | grep -E '^(torchtitan/.*\.py|train\.py|train_configs/llama3_8b\.toml)$' >"$work/list"
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
sed -e 's#^tokenizer_path.*#tokenizer_path = "./tokenizer.model"#' -e 's/^batch_size = .*/batch_size = 2/' \
    -e 's/^dataset = .*/dataset = "c4_test"/' -e 's/^steps = .*/steps = 3/' -e 's/^warmup_steps = .*/warmup_steps = 1/' \
    -e 's/^log_freq = .*/log_freq = 1/' -e 's/^\(enable_profiling\|enable_tensorboard\) = .*/\1 = false/' \
    train_configs/llama3_8b.toml >train.toml
export HF_HOME=$work/cache HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 OMP_NUM_THREADS=1 TORCHINDUCTOR_COMPILE_THREADS=1
export TORCHINDUCTOR_CACHE_DIR=$work/inductor TRITON_CACHE_DIR=$work/triton PYTHONPATH=$work${PYTHONPATH:+:$PYTHONPATH}
passed=0 failed=0
while read -r compile published; do
    sed -i "s/^compile = .*/compile = $compile/" train.toml
    timeout -k 10 1500 "$build/bin/gpuprof" dryrun --json --gpu=h200 --devices=8 -- "$root/bin/python3" -m torch.distributed.run \
        --nproc-per-node=8 train.py --job.config_file train.toml >json 2>error </dev/null
    status=$?
    if [ $status = 0 ] && python3 - json error "$compile" "$published" >out 2>&1 <<'END'
import json
import re
import sys
answer, published = json.load(open(sys.argv[1])), float(sys.argv[4])
logged = [float(x) for x in re.findall(r"step: +3 .*memory: ([0-9.]+)GiB", open(sys.argv[2]).read())]
here = [(r["reserved_peak_bytes"] - r["assumed_reserved_bytes"]) / 2 ** 30 for r in answer["ranks"]]
print(f"compile = {sys.argv[3]}: {max(here, default=0):.2f} GiB, logged {max(logged, default=0)}, published {published}")
sys.exit(len(here) != 8 or len(logged) != 8 or any(abs(x - logged[0]) > 0.006 for x in here + logged) or
         abs(max(here) - published) > 0.02 * published)
END
    then
        passed=$((passed + 1))
        echo "ok      Llama 3.1 8B on 8 ranks, $(cat out)"
    else
        failed=$((failed + 1))
        echo "FAILED  Llama 3.1 8B on 8 ranks, compile = $compile: exit $status"
        cat out 2>/dev/null
        tail -n 30 error
    fi
done <<'LIST'
false 82.4
true 77.0
LIST
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
