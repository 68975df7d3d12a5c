#!/bin/bash
# SPDX-License-Identifier: MIT
# What is installed can be built against: gpuprof.pc names the PREFIX (not the DESTDIR), and a program in C and one in C++ compile,
# link and run with what pkg-config says.
set -u
cd "$(dirname "$0")/../.."
command -v pkg-config > /dev/null || { echo "pkg-config is not here"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" > "$work/out" 2>&1; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $what"; cat "$work/out"; fi
}
# A make of its own, whatever make runs this.
check "make install" env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make install DESTDIR="$work/root" PREFIX=/opt/gpuprof
export PKG_CONFIG_PATH=$work/root/opt/gpuprof/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$work/root
check "the prefix is PREFIX alone" grep -qx "prefix=/opt/gpuprof" "$PKG_CONFIG_PATH/gpuprof.pc"
check "the version is the header's" [ "$(pkg-config --modversion gpuprof)" = "$(awk '/define GPUPROF_VERSION_/ {v = v "." $3} END {print substr(v, 2)}' include/gpuprof/gpuprof.h)" ]
cat > "$work/program.c" << 'END'
#include <gpuprof/gpuprof.h>
#include <stdio.h>
int main(void)
{
    printf("%s %d %d\n", gpuprof_version(), gpuprof_active(), (int)gpuprof_memory_allocated(0));
    return 0;
}
END
cp "$work/program.c" "$work/program.cc"
answer() { [ "$(LD_LIBRARY_PATH=$work/root/opt/gpuprof/lib "$1")" = "$(pkg-config --modversion gpuprof) 0 -1" ]; }
flags=$(pkg-config --cflags --libs gpuprof)
# shellcheck disable=SC2086 # a list of words
check "C" ${CC:-cc} -std=c11 -Wall -Werror -o "$work/c" "$work/program.c" $flags
check "C runs" answer "$work/c"
if command -v "${CXX:-c++}" > /dev/null; then
    # shellcheck disable=SC2086
    check "C++" ${CXX:-c++} -std=c++17 -Wall -Werror -o "$work/cxx" "$work/program.cc" $flags
    check "C++ runs" answer "$work/cxx"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
