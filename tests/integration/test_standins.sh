#!/bin/bash
# SPDX-License-Identifier: MIT
# Programs on the simulated GPU get the stand-ins for NVIDIA's libraries, however they find the real ones, and get none for a
# library that is not installed.  The real one here is a library of the same name whose functions return 77.
# Run: script
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/installed" "$work/other"
cat >"$work/real.c" <<'END'
int cublasLoggerConfigure(void) { return 77; }
END
cat >"$work/linked.c" <<'END'
#include <unistd.h>
int cublasLoggerConfigure(void);
int main(int argc, char **argv)
{
    if (argc > 1) { execv(argv[1], argv + 1); return 99; }
    return cublasLoggerConfigure();
}
END
cat >"$work/opened.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_NOW);
    int (*product)(void) = library ? (int (*)(void))dlsym(library, "cublasLoggerConfigure") : NULL;
    if (!product) { printf("%s\n", dlerror()); return 98; }
    return product();
}
END
cat >"$work/version.c" <<'END'
#include <dlfcn.h>
int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_NOW);
    int (*ask)(void *, int *) = library ? (int (*)(void *, int *))dlsym(library, "cublasGetVersion_v2") : 0, version = 0;
    return !ask || ask(0, &version) ? 99 : version % 100 * 10 + version / 100 % 100;
}
END
real=libcublas.so.12.4.5.8
echo 'libcublas.so.12 { global: *; };' >"$work/map"
cc -w -shared -fPIC -Wl,-soname,libcublas.so.12 -Wl,--version-script="$work/map" -o "$work/installed/$real" "$work/real.c" &&
    ln -s $real "$work/installed/libcublas.so.12" && ln -s $real "$work/installed/libcublas.so" &&
    cp "$work/installed/$real" "$work/other/libother.so.12" &&
    cc -w -o "$work/rpath" "$work/linked.c" -L"$work/installed" -lcublas -Wl,--disable-new-dtags,-rpath,"$work/installed" &&
    cc -w -o "$work/runpath" "$work/linked.c" -L"$work/installed" -lcublas -Wl,--enable-new-dtags,-rpath,"$work/installed" &&
    cc -w -o "$work/path" "$work/linked.c" -L"$work/installed" -lcublas && cc -w -o "$work/opened" "$work/opened.c" -ldl && cc -w -o "$work/version" "$work/version.c" -ldl &&
    mkdir -p "$work/site/nvidia/cublas/lib" "$work/site/nvidia_cublas_cu12-12.6.3.1.dist-info" &&
    cp "$work/installed/$real" "$work/site/nvidia/cublas/lib/libcublas.so.12" || exit 1
passed=0 failed=0
run() { # STATUS WHAT COMMAND...
    local wanted=$1 what=$2
    shift 2
    "$build/bin/gpuprof" run --sim -- "$@" >"$work/out" 2>&1 </dev/null
    local status=$?
    if [ $status = "$wanted" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$what: status $status, not $wanted"
        cat "$work/out"
    fi
}
unset LD_AUDIT GPUPROF_STANDINS
run 0 "by DT_RPATH" "$work/rpath"
run 0 "by DT_RUNPATH" "$work/runpath"
run 0 "by LD_LIBRARY_PATH" env LD_LIBRARY_PATH="$work/installed:$build/lib/gpuprof/sim" "$work/path"
run 0 "a child" "$work/rpath" "$work/rpath"
run 0 "opened by a path" "$work/opened" "$work/installed/libcublas.so.12"
run 0 "opened by the file's own name" "$work/opened" "$work/installed/$real"
run 0 "opened by a link without a number" "$work/opened" "$work/installed/libcublas.so"
run 77 "another library" "$work/opened" "$work/other/libother.so.12"
cp "$work/installed/$real" "$work/other/libcublas.0123abcg.so.12"
run 77 "a name with no hash" "$work/opened" "$work/other/libcublas.0123abcg.so.12"
run 98 "not installed, by name" "$work/opened" libcublas.so.12
run 98 "not installed, by path" "$work/opened" "$work/other/libcublas.so.12"
# It has the version of the library whose place it takes: 12.4.5 by its file's name, 12.6.3 by its Python package.
run 54 "version by a link" "$work/version" "$work/installed/libcublas.so.12"
run 54 "version by the search path" env LD_LIBRARY_PATH="$work/installed:$build/lib/gpuprof/sim" "$work/version" libcublas.so.12
run 36 "version by a package" "$work/version" "$work/site/nvidia/cublas/lib/libcublas.so.12"
# NVIDIA's runtime, which some programs open by the path of its package, is the one that this program has anyway.
cat >"$work/runtime.c" <<'END'
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    void *runtime = dlopen(argv[1], RTLD_NOW), *ours = dlopen(argv[2], RTLD_NOW);
    if (!runtime || !ours) { printf("%s\n", dlerror()); return 98; }
    return dlsym(runtime, "cudaMalloc") != dlsym(ours, "cudaMalloc");
}
END
runtimes=$work/site/nvidia/cuda_runtime/lib
cc -w -o "$work/runtime" "$work/runtime.c" -ldl && mkdir -p "$runtimes" || exit 1
for number in 12 13; do
    cc -w -shared -fPIC -Wl,-soname,libcudart.so.$number -o "$runtimes/libcudart.so.$number.4.99" -x c - <<<'int cudaMalloc(void) { return 77; }' || exit 1
    ln -s libcudart.so.$number.4.99 "$runtimes/libcudart.so.$number"
    cp "$runtimes/libcudart.so.$number.4.99" "$runtimes/libcudart-0123abcd.so.$number.4.99"
    cp "$runtimes/libcudart.so.$number.4.99" "$runtimes/libcudart.faf08d9a.so.$number"
    run 0 "the runtime $number by its path" "$work/runtime" "$runtimes/libcudart.so.$number" libcudart.so.$number
    run 0 "the runtime $number by its file" "$work/runtime" "$runtimes/libcudart.so.$number.4.99" libcudart.so.$number
    run 0 "a wheel's copy of the runtime $number" "$work/runtime" "$runtimes/libcudart-0123abcd.so.$number.4.99" libcudart.so.$number
    run 0 "... of another auditwheel" "$work/runtime" "$runtimes/libcudart.faf08d9a.so.$number" libcudart.so.$number
done
# So is the runtime of CuTe, which has NVIDIA's inside.  Elsewhere such a file is a program's own.
cc -w -shared -fPIC -o "$work/libcute_dsl_runtime.so" -x c - <<<'int cudaMalloc(void) { return 77; }' || exit 1
for number in 12 13; do
    mkdir -p "$work/cutlass/cu$number/lib" && cp "$work/libcute_dsl_runtime.so" "$work/cutlass/cu$number/lib" || exit 1
    run 0 "CuTe's runtime $number" "$work/runtime" "$work/cutlass/cu$number/lib/libcute_dsl_runtime.so" libcudart.so.$number
done
run 1 "a library of its name" "$work/runtime" "$work/libcute_dsl_runtime.so" libcudart.so.13
export GPUPROF_STANDINS=0
run 77 "switched off" "$work/rpath"
unset GPUPROF_STANDINS
export LD_AUDIT=$work/other/nothing.so
run 0 "another audit library stays named" sh -c 'case $LD_AUDIT in */libgpuprof-standin.so:*/nothing.so) ;; *) exit 1 ;; esac'
unset LD_AUDIT
# Every function has the version that a program linked with the real library asks for; three of the real ones have none, and one
# has its own.
for library in "$build"/lib/gpuprof/sim/standin/lib*.so.*; do
    name=${library##*/} version=@@${library##*/}
    case $name in libnccl* | libcusparseLt* | libcufile*) version= ;; libnvshmem*) version=@@NVSHMEM ;; esac
    if readelf -dW "$library" | grep -q "soname: \[$name\]" && [ -z "$(nm -D --defined-only "$library" | awk '$2 != "A" {print $3}' | grep -vE "^[^@]+$version\$")" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$name: a symbol without the version $name, or another soname"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
