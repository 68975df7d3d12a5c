# SPDX-License-Identifier: MIT
# Tensors of all sizes, kernels, copies and the cache.
# sim: contents=keep
import gpuprof
import torch
from common import done, expect, step

assert torch.cuda.is_available()
step("nothing")
small = torch.empty(100, device="cuda")
step("a small tensor")
large = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
step("a large one")
many = [torch.zeros(n, device="cuda") for n in (1, 127, 10_000, 300_000, 5_000_000, 1_000_003)]
step("many")
total = small + 1
total *= 2
step("kernels")
ahead = torch.arange(1 << 20, dtype=torch.int32)
there = ahead.cuda()
back = there.cpu()
expect("copies copy bytes", torch.equal(ahead, back))
step("copies")
del large
step("freed into the cache")
again = torch.empty(40 << 20, dtype=torch.uint8, device="cuda")
step("out of the cache")
del small, many, total, there, again
step("all freed")
torch.cuda.empty_cache()
step("an empty cache")
weights = [torch.empty(16 << 20, device="cuda") for _ in range(10)]
for _ in range(3):
    activations = [torch.empty(n << 20, dtype=torch.uint8, device="cuda") for n in (33, 90, 7, 1, 250)]
    step("forward")
    del activations
    gradients = [torch.empty_like(w) for w in weights]
    step("backward")
    del gradients
torch.cuda.empty_cache()
step("weights alone")
try:
    weights[0].view(4096, 4096) @ weights[1].view(4096, 4096)
except RuntimeError as error:
    print("matmul:", str(error).splitlines()[0])
took = gpuprof.memory_reserved() - torch.cuda.memory_reserved()
print(f"cuBLAS took {took} bytes itself, which PyTorch does not count")
expect("what a handle of cuBLAS takes on capability 9.0", took in (0, 32 << 20 if torch.version.cuda < "13" else (64 << 20) + 131072 + 1024))
done()
