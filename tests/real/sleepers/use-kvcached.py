# SPDX-License-Identifier: MIT
# kvcached from its own sources: the tensors of a cache over reserved addresses, whose pages are mapped and unmapped as they are
# used.  PyTorch knows no blocks there: what is mapped is allocated.
# sim: memory=16GiB,contents=none
import random

import torch
from kvcached import vmm_ops
from truth import UNIT, MIB, done, expect, look

PAGE, LAYERS, BUFFERS = 2 * MIB, 4, 2
first = torch.zeros(1, device="cuda:0")
held = torch.empty(UNIT, dtype=torch.uint8, device="cuda:0")
look("a tensor")
for contiguous in (True, False):
    vmm_ops.init_kvcached("cuda:0", PAGE, contiguous)
    kind = "contiguous" if contiguous else "per layer"
    look(f"{kind}: started")
    before = torch.cuda.memory_allocated()
    cache = vmm_ops.create_kv_tensors(UNIT, 2, "cuda:0", LAYERS, BUFFERS, 0)
    look(f"{kind}: the tensors of a cache")
    expect(f"{kind}: PyTorch has no block of it", torch.cuda.memory_allocated() == before)
    step = PAGE * LAYERS * BUFFERS if contiguous else PAGE
    offsets = [step * i for i in range(UNIT // step // (1 if contiguous else BUFFERS))]
    vmm_ops.map_to_kv_tensors(offsets[:16], 0)
    look(f"{kind}: pages are mapped")
    vmm_ops.unmap_from_kv_tensors(offsets[:8], 0)
    look(f"{kind}: half of them are unmapped")
    draw, mapped = random.Random(1), set(offsets[8:16])
    for turn in range(80):
        several = draw.sample(offsets, draw.randrange(1, 6))
        if draw.random() < 0.5:
            vmm_ops.map_to_kv_tensors([offset for offset in several if offset not in mapped], 0)
            mapped.update(several)
        else:
            vmm_ops.unmap_from_kv_tensors([offset for offset in several if offset in mapped], 0)
            mapped.difference_update(several)
        look(f"{kind}: turn {turn}")
        if draw.random() < 0.3:
            held = None
            held = torch.empty(draw.randrange(1, 64) * MIB, dtype=torch.uint8, device="cuda:0")
            look(f"{kind}: turn {turn}, another tensor")
    del cache
    vmm_ops.shutdown_kvcached()
    look(f"{kind}: ended")
done()
