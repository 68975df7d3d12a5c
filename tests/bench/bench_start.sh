#!/bin/bash
# SPDX-License-Identifier: MIT
# bench_start.sh [BUILD [TURNS]]: what gpuprof adds to a program that makes a context, takes one block and ends, in turns:
# plain, with the library injected, under `run`, and recorded.  TSV: name, milliseconds of wall time (least and median),
# of processor time (least).  The simulated GPU.
set -eu
cd "$(dirname "$0")/../.."
build=$(realpath "${1:-build}") turns=${2:-50}
[ -z "${BENCH_TINY:-}" ] || turns=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/start.c" <<'END'
#include <stddef.h>
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuMemAlloc_v2(size_t *, size_t);
int main(void)
{
    void *context;
    size_t address;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&address, 1 << 20);
}
END
${CC:-cc} -O2 -o "$work/start" "$work/start.c" -L"$build/lib/gpuprof/sim" -l:libcuda.so.1
LD_LIBRARY_PATH=$build/lib/gpuprof/sim python3 - "$build" "$work" "$turns" <<'END'
import os
import resource
import statistics
import subprocess
import sys
import time

build, work, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
program, run, recording = [work + "/start"], [build + "/bin/gpuprof", "run"], work + "/recording"
ways = {"plain": program, "injected": program, "run": run + ["--"] + program,
        "record": run + ["--record=" + recording, "--"] + program}
wall, cpu = {way: [] for way in ways}, {way: [] for way in ways}
for turn in range(turns):
    for way, words in ways.items():
        injected = {"CUDA_INJECTION64_PATH": build + "/lib/libgpuprof.so"} if way == "injected" else {}
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(words, check=True, env={**os.environ, **injected}, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wall[way].append((time.perf_counter() - begin) * 1e3)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu[way].append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
        if way == "record":
            os.unlink(recording)
for way in ways:
    print("start_%s_ms" % way, *("%.1f" % ms for ms in (min(wall[way]), statistics.median(wall[way]), min(cpu[way]))), sep="\t")
END
