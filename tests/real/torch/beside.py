# SPDX-License-Identifier: MIT
# Another library finds no memory while PyTorch has some idle, and no MemPool or graph was ever made.  Exits with 1, so that
# the page about it is printed (tests/real/torch.sh).
# sim: memory=2GiB
import ctypes
import sys

import torch

idle = torch.empty(700 << 20, dtype=torch.uint8, device="cuda")
kept = torch.empty(600 << 20, dtype=torch.uint8, device="cuda")
del idle
runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
sys.exit(runtime.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(800 << 20)) != 0)
