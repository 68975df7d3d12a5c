# SPDX-License-Identifier: MIT
# Streams: a block that another stream uses goes back to the cache when its event has passed.
import torch
from common import done, step

one, two = torch.cuda.Stream(), torch.cuda.Stream()
for at in range(20):
    with torch.cuda.stream(one):
        block = torch.empty((at + 1) << 20, dtype=torch.uint8, device="cuda")
    with torch.cuda.stream(two):
        block.zero_()
        block.record_stream(two)
    del block
    step(f"record_stream {at}")
torch.cuda.synchronize()
step("synchronized")
event = torch.cuda.Event(enable_timing=True)
event.record(one)
two.wait_event(event)
event.synchronize()
with torch.cuda.stream(two):
    kept = torch.ones(3 << 20, device="cuda")
step("another stream's pool")
torch.cuda.empty_cache()
step("an empty cache")
del kept
torch.cuda.empty_cache()
step("nothing")
done()
