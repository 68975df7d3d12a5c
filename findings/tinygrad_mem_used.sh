#!/bin/sh
# SPDX-License-Identifier: MIT
# tinygrad 0.14.0: GlobalCounters.mem_used, which DEBUG=2 prints for each kernel, falls to 0 when the last tensor is gone, but the
# memory stays with the process, kept for a buffer of the same size.  One of half the size takes new memory: mem_used then says 128
# MiB where 384 are held.  It is the same on CUDA as here on the processor.
#
# gpuprof counts what the driver gave: kept buffers too.
. "$(dirname "$0")/lib.sh"
packages all tinygrad==0.14.0
cat >"$work/used.py" <<'END'
import gc

from tinygrad import GlobalCounters, Tensor


def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) >> 10


def say(what):
    gc.collect()
    print(f"{what}: mem_used {GlobalCounters.mem_used >> 20} MiB, held {(resident() - before + 32) // 64 * 64} MiB")


Tensor.ones(4).contiguous().realize()
before = resident()
tensor = Tensor.ones(64 << 20).contiguous().realize()
say("256 MiB")
del tensor
say("deleted")
tensor = Tensor.ones(32 << 20).contiguous().realize()
say("128 MiB")
END
DEV=CPU "$work/all/bin/python3" "$work/used.py" 2>"$work/log" | same '256 MiB: mem_used 256 MiB, held 256 MiB
deleted: mem_used 0 MiB, held 256 MiB
128 MiB: mem_used 128 MiB, held 384 MiB'
