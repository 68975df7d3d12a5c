#!/bin/bash
# SPDX-License-Identifier: MIT
# Other people's training code in a dry run: transformers, peft, bitsandbytes, accelerate, Lightning, diffusers, torchvision, torchao,
# litgpt, torch.compile and CUDA graphs.  Each case of frameworks/train.py runs to its end, the peaks are what PyTorch says of
# itself, and nothing that it asked of NVIDIA's libraries was refused.
#
#   tests/real/frameworks.sh [BUILD] [CASE...]
#
# The packages come from the index (the row "frameworks" of index.table), or are in the environment $GPUPROF_TORCH_ROOT; without
# them the test is skipped (exit status 77).
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
shift
root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || root=$(tests/real/index frameworks) || { echo "$root" | tail -n 1; exit 77; }
program=tests/real/frameworks/train.py
# shellcheck disable=SC2046 # a list of words
[ $# -gt 0 ] || set -- $(sed -n 's/^@case$/&/; /^@case$/{n;s/^def \([a-z0-9_]*\).*/\1/p}' $program)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
for case; do
    timeout -k 10 900 "$build/bin/gpuprof" dryrun --json --gpu=a100-40g -- "$root/bin/python3" $program "$case" \
        >"$work/json" 2>"$work/error" </dev/null
    status=$?
    if why=$(grep '^skip: ' "$work/error"); then
        skipped=$((skipped + 1))
        echo "skipped $case: ${why#skip: }"
    elif [ $status = 0 ] && python3 - "$work/json" "$work/error" >"$work/out" 2>&1 <<'END'
import json
import sys
a, own = json.load(open(sys.argv[1])), [line.split()[1:] for line in open(sys.argv[2]) if line.startswith("peak ")]
rank = a["ranks"][0]
allocated = rank["allocated_peak_bytes"] - rank["assumed_bytes"]
reserved = rank["needed_bytes"] - rank["context_bytes"] - rank["assumed_reserved_bytes"]
print("allocated", allocated, "reserved", reserved, "its own", *own[0])
refused = [note for note in a["assumptions"] if note["kind"] == "unsupported"]
# A library may take its workspace after that peak, so reserved may be more.
sys.exit(allocated != int(own[0][0]) or not 0 <= reserved - int(own[0][1]) <= 64 << 20 or len(a["ranks"]) != 1 or bool(refused))
END
    then
        passed=$((passed + 1))
        echo "ok      $case: $(cat "$work/out")"
    else
        failed=$((failed + 1))
        echo "FAILED  $case: exit $status"
        cat "$work/out" 2>/dev/null
        grep -vE '^[WE][0-9]{4} ' "$work/error" | tail -n 30 | sed 's/^/        /'
    fi
    rm -f "$work/out"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
