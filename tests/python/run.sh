#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs the tests of the Python package and ends with "N passed, N failed, N skipped".  test_plain_*.py run in a Python without gpuprof, the
# others under the simulated GPU with libgpuprof.so injected, each file in its own process.
#
#   tests/python/run.sh [BUILD_DIR] [TEST_FILE]...     (default: build, all of them; PYTHON names the interpreter)
# Run: script
set -u
cd "$(dirname "$0")/../.."
build=$(realpath -m "${1:-build}")
shift || true
python=${PYTHON:-python3}
files=${*:-tests/python/test_*.py}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    echo "no Python 3.9 or newer: $python"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
for variable in ${!GPUPROF_@} ${!CUDA_@} ${!PYTORCH_@}; do unset "$variable"; done
export PYTHONPATH=$PWD/python:$PWD/tests/python PYTHONDONTWRITEBYTECODE=1 GPUPROF_TEST_BUILD=$build

for file in $files; do
    name=$(basename "$file" .py)
    settings=()
    case $name in
    test_plain_*) ;;
    # The ring has the blocks of the cache only for a reader, and a snapshot reads it afterwards.
    test_snapshot) settings=(GPUPROF_RING=always LD_LIBRARY_PATH="$build/lib/gpuprof/sim" CUDA_INJECTION64_PATH="$build/lib/libgpuprof.so" GPUPROF_SIM=devices=2,memory=16GiB) ;;
    # It has a neighbour.
    test_owned) settings=(LD_LIBRARY_PATH="$build/lib/gpuprof/sim" CUDA_INJECTION64_PATH="$build/lib/libgpuprof.so" GPUPROF_SIM="devices=2,memory=16GiB,shared=owned-$$") ;;
    *) settings=(LD_LIBRARY_PATH="$build/lib/gpuprof/sim" CUDA_INJECTION64_PATH="$build/lib/libgpuprof.so" GPUPROF_SIM=devices=2,memory=16GiB) ;;
    esac
    env "${settings[@]}" timeout -k 10 "${TEST_TIMEOUT:-300}" "$python" -W error::ResourceWarning -m harness "$name" "$work/counts" \
        >"$work/out" 2>&1 </dev/null
    status=$?
    if [ ! -s "$work/counts" ]; then
        failed=$((failed + 1))
        printf '%-7s %s: no result (exit %d)\n' FAILED "$name" $status
        sed 's/^/        /' "$work/out"
        continue
    fi
    read -r good bad left <"$work/counts"
    rm -f "$work/counts"
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left))
    [ "$bad" -eq 0 ] && printf '%-7s %s: %d\n' ok "$name" "$good" || printf '%-7s %s: %d\n' FAILED "$name" "$bad"
    [ "$bad" -eq 0 ] || sed 's/^/        /' "$work/out"
    grep -h '^skipped' "$work/out"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ $((passed + skipped)) -gt 0 ]
