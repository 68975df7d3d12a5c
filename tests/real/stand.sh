#!/bin/bash
# SPDX-License-Identifier: MIT
# A rank that waits for what only an absent rank would do, or for one that waits itself, ends within a minute, with a sentence that
# says where it stands and what it waits for.  The cases are those of ranks/stand.py.
#
#   tests/real/stand.sh [BUILD] [CASE...]
#
# The packages come from the index (the row "torch-newest" of index.table), or are in the environment $GPUPROF_TORCH_ROOT; without
# them the test is skipped (exit status 77).
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(cd "${1:-build}" && pwd)
shift
root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || root=$(tests/real/index torch-newest) || { echo "$root" | tail -n 1; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
wanted=" $* "

stand() { # CASE RANKS SENTENCE...: of a job of 4
    local name=$1 ranks=$2 seconds sentence missing=
    shift 2
    [ "$wanted" = "  " ] || [ "${wanted/ $name /}" != "$wanted" ] || return 0
    OMP_NUM_THREADS=1 timeout -k 10 600 "$build/bin/gpuprof" dryrun --gpu=h100-80g --json --world=4 --ranks="$ranks" -- \
        "$root/bin/python3" tests/real/ranks/stand.py "$name" 2>&1 >"$work/json" </dev/null |
        while IFS= read -r line; do printf '%(%s)T %s\n' -1 "$line"; done >"$work/error"
    local status=${PIPESTATUS[0]}
    # From the last rank that began to wait to the first sentence.
    seconds=$(awk '$2 == "begun" {begun = $1} /gpuprof: (dryrun: none of|sim: rank)/ && !said {said = $1} END {print said ? said - begun : 999}' \
        "$work/error")
    for sentence; do
        grep -qE "$sentence" "$work/error" || missing+="${missing:+; }$sentence"
        # The JSON has it too.
        python3 -c 'import json, re, sys; sys.exit(not any(re.search(sys.argv[2], text) for text in json.load(open(sys.argv[1]))["messages"]))' \
            "$work/json" "$sentence" 2>>"$work/out" || missing+="${missing:+; }in the JSON: $sentence"
    done
    if [ "$status" != 0 ] && [ "$status" != 124 ] && [ -z "$missing" ] && [ "$seconds" -le 60 ] && ! grep -q '^[0-9]* ended' "$work/error"; then
        passed=$((passed + 1))
        echo "ok      $name, ranks $ranks of 4: exit $status, said after $seconds s"
    else
        failed=$((failed + 1))
        echo "FAILED  $name, ranks $ranks of 4: exit $status, said after $seconds s${missing:+, not said: $missing}"
        tail -n 12 "$work/error" | cut -c 1-300 | sed 's/^/        /'
    fi
    rm -f "$work"/*
}

stand key 0 "rank 0 of 4 waits for the key '.*never', which only an absent rank would set"
stand key_reduce 0,1 'none of the 2 ranks that run has moved' "rank 0 stands at .*stand\.py.* the key '.*never'" \
    'rank 1 stands at .*stand\.py.*, and waits for rank 0 in ncclAllReduce'
stand key_receive 0,1 "rank 0 (stands at .*stand\.py.* the key '.*never'|of 4 waits for the key '.*never', which only an absent)"
for name in recv groups behind thread; do
    stand $name 0,1 'none of the 2 ranks that run has moved' 'rank 0 stands at .*stand\.py.*, and waits for rank 1 in ncclRecv' \
        'rank 1 stands at .*stand\.py.*, and waits for rank 0 in ncclRecv'
done
# A wait with a limit of its own ends with PyTorch's error, which the program catches.
if [ "$wanted" = "  " ] || [[ $wanted = *" caught "* ]]; then
    if OMP_NUM_THREADS=1 timeout -k 10 300 "$build/bin/gpuprof" dryrun --gpu=h100-80g --world=4 --ranks=0,1 -- \
        "$root/bin/python3" tests/real/ranks/stand.py caught >"$work/out" 2>&1 </dev/null && [ "$(grep -c '^caught' "$work/out")" = 2 ]; then
        passed=$((passed + 1))
        echo "ok      caught, ranks 0,1 of 4"
    else
        failed=$((failed + 1))
        echo "FAILED  caught, ranks 0,1 of 4"
        tail -n 12 "$work/out" | cut -c 1-300 | sed 's/^/        /'
    fi
fi
echo "$passed passed, $failed failed"
[ $failed = 0 ]
