# SPDX-License-Identifier: MIT
"""For Python programs on the simulated GPU: what would never end, or fail, because the GPU computes nothing.

`gpuprof run --sim` puts this folder in front of PYTHONPATH.  PyTorch's object collectives (broadcast_object_list,
all_gather_object and so on) compute the sizes of pickles on the GPU.  Each group of NCCL alone gets Gloo for tensors of
the CPU, and the objects take that way; tensors of the GPU still take NCCL.  The generate() of transformers computes
there whether it has reached its longest text; here its host says so, and TRL's trainers take all of that text.
Experts of a mixture get as many words each as the others (gpuprof_routing.py).  vLLM counts there how many tokens
each request got; here each gets one a step once its prompt is done.  It and SGLang look there for scales of their
caches; here the checkpoint has none.  What they log of their caches goes to the report of the stand-ins.  What
PyTorch reads back of results is zeros, and not what is left over from other tensors, unless the user chose
contents=keep.  With fill=random, PyTorch tells the driver which type the results have.  The frontend of cuDNN learns
which runtime is PyTorch's.  JAX finds the GPU, which has no device file.  Without these modules nothing happens, and
a sitecustomize of the program's own is run first.
"""
import functools
import importlib.machinery
import importlib.util
import os
import sys
import threading


def _next_sitecustomize():
    own = os.path.dirname(os.path.abspath(__file__))
    paths = [path for path in sys.path if os.path.abspath(path) != own]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec and spec.loader:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _without_device(function):
    """Calls the function as if the program had not said on which device the object travels."""
    import inspect

    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.arguments.pop("device", None)
        return function(*bound.args, **bound.kwargs)

    return call


def _distributed(c10d):
    if os.environ.get("GPUPROF_SIM_RANKS"):
        import gpuprof_absent

        if gpuprof_absent.PRESENT is not None:
            gpuprof_absent.distributed(c10d)
    if not c10d.is_gloo_available():
        return
    config, device_of = c10d.BackendConfig, c10d._get_object_coll_device
    config_init, default_device = config.__init__, getattr(c10d, "_get_pg_default_device", None)

    def init(self, backend):
        config_init(self, backend)
        if set(self.device_backend_map) == {"cuda"} and str(self.device_backend_map["cuda"]) == "nccl":
            self.device_backend_map["cpu"] = c10d.Backend("gloo")

    def coll_device(group=None):
        # A barrier is none of objects: NCCL's takes memory of the GPU.
        chosen = device_of(group)
        if chosen == "cpu" and sys._getframe(1).f_code.co_name == "barrier" and c10d.get_backend(group) == "nccl":
            return "cuda"
        return chosen

    def pg_default_device(group=None):
        import torch

        chosen = default_device(group)
        return torch.device("cuda") if chosen.type == "cpu" and c10d.get_backend(group) == "nccl" else chosen

    config.__init__ = init
    c10d._get_object_coll_device = coll_device
    if default_device:
        c10d._get_pg_default_device = pg_default_device
    for name in "broadcast_object_list", "send_object_list", "recv_object_list":
        if hasattr(c10d, name):
            setattr(c10d, name, _without_device(getattr(c10d, name)))


def _stages(module):
    if os.environ.get("GPUPROF_SIM_RANKS"):
        import gpuprof_absent

        if gpuprof_absent.PRESENT is not None:
            gpuprof_absent.stages(module)


def _symmetric(module):
    if os.environ.get("GPUPROF_SIM_RANKS"):
        import gpuprof_absent

        if gpuprof_absent.PRESENT is not None:
            gpuprof_absent.symmetric(module)


def _launcher(module):
    if os.environ.get("GPUPROF_SIM_STORE"):
        import gpuprof_absent

        gpuprof_absent.launcher(module)


def _zero(optimizer):
    optimizer._broadcast_object = _without_device(optimizer._broadcast_object)


class _Length(threading.local):
    reached = None  # by the text that this thread makes; None: no criterion has looked since the last question


_length = _Length()


def _criteria(module):
    longest = module.MaxLengthCriteria
    init, call = longest.__init__, longest.__call__

    @functools.wraps(init)
    def begin(self, *args, **kwargs):
        _length.reached = None  # a new generate() makes a new criterion
        init(self, *args, **kwargs)

    @functools.wraps(call)
    def look(self, input_ids, *args, **kwargs):
        _length.reached = input_ids.shape[1] >= self.max_length
        return call(self, input_ids, *args, **kwargs)

    longest.__init__, longest.__call__ = begin, look


def _generation(module):
    mixin = module.GenerationMixin
    unfinished = mixin._has_unfinished_sequences

    @functools.wraps(unfinished)
    def has_unfinished(self, this_peer_finished, *args, **kwargs):
        # What the GPU says of words that end a text is left over from other tensors if memory keeps its contents.
        reached, _length.reached = _length.reached, None
        on_gpu = any(getattr(value, "type", None) == "cuda" for value in (*args, *kwargs.values()))
        if reached is None or not on_gpu:
            return unfinished(self, this_peer_finished, *args, **kwargs)
        if reached:
            _note("transformers", "generate() ends at its greatest length, never at a word that ends the text")
        return unfinished(self, reached, *args, **kwargs)

    mixin._has_unfinished_sequences = has_unfinished


def _completions(trainer, module):
    """A mask that the GPU computes says which words of a text come before its end."""
    turn = getattr(module, trainer)._generate_single_turn

    @functools.wraps(turn)
    def call(self, *args, **kwargs):
        result = turn(self, *args, **kwargs)
        if not self.use_vllm and not getattr(self, "use_transformers_continuous_batching", False):
            # Alone, before the probabilities, or (until TRL 1.0) behind the prompts.
            made = result if isinstance(result, list) else result[len(result) > 2]
            most = self.generation_config.max_new_tokens
            made[:] = [(words + [0] * most)[:most] for words in made]
        return result

    getattr(module, trainer)._generate_single_turn = call


def _vllm_runner(module):
    runner = module.GPUModelRunner
    sample = runner.sample

    @functools.wraps(sample)
    def call(self, hidden_states, batch, *args, **kwargs):
        output, sampled, rejected = sample(self, hidden_states, batch, *args, **kwargs)
        # Of a prompt that is read in parts, only the last part gives a token.
        sampled.gpuprof_counts = batch.num_computed_prefill_tokens_np + batch.num_scheduled_tokens >= batch.prefill_len_np
        return output, sampled, rejected

    runner.sample = call


def _vllm_output(module):
    get_output = module.AsyncOutput.get_output

    @functools.wraps(get_output)
    def call(self):
        counts = getattr(self.num_sampled_tokens, "gpuprof_counts", None)
        if counts is not None:
            self.copy_event.synchronize()
            self.num_sampled_tokens_np[: len(counts)] = counts
            _note("vllm", "each request gets one token a step, and none that ends it")
        return get_output(self)

    module.AsyncOutput.get_output = call


def _contents():
    """Programs of PyTorch branch on results, and left over bytes differ from run to run; the driver reads this in cuInit."""
    items = [item for item in os.environ.get("GPUPROF_SIM", "").split(",") if item]
    if not any(item.startswith("contents=") for item in items):
        os.environ["GPUPROF_SIM"] = ",".join([*items, "contents=none"])


# What the driver calls the types (sim/machine.h).
_ZEROS = 1
_TYPES = {
    "bool": 2,
    "uint8": 3,
    "int8": 3,
    "int16": 4,
    "uint16": 4,
    "int32": 5,
    "uint32": 5,
    "int64": 6,
    "uint64": 6,
    "float16": 7,
    "bfloat16": 8,
    "float32": 9,
    "complex64": 9,
    "float64": 10,
    "complex128": 10,
}
_READS = "item tolist cpu to numpy __bool__ __float__ __int__ __index__ __complex__ __format__ copy_".split()


def _fill_as():
    """The driver's function of that name; None: no such driver, or it fills in zeros."""
    if "fill=random" not in os.environ.get("GPUPROF_SIM", "").split(","):
        return None
    try:
        import ctypes

        return ctypes.PyDLL("libcuda.so.1").sim_fill_as
    except (ImportError, OSError, AttributeError):
        return None


def _typed(function, fill_as, kind_of):
    """The function, whose copies to the host are of the type that kind_of says."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        kind = kind_of(args, kwargs)
        if not kind:
            return function(*args, **kwargs)
        before = fill_as(kind)
        if before == _ZEROS:
            fill_as(before)
        try:
            return function(*args, **kwargs)
        finally:
            fill_as(before)

    return call


def _tensors(module):
    fill_as = _fill_as()

    def kind_of(name, args, kwargs):
        values = (*args, *kwargs.values())
        tensors = [value for value in values if isinstance(value, module.Tensor)]
        if not any(value.is_cuda for value in tensors):
            return 0
        asked = [value for value in values if type(value).__name__ == "dtype"]  # to(dtype)
        dtype = asked[0] if asked else tensors[0 if name == "copy_" else -1].dtype  # to(other)
        return _TYPES.get(str(dtype).rpartition(".")[2], 0)

    for name in _READS if fill_as else ():
        if hasattr(module.Tensor, name):
            typed = _typed(getattr(module.Tensor, name), fill_as, functools.partial(kind_of, name))
            setattr(module.Tensor, name, typed)


def _routing(module):
    def balance():
        import gpuprof_routing

        factor = os.environ.get("GPUPROF_SIM_IMBALANCE") or "1"
        said = "each expert gets as many words as the others (a top-k takes each candidate equally often)"
        if float(factor) > 1:
            said = f"the first 1/{factor} of the experts get all words (--imbalance)"
        try:
            gpuprof_routing.balance(sys.modules["torch"], float(factor), functools.partial(_note, "torch", said))
        except (AttributeError, ImportError, OSError) as error:
            _stays("torch", error)

    module._lazy_call(balance)  # once CUDA is there


def _runtime(module):
    # The frontend of cuDNN (Transformer Engine, FlashInfer) opens the runtime of CUDA 12 and then that of 13, and takes the
    # first.  Both are loaded on the simulated GPU, and a real environment of PyTorch has only its own.
    if module.cuda:
        os.environ.setdefault("CUDNN_FRONTEND_CUDART_LIB_NAME", "libcudart.so." + module.cuda.partition(".")[0])


def _scaler(module):
    # Random infinities in the gradients would be steps that are not taken.
    fill_as = _fill_as()
    if fill_as and hasattr(module.GradScaler, "_maybe_opt_step"):
        module.GradScaler._maybe_opt_step = _typed(module.GradScaler._maybe_opt_step, fill_as, lambda *_: _ZEROS)


def _jax_hardware(module):
    # JAX looks for a device file before it asks the driver; the simulated GPU has none.
    module.has_visible_nvidia_gpu  # noqa: B018 # another version
    module.has_visible_nvidia_gpu = lambda: True


def _serving(module):
    import gpuprof_serving

    gpuprof_serving.listen(module)


def _scales(module):
    import gpuprof_serving

    gpuprof_serving.scales(module)


def _absent_serving(module):
    if os.environ.get("GPUPROF_SIM_RANKS"):
        import gpuprof_absent

        if gpuprof_absent.PRESENT is not None:
            import gpuprof_absent_serving

            getattr(gpuprof_absent_serving, module.__name__.rpartition(".")[2])(module)


_noted = set()


def _note(library, text):
    """For the report of the stand-ins, once a process."""
    path = os.environ.get("GPUPROF_STANDIN_REPORT")
    if not path or text in _noted:
        return
    _noted.add(text)
    try:
        with open(path, "a") as report:
            report.write(f"{os.getpid()}\t{library}\tassumed\t{text}\n")
    except OSError:
        pass


_BEFORE = {"torch": _contents}
_CHANGES = {
    "jax._src.hardware_utils": _jax_hardware,
    "sglang.srt.distributed.device_communicators.pynccl": _absent_serving,
    "sglang.srt.distributed.device_communicators.shm_broadcast": _absent_serving,
    "sglang.srt.distributed.parallel_state": _absent_serving,
    "sglang.srt.layers.quantization.kv_cache": _scales,
    "sglang.srt.managers.scheduler": _serving,
    "torch._tensor": _tensors,
    "torch.amp.grad_scaler": _scaler,
    "torch.cuda": _routing,
    "torch.cuda.amp.grad_scaler": _scaler,
    "torch.distributed._symmetric_memory": _symmetric,
    "torch.distributed.distributed_c10d": _distributed,
    "torch.distributed.launcher.api": _launcher,
    "torch.distributed.pipelining.stage": _stages,
    "torch.distributed.optim.zero_redundancy_optimizer": _zero,
    "torch.version": _runtime,
    "transformers.generation.stopping_criteria": _criteria,
    "transformers.generation.utils": _generation,
    "trl.trainer.distillation_trainer": functools.partial(_completions, "DistillationTrainer"),
    "trl.trainer.grpo_trainer": functools.partial(_completions, "GRPOTrainer"),
    "trl.trainer.rloo_trainer": functools.partial(_completions, "RLOOTrainer"),
    "vllm.distributed.device_communicators.pynccl": _absent_serving,
    "vllm.distributed.device_communicators.shm_broadcast": _absent_serving,
    "vllm.distributed.parallel_state": _absent_serving,
    "vllm.logger": _serving,
    "vllm.model_executor.layers.quantization.kv_cache": _scales,
    "vllm.v1.executor.abstract": _absent_serving,
    "vllm.v1.executor.uniproc_executor": _absent_serving,
    "vllm.v1.worker.gpu.async_utils": _vllm_output,
    "vllm.v1.worker.gpu.model_runner": _vllm_runner,
}


def _also(first, then):
    def both(*args):
        first(*args)
        then(*args)

    return both if first else then


if "GPUPROF_SIM_TRY" in os.environ:
    import gpuprof_try

    _before, _tried = gpuprof_try.changes()
    _BEFORE["torch"] = _also(_BEFORE.get("torch"), _before)
    for _name, _change in _tried.items():
        _CHANGES[_name] = _also(_CHANGES.get(_name), _change)


def _stays(name, error):
    print(f"gpuprof: sim: {name} stays as it is, and decides by zeros: {error}", file=sys.stderr)


class _Loader:
    """The module's own loader, and the change after it."""

    def __init__(self, loader, change):
        self._loader, self._change = loader, change

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        try:
            self._change(module)
        except AttributeError as error:  # another version
            _stays(module.__name__, error)


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        change = _CHANGES.get(name)
        if name in _BEFORE:
            _BEFORE[name]()
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if change else None
        if spec and spec.loader:
            spec.loader = _Loader(spec.loader, change)
        return spec


sys.meta_path.insert(0, _Finder)
_next_sitecustomize()
