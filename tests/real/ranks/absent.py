# SPDX-License-Identifier: MIT
"""A small model under each way to divide it among ranks: absent.py WAY.  Called by tests/real/absent.sh."""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh

WIDTH, LAYERS, WORDS, LENGTH, BATCH, STEPS = 512, 4, 1003, 128, 4, 3
world, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    """Layers first to last of so many; the ends have the words."""

    def __init__(self, first=0, last=LAYERS):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH) if first == 0 else None
        self.layers = nn.ModuleList(Layer() for _ in range(first, last))
        self.head = nn.Linear(WIDTH, WORDS) if last == LAYERS else None

    def forward(self, x):
        x = self.words(x) if self.words else x
        for layer in self.layers:
            x = layer(x)
        return self.head(x) if self.head else x


def loss_of(output, target):
    return nn.functional.cross_entropy(output.flatten(0, 1).float(), target.flatten())


def text():
    return torch.zeros(BATCH, LENGTH, dtype=torch.long, device=device)


def _end(optimizer):
    optimizer.step()
    optimizer.zero_grad()
    # PyTorch 2.8 to 2.14 keeps what a collective used until a thread looks, ten times a second: a step is no shorter on a GPU.
    time.sleep(0.3)


def train(model, clip=None, optimizer=None):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), foreach=False)
    for _ in range(STEPS):
        words = text()
        loss_of(model(words), words).backward()
        if clip:
            clip(model)
        _end(optimizer)


def ddp():
    train(nn.parallel.DistributedDataParallel(Model().to(device)))


def zero1():
    """The states of the optimizer are divided."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(Model().to(device))
    train(model, None, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, foreach=False))


def deepspeed(stage):
    """Stages 1 to 3 of DeepSpeed's ZeRO, which makes the groups itself."""
    import deepspeed

    settings = {
        "train_micro_batch_size_per_gpu": BATCH,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,
        "gradient_clipping": 1.0,
    }
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    for _ in range(STEPS):
        words = text()
        engine.backward(loss_of(engine(words), words))
        engine.step()


def deepspeed1():
    deepspeed(1)


def deepspeed2():
    deepspeed(2)


def deepspeed3():
    deepspeed(3)


def fsdp1():
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    model = FullyShardedDataParallel(Model().to(device), auto_wrap_policy=ModuleWrapPolicy({Layer}), device_id=device)
    train(model, lambda model: model.clip_grad_norm_(1.0))


def _fully(mesh):
    from torch.distributed.fsdp import fully_shard

    model = Model().to(device)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1.0))


def fsdp2():
    _fully(init_device_mesh("cuda", (world,)))


def hsdp():
    _fully(init_device_mesh("cuda", (2, world // 2), mesh_dim_names=("copies", "parts")))


def tp():
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh, model = init_device_mesh("cuda", (world,)), Model().to(device)
    for layer in model.layers:
        parallelize_module(layer, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    train(model)


def async_tp():
    """The same product, in parts that go around through symmetric memory while others are computed."""
    import torch.distributed._symmetric_memory as memory

    group = dist.group.WORLD.group_name
    memory.enable_symm_mem_for_group(group)
    for _ in range(STEPS):
        part, weight = torch.zeros(BATCH * LENGTH, WIDTH, device=device), torch.zeros(WIDTH, WIDTH, device=device)
        whole, (product,) = torch.ops.symm_mem.fused_all_gather_matmul(part, [weight], 0, group)
        torch.ops.symm_mem.fused_matmul_reduce_scatter(product, weight, "sum", 0, group)


def _pipeline(name, stages_each):
    """Two ranks have the stages; each pair of them is one of several copies."""
    from torch.distributed.pipelining import PipelineStage, schedules

    mesh = init_device_mesh("cuda", (2, world // 2), mesh_dim_names=("stages", "copies"))
    own, total = mesh.get_local_rank("stages"), 2 * stages_each
    # In a V the second half of the stages comes back.
    numbers = [own, total - 1 - own] if name == "ScheduleZBVZeroBubble" else list(range(own, total, 2))
    models = [Model(number * LAYERS // total, (number + 1) * LAYERS // total).to(device) for number in numbers]
    parameters = [parameter for model in models for parameter in model.parameters()]
    parallel = world > 2 and stages_each == 1
    if parallel:
        # DDP makes its buckets anew between two micro batches, and PyTorch 2.12 keeps the old one as _end() says.
        for model in models:
            model.register_forward_pre_hook(lambda *_: time.sleep(0.3))
        models = [nn.parallel.DistributedDataParallel(model, process_group=mesh.get_group("copies")) for model in models]
    stages = [PipelineStage(model, number, total, device, group=mesh.get_group("stages")) for model, number in zip(models, numbers)]
    schedule = getattr(schedules, name)(stages[0] if stages_each == 1 else stages, 4, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(parameters, fused=True)
    for _ in range(STEPS):
        words = text()
        schedule.step(*((words,) if 0 in numbers else ()), **({"target": words, "losses": []} if total - 1 in numbers else {}))
        if world > 2 and not parallel:
            for parameter in parameters:
                dist.all_reduce(parameter.grad, group=mesh.get_group("copies"))
        _end(optimizer)


def pp():
    _pipeline("Schedule1F1B", 1)


def interleaved():
    _pipeline("ScheduleInterleaved1F1B", 2)


def zero_bubble():
    _pipeline("ScheduleInterleavedZeroBubble", 2)


def zero_bubble_v():
    _pipeline("ScheduleZBVZeroBubble", 2)


def cp():
    """Keys and values go around a ring."""
    model = Model().to(device)
    for _ in range(STEPS):
        loss_of(model(text()), text()).backward()
        part = torch.zeros(BATCH, LENGTH, WIDTH, device=device)
        for _ in range(world - 1):
            other = torch.empty_like(part)
            for work in dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, part, (rank + 1) % world), dist.P2POp(dist.irecv, other, (rank - 1) % world)]
            ):
                work.wait()
            part = torch.cat([other[:1], part[1:]])


def ep():
    """Words go to the ranks that have their experts, and back."""
    model = Model().to(device)
    for _ in range(STEPS):
        out = model(text())
        loss_of(out, text()).backward()
        sent = torch.zeros(world * 64, WIDTH, device=device)
        got = torch.empty_like(sent)
        counts = torch.zeros(world, dtype=torch.long, device=device)
        dist.all_to_all_single(torch.empty_like(counts), counts)
        dist.all_to_all_single(got, sent)
        dist.all_to_all_single(sent, Layer().to(device)(got).detach(), [64] * world, [64] * world)


def routed():
    """Words go to the experts that a router chooses, in messages as long as the GPU counts, and back."""
    from torch.distributed.nn.functional import all_to_all_single

    each = 2  # experts of a rank
    model, gate = Model().to(device), nn.Linear(WIDTH, each * world).to(device)
    experts = nn.ModuleList(Layer() for _ in range(each)).to(device)
    optimizer = torch.optim.AdamW([*model.parameters(), *gate.parameters(), *experts.parameters()])
    for _ in range(STEPS):
        x = model.layers[0](model.words(text())).flatten(0, 1)
        chosen = gate(x).softmax(-1).topk(2, dim=-1)[1].flatten()
        order = chosen.argsort(stable=True)
        counts = torch.bincount(chosen, minlength=each * world)
        others = torch.empty_like(counts)
        dist.all_to_all_single(others, counts)
        sent, got = (part.view(world, each).sum(dim=1).tolist() for part in (counts, others))
        words = all_to_all_single(x.new_empty(sum(got), WIDTH), x[order // 2], got, sent)
        which = torch.repeat_interleave(torch.arange(each, device=device).repeat(world), others)
        per = torch.bincount(which, minlength=each).tolist()
        if per != [len(order) // each] * each:
            sys.exit(f"{per} words of {len(order)} for the experts of a rank")
        sorted_ = which.argsort(stable=True)
        parts = [expert(part) for expert, part in zip(experts, words[sorted_].split(per))]
        done = torch.empty_like(words).index_copy(0, sorted_, torch.cat(parts))
        back = all_to_all_single(torch.empty_like(x[order]), done, sent, got)
        x = x.index_add(0, order // 2, back).view(BATCH, LENGTH, WIDTH)
        loss_of(model.head(x), text()).backward()
        _end(optimizer)


torch.cuda.set_device(device)
dist.init_process_group("nccl")
globals()[sys.argv[1]]()
torch.cuda.synchronize()
free, total = torch.cuda.mem_get_info()
numbers = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), total - free
# In one piece, with PYTHONUNBUFFERED too: the other ranks print at the same time.
print(" ".join(map(str, ("peak", rank, *numbers))) + "\n", end="", flush=True)
dist.destroy_process_group()
