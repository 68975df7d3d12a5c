#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs `gpuprof dryrun` on a training script with a real PyTorch, as Debian builds it: what it says is what PyTorch says of itself,
# the lines are those of the script, and a GPU that is too small, a budget and --steps do what they promise.
#
#   tests/real/dryrun.sh [BUILD]
#
# The packages come from the mirror once (tests/real/torch-root); without it the test is skipped (exit status 77).
# Run: slow
set -u
cd "$(dirname "$0")/../.."
build=${1:-build}
root=$(tests/real/torch-root 2>&1) || { echo "$root" | tail -n 1; exit 77; }
tests/real/inside "$root" true || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# NAME STATUS CHECK OPTIONS -- ARGUMENTS: the answer as JSON is `a` in the Python expression CHECK, PyTorch's peaks are `own`.
answer() {
    local name=$1 expected=$2 check=$3 options=()
    shift 3
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    timeout -k 10 300 "$build/bin/gpuprof" dryrun --json "${options[@]}" -- tests/real/inside "$root" python3 \
        tests/real/dryrun/gpt.py "$@" >"$work/json" 2>"$work/err" </dev/null
    local status=$?
    if [ "$status" = "$expected" ] && CHECK=$check python3 -c '
import json, os, sys
a = json.load(open(sys.argv[1]))
own = [[int(n) for n in line.split()[1:]] for line in open(sys.argv[2]) if line.startswith("peak ")]
rank = a["ranks"][0] if a["ranks"] else None
good = eval("(" + os.environ["CHECK"] + ")")
if not good:
    print(a["gpus"], {key: rank[key] for key in rank if key != "holders"}, a["read_back"], own)
sys.exit(not good)
' "$work/json" "$work/err" >"$work/out" 2>&1; then
        passed=$((passed + 1))
        echo "ok      $name"
    else
        failed=$((failed + 1))
        echo "FAILED  $name: exit $status"
        tail -n 40 "$work/out" "$work/err" | sed 's/^/        /'
    fi
}

# The own memory of the stand-ins is no part of the numbers of PyTorch.
answer "as PyTorch says" 0 'rank["allocated_peak_bytes"] - rank["assumed_bytes"] == own[0][0] and
    rank["needed_bytes"] - rank["context_bytes"] - rank["assumed_reserved_bytes"] == own[0][1] and
    sum(rank["uses"].values()) == rank["allocated_peak_bytes"] and rank["uses"]["weights"] > 80 << 20 and
    rank["uses"]["optimizer"] > 160 << 20 and rank["uses"]["unknown"] < 20 << 20 and
    any((h["file"] or "").endswith("gpt.py") and h["operation"] == "linear" for h in rank["holders"]) and
    a["gpus"][0]["fits"] and a["steps"] >= 2 and
    [(r["function"], r["count"]) for r in a["read_back"]] == [("main", 4)]' --gpu=a100-40g -- 4 4
answer "too small" 3 'not a["gpus"][0]["fits"] and a["gpus"][0]["fails"]["operation"] == "backward" and
    a["gpus"][0]["needed_bytes"] > 1 << 30 and rank["plenty"] and
    a["gpus"][0]["needed_bytes"] - rank["context_bytes"] - rank["assumed_reserved_bytes"] == own[-1][1]' \
    --gpu=t4 --memory=800MiB -- 4 4
answer "ended when the peak repeats" 0 'a["ended"] and a["steps"] < 5000 and not own' --gpu=a100-40g --steps=4 -- 4 5000
answer "over the budget" 3 'a["over_budget"] and a["gpus"][0]["over_budget"]["file"].endswith("gpt.py")' \
    --gpu=a100-40g --budget=800MiB -- 4 3
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
