#!/bin/sh
# SPDX-License-Identifier: MIT
# PyTorch 2.15.0: of its 24 509 kernels for compute capability 9.0 those of torch.special.gammainc and gammaincc need by far the
# most stack for each thread: up to 10 232 bytes for float64 and 5136 for float32.  All others but two of NCCL's extension are
# at most 1224 bytes.  NVIDIA says that the driver keeps the largest stack of a kernel for every thread that the GPU can hold: by that
# the first gammainc of one float64 number takes 2.3 GiB of an H100 (270 336 threads), which no counter of PyTorch shows.  The
# stack is read by cuobjdump, which comes with Triton; it needs no GPU.
#
# gpuprof's dry runs count it (docs/dryrun.md, "Stacks of kernels").
. "$(dirname "$0")/lib.sh"
packages all --no-deps torch==2.15.0 triton==3.9.0
site=$(echo "$work"/all/lib/python3*/site-packages)
cat >"$work/most.py" <<'END'
import re
import sys

most, kernels = {}, 0
for name, stack in re.findall(r"Function (\S+):\n.* STACK:(\d+)", sys.stdin.read()):
    kernels += 1
    of = "all others"
    for part, text in (("CalcIgammaId", "gammainc, float64"), ("CalcIgammaIf", "gammainc, float32"), ("reduce_scatter_offset_kernel", "reduce_scatter of NCCL")):
        of = text if part in name else of
    most[of] = max(most.get(of, 0), int(stack))
print("kernels:", kernels)
for of, stack in sorted(most.items()):
    print(f"{of}: up to {stack} bytes of stack")
END
"$site/triton/backends/nvidia/bin/cuobjdump" -arch sm_90 -res-usage "$site/torch/lib/libtorch_cuda.so" 2>"$work/errors" |
    "$work/all/bin/python3" "$work/most.py" | same "kernels: 24509
all others: up to 1224 bytes of stack
gammainc, float32: up to 5136 bytes of stack
gammainc, float64: up to 10232 bytes of stack
reduce_scatter of NCCL: up to 2624 bytes of stack"
