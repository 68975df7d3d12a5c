# SPDX-License-Identifier: MIT
# Two devices: each has its own numbers.
# sim: devices=2
import torch
from common import done, expect, step

expect("two devices", torch.cuda.device_count() == 2)
step("nothing")
first = torch.empty(10 << 20, dtype=torch.uint8, device="cuda:0")
step("on the first")
second = torch.empty(70 << 20, dtype=torch.uint8, device="cuda:1")
step("on the second")
copied = first.to("cuda:1")
step("a copy between them")
with torch.cuda.device(1):
    third = torch.zeros(1 << 22, device="cuda")
step("the second one is current")
del first, second
torch.cuda.empty_cache()
step("an empty cache")
del copied, third
with torch.cuda.device(1):
    torch.cuda.empty_cache()
step("nothing left")
done()
