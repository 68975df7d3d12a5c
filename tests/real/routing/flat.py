# SPDX-License-Identifier: MIT
"""The host's memory does not grow with the steps: flat.py."""
import sys

import torch
from torch.nn import functional

WORDS, EXPERTS, TAKEN, STEPS = 8192, 64, 8, 30


def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4 // 1024


for step in range(STEPS):
    chosen = torch.randn(WORDS, EXPERTS, device="cuda").topk(TAKEN, -1)[1]
    counts = functional.one_hot(chosen, EXPERTS).sum(dim=(0, 1)).tolist()  # of 32 MiB
    if counts != [WORDS * TAKEN // EXPERTS] * EXPERTS:
        sys.exit(f"{counts} words for the experts")
    if step == 5:
        before = resident()
grown = resident() - before
sys.exit(f"{grown} MiB more after {STEPS - 5} steps" if grown > 100 else print("flat"))
