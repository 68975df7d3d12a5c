# SPDX-License-Identifier: MIT
"""A net whose outputs are kept, as they are or on the host, without a graph or with one, for tests/real/try.sh:
kept.py [HOW [graph]].  Prints the peak of PyTorch's allocator."""
import sys

import torch
import torch.nn as nn

how = sys.argv[1] if len(sys.argv) > 1 else ""
net = nn.Sequential(nn.Linear(4096, 8192), nn.ReLU(), nn.Linear(8192, 4096)).cuda()
kept = []
with torch.set_grad_enabled("graph" in sys.argv):
    for _ in range(8):
        out = net(torch.zeros(2048, 4096, device="cuda"))
        kept.append(out.detach().cpu() if how == "host" else out)
print("peak", torch.cuda.max_memory_allocated(), flush=True)
