#!/bin/sh
# SPDX-License-Identifier: MIT
# Budgets and growth, on programs that were recorded on the simulated GPU: test_gate.sh BUILD_DIR
# GPUPROF_GATE_COUNT: how many random scripts with a change (gate_mutants.py).
# Run: script
cd "$(dirname "$0")/../.."
command -v python3 >/dev/null || { echo "python3 is not installed: no program was recorded"; exit 77; }
out=$(mktemp)
trap 'rm -f "$out"' EXIT
bad=0
python3 tests/integration/gate.py "$1" >"$out" 2>&1 || bad=1
python3 tests/integration/gate_mutants.py "$1" --count "${GPUPROF_GATE_COUNT:-14}" >>"$out" 2>&1 || bad=1
if command -v git >/dev/null; then
    python3 tests/integration/gate_workflow.py "$1" >>"$out" 2>&1 || { bad=1; echo "0 passed, 1 failed" >>"$out"; }
fi
grep -vE '^[0-9]+ passed, ' "$out"
awk '/^[0-9]+ passed, / { passed += $1; failed += $3; skipped += $5 } END { printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$out"
exit $bad
