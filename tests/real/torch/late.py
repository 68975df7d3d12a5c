# SPDX-License-Identifier: MIT
# Another library starts CUDA and allocates before PyTorch is imported.
import ctypes

driver = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
assert driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(10 << 20)) == 0

import torch
from common import done, step

step("before PyTorch starts", other=10 << 20)
kept = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
step("both", other=10 << 20)
more = [torch.empty(5 << 20, dtype=torch.uint8, device="cuda") for _ in range(20)]
del kept
torch.cuda.empty_cache()
step("PyTorch frees", other=10 << 20)
done()
