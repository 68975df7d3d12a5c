# SPDX-License-Identifier: MIT
"""For `gpuprof dryrun --try=shard`: the program's own model, sharded by PyTorch's fully_shard (FSDP2) over N ranks.

A program of one process becomes rank 0 of N here; gpuprof_absent.py and the stand-in for NCCL answer for the others.
A program whose ranks run DistributedDataParallel keeps its ranks, and its model is sharded in place of that.  What is
sharded is what a person would shard: each module of a class that repeats in a container, and then the model.
gpuprof_try.py calls this; rank 0 has the largest part, since the first parts of an uneven split are.
"""
import contextlib
import os
import sys
import weakref

_optimizers = weakref.WeakSet()
_sharded = weakref.WeakSet()
_before = []  # PyTorch's peak when the first model was about to be sharded


def know(optimizer):
    """One whose parameters a later sharding replaces."""
    _optimizers.add(optimizer)


def is_alone(torch):
    """The process belongs to no job of several."""
    dist = torch.distributed
    return not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1)


def _become_a_rank(torch, count):
    """Rank 0 of a job whose other ranks are absent.  What reads these variables does so once, when the group is made."""
    names = {"RANK": "0", "WORLD_SIZE": str(count), "GPUPROF_SIM_RANKS": "0"}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        import gpuprof_absent
        import torch.distributed.distributed_c10d as c10d

        gpuprof_absent.distributed(c10d)
        store = torch.distributed.TCPStore("127.0.0.1", 1)  # gpuprof_absent's, by now
        torch.distributed.init_process_group("nccl", rank=0, world_size=count, store=store)
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _swapped(params, new):
    """The argument of an optimizer with the new parameters: tensors, groups, or names with tensors."""
    if isinstance(params, dict):
        return {key: _swapped(value, new) if key == "params" else value for key, value in params.items()}
    if isinstance(params, (str, bytes)) or hasattr(params, "grad_fn"):
        return new.get(id(params), params)
    if isinstance(params, tuple):
        return tuple(_swapped(part, new) for part in params)
    return [_swapped(part, new) for part in params] if isinstance(params, list) else params


def listed(params):
    """The argument with its generators as lists."""
    if isinstance(params, dict):
        return {key: listed(value) if key == "params" else value for key, value in params.items()}
    if isinstance(params, (str, bytes, tuple)) or hasattr(params, "grad_fn"):
        return params
    return [listed(part) for part in params]


def shard(torch, root, blocks, params=None):
    """Shards `root`, and its modules of the classes `blocks` first; `params` with the parameters that it has then."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    if root in _sharded:
        return params
    _sharded.add(root)
    _before.append(torch.cuda.max_memory_allocated())
    places = [(module, name, parameter) for module in root.modules() for name, parameter in module._parameters.items()
              if parameter is not None]
    mesh = init_device_mesh("cuda", (torch.distributed.get_world_size(),))
    for module in reversed(list(root.modules())):
        if type(module) in blocks and module is not root:
            fully_shard(module, mesh=mesh)
    fully_shard(root, mesh=mesh)
    new = {id(parameter): module._parameters[name] for module, name, parameter in places}
    params = _swapped(params, new)
    for optimizer in _optimizers:
        for group in optimizer.param_groups:
            group["params"] = _swapped(group["params"], new)
    for module, name, parameter in places:
        if module._parameters[name] is not parameter:
            parameter.data = parameter.data.new_empty(0)  # a list of the program's may still have it
    return params


def start(torch, count):
    if is_alone(torch):
        _become_a_rank(torch, count)


def note(torch):
    """What there is to say when the program ends; "": nothing."""
    if _before and 0 < torch.cuda.max_memory_allocated() == _before[0]:
        return "the peak comes before the model is sharded: made on the host, or on the meta device, it takes less"
    return ""


def instead_of_ddp(module, blocks_of, did):
    """DistributedDataParallel, whose module is sharded in its place."""
    cls = module.DistributedDataParallel

    class Sharded(cls):
        def __init__(self, module, *_args, **_kwargs):
            torch = sys.modules["torch"]
            torch.nn.Module.__init__(self)
            shard(torch, module, blocks_of(module))
            did()
            self.module = module
            self.require_backward_grad_sync = True

        def forward(self, *inputs, **kwargs):
            return self.module(*inputs, **kwargs)

        @contextlib.contextmanager
        def no_sync(self):
            self.module.set_requires_gradient_sync(False)
            try:
                yield
            finally:
                self.module.set_requires_gradient_sync(True)

        def __getstate__(self):
            return dict(self.__dict__)

    cls.__new__ = lambda own, *_args, **_kwargs: object.__new__(Sharded if own is cls else own)
