# SPDX-License-Identifier: MIT
"""For `gpuprof dryrun --try`: what could be changed in a program of PyTorch, and the changes, for one run.

GPUPROF_SIM_TRY has the changes of this run, "NAME=HOW" with ';' between them; if it is empty, this run only looks for
what could be changed.  Either says so in the file GPUPROF_SIM_TRY_FOUND, in lines "KIND<TAB>NAME<TAB>SPEC<TAB>TEXT":
"can" (SPEC is what a later run gets), "cannot" (TEXT is the reason), "did" (SPEC was met in this run), "note" (TEXT is
more to say of it), "torch" (this process has it).  sitecustomize.py calls `changes` and makes each after the module's
own code.

A run that only looks takes no memory of the GPU and launches nothing.  Nothing is changed in files.  Each change is
made as a person would make it by hand, so that its peak is that person's.
"""
import functools
import gc
import itertools
import os
import sys
import threading
import weakref

import gpuprof_outputs
import gpuprof_shard

BIG = 16 << 20  # bytes: logits below do not matter
CLASSES = 3  # repeated classes that are tried one by one
CHUNKS = 8  # of the loss
SPLIT = 128  # MiB: larger blocks are not split, with the setting that is tried

_CHANGES = [item.partition("=")[::2] for item in os.environ.get("GPUPROF_SIM_TRY", "").split(";") if item]
_HOW = dict(_CHANGES)
_said = set()


def _say(kind, name, spec="", text=""):
    """Once a process; a line is one write, so that those of several processes do not mix."""
    path = os.environ.get("GPUPROF_SIM_TRY_FOUND")
    line = "\t".join(str(field).replace("\t", " ").replace("\n", " ") for field in (kind, name, spec, text)) + "\n"
    if not path or line in _said:
        return
    _said.add(line)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, line.encode(errors="replace"))
        finally:
            os.close(fd)
    except OSError:
        pass


def _did(name):
    _say("did", name, f"{name}={_HOW[name]}")


def _looks():
    return not _CHANGES


# ---- the allocator ---------------------------------------------------------------------------------------------------


def _before_torch():
    """PyTorch reads its settings at its first allocation; later names come first."""
    _say("torch", "torch")
    if "allocator" not in _HOW:
        return
    name = "PYTORCH_ALLOC_CONF" if os.environ.get("PYTORCH_ALLOC_CONF") else "PYTORCH_CUDA_ALLOC_CONF"
    own = [part for part in os.environ.get(name, "").split(",") if part]
    key = _HOW["allocator"].partition(":")[0]
    os.environ[name] = ",".join([*(part for part in own if part.partition(":")[0] != key), _HOW["allocator"]])
    _did("allocator")


def _largest_segment(torch):
    """In bytes, of all that the program had; without limit if some are gone."""
    if torch.cuda.memory_stats().get("num_device_free", 1):
        return float("inf")
    return max((segment["total_size"] for segment in torch.cuda.memory_snapshot()), default=0)


def _look_at_allocator(torch):
    own = os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    settings = ["expandable_segments:True"]
    if _largest_segment(torch) > SPLIT << 20:
        settings.append(f"max_split_size_mb:{SPLIT}")
    # The threshold is a part of what a program allows itself; without such a limit PyTorch does not look at it.
    if getattr(torch.cuda.memory, "get_per_process_memory_fraction", lambda: 0)() < 1:
        settings.append("garbage_collection_threshold:0.8")
    for setting in settings:
        if setting not in own.split(","):
            _say("can", "allocator", f"allocator={setting}", f"PYTORCH_CUDA_ALLOC_CONF={setting}")


# ---- activation checkpointing ----------------------------------------------------------------------------------------


def _key(cls):
    return f"{cls.__module__}:{cls.__qualname__}"


_CONTAINERS = ("Sequential", "ModuleList", "ModuleDict")


def _is_sharded(cls):
    """By FSDP2, which gives a module another class, with the one that it was made as behind it."""
    return any(base.__name__ == "FSDPModule" for base in cls.__mro__)


def _made_as(module, torch):
    cls = type(module)
    return next(base for base in cls.__mro__[_is_sharded(cls) :] if issubclass(base, torch.nn.Module))


def _is_container(cls):
    return cls.__module__.startswith("torch.nn.modules.") and cls.__name__ in _CONTAINERS


def _modules(torch):
    # By its type alone: isinstance() would ask proxies, and what they stand for may be gone.
    return [found for found in gc.get_objects() if issubclass(type(found), torch.nn.Module)]


def _repeated(roots, torch):
    """The classes that repeat in a container of these modules, outermost ones.  Not leaves."""
    found, seen = set(), set()

    def walk(module, depth=0):
        if id(module) in seen or depth > 200:
            return
        seen.add(id(module))
        children = [child for child in module._modules.values() if child is not None]
        groups = {}
        for child in children if _is_container(type(module)) else ():
            if child._modules and not _is_container(type(child)):
                groups.setdefault(_made_as(child, torch), []).append(child)
        repeated = {cls for cls, alike in groups.items() if len(alike) > 1}
        found.update(repeated)
        for child in children:
            if _made_as(child, torch) not in repeated:
                walk(child, depth + 1)

    for root in roots:
        walk(root)
    return found


def _repeats(torch):
    """{class that repeats: number of its modules, wherever they are}; the change is made to the class."""
    modules = _modules(torch)
    inner = {id(child) for module in modules for child in module._modules.values() if child is not None}
    roots = [module for module in modules if id(module) not in inner and any(True for _ in module.parameters())]
    types = [_made_as(module, torch) for module in modules]
    return {cls: types.count(cls) for cls in _repeated(roots, torch)}


def _look_at_classes(torch):
    counts = _repeats(torch)
    if not counts:
        _say("cannot", "checkpoint", "", "no class of modules with parts of its own repeats in a container")
        return
    order = sorted(counts, key=lambda cls: (-counts[cls], _key(cls)))[:CLASSES]
    for cls in order:
        _say("can", "checkpoint", f"checkpoint={_key(cls)}", f"checkpoint {cls.__name__} (each of {counts[cls]})")
    if len(order) > 1:
        names = "+".join(_key(cls) for cls in order)
        _say("can", "checkpoint", f"checkpoint={names}", "checkpoint " + ", ".join(cls.__name__ for cls in order))
    if counts[order[0]] > 3:
        cls = order[0]
        _say("can", "checkpoint", f"checkpoint=half+{_key(cls)}", f"checkpoint {cls.__name__} (every second)")


class _Inside(threading.local):
    checkpoint = call = False


_inside = _Inside()
# What a cache of keys and values is called in the layers of transformers: a second forward pass would fill it twice.
_CACHES = ("past_key_value", "past_key_values", "layer_past")


def _checkpointed(call, inside=False):
    """inside: of forward() of a module that FSDP2 has sharded, whose hooks are part of __call__ and stay outside."""
    numbers = itertools.count()  # in the order of the first calls: copies of a module have none of their own

    def again(self, args, kwargs):
        _inside.checkpoint = True  # what it calls is not checkpointed again, also when it is computed again
        try:
            return call(self, *args, **kwargs)
        finally:
            _inside.checkpoint = False

    @functools.wraps(call)
    def begin(self, *args, **kwargs):
        import torch
        from torch.utils.checkpoint import checkpoint

        if not inside and _is_sharded(type(self)):
            own = _made_as(self, torch)
            if not own.__dict__.get("_gpuprof_forward"):
                own.forward, own._gpuprof_forward = _checkpointed(own.forward, True), True
            return call(self, *args, **kwargs)
        number = self.__dict__.setdefault("_gpuprof_number", next(numbers))
        chosen = number % 2 == 0 or "half" not in _HOW["checkpoint"].split("+")
        chosen = chosen and not getattr(self, "gradient_checkpointing", False)  # transformers does it
        if not chosen or _inside.checkpoint or not torch.is_grad_enabled():
            return call(self, *args, **kwargs)
        _did("checkpoint")
        kwargs = {name: None if name in _CACHES else value for name, value in kwargs.items()}
        if "use_cache" in kwargs:
            kwargs["use_cache"] = False
        return checkpoint(again, self, args, kwargs, use_reentrant=False)

    return begin


def _module(module):
    """Classes come to be while the program runs: each that is wanted is changed before its first call."""
    cls = module.Module
    init, wanted = cls.__init__, set(_HOW.get("checkpoint", "").split("+"))

    @functools.wraps(init)
    def begin(self, *args, **kwargs):
        own = type(self)
        if _key(own) in wanted and not own.__dict__.get("_gpuprof_checkpointed"):
            own.__call__ = _checkpointed(own.__call__)
            own._gpuprof_checkpointed = True
        init(self, *args, **kwargs)

    if "checkpoint" in _HOW:
        cls.__init__ = begin
    if _looks() or "outputs" in _HOW:
        cls.__call__ = _outermost(cls.__call__)


def _outermost(own):
    """The call of a module by the program itself, and not by another module."""

    @functools.wraps(own)
    def call(self, *args, **kwargs):
        import torch

        if torch.compiler.is_compiling() or _inside.call:
            return own(self, *args, **kwargs)
        _inside.call = True
        try:
            result = own(self, *args, **kwargs)
        finally:
            _inside.call = False
        if _looks():
            if torch.is_grad_enabled():
                _called.add(self)
            try:
                gpuprof_outputs.returned(result, sys._getframe(1), torch)
            except Exception as error:  # tensors of another kind; the program goes on as it is
                _say("cannot", "outputs", "", f"a result of a module could not be looked at: {error}"[:160])
        else:
            gpuprof_outputs.move(result, sys._getframe(1), torch, _HOW["outputs"], lambda: _did("outputs"),
                                 lambda why: _say("cannot", "outputs", "", why))
        return result

    return call


_called = weakref.WeakSet()  # by the program, for a backward pass


def _pretrained(module):
    """A model of transformers has a switch of its own, which also makes it do without a cache of keys and values."""
    cls = module.PreTrainedModel
    call, wanted = cls.__call__, set(_HOW.get("checkpoint", "").split("+"))

    @functools.wraps(call)
    def begin(self, *args, **kwargs):
        import torch

        if self.training and torch.is_grad_enabled() and "_gpuprof_looked" not in self.__dict__:
            self.__dict__["_gpuprof_looked"] = True
            if self.supports_gradient_checkpointing and wanted & {_key(type(part)) for part in self.modules()}:
                self.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
                _did("checkpoint")
        return call(self, *args, **kwargs)

    if wanted and "half" not in wanted and "checkpoint" in _HOW:
        cls.__call__ = begin


def _checkpoint(module):
    """Whether the program does it already."""
    own = module.checkpoint

    @functools.wraps(own)
    def call(*args, **kwargs):
        _checkpoint.used = True
        return own(*args, **kwargs)

    if _looks():
        module.checkpoint = call


_checkpoint.used = False

# ---- the loss --------------------------------------------------------------------------------------------------------


def _chunked(own, torch):
    """cross_entropy with its gradient computed in the forward pass, some rows at a time, over one buffer."""

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits, target, options, mean):
            gradient = torch.empty_like(logits)
            total = None
            for rows, wanted, to in zip(logits.chunk(CHUNKS), target.chunk(CHUNKS), gradient.chunk(CHUNKS)):
                rows = rows.detach().requires_grad_()
                with torch.enable_grad():
                    part = own(rows, wanted, reduction="sum", **options)
                to.copy_(torch.autograd.grad(part, rows)[0])
                part = part.detach()
                total = part if total is None else total + part
            count = (target != options["ignore_index"]).sum() if mean else None
            ctx.save_for_backward(gradient, count)
            return total / count if mean else total

        @staticmethod
        def backward(ctx, outer):
            gradient, count = ctx.saved_tensors
            gradient.mul_(outer / count if count is not None else outer)
            return gradient, None, None, None

    return Loss.apply


def _functional(module):
    own, chunked = module.cross_entropy, []

    @functools.wraps(own)
    def call(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
             label_smoothing=0.0):
        import torch

        plain = functools.partial(own, input, target, weight, size_average, ignore_index, reduce, reduction,
                                  label_smoothing)
        if not (isinstance(input, torch.Tensor) and input.is_cuda and input.requires_grad and torch.is_grad_enabled()):
            return plain()
        big = input.numel() * input.element_size() >= BIG
        simple = input.dim() == 2 and weight is None and reduction in ("mean", "sum") and reduce is size_average is None
        simple = simple and target.dim() == 1 and not target.is_floating_point()
        if _looks():
            if big and simple:
                _say("can", "loss", f"loss={CHUNKS}", f"the loss in {CHUNKS} chunks, with its gradient at once")
            return plain()
        if not big or not simple:
            return plain()
        if not chunked:
            chunked.append(_chunked(own, torch))
        _did("loss")
        return chunked[0](input, target, {"ignore_index": ignore_index, "label_smoothing": label_smoothing},
                          reduction == "mean")

    if _looks() or "loss" in _HOW:
        module.cross_entropy = call


# ---- the optimizer, gradients, offload -------------------------------------------------------------------------------

_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")


def _look_at_optimizer(optimizer):
    cls, defaults = type(optimizer), optimizer.defaults
    if not cls.__module__.startswith("torch.optim."):
        return
    if "fused" in defaults and cls.__name__ in _FUSED and not defaults["fused"]:
        _say("can", "optimizer", "optimizer=fused", f"{cls.__name__}(fused=True)")
    if "foreach" in defaults and defaults["foreach"] is not False and not defaults.get("fused"):
        _say("can", "optimizer", "optimizer=single", f"{cls.__name__}(foreach=False)")
    if cls.__name__ not in ("Adam", "AdamW"):
        return
    dtypes = {str(p.dtype).rpartition(".")[2] for group in optimizer.param_groups for p in group["params"]}
    if "float32" in dtypes:
        _say("can", "optimizer", "optimizer=bf16", f"{cls.__name__} with state in bfloat16 (one parameter at a time)")
    else:
        why = f"{cls.__name__} with state in bfloat16: its state is {', '.join(sorted(dtypes))} already"
        _say("cannot", "optimizer", "", why)
    import importlib.util

    if importlib.util.find_spec("bitsandbytes"):
        _say("can", "optimizer", "optimizer=8bit", f"{cls.__name__}8bit of bitsandbytes")
    else:
        _say("cannot", "optimizer", "", f"{cls.__name__} with state of 8 bits: bitsandbytes is not installed")


def _eight_bits(cls):
    def new(own, *args, **kwargs):
        if own is not cls:
            return object.__new__(own)
        import bitsandbytes

        kept = {name: kwargs[name] for name in ("lr", "betas", "eps", "weight_decay", "amsgrad") if name in kwargs}
        _did("optimizer")
        return getattr(bitsandbytes.optim, f"{cls.__name__}8bit")(*args, **kept)  # no `cls`: its __init__ is not called

    cls.__new__ = new


def _half_state(cls):
    """A step that keeps the moments in bfloat16, and computes in the type of the parameters, one after the other."""

    def step(self, closure=None):
        import torch

        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        _half_step(torch, self, group, parameter)
        _did("optimizer")
        return loss

    cls.step = step


def _half_step(torch, optimizer, group, p):
    state, (beta1, beta2), rate, decay = optimizer.state[p], group["betas"], group["lr"], group["weight_decay"]
    names = ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])]
    if not state:
        state["step"] = 0
        state.update({name: torch.zeros_like(p, dtype=torch.bfloat16) for name in names})
    state["step"] += 1
    grad = -p.grad if group["maximize"] else p.grad
    if decay and type(optimizer).__name__ == "AdamW":
        p.mul_(1 - rate * decay)
    elif decay:
        grad = grad.add(p, alpha=decay)
    mean = state["exp_avg"].to(p.dtype).lerp_(grad, 1 - beta1)
    state["exp_avg"].copy_(mean)
    square = state["exp_avg_sq"].to(p.dtype).mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    state["exp_avg_sq"].copy_(square)
    if group["amsgrad"]:
        square = torch.maximum(square, state["max_exp_avg_sq"].to(p.dtype))
        state["max_exp_avg_sq"].copy_(square)
    square.sqrt_().div_((1 - beta2 ** state["step"]) ** 0.5).add_(group["eps"])
    p.sub_(mean.div_(square).mul_(rate / (1 - beta1 ** state["step"])))


def _set(cls, how):
    init = cls.__init__

    @functools.wraps(init)
    def begin(self, *args, **kwargs):
        kwargs["fused"], kwargs["foreach"] = (True, None) if how == "fused" else (None, False)
        _did("optimizer")
        init(self, *args, **kwargs)

    cls.__init__ = begin


def _optimizers(module):
    how = _HOW.get("optimizer")
    for name in _FUSED if how == "fused" else ("Adam", "AdamW") if how else ():
        if how == "8bit":
            _eight_bits(getattr(module, name))
        elif how == "bf16":
            _half_state(getattr(module, name))
        else:
            _set(getattr(module, name), how)
    if how == "single":
        for name in "SGD", "Adagrad", "NAdam", "RAdam", "RMSprop", "Adamax", "Adadelta":
            _set_foreach(getattr(module, name))


def _set_foreach(cls):
    init = cls.__init__

    @functools.wraps(init)
    def begin(self, *args, **kwargs):
        kwargs["foreach"] = False
        _did("optimizer")
        init(self, *args, **kwargs)

    cls.__init__ = begin


def _optimizer(module):
    cls = module.Optimizer
    init, zero_grad = cls.__init__, cls.zero_grad

    @functools.wraps(init)
    def begin(self, params, *args, **kwargs):
        if "shard" in _HOW:
            params = _shard(params)
            gpuprof_shard.know(self)
        init(self, params, *args, **kwargs)
        if _looks():
            _look_at_optimizer(self)
        elif "offload" in _HOW and not hasattr(_offload, "context"):
            _offload()

    @functools.wraps(zero_grad)
    def zero(self, set_to_none=True):
        if not set_to_none and _looks():
            _say("can", "gradients", "gradients=none", "zero_grad(set_to_none=True)")
        elif not set_to_none and "gradients" in _HOW:
            _did("gradients")
            set_to_none = True
        return zero_grad(self, set_to_none)

    cls.__init__, cls.zero_grad = begin, zero


def _offload():
    """For the rest of the program, as if all of it were in this context."""
    import torch

    _offload.context = torch.autograd.graph.save_on_cpu(pin_memory=True)
    _offload.context.__enter__()
    _did("offload")


# ---- sharding --------------------------------------------------------------------------------------------------------

_DDP = "torch.nn.parallel.distributed:DistributedDataParallel"


def _shard(params):
    """The model whose parameters an optimizer gets, before it gets them."""
    import torch

    count, *roots = _HOW["shard"].split("+")
    if _DDP in roots or not any(_key(type(module)) in roots for module in _modules(torch)):
        return params
    params = gpuprof_shard.listed(params)
    gpuprof_shard.start(torch, int(count))
    for module in _modules(torch):
        if _key(type(module)) in roots:
            params = gpuprof_shard.shard(torch, module, _repeated([module], torch), params)
            _did("shard")
    return params


def _ddp(module):
    def blocks_of(model):
        return _repeated([model], sys.modules["torch"])

    if "shard" in _HOW and _DDP in _HOW["shard"].split("+"):
        gpuprof_shard.instead_of_ddp(module, blocks_of, lambda: _did("shard"))


def _look_at_sharding(torch):
    """Of models that the program calls itself for a backward pass."""
    trained = [module for module in _called if any(p.requires_grad for p in module.parameters())]
    roots = sorted({_key(type(module)) for module in trained})
    alone, count = gpuprof_shard.is_alone(torch), os.environ.get("GPUPROF_SIM_TRY_RANKS", "8")
    if any(_is_sharded(type(part)) for module in trained for part in module.modules()):
        why = "CMD shards its model already"
    elif not trained:
        why = "no module of PyTorch is called for the backward pass"
    elif alone and torch.distributed.is_available() and torch.distributed.is_initialized():
        why = "CMD has a process group of one rank"
    elif not alone and roots != [_DDP]:
        why = "CMD has ranks of its own, and not by DistributedDataParallel alone"
    else:
        blocks = sorted(cls.__name__ for cls in _repeated(trained, torch))
        names = " and ".join(dict.fromkeys(["each " + name for name in blocks] + ["the model"]))
        count = count if alone else torch.distributed.get_world_size()
        where = "" if alone else " instead of DistributedDataParallel"
        _say("can", "shard", "+".join([f"shard={count}", *roots]), f"FSDP2 over {count} GPUs{where} ({names})")
        return
    _say("cannot", "shard", "", why)


# ---- the first backward pass: by then all modules are there ----------------------------------------------------------


def _backward(module):
    own = module.backward

    @functools.wraps(own)
    def call(*args, **kwargs):
        if not _backward.seen:
            _backward.seen = True
            try:
                _look()
            except Exception as error:  # the program goes on as it is
                _say("cannot", "checkpoint", "", f"the modules of CMD could not be looked at: {error}")
        return gpuprof_outputs.backward(own, *args, **kwargs)

    if _looks():
        module.backward = call


_backward.seen = False


def _look():
    import torch

    if _checkpoint.used:
        _say("cannot", "checkpoint", "", "CMD uses checkpointing already")
    else:
        _look_at_classes(torch)
    _look_at_sharding(torch)
    _say("can", "offload", "offload=activations", "activations kept on the host (save_on_cpu)")


def _at_exit():
    torch = sys.modules.get("torch")
    if _looks() and torch and torch.cuda.is_initialized():  # not a process that only compiles
        gpuprof_outputs.found(_say)
        _look_at_allocator(torch)
        if not _backward.seen:
            for name in "checkpoint", "loss", "offload", "shard":
                _say("cannot", name, "", "CMD has no backward pass")
    elif "shard" in _HOW and torch and gpuprof_shard.note(torch):
        _say("note", "shard", f"shard={_HOW['shard']}", gpuprof_shard.note(torch))


def changes():
    """What sitecustomize.py is to do before PyTorch begins, and after each of its modules."""
    import atexit

    atexit.register(_at_exit)
    return _before_torch, {
        "torch.autograd": _backward,
        **({"torch.autograd.graph": gpuprof_outputs.graph} if _looks() else {}),
        "torch.nn.functional": _functional,
        "torch.nn.modules.module": _module,
        "torch.nn.parallel.distributed": _ddp,
        "torch.optim": _optimizers,
        "torch.optim.optimizer": _optimizer,
        "torch.utils.checkpoint": _checkpoint,
        "transformers.modeling_utils": _pretrained,
    }
