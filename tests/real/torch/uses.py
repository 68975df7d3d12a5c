# SPDX-License-Identifier: MIT
# Programs whose memory is known to the byte, for the uses that `gpuprof phases` finds.  Prints one line of JSON:
# the bytes that PyTorch's allocator granted for each use; of gradients the most over the steps.
#   uses.py adam | zeroed | frozen | concat | blocks | graph
import json
import sys

import gpuprof
import torch

kind = sys.argv[1]
truth = {}


def granted(tensors):
    """PyTorch may grant more than it was asked for."""
    sizes = {}
    for segment in torch.cuda.memory_snapshot():
        for block in segment["blocks"]:
            sizes[block["address"]] = block["size"]
    return sum(sizes[tensor.data_ptr()] for tensor in tensors if tensor.numel())


def train(frozen, none):
    """Frozen: half of the weights are not trained.  None: gradients are freed, not set to zero."""
    weights = [torch.nn.Parameter(torch.ones(1024, 384 + 64 * (i % 7), device="cuda")) for i in range(12)]
    biases = [torch.nn.Parameter(torch.ones(1024, 1, device="cuda")) for _ in range(12)]
    if frozen:
        for weight in weights[::2]:
            weight.requires_grad_(False)
    trained = [one for one in weights + biases if one.requires_grad]
    optimizer = torch.optim.Adam(trained)
    most = 0
    for _ in range(20):
        loss = 0
        for weight, bias in zip(weights, biases):
            loss = loss + torch.sigmoid(weight.expand(3, -1, -1) * 2 + bias).sum()
        loss.backward()
        optimizer.step()
        most = max(most, granted([one.grad for one in trained]))
        optimizer.zero_grad(set_to_none=none)
        del loss
    states = [value for one in trained for value in optimizer.state[one].values() if value.is_cuda]
    truth.update(weights=granted(weights + biases), gradients=most, optimizer=granted(states))


def serve(concat):
    weights = [torch.ones(512, 1024 + 128 * i, device="cuda") for i in range(8)]
    cache = [torch.zeros(1, 64, 512, device="cuda") for _ in range(16)] if concat else []
    for _ in range(48):
        for i, weight in enumerate(weights):
            score = torch.sigmoid(weight * 1.5).sum()
            new = score.expand(1, 1, 512) * 2
            if concat:
                cache[2 * i] = torch.cat([cache[2 * i], new], 1)
                cache[2 * i + 1] = torch.cat([cache[2 * i + 1], new], 1)
            else:
                cache.append(new.expand(1, 64, 512).contiguous())
            del score, new
    truth.update(weights=granted(weights), grows=granted(cache))  # without an end: a leak looks the same


def graph():
    weights = [torch.ones(512, 1024 + 128 * i, device="cuda") for i in range(8)]
    x = torch.ones(64, 1, 1, device="cuda")

    def model(y):
        for weight in weights:
            y = torch.sigmoid(y * weight[:64, :64])
        return y

    for _ in range(3):
        model(x)
    graphed = torch.cuda.make_graphed_callables(model, (x,))
    for number in range(24):
        gpuprof.mark(f"step {number}")
        y = graphed(x) * 2
        z = torch.sigmoid(y)
        del y, z
    truth.update(weights=granted(weights))


{"adam": lambda: train(False, True), "zeroed": lambda: train(False, False), "frozen": lambda: train(True, True),
 "concat": lambda: serve(True), "blocks": lambda: serve(False), "graph": graph}[kind]()
print(json.dumps(truth), flush=True)
