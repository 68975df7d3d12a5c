#!/bin/bash
# SPDX-License-Identifier: MIT
# PyTorch's allocator functions under a stand-in for PyTorch's C++ libraries (tests/torch): a failed request raises the error that
# PyTorch's Python layer knows, where PyTorch would not see NULL, and NULL where it would.
#
#   tests/integration/test_torch_error.sh [BUILD_DIR]
# Run: script
set -u
cd "$(dirname "$0")/../.."
build=$(realpath -m "${1:-build}") cxx=${CXX:-c++}
command -v "$cxx" > /dev/null || { echo "no C++ compiler"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
ok() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); echo "FAILED $1"; tail -n 20 "$work/out" "$work/err" | sed 's/^/        /'; }
made() { "$cxx" -std=c++17 -O2 -Wall -Itests/torch "$@" > "$work/out" 2>&1; }
: > "$work/err"
made -fPIC -shared -o "$work/libc10_cuda.so" tests/torch/c10_cuda.cc &&
    made -fPIC -shared -o "$work/libtorch_cuda.so" tests/torch/torch_cuda.cc "$work/libc10_cuda.so" &&
    made -o "$work/main" tests/torch/main.cc "$work/libtorch_cuda.so" "$work/libc10_cuda.so" -ldl -Wl,-rpath,"$work" ||
    { bad "the stand-in does not compile"; echo "0 passed, 1 failed"; exit 1; }

for variable in ${!GPUPROF_@} ${!CUDA_@}; do unset "$variable"; done
run() { # HOW LIBRARY STATUS PATTERN: the pattern must match the whole standard output, with a space for each line's end
    local status said
    LD_LIBRARY_PATH=$build/lib/gpuprof/sim GPUPROF_SIM=devices=1,memory=1GiB timeout -k 5 60 "$build/bin/gpuprof" run "$work/main" \
        "$build/lib/$2" "$1" > "$work/out" 2> "$work/err"
    status=$?
    said=$(tr '\n' ' ' < "$work/out")
    if [ $status = "$3" ] && [[ $said =~ ^$4$ ]]; then ok; else bad "$1 with $2: exit $status"; fi
}
served='served 1, reserved [0-9]+, then'
for library in libgpuprof-shim.so libgpuprof.so; do
    run current $library 0 "OutOfMemoryError: CUDA out of memory\. Tried to allocate 100\.00 TiB on GPU 0 .* $served [1-9][0-9]* "
    run device $library 0 "Error: CUDA error [0-9]+: gpuprof's allocator could not allocate 20\.00 MiB on GPU 99.* "
    # A native allocator frees a segment when its pool is gone: the driver has it back at once.
    run pool $library 0 "OutOfMemoryError: the native allocator's own error.* served 1, reserved 20971520, then 0 "
    run direct $library 0 "returned (nil|\(nil\)|0x0|0) "
    run uncaught $library 134 ""
    grep -q "gpuprof_torch_alloc" "$work/err" && grep -qi "out of memory" "$work/err" && ok || bad "no page about the failure ($library)"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
