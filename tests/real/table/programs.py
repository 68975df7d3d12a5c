# SPDX-License-Identifier: MIT
"""programs.py CASE: programs for PyTorch alone, each with one line that holds most at the peak."""
import os
import sys

import torch
from torch import nn


def classifier():
    """Training: its activations are most of the peak."""
    torch.manual_seed(1)
    inner, outer = nn.Linear(256, 4096).cuda(), nn.Linear(4096, 10).cuda()
    optimizer = torch.optim.AdamW([*inner.parameters(), *outer.parameters()])
    for step in range(4):
        x, y = torch.randn(4096, 256, device="cuda"), torch.zeros(4096, dtype=torch.long, device="cuda")
        hidden = [inner(x).relu() for _ in range(4)]
        loss = nn.functional.cross_entropy(outer(sum(hidden)), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step, tuple(hidden[0].shape), torch.cuda.memory_allocated())


def cache():
    """Inference with a cache of keys and values."""
    with torch.no_grad():
        project = nn.Linear(1024, 2048, bias=False, device="cuda", dtype=torch.float16)
        kept = []
        for word in range(64):
            kept.append(project(torch.ones(256, 1024, device="cuda", dtype=torch.float16)))
        keys, values = torch.stack(kept).float().chunk(2, dim=-1)
        print(len(kept), tuple(keys.shape), tuple(values.shape), torch.cuda.max_memory_allocated())


def images():
    """Convolutions, batch normalisation, mixed precision."""
    net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                        nn.Linear(32, 10)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    photographs = torch.zeros(64, 3, 512, 512, device="cuda")
    for step in range(3):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = net(photographs[step * 8:step * 8 + 8])
        out.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        print("step", step, tuple(out.shape), torch.cuda.memory_allocated())


def sentences():
    """A recurrent net, and tensors that go back and forth."""
    words = nn.Embedding(60000, 1024).cuda()
    net = nn.LSTM(1024, 128, batch_first=True).cuda()
    for length in (16, 64, 32):
        out, _ = net(words(torch.zeros(8, length, dtype=torch.long, device="cuda")))
        print("length", length, tuple(out.cpu().shape), torch.cuda.memory_allocated())
    ahead = torch.arange(1 << 18, dtype=torch.int32)
    print("copies come back", torch.equal(ahead.cuda().cpu(), ahead))


def streams():
    """Blocks that cross streams, a graph, pinned memory, an emptied cache."""
    side = torch.cuda.Stream()
    table = torch.zeros(96 << 20, dtype=torch.uint8, device="cuda")
    with torch.cuda.stream(side):
        scratch = torch.zeros(24 << 20, dtype=torch.uint8, device="cuda")
        scratch.record_stream(torch.cuda.current_stream())
    pinned = torch.zeros(1 << 20, dtype=torch.uint8, pin_memory=True)
    table[:1 << 20].copy_(pinned, non_blocking=True)
    del scratch
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    print(tuple(table.shape), torch.cuda.memory_allocated(), torch.cuda.memory_reserved())


def deepspeed():
    """ZeRO of stage 2 with one rank."""
    import deepspeed

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29561", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(6)))
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
        "train_batch_size": 8, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}, "steps_per_print": 1000000000,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}})
    for step in range(3):
        loss = engine(torch.randn(8, 2048, device="cuda", dtype=torch.bfloat16)).float().square().mean()
        engine.backward(loss)
        engine.step()
        print("step", step, torch.cuda.memory_allocated())
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
