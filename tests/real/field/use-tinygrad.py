# SPDX-License-Identifier: MIT
# tinygrad's tensors on its CUDA device, which compiles with NVRTC and keeps freed buffers for the next request of that size.
import ctypes
import gc
import importlib.util

# By its full path: the program's environment has no folder of it.
packages = list(importlib.util.find_spec("nvidia").submodule_search_locations)[0]
ctypes.CDLL(packages + "/cuda_nvrtc/lib/libnvrtc.so.12", ctypes.RTLD_GLOBAL)

from common import done, ledger, say, step  # noqa: E402
from tinygrad import Tensor  # noqa: E402

tensors = [Tensor.ones((at + 1) << 20, device="CUDA").contiguous().realize() for at in range(6)]
step("tensors")
say("on", tensors[0].device)
product = (tensors[0] * 2 + 1).realize()
step("a product")
matrix = (Tensor.rand(512, 512, device="CUDA") @ Tensor.rand(512, 512, device="CUDA")).realize()
step("a product of matrices")
del tensors[::2], product
gc.collect()
step("some freed")
again = Tensor.zeros(1 << 20, device="CUDA").contiguous().realize()
step("a buffer that was kept")
say("held", ledger()["reserved_bytes"]["current"])
done()
