# SPDX-License-Identifier: MIT
# Trains layers without matrix products, which the simulated GPU lacks, with Adam: the first step makes the
# optimizer's state.  --leak keeps the loss of each step with its graph; --lengths has steps of other lengths.
import sys

import torch
from common import done, step

import gpuprof

torch.manual_seed(1)
layers = [torch.nn.Parameter(torch.ones(1024, 512, device="cuda")) for _ in range(8)]
optimizer = torch.optim.Adam(layers)
kept = []
for number in range(20):
    gpuprof.mark(f"step {number}")
    rows = 1024 * (4 + number * 7 % 5 if "--lengths" in sys.argv else 4)
    x = torch.ones(rows // 1024, 1024, 512, device="cuda")
    for weight in layers:
        x = torch.sigmoid(x * weight)
    loss = x.sum()
    if "--leak" in sys.argv:
        kept.append(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del x, loss
    step(f"step {number}")
gpuprof.mark("step 20")
done()
