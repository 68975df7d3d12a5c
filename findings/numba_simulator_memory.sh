#!/bin/sh
# SPDX-License-Identifier: MIT
# numba-cuda 0.30.4 and numba 0.68.1: the CUDA simulator (NUMBA_ENABLE_CUDASIM=1) answers get_memory_info with infinity, as a
# number of floating point, for free and total, before an allocation and after it.  A program that sizes its batches by the free
# memory gets no batch from it: int() of it raises an error.
#
# gpuprof's simulated GPU has the memory of the named model, and cuMemGetInfo falls with each allocation.
. "$(dirname "$0")/lib.sh"
packages all numba-cuda==0.30.4 numba==0.68.1 numpy
cat >"$work/free.py" <<'END'
import numpy
from numba import cuda

print(tuple(cuda.current_context().get_memory_info()))
array = cuda.device_array(1 << 26, dtype=numpy.float32)
free, total = cuda.current_context().get_memory_info()
print((free, total), "with", array.nbytes >> 20, "MiB allocated")
try:
    print(int(free // (1 << 20)))
except (OverflowError, ValueError) as error:
    print(type(error).__name__ + ":", error)
END
NUMBA_ENABLE_CUDASIM=1 "$work/all/bin/python3" "$work/free.py" 2>&1 | same '(inf, inf)
(inf, inf) with 256 MiB allocated
ValueError: cannot convert float NaN to integer'
