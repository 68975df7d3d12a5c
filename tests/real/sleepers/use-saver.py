# SPDX-License-Identifier: MIT
# torch_memory_saver from its own sources: regions with tags, paused and resumed, and a graph whose memory is.
# use-saver.py MODE: preload (its cudaMalloc in front of CUDA's) or torch (a pool of PyTorch's).
# sim: devices=2,memory=16GiB,contents=none
import os
import random
import sys

import torch
from torch_memory_saver import torch_memory_saver as saver
from truth import UNIT, MIB, done, expect, look

mode = sys.argv[1]
saver.hook_mode = mode
first = torch.zeros(1, device="cuda:0")
look("before")


def tensors(tag, count, size, device=0, **more):
    with torch.cuda.device(device), saver.region(tag=tag, **more):
        return [torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}") for _ in range(count)]


weights = tensors("weights", 3, UNIT)
look("weights")
cache = tensors("kv", 2, 2 * UNIT)
look("a cache")
kept = tensors("kept", 1, 64 * MIB, enable_cpu_backup=True)
look("a tensor with a copy")
outside = torch.empty(200 * MIB, dtype=torch.uint8, device="cuda:0")
look("a tensor outside")
saver.pause("kv")
expect("four sleep", look("the cache sleeps")[0]["asleep_bytes"] == 4 * UNIT)
saver.pause("weights")
look("weights too")
more = torch.empty(6 * UNIT, dtype=torch.uint8, device="cuda:0")
look("another uses the room")
del more
torch.cuda.empty_cache()
look("and gives it back")
saver.resume("weights")
look("weights are awake")
saver.resume("kv")
look("all are awake")
saver.pause()
look("all sleep")
saver.resume()
look("all are awake again")
saver.pause("kept")
look("the one with a copy sleeps")
saver.resume("kept")
look("the one with a copy is awake")
other = torch.zeros(1, device="cuda:1")
second = tensors("weights", 2, UNIT, 1)
look("a second device")
saver.pause("weights")
look("weights of both sleep")
saver.resume("weights")
look("weights of both are awake")
small = tensors("small", 40, 300 * 1024)
look("small ones")
saver.pause("small")
look("small ones asleep")
del small[::2]
look("half of them freed asleep")
saver.resume("small")
look("the others awake")
if mode == "preload":
    graph = torch.cuda.CUDAGraph()
    static = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda:0")
    with saver.cuda_graph(graph, tag="graph"):
        made = static + 1
        summed = made + static
    look("a graph")
    saver.pause("graph")
    look("the graph's memory sleeps")
    saver.resume("graph")
    look("the graph's memory is awake")
    graph.replay()
    look("a replay")

draw = random.Random(1)
live, paused = {}, set()
for turn in range(200):
    what = draw.choice(("region", "outside", "free", "free", "turn", "turn"))
    tag = draw.choice(("weights", "kv", "small"))
    device = draw.randrange(2)
    if what == "region" and tag not in paused:
        live[turn] = tensors(tag, draw.randrange(1, 4), draw.choice((1000, 3 * MIB, 70 * MIB)), device)
    elif what == "outside":
        live[turn] = torch.empty(draw.choice((1000, 5 * MIB, 40 * MIB)), dtype=torch.uint8, device=f"cuda:{device}")
    elif what == "free" and live:
        del live[draw.choice(list(live))]
    elif what == "turn":
        (saver.resume if tag in paused else saver.pause)(tag)
        paused ^= {tag}
    look(f"turn {turn}: {what}")
for tag in paused:
    saver.resume(tag)
look("all awake after the turns")
del live, weights, cache, kept, outside, second, small, first, other
look("all is freed")
try:
    done()
except SystemExit as end:
    # Its pools of PyTorch's do not outlive the interpreter: also without gpuprof the process would end with SIGSEGV.
    sys.stdout.flush()
    os._exit(end.code)
