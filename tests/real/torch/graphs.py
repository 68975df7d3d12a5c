# SPDX-License-Identifier: MIT
# A captured graph owns a private pool, which two graphs may share, and which outlives the tensors.
import torch
from common import done, step

fixed = torch.zeros(1 << 20, device="cuda")
step("before")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    inner = fixed * 2
    outer = inner + 1
step("captured")
for _ in range(3):
    graph.replay()
torch.cuda.synchronize()
step("replayed")
second = torch.cuda.CUDAGraph()
with torch.cuda.graph(second, pool=graph.pool()):
    more = torch.empty(30 << 20, dtype=torch.uint8, device="cuda").fill_(3)
step("a second graph in the same pool")
second.replay()
del inner, outer, more
torch.cuda.empty_cache()
step("the graphs keep their pool")
graph.reset()
torch.cuda.empty_cache()
step("one graph less")
second.reset()
del graph, second
torch.cuda.empty_cache()
step("no graph")
done()
