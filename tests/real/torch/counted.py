# SPDX-License-Identifier: MIT
# Training programs that count their own memory, for the uses that `gpuprof phases` finds.  Prints one line of JSON: the
# bytes that PyTorch's allocator granted for the parameters and buffers, for the gradients (the most over the steps), for
# the optimizer's state, and for what the forward pass saved for the backward pass (the most over the steps).
#   counted.py blocks|stages|chain|gpt adamw|sgd|plain|many [checkpoint]
import json
import sys

import nets
import torch
import torch.utils.checkpoint

model_name, way, *more = sys.argv[1:]


class Attention(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).split(c, dim=2))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Layer(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.first(x))
        return x + self.mlp(self.second(x))


class Gpt(torch.nn.Module):
    """Needs matrix products."""

    def __init__(self, vocabulary=4096, width=256, layers=4):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(256, width)
        self.layers = torch.nn.ModuleList(Layer(width, 4) for _ in range(layers))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary, bias=False)

    def forward(self, x, y):
        x = self.tokens(x) + self.places(torch.arange(x.size(1), device=x.device))
        for layer in self.layers:
            x = layer(x)
        return torch.nn.functional.cross_entropy(self.head(self.norm(x)).flatten(0, 1), y.flatten())


def granted():
    return {block["address"]: block["size"] for segment in torch.cuda.memory_snapshot() for block in segment["blocks"]}


def total(tensors):
    sizes = granted()
    return sum(sizes.get(address, 0) for address in {t.untyped_storage().data_ptr() for t in tensors if t is not None and t.is_cuda})


def forward(model):
    if model_name == "gpt":
        tokens = torch.randint(0, 4096, (2, 4, 256), device="cuda")
        return model(tokens[0], tokens[1])
    x = torch.ones(512, 256, device="cuda")
    if "checkpoint" in more:
        for block in model.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
        return x.square().mean()
    return model(x).square().mean()


model = Gpt().cuda() if model_name == "gpt" else nets.net(model_name)
parameters = list(model.parameters())
optimizer = {"adamw": lambda: torch.optim.AdamW(parameters), "sgd": lambda: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
             "plain": lambda: torch.optim.SGD(parameters, lr=0.1), "many": lambda: torch.optim.Adam(parameters)}[way]()
own = {p.untyped_storage().data_ptr() for p in parameters}
activations = gradients = 0
for number in range(6):
    for _ in range(3 if way == "many" else 1):
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
            loss = forward(model)
        if number:  # the first step is warm-up; afterwards all are the same
            activations = max(activations, total([t for t in saved if t.untyped_storage().data_ptr() not in own]))
        saved.clear()
        loss.backward()
        del loss
    gradients = max(gradients, total([p.grad for p in parameters]))
    optimizer.step()
    optimizer.zero_grad()
states = [value for p in parameters for value in optimizer.state[p].values() if torch.is_tensor(value)]
truth = dict(weights=total([*parameters, *model.buffers()]), gradients=gradients, optimizer=total(states))
if "checkpoint" not in more:  # its backward pass makes most of them again
    truth["activations"] = activations
print(json.dumps(truth), flush=True)
