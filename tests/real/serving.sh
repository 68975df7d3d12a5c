#!/bin/bash
# SPDX-License-Identifier: MIT
# What vLLM and SGLang of people's real GPUs wrote to their logs at the start, and what the same servers write in a dry run: the
# number of tokens of the KV cache, as `gpuprof dryrun --json` has it, beside the published number.  Weights are made up, sizes
# are the models' public ones (tests/real/serving).
#
#   tests/real/serving.sh [BUILD] [NAME...]
#
# NAME is a row of tests/real/serving/rows.table; without names all rows run, one after the other: an hour.  The servers are rows
# of tests/real/index.table; a row whose server cannot be had is skipped with the reason, and the test is (77) if all are.
# vLLM compiles its models with Triton and SGLang kernels of its own, so CUDA_HOME (/usr/local/cuda) names a toolkit.
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
[ $# -eq 0 ] || shift
export CUDA_HOME=${CUDA_HOME:-/usr/local/cuda}
table=tests/real/serving/rows.table
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

while IFS='|' read -r name _ server gpu devices model published allowed options; do
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    root=$(tests/real/index "$server") || { skipped=$((skipped + 1)); echo "skipped $name: $(tail -n 1 <<<"$root")"; continue; }
    rm -rf "$work/server"
    mkdir "$work/server"
    # SGLang's kernels for CUDA 12 look for the runtime compiler where a toolkit would have it.
    compiler=("$root"/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib)
    # shellcheck disable=SC2086 # a list of options
    LD_LIBRARY_PATH=${compiler[0]}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PATH=$root/bin:$PWD/tests/real/serving/bin:$PATH \
        timeout -k 10 3000 "$build/bin/gpuprof" dryrun --json --gpu="$gpu" $devices -- \
        "$root/bin/python3" "tests/real/serving/start-${server%%-*}.py" "$work/server" "$model" "$options" \
        >"$work/json" 2>"$work/log" </dev/null
    status=$?
    if line=$(python3 - "$work/json" "$work/log" "$published" "$allowed" 2>&1 <<'END'
import json, re, sys

answer, log, published, allowed = sys.argv[1:]
caches = json.load(open(answer))["kv_caches"]
assert caches, "no cache is in the answer"
tokens = min(cache["tokens"] for cache in caches)
found = re.findall(r"GPU KV cache size: ([0-9,]+) tokens|max_total_num_tokens=([0-9]+)", open(log, errors="replace").read())
said = min(int((vllm or sglang).replace(",", "")) for vllm, sglang in found)
assert said == tokens, f"the log says {said}, the answer {tokens}"
percent = 100 * (tokens / int(published) - 1)
print(f"{tokens} tokens, published {published}: {percent:+.2f} %, allowed {allowed}")
sys.exit(abs(percent) > float(allowed))
END
    ) && [ $status = 0 ]; then
        passed=$((passed + 1))
        echo "ok      $name: $line"
    else
        failed=$((failed + 1))
        echo "FAILED  $name: exit $status: $(tail -n 1 <<<"$line")"
        tail -n 20 "$work/log" | sed 's/^/        /'
    fi
done < <(grep -v '^#' $table)
echo "$passed passed, $failed failed, $skipped skipped"
[ $((passed + failed)) -gt 0 ] || exit 77
[ "$failed" = 0 ]
