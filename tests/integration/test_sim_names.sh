#!/bin/bash
# SPDX-License-Identifier: MIT
# A library whose run path names another CUDA runtime, as those in Python packages do, gets the simulated GPU's under
# `gpuprof run --sim`, and its own without it.  The other runtime here fails each call as NVIDIA's does.
#
#   tests/integration/test_sim_names.sh [BUILD_DIR]
# Run: script
set -u
cd "$(dirname "$0")/../.."
build=$(cd "${1:-build}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" >"$work/said" 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $what:"; tail -n 5 "$work/said"; fi
}
cat >"$work/runtime.c" <<'C'
int cudaMalloc(void **at, unsigned long bytes) { (void)at, (void)bytes; return 500; }
int cudaFree(void *at) { (void)at; return 500; }
C
cat >"$work/package.c" <<'C'
int cudaMalloc(void **at, unsigned long bytes);
int cudaFree(void *at);
int run(void) { void *at = 0; int error = cudaMalloc(&at, 1 << 20); return error ? error & 255 : cudaFree(at); }
C
cat >"$work/main.c" <<'C'
#include <dlfcn.h>
int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : 0;
    int (*run)(void) = library ? (int (*)(void))dlsym(library, "run") : 0;
    return run ? run() : 99;
}
C
cc -o "$work/main" "$work/main.c" -ldl
for version in 12 13; do
    mkdir "$work/$version"
    echo "libcudart.so.$version { global: *; };" >"$work/map"
    cc -shared -fPIC -Wl,-soname,libcudart.so.$version -Wl,--version-script="$work/map" -o "$work/$version/libcudart.so.$version" "$work/runtime.c"
    package=$work/$version/package.so
    cc -shared -fPIC -Wl,--disable-new-dtags -Wl,-rpath,"$work/$version" -o "$package" "$work/package.c" -L"$work/$version" -l:libcudart.so.$version
    check "CUDA $version: its own runtime fails" [ "$("$work/main" "$package"; echo $?)" = 244 ]
    for source in auto cupti hooks; do
        GPUPROF_SOURCE=$source "$build/bin/gpuprof" run --sim --force --record="$work/r" -- "$work/main" "$package" >"$work/run" 2>&1
        check "CUDA $version, $source: exit $?" grep -q '"allocated_peak_bytes": *1048576,' <("$build/bin/gpuprof" report --json "$work/r" 2>&1)
    done
done
# What the user preloads comes before.
echo 'int cudaMalloc(void **at, unsigned long bytes) { (void)at, (void)bytes; return 7; }' >"$work/mine.c"
cc -shared -fPIC -o "$work/mine.so" "$work/mine.c"
check "the user's preloaded library" [ "$(LD_PRELOAD="$work/mine.so" "$build/bin/gpuprof" run --sim -- "$work/main" "$work/12/package.so"; echo $?)" = 7 ]
# Both names of CUPTI have what programs of their time are linked with.
for version in 12 13; do
    nm -D --defined-only "$build/lib/gpuprof/sim/libcupti.so.$version" >"$work/names"
    check "libcupti.so.$version" grep -q " T cuptiActivityRegisterCallbacks@@libcupti.so.$version" "$work/names"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
