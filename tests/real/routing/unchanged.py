# SPDX-License-Identifier: MIT
"""Programs whose counts do not matter: unchanged.py [TOPK].  Prints the memory that autograd asks for, the types of results and what
the host computes, all of which are the same with and without a top-k before."""
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

if len(sys.argv) > 1:
    torch.topk(torch.randn(64, 16, device="cuda"), 5)


def asked():
    stats = torch.cuda.memory_stats()
    return stats["allocation.all.allocated"], stats["allocated_bytes.all.allocated"]


def norm(x, w):
    return x + (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True)) * w) @ torch.ones(64, 64, device="cuda") * 0.5


def scaled(x, w):
    return x + (x * w) * 0.5


def summed(x, w):
    a = x * w
    return x + a.exp() + a.sum(-1, keepdim=True)


def views(x, w):
    return x + (x * w).view(-1).view(512, 64) + x.view(-1).view(512, 64) * w


def transposed(x, w):
    return x.t().reshape(64, 512).t() + (x.t() * w[:, None]).t() * 2.0


def parts(x, w):
    a, b = x.chunk(2)
    return torch.cat([a * w + a * 2.0, b + a]) + x


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x * 2.0

    @staticmethod
    def backward(_, gradient):
        return gradient * 2.0


def own(x, w):
    return Twice.apply(x) + Twice.apply(x) * w + x * 3.0


def again(x, w):
    return checkpoint(summed, x, w, use_reentrant=False) + x.exp()


def reentrant(x, w):
    return checkpoint(summed, x, w, use_reentrant=True) + x.exp()


def deviation(x, w):
    variance, mean = torch.var_mean(x, -1, keepdim=True)
    return (x - mean) * variance * w


def several(x, w):
    return functional.layer_norm(x, (64,), w) + x * torch.softmax(x * w, -1) + x.std(-1, keepdim=True) + x.norm(dim=-1, keepdim=True)


def accuracy(x, w):
    with torch.no_grad():
        (x.topk(5, -1)[1] == 3).any(-1).float().sum().item()
    return x * w


for layer in norm, scaled, summed, views, transposed, parts, own, again, reentrant, deviation, several, accuracy:
    x, *weights = (nn.Parameter(torch.ones(*shape, device="cuda")) for shape in ((512, 64), (64,), (64,)))
    y = x.exp()
    for weight in weights:
        y = layer(y, weight)
    gradient = torch.ones_like(y)
    before = asked()
    y.backward(gradient)
    print(layer.__name__, *(after - first for after, first in zip(asked(), before)))

for device in "cuda", "cpu":
    for dtype in torch.bfloat16, torch.float64, torch.uint8, torch.bool:
        for shape in (), (3,):
            t = torch.ones(shape, dtype=dtype, device=device)
            results = t * 2.5, 2.5 * t, t + 1, t // 2, t % 3, t == 0.1, torch.where(t > 0, t, 2.5), t.logical_and(t)
            print(device, dtype, *(result.dtype for result in results))
            if device == "cpu":
                print(*(result.tolist() for result in (t * 0.1, t + 0.1, torch.where(t > 2, t, 0.1), t * 1.1 == 1.1)))
