# SPDX-License-Identifier: MIT
"""Measures what people have published of the memory of real GPUs, and compares: python3 measure.py TABLE GPU WORKSPACES [CASE ARGUMENTS].

Each case yields the names and values of its quantities in the order in which its source takes them.  A row of the table that
names a quantity which the case does not yield is a failure.  Values are compared in as many digits as were published.
"""
import functools
import gc
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

allocated, reserved = torch.cuda.memory_allocated, torch.cuda.memory_reserved
peak, reserved_peak, reset = torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved, torch.cuda.reset_peak_memory_stats
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def median_of_ten(run):
    """The peak in MiB as Liger-Kernel's benchmarks take it; what the first runs leave is part of the later ones."""
    peaks = []
    for _ in range(10):
        reset()
        run()
        peaks.append(peak() / MIB)
    return torch.tensor(peaks, dtype=torch.float).quantile(0.5).item()


def repeat(forward, gradient):
    return median_of_ten(lambda: forward().backward(gradient() if gradient else None, retain_graph=True))


def cross_entropy(words):
    x, target = torch.randn(8 * 2048, words, device="cuda", requires_grad=True), torch.zeros(8 * 2048, dtype=torch.long, device="cuda")
    loss = nn.CrossEntropyLoss()
    yield "peak_mib", median_of_ten(lambda: loss(x, target).backward())


def layer_norm(width):
    other, norm = nn.LayerNorm(width).cuda(), nn.LayerNorm(width, eps=1e-6).cuda()  # the benchmark holds the compared one too
    x = torch.randn(4096, width, device="cuda")
    gradient = torch.randn_like(x)
    x.requires_grad_(True)
    yield "peak_mib", repeat(lambda: norm(x), lambda: gradient)
    del other


def rms_norm(width):
    other, weight = torch.ones(width, device="cuda"), nn.Parameter(torch.ones(width, device="cuda"))
    x = torch.randn(2048, width, dtype=torch.bfloat16, device="cuda")
    gradient = torch.randn_like(x)
    x.requires_grad_(True)

    def forward():
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return weight * y.to(torch.bfloat16)
    yield "peak_mib", repeat(forward, lambda: gradient)
    del other


def rope(width, length):
    heads, pairs, size = 32, 8, width // 32
    q, k = (torch.randn(1, length, n, size, dtype=torch.bfloat16, device="cuda", requires_grad=True).transpose(1, 2)
            for n in (heads, pairs))
    gradients = torch.randn_like(q), torch.randn_like(k)
    places = torch.arange(length, device="cuda").unsqueeze(0)
    frequencies = 1.0 / 10000 ** (torch.arange(0, size, 2, device="cuda").float() / size)
    angles = (frequencies[None, :, None] @ places[:, None, :].float()).transpose(1, 2)  # a product: it takes a workspace
    angles = torch.cat((angles, angles), -1)
    cos, sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
    del angles

    def turned(x):
        first, second = x[..., :size // 2], x[..., size // 2:]
        return torch.cat((-second, first), -1)

    def run():
        c, s = cos.unsqueeze(1), sin.unsqueeze(1)
        out = q * c + turned(q) * s, k * c + turned(k) * s
        torch.autograd.grad(out, (q, k), gradients, allow_unused=True, retain_graph=True)
    yield "peak_mib", median_of_ten(run)


def gated(activation, batch, length, mode):
    x = torch.randn(batch, length, 4096, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    gate, up, down = (nn.Linear(a, b, bias=False).cuda().to(torch.bfloat16)
                      for a, b in ((4096, 11008), (4096, 11008), (11008, 4096)))

    def forward():
        return down(activation(gate(x)) * up(x))
    # The benchmark has taken its times before, so both threads have the workspace of cuBLAS.
    y = forward()
    y.backward(torch.randn_like(y))
    for held in x, gate.weight, up.weight, down.weight:
        held.grad = None
    del y
    if mode == "forward":
        yield "peak_mib", median_of_ten(forward)
    elif mode == "backward":
        gradient, y = torch.randn_like(x), forward()
        yield "peak_mib", median_of_ten(lambda: y.backward(gradient, retain_graph=True))
    else:
        def full():
            y = forward()
            y.backward(torch.randn_like(y), retain_graph=True)
        yield "peak_mib", median_of_ten(full)


def swiglu(length):
    return gated(functional.silu, 4, length, "full")


def geglu(length, mode):
    return gated(functools.partial(functional.gelu, approximate="tanh"), 8, length, mode)


def kl_div(words):
    x, target = torch.randn(8 * 2048, words, device="cuda", requires_grad=True).log_softmax(-1), \
        torch.randn(8 * 2048, words, device="cuda").softmax(-1)
    loss = nn.KLDivLoss(reduction="batchmean")
    yield "peak_mib", median_of_ten(lambda: loss(x, target).backward(retain_graph=True))


def jsd(rows, words):
    x, target = (torch.randn(rows, words, device="cuda", requires_grad=own).log_softmax(-1) for own in (True, False))
    loss = nn.KLDivLoss(reduction="none", log_target=True)

    def forward():
        p, q = target.to(torch.float), x.to(torch.float)
        p, q = p.view(-1, words), q.view(-1, words)
        m = torch.lerp(torch.exp(q), torch.exp(p), 0.5)
        y = 0.5 * loss(torch.log(m), p).sum(-1) + 0.5 * loss(torch.log(m), q).sum(-1)
        return (y / q.shape[0]).sum()
    yield "peak_mib", median_of_ten(lambda: forward().backward(retain_graph=True))


def first_linear():
    """pytorch/pytorch#104604"""
    layer = nn.Linear(1024, 1024, bias=False).cuda()
    yield "weights_mib", allocated() / MIB
    x = torch.rand(1, 512, 1024).cuda()
    y = layer(x)
    yield "forward_mib", allocated() / MIB
    yield "peak_mib", peak() / MIB
    del y


def small_linear():
    """pytorch/pytorch#95668"""
    nn.Linear(1, 1, device="cuda")(torch.randn(1, 1, device="cuda"))
    gc.collect()
    yield "left", allocated()


def convolution():
    """pytorch/pytorch#38568: the input alone"""
    layer, x = nn.Conv3d(64, 64, 3, padding=1).cuda(), torch.randn(1, 64, 24, 512, 512, device="cuda")
    yield "input_mib", allocated() / MIB
    yield "peak_mib", peak() / MIB
    del layer, x


def zeros():
    """stas00/ml-engineering, debugging of memory"""
    a, b = (torch.zeros(100_000, 10_000, device="cuda") for _ in range(2))
    del b
    for name, value in (("kept", allocated), ("peak", peak), ("reserved", reserved), ("reserved_peak", reserved_peak)):
        yield name + "_gib", value() / GIB
    reset()
    del a
    yield "after_gib", allocated() / GIB
    yield "after_peak_gib", peak() / GIB
    yield "after_reserved_gib", reserved() / GIB


def adapter():
    """torchtune: a linear layer of 512 with an adapter of rank 8"""
    layers = [nn.Linear(a, b, bias=False, device="cuda") for a, b in ((512, 512), (512, 8), (8, 512))]
    yield "weights", allocated()
    del layers


def small_tensor():
    yield "reserved_before", reserved()
    x = torch.randn(1024, device="cuda")
    yield "reserved", reserved()
    yield "allocated", allocated()
    del x
    yield "reserved_freed", reserved()
    torch.cuda.empty_cache()
    yield "reserved_after", reserved()


def hourglass():
    """tamera-lanham/mlab"""
    sizes = [16, 1 << 5, 1 << 10, 1 << 20, 1 << 10, 1 << 5, 16]
    x, wanted = torch.randn(sizes[0], device="cuda"), torch.randn(sizes[-1], device="cuda")
    model = nn.Sequential(*(nn.Linear(a, b, False, "cuda") for a, b in zip(sizes, sizes[1:])))
    yield "weights_gib", allocated() / GIB
    loss = functional.mse_loss(model(x), wanted)
    yield "forward_gib", allocated() / GIB
    loss.backward()
    yield "backward_gib", allocated() / GIB


def memlab_linear(form):
    """Stonesjtu/pytorch_memlab, its page"""
    first, x = nn.Linear(1024, 1024).cuda(), torch.empty(512, 1024, device="cuda")
    model = first
    if form == "shared":
        second = nn.Linear(1024, 1024).cuda()
        second.weight = first.weight
        model = nn.Sequential(first, second)
    yield "weights_mib", allocated() / MIB - 2  # the input was made after them
    y = model(x * (x + 2) if form == "product" else x).mean()
    yield "forward_mib", allocated() / MIB
    y.backward()
    yield "backward_mib", allocated() / MIB


def memlab_layers():
    layers = []
    for i in range(1, 4):
        layers.append(nn.Linear(100, 100).cuda())
        yield f"peak{i}_kib", torch.cuda.memory_stats()["active_bytes.all.peak"] / KIB
        yield f"reserved{i}_mib", reserved_peak() / MIB


def residual_network():
    """A ResNet-18 with AdamW, one image; without cuDNN, whose workspaces are assumed"""
    torch.backends.cudnn.enabled = False

    class Block(nn.Module):
        def __init__(self, inner, outer, stride):
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer)
            self.conv2, self.norm2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)
            self.narrow = None
            if stride != 1:
                self.narrow = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

        def forward(self, x):
            kept, y = x, functional.relu(self.norm1(self.conv1(x)), inplace=True)
            y = self.norm2(self.conv2(y))
            if self.narrow is not None:
                kept = self.narrow(x)
            y += kept
            return functional.relu(y, inplace=True)

    widths = (64, 64), (64, 64), (64, 128), (128, 128), (128, 256), (256, 256), (256, 512), (512, 512)
    model = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
                          *(Block(a, b, 1 if a == b else 2) for a, b in widths), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(),
                          nn.Linear(512, 1000)).cuda()
    yield "weights_mib", allocated() / MIB
    x = torch.randn(1, 3, 224, 224, device="cuda")
    yield "input_mib", allocated() / MIB
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    yield "optimizer_mib", allocated() / MIB
    y = model(x)
    yield "forward_mib", allocated() / MIB
    y.mean().backward()
    yield "backward_mib", allocated() / MIB
    optimizer.step()
    yield "step_mib", allocated() / MIB


def checkpointed(model, parts, x, kept):
    """facebookresearch/fairscale, test_checkpoint_activations.py: KEPT parts keep their activations"""
    model.cuda()
    x = x.requires_grad_(True).to("cuda")  # a copy: the gradient of the input lies on the host
    yield "start", allocated()
    reset()
    y = x
    for part, again in parts:
        y = checkpoint(part, y, use_reentrant=True) if again and not kept else part(y)
    loss = y.sum()
    del y
    yield "forward", allocated()
    loss.backward()
    yield "backward", allocated()
    norm = torch.stack([p.grad.detach().norm() for p in model.parameters()]).norm()
    loss.item(), norm.item()
    yield "peak", peak()


def feed_forward(kept):
    inner, last = nn.Sequential(nn.Linear(32, 128), nn.Dropout(0.5), nn.Linear(128, 32)), nn.Linear(32, 1)
    return checkpointed(nn.ModuleList([inner, last]), [(inner, True), (last, False)], torch.rand(2, 16, 32), kept)


def nine_layers(kept):
    sizes = 4, 4, 4, 8, 4, 4, 4, 6, 8, 2
    layers = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]
    parts = nn.ModuleList(nn.Sequential(*layers[i:i + 3]) for i in (0, 3, 6))
    return checkpointed(parts, [(part, True) for part in parts], torch.rand(60, 24, 4), kept)


def vision_transformer():
    """pytorch/tutorials, the optimizer's step in the backward pass: ViT-L/16, one image, Adam"""
    torch.backends.cudnn.enabled = False
    width = 1024

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
            self.attend = nn.MultiheadAttention(width, 16, batch_first=True)
            self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x):
            y = self.norm1(x)
            x = x + self.attend(y, y, y, need_weights=False)[0]
            return x + self.feed(self.norm2(x))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, width, 16, 16)
            self.first, self.places = (nn.Parameter(torch.zeros(1, n, width)) for n in (1, 197))
            self.blocks = nn.Sequential(*(Block() for _ in range(24)))
            self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 1000)

        def forward(self, x):
            x = torch.cat([self.first, self.patches(x).reshape(1, width, 196).permute(0, 2, 1)], 1)
            return self.head(self.norm(self.blocks(x + self.places))[:, 0])

    with torch.device("cuda"):
        model = Model()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        reset()
        model(torch.rand(1, 3, 224, 224).cuda()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    yield "step_gb", peak() / 1e9
    del optimizer
    each = {p: torch.optim.Adam([p], foreach=False) for p in model.parameters()}

    def hook(p):
        each[p].step()
        each[p].zero_grad()
    hooks = [p.register_post_accumulate_grad_hook(hook) for p in model.parameters()]
    for _ in range(3):
        reset()
        model(torch.rand(1, 3, 224, 224).cuda()).sum().backward()
    yield "hooks_gb", peak() / 1e9
    for hook in hooks:
        hook.remove()  # they hold the parameters, in a cycle that Python does not see


def fresh():
    torch.backends.cudnn.enabled = True
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    reset()
    if allocated() or reserved():
        print(f"FAILED  {allocated()} bytes are left of the case before")


def main():
    rows = {}
    for line in open(sys.argv[1]):
        words = line.split()
        if words[:2] == sys.argv[2:4] and words[2:4][:len(sys.argv) - 4] == sys.argv[4:]:
            _, _, case, arguments, quantity, published = words
            rows.setdefault((case, arguments), {})[quantity] = published
    torch.cuda.init()
    for (case, arguments), wanted in rows.items():
        fresh()
        values = [int(word) if word.isdigit() else word for word in arguments.split(",") if word != "-"]
        try:
            seen = dict(globals()[case](*values))
        except torch.OutOfMemoryError as error:
            seen = {}
            print(error)
        for quantity, published in wanted.items():
            value = seen.get(quantity)
            here = "nothing" if value is None else f"{value:.{len(published.partition('.')[2])}f}"
            print("ok     " if here == published else "FAILED ", case, arguments, quantity, "published", published, "here", here)


main()
