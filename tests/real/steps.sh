#!/bin/bash
# SPDX-License-Identifier: MIT
# Programs with a known number of steps in a dry run: that many are found, and what is none is not called a step (steps/programs.py
# has the programs).  Then a training with checkpointing is ended by --steps after its first step, not in it.
#
#   tests/real/steps.sh [BUILD] [CASE...]
#
# The packages come from the index (the row "frameworks" of index.table), or are in the environment $GPUPROF_TORCH_ROOT; without
# them the test is skipped (exit status 77).
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
shift
root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || root=$(tests/real/index frameworks) || { echo "$root" | tail -n 1; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
wanted=" $* "

# NAME TRUE ARGUMENT...: prints what is found of the steps, or why there is none.
found() {
    timeout -k 10 900 "$build/bin/gpuprof" dryrun --json --gpu=h100-80g "${@:3}" -- "$root/bin/python3" tests/real/steps/programs.py \
        "$1" >"$work/json" 2>"$work/error" </dev/null
    python3 - "$work/json" "$2" <<'END'
import json
import sys
answer, want = json.load(open(sys.argv[1])), sys.argv[2]
print(answer["steps"] or 0, "steps by", answer["steps_found"], f"({answer['repeats'] or 0} repeats)")
sys.exit(answer["status"] != 0 or (answer["steps"] or 0) != (0 if want == "None" else int(want)))
END
}

"$root/bin/python3" tests/real/steps/programs.py >"$work/cases" 2>/dev/null
while read -r name steps; do
    [ "$wanted" = "  " ] || [ "${wanted/ $name /}" != "$wanted" ] || continue
    if out=$(found "$name" "$steps" 2>&1); then
        passed=$((passed + 1))
        echo "ok      $name, true $steps: $out"
    elif grep -q "^ModuleNotFoundError" "$work/error"; then
        skipped=$((skipped + 1))
        echo "skipped $name: $(grep "^ModuleNotFoundError" "$work/error")"
    else
        failed=$((failed + 1))
        echo "FAILED  $name, true $steps: $out"
        tail -n 5 "$work/error" | sed 's/^/        /'
    fi
done <"$work/cases"

if [ "$wanted" = "  " ] || [ "${wanted/ ended /}" != "$wanted" ]; then
    found checkpoint_long 400 >/dev/null 2>&1
    whole=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["ranks"][0]["allocated_peak_bytes"])' "$work/json")
    found checkpoint_long 0 --steps=2 >/dev/null 2>&1
    if ended=$(python3 - "$work/json" "$whole" <<'END'
import json
import sys
answer = json.load(open(sys.argv[1]))
print("after", answer["steps"], "of 400 steps, peak", answer["ranks"][0]["allocated_peak_bytes"], "of", sys.argv[2])
sys.exit(not answer["ended"] or not 2 <= answer["steps"] < 400 or answer["ranks"][0]["allocated_peak_bytes"] != int(sys.argv[2]))
END
    ); then
        passed=$((passed + 1))
        echo "ok      ended $ended"
    else
        failed=$((failed + 1))
        echo "FAILED  ended $ended"
    fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
