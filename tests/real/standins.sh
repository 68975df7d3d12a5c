#!/bin/bash
# SPDX-License-Identifier: MIT
# A real PyTorch with the stand-ins for NVIDIA's mathematics libraries, on the simulated GPU: every function that it wants of them
# is there, each part of its mathematics runs, a model trains with a peak that repeats, and `leaks` suspects no program that keeps
# nothing.
#
#   tests/real/standins.sh [BUILD]
#
# It is the PyTorch that Debian builds (tests/real/torch-root), or the one in the folder $GPUPROF_TORCH_ROOT, such as
# tests/real/index makes.  Without it the test is skipped (exit status 77).
# Run: slow
set -u
shopt -s nullglob
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
stand=$build/lib/gpuprof/sim/standin
root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || root=$(tests/real/torch-root 2>&1) || { echo "$root" | tail -n 1; exit 77; }
tests/real/inside "$root" true || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
pass() { passed=$((passed + 1)); echo "ok      $1"; }
fail() { failed=$((failed + 1)); echo "FAILED  $1"; tail -n 30 "$2" | sed 's/^/        /'; }
check() { if "${@:3}"; then pass "$1"; else fail "$1" "$2"; fi; }
under() {
    GPUPROF_STANDIN_REPORT=$work/report timeout -k 10 900 "$build/bin/gpuprof" run --sim=gpu=h100-80g,contents=none -- \
        tests/real/inside "$root" python3 "$@" </dev/null >"$work/out" 2>&1
}

# With their versions: libtorch_cuda.so wants cublasSgemm_v2@libcublas.so.12.
names='(cublas|cublasLt|cudnn|cufft|curand|cusolver|cusparse|cusparseLt|cuFile)[A-Z]'
for library in "$root"/usr/lib/x86_64-linux-gnu/libtorch*.so.* "$root"/lib/python3*/site-packages/torch/lib/lib{torch,c10}*.so; do
    nm -D --undefined-only --with-symbol-versions "$library"
done | awk '{print $NF}' | grep -E "^$names" | sort -u >"$work/want"
nm -D --defined-only --with-symbol-versions "$stand"/libcu*.so.* | awk 'NF == 3 {sub(/@@/, "@", $3); print $3}' | sort -u >"$work/have"
comm -23 "$work/want" "$work/have" >"$work/lacking"
check "$(wc -l <"$work/want") functions of the libraries" "$work/lacking" [ -s "$work/want" -a ! -s "$work/lacking" ]

under tests/real/standins/maths.py
grep '^FAIL' "$work/out" >"$work/wrong"
check "$(grep -c '^ok' "$work/out") calls" "$work/out" [ "$(tail -n 1 "$work/out")" = "0 failed" ]

under tests/real/standins/gpt2.py
# 163 million parameters, their gradients and two moments take 2.6 GB; the rest are activations.
peak=$(awk 'NF == 3 && /^[0-2] 0.0 / {print $3}' "$work/out" | tail -n 2 | uniq)
check "GPT-2: $peak bytes in steps 2 and 3" "$work/out" [ "$(wc -w <<<"$peak")" = 1 -a "${peak:-0}" -gt 5500000000 -a "${peak:-0}" -lt 6000000000 ]

told() { grep -q "	libcudnn.so.9	assumed	convolutions: the workspace that rules of cuDNN " "$work/report" && ! grep -qE "	libcu[^	]*	unsupported	" "$work/report"; }
check "the report names what was assumed, and nothing was refused" "$work/report" told
# Of the kinds of snapshots that people publish, only those that leak have suspects, with a line of theirs.
mkdir "$work/kinds"
under tests/real/standins/kinds.py "$work/kinds"
for name in "$work"/kinds/*.pickle; do
    "$build/bin/gpuprof" leaks --json "$name" 2>/dev/null | python3 -c '
import json, sys
suspects = json.load(sys.stdin)["suspects"]
assert bool(suspects) == ("leak_" in sys.argv[1]), (sys.argv[1], suspects[:1])
assert not suspects or any((frame["file"] or "").endswith("kinds.py") for frame in suspects[0]["frames"]), suspects[0]
' "$name" 2>>"$work/out" || echo "wrong: ${name##*/}" >>"$work/out"
done
kinds=("$work"/kinds/*.pickle)
right() { [ ${#kinds[@]} = 80 ] && grep -q '^all of them written' "$work/out" && ! grep -q ^wrong: "$work/out"; }
check "leaks: ${#kinds[@]} snapshots" "$work/out" right
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
