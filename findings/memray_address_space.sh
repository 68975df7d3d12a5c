#!/bin/sh
# SPDX-License-Identifier: MIT
# memray 1.20.0: address space that a program reserves (mmap with PROT_NONE, of which no page can be touched) counts as memory.  A
# program that reserves 256 GiB and touches none has a peak of 274.878 GB; the kernel says a few MiB.  Drivers of GPUs reserve such
# ranges when they start, for the address space that host and devices share, so "Peak memory usage" of a GPU program says nothing
# about its memory.
#
# gpuprof does not count address space: cuMemAddressReserve is no allocation, cuMemCreate is.
. "$(dirname "$0")/lib.sh"
packages all memray==1.20.0
cat >"$work/reserve.py" <<'END'
import mmap

reserved = mmap.mmap(-1, 1 << 38, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=0)  # MAP_NORESERVE
with open("/proc/self/status") as status:
    resident = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print("resident below 1 GiB:", resident < 1 << 20)
END
{
    "$work/all/bin/memray" run -q -f -o "$work/memray.bin" "$work/reserve.py"
    "$work/all/bin/memray" stats "$work/memray.bin" | grep -A 1 'Peak memory usage' | tail -n 1 | tr -d '\t'
} 2>&1 | same 'resident below 1 GiB: True
274.878GB'
