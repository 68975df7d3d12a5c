# SPDX-License-Identifier: MIT
# Segments that grow: addresses are reserved once, and pages are mapped into them.
import os

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
import torch
from common import done, step

blocks = []
for at in range(12):
    blocks.append(torch.empty((5 * at + 1) << 20, dtype=torch.uint8, device="cuda"))
    step(f"grows {at}")
del blocks[::2]
step("holes")
torch.cuda.empty_cache()
step("pages of the holes unmapped")
blocks.append(torch.empty(100 << 20, dtype=torch.uint8, device="cuda"))
step("grows again")
small = [torch.empty(1000, device="cuda") for _ in range(3000)]
step("small blocks")
del small, blocks
step("freed")
torch.cuda.empty_cache()
step("nothing")
other = torch.cuda.Stream()
with torch.cuda.stream(other):
    one = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
two = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
step("a segment for each stream")
done()
