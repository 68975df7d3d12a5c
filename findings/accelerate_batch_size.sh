#!/bin/sh
# SPDX-License-Identifier: MIT
# accelerate 1.15.0: find_executable_batch_size tries a smaller batch if the message of the error has " out of memory." with a full
# stop, as that of PyTorch's allocator has.  Where a library or the driver gets no memory beside a full cache, PyTorch 2.15 says
# "CUDA error: out of memory" and a new line, or names CUBLAS_STATUS_ALLOC_FAILED: then the program ends at its first batch size.
# CUDNN_STATUS_NOT_SUPPORTED, which is no lack of memory, makes batches smaller until there is none.  A batch that is too large may
# so end a program that was to look for one that fits, or not, by who asked for the last bytes.
#
# `gpuprof run` says which call failed and who held the memory.  The texts are those of PyTorch 2.15, without a GPU.
. "$(dirname "$0")/lib.sh"
packages all torch==2.15.0 accelerate==1.15.0 numpy
cat >"$work/batch.py" <<'END'
import torch
from accelerate.utils import find_executable_batch_size


def tried(error):
    sizes = []

    @find_executable_batch_size(starting_batch_size=16)
    def train(batch_size):
        sizes.append(batch_size)
        if batch_size > 12:
            raise error

    try:
        train()
    except RuntimeError:
        return f"{sizes}, and ends"
    return f"{sizes}"


print("PyTorch's allocator:", tried(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4.00 GiB.")))
print("the driver:", tried(torch.AcceleratorError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in https://docs.nvidia.com/")))
print("cuBLAS:", tried(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")))
print("cuDNN, not supported:", tried(RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED.")))
END
"$work/all/bin/python3" "$work/batch.py" 2>"$work/log" | same "PyTorch's allocator: [16, 14, 12]
the driver: [16], and ends
cuBLAS: [16], and ends
cuDNN, not supported: [16, 14, 12]"
