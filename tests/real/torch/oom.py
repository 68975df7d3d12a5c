# SPDX-License-Identifier: MIT
# A device that is full: PyTorch empties its cache and asks again, or raises.
# sim: memory=2GiB
import torch
from common import done, expect, step

blocks = [torch.empty(300 << 20, dtype=torch.uint8, device="cuda") for _ in range(4)]
step("full to the half")
del blocks[1:]
step("cached")
# There is no cached segment of this size, and no room beside the cached ones.
large = torch.empty(900 << 20, dtype=torch.uint8, device="cuda")
expect("it retried", torch.cuda.memory_stats()["num_alloc_retries"] == 1)
step("after the retry")
try:
    torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
    expect("it raises", False)
except torch.OutOfMemoryError as error:
    print(str(error).splitlines()[0])
step("after the error")
del large, blocks
step("freed")
torch.cuda.empty_cache()
step("nothing")
torch.cuda.set_per_process_memory_fraction(0.25)
try:
    torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    expect("the fraction holds", False)
except torch.OutOfMemoryError:
    pass
step("above the fraction")
small = torch.empty(100 << 20, dtype=torch.uint8, device="cuda")
step("below it")
done()
