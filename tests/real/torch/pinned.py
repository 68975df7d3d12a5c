# SPDX-License-Identifier: MIT
# Pinned memory is the host's: it does not count for the device.
# sim: contents=keep
import torch
from common import done, expect, step

step("nothing")
pinned = torch.empty(30 << 20, dtype=torch.uint8).pin_memory()
expect("it is pinned", pinned.is_pinned())
step("pinned")
there = pinned.to("cuda", non_blocking=True)
step("copied from it")
back = torch.empty(30 << 20, dtype=torch.uint8, pin_memory=True)
back.copy_(there, non_blocking=True)
torch.cuda.synchronize()
expect("its bytes", torch.equal(pinned, back))
step("and back")
del pinned, back
step("freed")
done()
