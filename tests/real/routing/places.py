# SPDX-License-Identifier: MIT
"""Where programs call a router: each place gives each expert as many words as the others, and each way to run the experts of a loop
gives them their words.  places.py; prints "all" at the end."""
import os
import sys
import threading

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

ROWS, EXPERTS, TAKEN = 96, 16, 2


def scores():
    return torch.randn(ROWS, EXPERTS, device="cuda")


def counts(indices):
    return torch.bincount(indices.flatten(), minlength=EXPERTS).tolist()


def inference():
    with torch.inference_mode():
        return counts(scores().topk(TAKEN)[1])


def autocast():
    with torch.autocast("cuda", torch.bfloat16):
        return counts((scores() @ torch.randn(EXPERTS, EXPERTS, device="cuda")).softmax(-1).topk(TAKEN)[1])


def vmap():
    return counts(torch.vmap(lambda s: s.topk(TAKEN)[1])(scores().view(4, ROWS // 4, EXPERTS)))


def gradient():
    def loss(weight):
        nonlocal chosen
        value, chosen = (torch.ones(ROWS, 8, device="cuda") @ weight).topk(TAKEN)
        return value.sum()

    chosen = None
    weight = torch.randn(8, EXPERTS, device="cuda", requires_grad=True)
    loss(weight).backward()
    return counts(chosen)


def threads():
    def run():
        found.extend(counts(scores().topk(TAKEN)[1]) for _ in range(20))

    found = []
    several = [threading.Thread(target=run) for _ in range(4)]
    for thread in several:
        thread.start()
    for thread in several:
        thread.join()
    return found[0] if found == found[:1] * 80 else found


def checkpointed(reentrant):
    def block(x):
        value, chosen = (x @ weight).topk(TAKEN)
        found.append(counts(chosen))
        return value.exp().sum()

    found, weight = [], nn.Parameter(torch.randn(8, EXPERTS, device="cuda"))
    checkpoint(block, torch.randn(ROWS, 8, device="cuda", requires_grad=True), use_reentrant=reentrant).backward()
    return found[0] if found == found[:1] * 2 else found


def again():
    return checkpointed(False)


def reentrant():
    return checkpointed(True)


def default_device():
    torch.set_default_device("cuda")
    try:
        return counts(torch.randn(ROWS, EXPERTS).topk(TAKEN)[1])
    finally:
        torch.set_default_device(None)


def modes():
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False):
        return counts(scores().topk(TAKEN)[1])


def saved():
    with torch.autograd.graph.save_on_cpu():
        weight = torch.randn(8, EXPERTS, device="cuda", requires_grad=True)
        value, chosen = (torch.randn(ROWS, 8, device="cuda") @ weight).topk(TAKEN)
        (value * 2).sum().backward()
        return counts(chosen)


def stream():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        per = torch.bincount(scores().topk(TAKEN)[1].flatten(), minlength=EXPERTS)
        host = torch.empty(EXPERTS, dtype=torch.long, pin_memory=True)
        host.copy_(per, non_blocking=True)
    side.synchronize()
    return host.tolist()


def graph():
    given, captured, side = scores(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        given.topk(TAKEN)
    with torch.cuda.graph(captured):
        chosen = given.topk(TAKEN)[1].flatten()
        per = torch.zeros(EXPERTS, device="cuda", dtype=torch.long).scatter_add_(0, chosen, torch.ones_like(chosen))
    captured.replay()
    captured.replay()
    return per.tolist()


def child():
    """A child without a GPU computes what it did."""
    if not (pid := os.fork()):
        x = torch.tensor([[1.0, 2, 3]])
        os._exit(x.topk(2)[1].tolist() != [[2, 1]] or (x + 1).sum().item() != 9)
    return wanted if os.waitpid(pid, 0)[1] == 0 else "a failed child"


class Loop(nn.Module):
    def __init__(self, find):
        super().__init__()
        self.find, self.words = find, []
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(EXPERTS))

    def forward(self, x):
        weights, chosen = scores().softmax(-1).topk(TAKEN)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = self.find(chosen == number)
            part = expert(x[rows])
            self.words.append(len(part))
            out = out.index_add(0, rows, part) if rows.dtype == torch.long else out.masked_scatter(rows[:, None], part)
        return out


def loop(find):
    model = Loop(find).cuda()
    model(torch.randn(ROWS, 8, device="cuda")).sum().backward()
    return model.words


def where():
    return loop(lambda mask: torch.where(mask)[0])


def nonzero():
    return loop(lambda mask: mask.nonzero(as_tuple=True)[0])


def mask():
    return loop(lambda mask: mask.any(-1))


failed, wanted = 0, [ROWS * TAKEN // EXPERTS] * EXPERTS
for place in (
    *(inference, autocast, vmap, gradient, threads, again, reentrant, default_device, modes),
    *(saved, stream, graph, child, where, nonzero, mask),
):
    found = place()
    if found != wanted:
        failed += 1
        print(f"{place.__name__}: {found}")
sys.exit(f"{failed} failed" if failed else print("all"))
