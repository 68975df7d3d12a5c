#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# run.sh: `make check-gpu` runs it.  It builds the test programs with the toolkit of this machine.  Then check.py runs
# them with and without the profiler, compares the results, measures, and writes the figures to one JSON.
#
#   run.sh [--dry-run] [--json FILE] [--only=PART,..]      --dry-run: use the simulated GPU instead
#
# Environment: CUDA_HOME (default /usr/local/cuda), GPUPROF_BUILD (default: build beside this tree).
# Needs bash, gcc (or nvcc), python3, coreutils.  Exit: 0 all passed, 1 something failed, 77 no GPU here.
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
build=${GPUPROF_BUILD:-$top/build}
sim=$build/lib/gpuprof/sim
dry=0
only=
stubs=
nvcc=
json=

while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) dry=1 ;;
    --json)
        [ $# -ge 2 ] || { echo "run.sh: --json needs a file" >&2; exit 2; }
        json=$2
        shift
        ;;
    --only=*) only=$1 ;;
    *)
        echo "usage: run.sh [--dry-run] [--json FILE] [--only=PART,..]" >&2
        exit 2
        ;;
    esac
    shift
done

absent() {
    echo "no GPU check here: $1"
    exit 77
}

for file in "$build/bin/gpuprof" "$build/lib/libgpuprof.so"; do
    [ -e "$file" ] || { echo "run.sh: $file is missing: run make first" >&2; exit 1; }
done
command -v python3 > /dev/null || absent "python3 is not installed"
cc=$(command -v gcc || command -v cc || true)

work=$(mktemp -d /tmp/gpuprof-test-check-gpu-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/sim" "$work/real"
: "${json:=$work/figures.json}"

# compile FOLDER INCLUDE LIBDIR SOURCE.  If a program does not compile, check.py misses it and reports a failure.
compile() {
    local name
    name=$(basename "$4" .c)
    local libs=(-lcuda -lpthread -lm -ldl)
    case $name in
    *_srt) libs=(-lcudart_static -lpthread -lm -ldl -lrt) ;;
    *_rt) libs=(-lcudart "${libs[@]}") ;;
    variables_own) libs+=(-rdynamic) ;;
    esac
    if [ -n "$cc" ]; then
        "$cc" -std=gnu11 -D_GNU_SOURCE -O1 -g -I"$2" -I"$top/include" -o "$1/$name" "$4" -L"$3" ${stubs:+-L"$stubs"} "${libs[@]}" -Wl,--allow-shlib-undefined \
            > "$1/$name.log" 2>&1
    else
        "$nvcc" -x c -O1 -g -cudart shared -I"$top/include" -o "$1/$name" "$4" -L"$3" ${stubs:+-L"$stubs"} "${libs[@]}" > "$1/$name.log" 2>&1
    fi || { echo "does not compile: $name"; head -5 "$1/$name.log"; rm -f "$1/$name"; }
}

# All processors compile at once.
begin() {
    [ "$(jobs -rp | wc -l)" -lt "$(nproc)" ] || wait -n
    compile "$@" &
}

sources=("$here"/reconcile.c "$here"/cost_rt.c)
while read -r name; do sources+=("$top/tests/programs/$name.c"); done < <(python3 "$here/check.py" --programs)
[ ${#sources[@]} -gt 2 ] || exit 1
if [ $dry -eq 0 ]; then
    [ -e /dev/nvidiactl ] || [ -e /dev/dxg ] || absent "/dev/nvidiactl is missing"
    cuda=${CUDA_HOME:-/usr/local/cuda}
    nvcc=$(command -v nvcc || true)
    [ -x "${nvcc:-}" ] || nvcc=$cuda/bin/nvcc
    [ -e "$cuda/include/cuda.h" ] || absent "$cuda/include/cuda.h is missing: set CUDA_HOME to the toolkit"
    [ -n "$cc" ] || [ -x "$nvcc" ] || absent "neither gcc nor nvcc is installed"
    stubs=$cuda/lib64/stubs
    for source in "${sources[@]}"; do
        begin "$work/real" "$cuda/include" "$cuda/lib64" "$source"
    done
    export LD_LIBRARY_PATH=$cuda/lib64:$cuda/extras/CUPTI/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
stubs=
if [ -e "$sim/libcuda.so.1" ] && [ -n "$cc" ]; then
    for source in "${sources[@]}"; do
        begin "$work/sim" "$top/sim/include" "$sim" "$source"
    done
elif [ $dry -eq 1 ]; then
    echo "run.sh: $sim is missing: run make first" >&2
    exit 1
fi
wait
[ -n "$cc" ] && "$cc" -shared -fPIC -o "$work/inject_zero.so" "$here/inject_zero.c"

python3 "$here/check.py" --build "$build" --work "$work" --json "$json" $([ $dry -eq 1 ] && echo --dry-run) $only
code=$?
[ "$json" = "$work/figures.json" ] && cat "$json"
exit $code
