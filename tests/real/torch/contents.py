# SPDX-License-Identifier: MIT
# sim: memory=80GiB,contents=none
# A dry run: device memory costs no host memory, small tensors come back, and results of kernels are zeros even where the
# cache put them on the bytes of an older tensor.
import random
import resource

import torch
from common import done, expect, step


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


torch.zeros(8, device="cuda").sum().item()  # loads what the first kernels need
before = resident()
large = [torch.ones(10 << 30, dtype=torch.uint8, device="cuda") for _ in range(6)]
block = torch.ones(64 << 20, dtype=torch.uint8)
for at in range(0, 10 << 30, 64 << 20):
    large[0][at : at + (64 << 20)].copy_(block)
large[1].copy_(large[0])
step("large tensors")
del block
expect("60 GiB cost no host memory", resident() - before < 192 << 20)
print(f"host memory: {(resident() - before) >> 20} MiB")
del large

kept = torch.arange(1000)
there = kept.cuda()
expect("a small tensor comes back", torch.equal(there.cpu(), kept))
random.seed(1)
wrong = 0
for _ in range(200):
    for _ in range(8):
        size = random.choice((1, 2, 100, 1000, 30000))
        old = torch.full((size,), random.randrange(1, 1 << 40)).cuda()
        del old
    x = torch.empty(random.choice((10, 1000, 100000)), device="cuda")
    wrong += x.nonzero().shape[0] != 0
    wrong += bool(x.isnan().any().item())
    wrong += int((x > 0).sum().item()) != 0
    wrong += float(x.mean().item()) != 0
    wrong += bool((x + 1).cpu()[: 1 << 15].any())
    wrong += bool((x.long() + 1)[1:5].tolist() != [0] * len(x[1:5]))
print(f"{wrong} of 1200 results are not zeros")
expect("results are zeros", wrong == 0)
expect("a tensor that no kernel used is still there", torch.equal(there.cpu(), kept))
step("results")
done()
