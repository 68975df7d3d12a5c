# SPDX-License-Identifier: MIT
# Pools of the program's own: their segments are not shared with the default pool.
import torch
from common import done, step

pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    inside = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
    step("in the pool")
    small = torch.empty(10, device="cuda")
    step("a small one in the pool")
outside = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
step("outside")
del inside, small
step("the pool has only free blocks")
torch.cuda.empty_cache()
step("an empty cache")
del pool
torch.cuda.empty_cache()
step("without the pool")
del outside
torch.cuda.empty_cache()
step("nothing")
done()
