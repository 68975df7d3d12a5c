#!/bin/bash
# SPDX-License-Identifier: MIT
# What is installed can be built against: gpuprof.pc names the PREFIX (not the DESTDIR), and a program in C and one in C++ compile,
# link and run with what pkg-config says, without a variable.  `make uninstall` leaves what was there before, and nothing else.
# Run: script
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
own_make() { env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make "$@"; }
tree() { (cd "$work/root" && find . -printf '%p %y %m %l\n' | LC_ALL=C sort); }
mkdir -p "$work/root/opt/gpuprof/share/man" "$work/root/opt/gpuprof/lib/gpuprof"
echo "somebody else's" > "$work/root/opt/gpuprof/lib/gpuprof/notes"
tree > "$work/before"
check "make install" own_make install DESTDIR="$work/root" PREFIX=/opt/gpuprof
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
runpath=$(pkg-config --libs-only-other gpuprof)
check "programs of PREFIX look there" [ "${runpath% }" = -Wl,-rpath,/opt/gpuprof/lib ]

same() { tree | diff "$work/before" - ; }
check "make install again" own_make install DESTDIR="$work/root" PREFIX=/opt/gpuprof
check "make uninstall" own_make uninstall DESTDIR="$work/root" PREFIX=/opt/gpuprof
check "nothing is left" same
refused() { ! own_make uninstall DESTDIR="$work/root" PREFIX=/opt/gpuprof; }
check "uninstall of what is not installed is an error" refused
check "nothing else was removed" same

# Another PREFIX, without a DESTDIR: a program starts although the loader does not search there.
unset PKG_CONFIG_SYSROOT_DIR
export PKG_CONFIG_PATH=$work/prefix/lib/pkgconfig
check "make install PREFIX" own_make install PREFIX="$work/prefix"
flags=$(pkg-config --cflags --libs gpuprof)
# shellcheck disable=SC2086
check "C from PREFIX" ${CC:-cc} -o "$work/p" "$work/program.c" $flags
starts() { [ "$(env -u LD_LIBRARY_PATH "$work/p")" = "$(pkg-config --modversion gpuprof) 0 -1" ]; }
check "it starts" starts
check "make uninstall PREFIX" own_make uninstall PREFIX="$work/prefix"
check "the PREFIX that install made is gone" [ ! -e "$work/prefix" ]
# A list that was changed must not lead elsewhere.
mkdir -p "$work/prefix/lib/gpuprof"
echo keep > "$work/keep"
printf 'bin/../../keep\n' > "$work/prefix/lib/gpuprof/installed"
climbs() { ! own_make uninstall PREFIX="$work/prefix" && [ -e "$work/keep" ]; }
check "uninstall stays below PREFIX" climbs
# Under /usr the loader finds the library, and distributions do not want a run path.
check "make install PREFIX=/usr" own_make install DESTDIR="$work/usr" PREFIX=/usr
check "no run path under /usr" grep -qx 'Libs: -L${libdir} -lgpuprof' "$work/usr/usr/lib/pkgconfig/gpuprof.pc"

# A command without its library names every folder in which it looked.
rm -f "$work/usr/usr/lib/libgpuprof.so"
looked() {
    local folder
    "$work/usr/usr/bin/gpuprof" run true 2> "$work/missing"
    [ $? = 2 ] || return
    for folder in lib lib64 lib/x86_64-linux-gnu lib/aarch64-linux-gnu; do grep -qE "$work/usr/usr/$folder[,:]" "$work/missing" || return; done
    grep -q -- --library "$work/missing"
}
check "run says where it looked for the library" looked
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
