#!/bin/bash
# SPDX-License-Identifier: MIT
# `make gpu-bundle`: collects everything that a GPU machine needs to check gpuprof in one folder of at most 60 MiB.  The
# folder has the tree of the repository, the files built here, and the shared libraries that such a machine may lack.
#
#   bundle.sh BUILD [FOLDER]
#
# Run there, in the folder, tests/gpu/first.py first: it needs the driver and Python alone, takes five minutes, and prints a
# verdict for each item.  tests/gpu/run.sh then needs a compiler and the toolkit.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
out=${2:-$build/gpu-bundle}
rm -rf "$out"
mkdir -p "$out/build/bin" "$out/build/lib/gpuprof/bundled" "$out/build/tests" "$out/tests" "$out/sim"
cp "$build/bin/gpuprof" "$out/build/bin/"
cp "$build/lib/libgpuprof.so" "$build/lib/libgpuprof-shim.so" "$out/build/lib/"
cp -a "$build/lib/gpuprof/sim" "$out/build/lib/gpuprof/"
cp -a "$build/examples" "$out/build/"
mkdir "$out/build/tests/bench" "$out/build/tests/programs" "$out/tests/real"
[ ! -d "$build/tests/bench" ] || find "$build/tests/bench" -maxdepth 1 -type f -perm -u+x -exec cp {} "$out/build/tests/bench/" \;
# Nobody debugs a bench there, and half of a bench is what a debugger wants.
find "$out/build/tests/bench" -type f -exec strip --strip-debug {} +
cp -a "$build/tests/gpu" "$out/build/tests/"
for program in $(python3 tests/gpu/first.py --programs); do cp "$build/tests/programs/$program" "$out/build/tests/programs/"; done
cp -a tests/real/published "$out/tests/real/"
cp -a tests/gpu tests/programs tests/bench "$out/tests/"
mkdir -p "$out/tests/lib/preload"
cp tests/lib/catalog.c "$out/tests/lib/"
cp tests/lib/preload/variables.c "$out/tests/lib/preload/" # tests/programs/variables_own.c includes it
cp -a python "$out/"
cp -a tests/real/dryrun tests/real/frameworks tests/real/table "$out/tests/real/"
cp -a tests/framework "$out/tests/"
mkdir "$out/examples"
cp examples/*.h "$out/examples/"
cp -a sim/include "$out/sim/"
cp -a include "$out/"
cp Makefile LICENSE README.md "$out/"
# The command finds these through its run path.  libc and the loader come from the GPU machine.
ldd "$build/bin/gpuprof" | awk '$3 ~ /^\// && $1 !~ /^(libc|libm|libdl|libpthread|librt)\.so/ {print $3}' |
    while read -r library; do cp -L "$library" "$out/build/lib/gpuprof/bundled/"; done
find "$out" -name '*.d' -delete
kib=$(du -sk "$out" | cut -f1)
[ "$kib" -le 61440 ] || { echo "bundle.sh: $kib KiB is more than 60 MiB"; exit 1; }
echo "$out: $kib KiB"
