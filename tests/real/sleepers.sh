#!/bin/bash
# SPDX-License-Identifier: MIT
# Other people's code that takes the memory away below live tensors, compiled from its own sources and run under a real PyTorch on
# the simulated GPU: vLLM's cumem_allocator, torch_memory_saver and kvcached.  After every step gpuprof's reserved, allocated and
# asleep and their peaks are those of the simulator's ledger and of PyTorch's blocks (tests/real/sleepers/truth.py).
#
#   tests/real/sleepers.sh [BUILD] [NAME...]
#
# NAME is vllm, saver or kvcached.  The sources come from Python's package index, into $GPUPROF_REAL/sleepers (build/real/sleepers);
# GPUPROF_VLLM, GPUPROF_SAVER and GPUPROF_KVCACHED name folders with them instead.  PyTorch is the row torch-2.10 of index.table,
# or the environment $GPUPROF_TORCH_ROOT.  What cannot be had is skipped with the reason; without PyTorch the test is (77).
set -u
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}")
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- vllm saver kvcached
sim=$build/lib/gpuprof/sim
here=$PWD/tests/real
home=$(realpath -m "${GPUPROF_REAL:-build/real}")/sleepers
root=${GPUPROF_TORCH_ROOT:-}
[ -n "$root" ] || root=$(tests/real/index torch-2.10) || { echo "$root" | tail -n 1; exit 77; }
[ -e "$root/pyvenv.cfg" ] || { echo "tests/real/sleepers.sh: $root is no environment of tests/real/index"; exit 77; }
command -v g++ >/dev/null || { echo "tests/real/sleepers.sh: no g++"; exit 77; }
python=$root/bin/python3
read -r headers torch major minor < <("$python" -c '
import sysconfig, torch
major, minor = torch.__version__.split(".")[:2]
print(sysconfig.get_paths()["include"], torch.__path__[0], major, minor)')
cuda=$("$python" -c 'import torch; print(torch.version.cuda.split(".")[0])')
[ -e "$headers/Python.h" ] || { echo "tests/real/sleepers.sh: no Python.h in $headers"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$home"
passed=0 failed=0 skipped=0
pass() { passed=$((passed + 1)); echo "ok      $1"; }
fail() { failed=$((failed + 1)); echo "FAILED  $1"; [ -z "${2:-}" ] || tail -n 30 "$2" | sed 's/^/        /'; }
skip() { skipped=$((skipped + 1)); echo "skipped $1"; }

# pip unpacks a package before it asks how to build it, which needs more than is here: only the sources are wanted.
sources() { # PACKAGE FILE
    local named=$1 folder=$home/$1
    if [ ! -e "$folder/$2" ]; then
        rm -rf "$folder" "$home/$1.new"
        mkdir -p "$home/$1.new"
        TMPDIR=$home/$1.new PIP_CONSTRAINT=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1 timeout 600 "$python" -m pip download --quiet \
            --no-clean --no-deps --no-binary :all: --no-build-isolation --dest "$home/$1.new" "$named" >"$home/$1.log" 2>&1 </dev/null
        local found
        found=$(find "$home/$1.new" -maxdepth 3 -name PKG-INFO -printf '%h\n' | head -n 1)
        [ -z "$found" ] || mv "$found" "$folder"
        rm -rf "$home/$1.new"
    fi
    [ -e "$folder/$2" ] && echo "$folder"
}
version() { sed -n 's/^Version: //p' "$1/PKG-INFO" 2>/dev/null | head -n 1; }
compile() { g++ -std=c++17 -O1 -shared -fPIC -w -Isim/include "$@" -L"$sim" -l:libcuda.so.1 -l:libcudart.so."$cuda" >"$work/log" 2>&1; }

run() { # TITLE MODE PROGRAM ARGUMENT...
    local title=$1 mode=$2 program=$3 spec more= status
    shift 3
    spec=$(sed -n 's/^# sim: //p' "$here/sleepers/$program")
    [ "$mode" != recorded ] || more="--force --record=$work/recording"
    rm -f "$work/recording"
    GPUPROF_SOURCE=${mode/recorded/cupti} PYTHONPATH=$PWD/python:$here/torch:$here/sleepers:$work timeout -k 10 300 \
        "$build/bin/gpuprof" run --sim="$spec" $more -- sh -c 'LD_PRELOAD=$0${LD_PRELOAD:+:$LD_PRELOAD} exec "$@"' "${preload:-}" \
        "$python" "$here/sleepers/$program" "$@" >"$work/out" 2>&1 </dev/null
    status=$?
    if [ "$status" = 0 ] && grep -q ' agree$' "$work/out"; then pass "$title, $mode: $(grep ' agree$' "$work/out" | tail -n 1)"; else
        fail "$title, $mode: exit $status" "$work/out"
    fi
    # Its report has the times of sleep, with the lines whose memory it was.  kvcached's tensors do not sleep.
    [ "$mode" = recorded ] && [ "$program" != use-kvcached.py ] || return
    if "$build/bin/gpuprof" report --json "$work/recording" 2>"$work/out" | python3 -c '
import json, sys
report = json.load(sys.stdin)
sleeps, sites = report["devices"][0]["sleeps"], {site["site"]: site for site in report["sites"]}
lines = {frame["line"] for sleep in sleeps for row in sleep["released"] for frame in sites[row["site"]]["frames"]
         if (frame["file"] or "").endswith(sys.argv[1])}
assert sleeps and sum(sleep["asleep_bytes"] for sleep in sleeps) and lines, (len(sleeps), lines)
print(len(sleeps), "times of sleep, of", len(lines), "lines")' "$program" >>"$work/out" 2>&1; then
        pass "$title: its report: $(tail -n 1 "$work/out")"
    else
        fail "$title: its report" "$work/out"
    fi
}

vllm() {
    local source=${GPUPROF_VLLM:-}
    [ -n "$source" ] || source=$(sources vllm csrc/cumem_allocator.cpp) || { skip "vllm: $(tail -n 1 "$home/vllm.log")"; return; }
    compile -I"$headers" "$source/csrc/cumem_allocator.cpp" -o "$work/cumem_allocator.so" || { fail "vllm is not built" "$work/log"; return; }
    local mode
    for mode in cupti hooks recorded; do run "vllm $(version "$source")" $mode use-vllm.py "$source" "$work/cumem_allocator.so"; done
}

saver() {
    local source=${GPUPROF_SAVER:-} mode hook upper
    [ -n "$source" ] || source=$(sources torch_memory_saver csrc/core.cpp) || { skip "saver: $(tail -n 1 "$home/torch_memory_saver.log")"; return; }
    cp -r "$source/torch_memory_saver" "$work"
    for hook in torch preload; do
        upper=${hook^^}
        compile -DPy_LIMITED_API=0x03090000 -DUSE_CUDA=1 -DTMS_HOOK_MODE_"$upper"=1 \
            "$source"/csrc/{api_forwarder,core,disk_backend,entrypoint}.cpp \
            -o "$work/torch_memory_saver/torch_memory_saver_hook_mode_${hook}_cu$cuda.abi3.so" || { fail "saver is not built" "$work/log"; return; }
        preload=
        [ $hook != preload ] || preload=$work/torch_memory_saver/torch_memory_saver_hook_mode_preload_cu$cuda.abi3.so
        for mode in cupti hooks recorded; do run "torch_memory_saver $(version "$source") ($hook)" $mode use-saver.py $hook; done
    done
    preload=
}

kvcached() {
    local source=${GPUPROF_KVCACHED:-}
    [ -n "$source" ] || source=$(sources kvcached csrc/allocator.cpp) || { skip "kvcached: $(tail -n 1 "$home/kvcached.log")"; return; }
    [ "$major$minor" != 2 ] && [ "$minor" -ge 10 ] || { skip "kvcached: wants PyTorch 2.10"; return; }
    cp -r "$source/kvcached" "$work"
    compile -I"$headers" -I"$torch/include" -I"$torch/include/torch/csrc/api/include" -I"$source/csrc/inc" -DKVCACHED_USE_CUDA \
        -DTORCH_TARGET_VERSION=0x020a000000000000 -DTORCH_STABLE_ONLY -DTORCH_EXTENSION_NAME=_C "$source"/csrc/*.cpp \
        -o "$work/kvcached/_C.so" -L"$torch/lib" -ltorch -ltorch_cpu -lc10 || { fail "kvcached is not built" "$work/log"; return; }
    local mode
    for mode in cupti hooks recorded; do run "kvcached $(version "$source")" $mode use-kvcached.py; done
}

for name; do
    case $name in vllm | saver | kvcached) $name ;; *) echo "tests/real/sleepers.sh: no program $name: vllm, saver or kvcached" >&2; exit 2 ;; esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
