# SPDX-License-Identifier: MIT
"""Mixtures of experts of PyTorch programs on the simulated GPU: each expert gets as many words as the others.

A router takes the experts of a word by a top-k of scores, and the program asks the GPU how many words each expert got: for
the sizes of messages between ranks, or of an expert's input.  Kernels compute nothing, so these counts would be zeros.

The rule: row i of a top-k of scores, with N candidates, gets the candidates i*k, i*k+1, .. i*k+k-1 (modulo N), which is one
of the results that unknown scores may have.  GPUPROF_SIM_IMBALANCE=F gives all words to the first N/F candidates, at least
k: a rank whose experts are among them gets F times the mean.

What a program computes from such indices is computed once more on the host: sorts, sums, masks and the like are PyTorch's
own functions on tensors of the CPU that mirror those of the GPU.  The memory and the kernels of the GPU are those of the
original functions, which run too.  When the program reads such a tensor, or a result is as large as a mask counts, the
simulated driver is told the values (sim/machine.h).  Collectives carry them, and absent ranks have what the caller has.  A
kernel that is not PyTorch's own is not followed, nor is one of a compiled graph: what these compute stays unknown.

The functions get in front of PyTorch's at a key of its dispatcher that is below autograd and above the devices, so compiled
programs do not see them, and the originals run without Python's lock.  All but the top-k do so from the first top-k on.
"""
import ctypes
import functools
import math
import sys
import threading

_CANDIDATES = 2048  # more are words of a vocabulary
_TABLE = 64 << 10  # bytes of a copy from the host that are known afterwards: tables, not data
_STORED = 1 << 20  # bytes that the simulated driver keeps of a copy
_MIRRORED = 256 << 20  # bytes of a constant that is written in part
_CARRIED = 64 << 10  # bytes of a rank that a collective of the simulated GPU carries
_HELD = 64 << 20  # bytes of mirrors, some of tensors that are gone

# Run again as they are, on tensors of the host.
_FOLLOWED = (
    "add.Tensor add_.Scalar add_.Tensor all all.dim any any.dim bincount bitwise_and.Tensor bitwise_and_.Tensor bitwise_not "
    "bitwise_or.Tensor bitwise_or_.Tensor cat clamp cumsum div.Tensor_mode eq.Scalar eq.Tensor floor_divide gather ge.Scalar "
    "gt.Scalar histc index.Tensor index_add_ index_copy_ index_put_ index_select le.Scalar logical_and logical_not logical_or "
    "lt.Scalar lt.Tensor masked_fill.Scalar masked_fill_.Scalar masked_select max min mul.Tensor mul_.Tensor ne.Scalar "
    "remainder.Scalar remainder.Tensor repeat_interleave.Tensor scatter.src scatter.value scatter_.src scatter_.value "
    "scatter_add scatter_add_ sort sort.stable sub.Tensor sub_.Tensor sum sum.dim_IntList where.self"
).split()
# They take a number in place of a tensor.
_NUMBERS = "add", "div", "floor_divide", "mul", "sub"
# What autograd computes for these has sums of its own.
_ADDING = "StdMeanBackward0", "VarMeanBackward0"
_COUNTED = "_unique2", "nonzero", "unique_consecutive"
_EXCHANGES = "_allgather_base_", "allgather_", "allreduce_", "alltoall_", "alltoall_base_"


class _Values:
    """What a storage of the GPU holds."""

    def __init__(self, storage, version, chosen):
        from torch.multiprocessing.reductions import StorageWeakRef

        self.ref, self.size, self.version = StorageWeakRef(storage), storage.nbytes(), version
        self.counts_up = 0  # it was written in place, which PyTorch's version of it counts afterwards, or never
        self.chosen = chosen  # they follow from a top-k; else they are a constant, or a table of the host
        self.host = None  # a storage of the CPU; before it is asked for there is one of the next two
        self.constant = None  # a number, and its type
        self.on_device = False  # the simulated driver has them, once the device has done its work


class _Known:
    """The values of storages, by the address of PyTorch's part: a weak reference keeps it from being used again."""

    def __init__(self, torch, fetch):
        self.torch, self.fetch, self.at, self.purge = torch, fetch, {}, 4096
        self.held, self.most = 0, _HELD  # bytes of the mirrors since those of tensors that are gone were let go

    def find(self, tensor):
        try:
            values = self.at.get(tensor.untyped_storage()._cdata)
        except (NotImplementedError, RuntimeError):  # no storage
            return None
        if values is None or values.ref.expired():
            return None
        return values if 0 <= self._version(tensor) - values.version <= values.counts_up else None

    def mirror(self, tensor):
        """The tensor on the host, or None.  Writing it changes the values."""
        values = self.find(tensor)
        if values and values.host is None:
            host = self.host(values)
            if values.constant:
                number, dtype = values.constant
                self.torch.empty(0, dtype=dtype, device="cpu").set_(host).fill_(number)
            elif not self.fetch(host, tensor):
                self.forget(tensor)
                return None
            values.host, values.constant, values.on_device = host, None, False
        return self._view(values.host, tensor) if values else None

    def write(self, tensor, result, chosen=True, in_place=True):
        """The tensor of the GPU has the values of one of the host now."""
        values = self.find(tensor)
        if not values or self.whole(tensor):
            values = self.note(tensor, chosen, in_place)
            values.host = self.host(values)
            if not self.whole(tensor):
                values.host.fill_(0)  # as the GPU's memory reads
        elif values.constant and values.size > _MIRRORED or self.mirror(tensor) is None:
            self.forget(tensor)
            return
        self._view(values.host, tensor).copy_(result)
        self.written(tensor, values, chosen, in_place)

    def note(self, tensor, chosen, in_place=True):
        if len(self.at) >= self.purge:
            self.let_go()
        storage = tensor.untyped_storage()
        values = self.at[storage._cdata] = _Values(storage, self._version(tensor), chosen)
        values.counts_up = int(in_place)
        return values

    def host(self, values):
        self.held += values.size
        if self.held > self.most:
            self.let_go()
        return self.torch.UntypedStorage(values.size, device="cpu")

    def let_go(self):
        for key, values in list(self.at.items()):
            if values.ref.expired() and self.at.get(key) is values:
                self.at.pop(key, None)
        self.purge = max(4096, 2 * len(self.at))
        self.held = sum(values.size for values in list(self.at.values()) if values.host is not None)
        self.most = max(_HELD, 2 * self.held)

    def written(self, tensor, values, chosen, in_place=True):
        self.at[tensor.untyped_storage()._cdata] = values  # functions that the original called may have forgotten it
        values.version, values.counts_up = self._version(tensor), int(in_place)
        values.chosen = values.chosen or chosen

    def forget(self, tensor):
        try:
            self.at.pop(tensor.untyped_storage()._cdata, None)
        except (NotImplementedError, RuntimeError):  # no storage
            pass

    @staticmethod
    def whole(tensor):
        return tensor.is_contiguous() and tensor.numel() * tensor.itemsize == tensor.untyped_storage().nbytes()

    def _view(self, host, like):
        empty = self.torch.empty(0, dtype=like.dtype, device="cpu")
        return empty.set_(host, like.storage_offset(), like.size(), like.stride())

    @staticmethod
    def _version(tensor):
        return 0 if tensor.is_inference() else tensor._version


class _Unknown(Exception):
    pass


class _Engine:
    """The sums of autograd, of the gradients of a tensor that is used more than once.

    From PyTorch 2.10 on a tensor that Python has seen has one more owner.  Autograd adds in place to a gradient that has no
    other owner, so it takes more memory for those that came from a function below.  These are marked, and added to in place.
    """

    def __init__(self, torch):
        self.torch, self.run = torch, getattr(torch.autograd.graph, "_engine_run_backward", None)
        self.more = self.owners(torch.empty(0, device="cpu"))[1]  # this PyTorch counts Python as an owner

    def calls(self, depth):
        """Autograd called the function that many frames up, not a line of Python."""
        if not self.more:
            return False
        try:
            caller = sys._getframe(depth)
        except ValueError:
            return True
        return self.run is not None and caller.f_code is self.run.__code__

    def mark(self, result):
        for tensor in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(tensor, self.torch.Tensor):
                tensor._gpuprof_below = True

    def owners(self, owned):
        """Of a tensor or its storage: how many, and whether Python is one of them."""
        count = ctypes.c_uint64.from_address(owned._cdata + ctypes.sizeof(ctypes.c_void_p)).value
        return count & 0xFFFFFFFF, bool(count >> 63)

    def adds_in_place(self, to, alpha):
        """Autograd would, had the function that made the tensor not been called."""
        if not getattr(to, "_gpuprof_below", False) or self.torch.is_grad_enabled() or alpha != 1:
            return False
        node = self.torch._C._current_autograd_node()
        if node is not None and node.name() in _ADDING:
            return False
        # The tensor has autograd, this call and Python, the storage has the tensor and Python.
        alone = self.owners(to)[0] == 3 and self.owners(to.untyped_storage())[0] == 2
        return alone and self.dense(to)

    @staticmethod
    def dense(tensor):
        step = 1
        for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
            if size > 1 and stride != step:
                return False
            step *= size
        return True


class _Routing:
    def __init__(self, torch, imbalance, say):
        self.torch, self.imbalance, self.say = torch, imbalance, say
        self.known = _Known(torch, self.fetch)
        self.engine = _Engine(torch)
        self.libraries = {name: torch.library.Library(name, "IMPL") for name in ("aten", "c10d")}
        self.key = torch._C.DispatchKey.BackendSelect
        self.devices = torch._C.DispatchKey.CUDA, torch._C.DispatchKey.CPU
        self.below = torch._C._dispatch_keyset_full_after(self.key)
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.driver.sim_memory_store.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t]
        self.driver.sim_memory_fetch.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t]
        self.driver.sim_read_as.argtypes = [ctypes.POINTER(ctypes.c_uint64)]
        self.driver.sim_read_as.restype = None
        self.lock, self.follows = threading.Lock(), False
        self.change("topk", self.topk)
        self.change("argmax", self.argmax)

    def change(self, name, function, namespace="aten"):
        """The function gets the original first, which takes the other arguments."""
        packet, _, overload = name.partition(".")
        op = getattr(getattr(getattr(self.torch.ops, namespace), packet), overload or "default")
        # A number in place of a tensor would not be taken as one.
        tensors = [i for i, argument in enumerate(op._schema.arguments) if str(argument.type) == "Tensor"]

        def original(keys, *args, **kwargs):
            if any(not isinstance(args[i], self.torch.Tensor) for i in tensors if i < len(args)):
                key = (keys & self.below).highestPriorityTypeId()
                if packet in _NUMBERS and key in self.devices:  # the types of numbers count less than those of tensors
                    return op._op_dk(key, *args, **kwargs)
                args = [self.number(value, args) if i in tensors else value for i, value in enumerate(args)]
            return op.redispatch(keys & self.below, *args, **kwargs)

        def call(keys, *args, **kwargs):
            result = function(functools.partial(original, keys), *args, **kwargs)
            if self.engine.calls(2):
                self.engine.mark(result)
            return result

        self.libraries[namespace].impl(name, call, self.key.name, with_keyset=True)

    def number(self, value, beside):
        if isinstance(value, self.torch.Tensor):
            return value
        dtype = self.torch.tensor(value, device="cpu").dtype
        for tensor in beside:
            if isinstance(tensor, self.torch.Tensor) and tensor.dtype != self.torch.bool:
                dtype = self.torch.result_type(tensor, value)
        return self.torch.scalar_tensor(value, dtype=dtype, device="cpu")

    def follow(self):
        with self.lock:
            if self.follows:
                return
            self.follows = True
        for name in _FOLLOWED:
            packet, _, overload = name.partition(".")
            op = getattr(getattr(self.torch.ops.aten, packet), overload or "default")
            self.change(name, functools.partial(self.add if name == "add.Tensor" else self.again, op))
        for name, function in {
            "_local_scalar_dense": self.scalar,
            "arange.start_out": self.arange,
            "copy_": self.copy,
            "fill_.Scalar": self.fill,
            "zero_": functools.partial(self.fill, number=0),
        }.items():
            self.change(name, function)
        for name in _COUNTED:
            self.change(name, functools.partial(self.counted, getattr(self.torch.ops.aten, name).default))
        for name in _EXCHANGES if self.torch.distributed.is_available() else ():
            if hasattr(self.torch.ops.c10d, name):
                self.change(name, functools.partial(self.exchange, name), "c10d")

    # ---- the choice --------------------------------------------------------------------------------------------------

    def choose(self, indices, scores, k, dim):
        if not indices.is_cuda or not scores.dim() or not scores.is_floating_point() or not indices.numel():
            return
        candidates = scores.shape[dim]
        if not k < candidates <= _CANDIDATES:
            return
        self.follow()
        candidates = max(k, math.ceil(candidates / self.imbalance))
        values = self.torch.arange(indices.numel(), device="cpu") % candidates
        if indices.dim() == scores.dim():  # with k of them in this dimension
            moved = list(indices.shape)
            moved.append(moved.pop(dim))
            values = values.view(moved).movedim(-1, dim)
        self.known.write(indices, values.reshape(indices.shape), in_place=False)

    def topk(self, original, scores, k, dim=-1, largest=True, sorted=True):
        result = original(scores, k, dim, largest, sorted)
        self.choose(result[1], scores, k, dim)
        return result

    def argmax(self, original, scores, dim=None, keepdim=False):
        result = original(scores, dim, keepdim)
        if dim is not None:
            self.choose(result, scores, 1, dim)
        return result

    # ---- what follows from it ----------------------------------------------------------------------------------------

    def tensors(self, arguments):
        for argument in arguments:
            if isinstance(argument, self.torch.Tensor):
                if argument.is_cuda:
                    yield argument
            elif isinstance(argument, (list, tuple)):
                yield from self.tensors(argument)

    def mirrored(self, argument):
        if isinstance(argument, (list, tuple)):
            return [self.mirrored(inner) for inner in argument]
        if isinstance(argument, self.torch.Tensor) and argument.is_cuda:
            argument = self.known.mirror(argument)
            if argument is None:
                raise _Unknown
        return argument

    def follow_from(self, tensors):
        """Whether all values are known, and one of them follows from a top-k."""
        chosen = False
        for tensor in tensors:
            values = self.known.find(tensor)
            if not values or values.constant and values.size > _MIRRORED:
                return False
            chosen |= values.chosen
        return chosen

    def again(self, op, original, *args, **kwargs):
        if not self.follow_from(self.tensors((*args, *kwargs.values()))):
            if op._schema.is_mutable and args[0].is_cuda:
                self.known.forget(args[0])
            return original(*args, **kwargs)
        own = self.known.find(args[0]) if op._schema.is_mutable else None
        try:
            on_host = self.on_host(op, [self.mirrored(value) for value in args], kwargs)
        except (_Unknown, RuntimeError, IndexError):  # the original says what is wrong
            on_host = None
        result = original(*args, **kwargs)
        several = isinstance(result, (list, tuple))
        for i, tensor in enumerate(result if several else [result]):
            if op._schema.returns[i].alias_info:  # written in place, and so is its mirror
                self.known.written(tensor, own, True) if on_host is not None else self.known.forget(tensor)
            elif on_host is not None:
                self.known.write(tensor, on_host[i] if several else on_host, in_place=False)
        return result

    def add(self, op, original, to, other, alpha=1):
        if self.engine.calls(3) and self.engine.adds_in_place(to, alpha):
            return to.add_(other)
        return self.again(op, original, to, other, alpha=alpha)

    def on_host(self, op, args, kwargs):
        try:
            return op(*args, **kwargs)
        except NotImplementedError:
            # histc() of whole numbers is the GPU's alone.
            wide = [value.double() if isinstance(value, self.torch.Tensor) else value for value in args]
            return op(*wide, **kwargs)

    def arange(self, original, start, end, step=1, *, out):
        result = original(start, end, step, out=out)
        if out.is_cuda and not out.is_floating_point() and out.numel() * out.itemsize <= _MIRRORED:
            self.known.write(out, self.torch.arange(start, end, step, dtype=out.dtype, device="cpu"), False)
        return result

    def fill(self, original, tensor, *value, number=None):
        result = original(tensor, *value)
        number = value[0] if value else number
        if tensor.is_cuda and self.known.whole(tensor):
            self.known.note(tensor, False).constant = number, tensor.dtype
        elif tensor.is_cuda and self.known.find(tensor):
            self.known.write(tensor, self.torch.scalar_tensor(number, dtype=tensor.dtype, device="cpu"), False)
        return result

    def copy(self, original, to, source, non_blocking=False):
        if not isinstance(source, self.torch.Tensor):  # a number
            source = self.number(source, [to])
        if source.is_cuda and not to.is_cuda:
            return self.read(original, to, source, non_blocking)
        values = self.known.find(source) if source.is_cuda else None
        # Before the kernel: one that is given the memory may have written it, for all that the driver knows.
        mirror = self.known.mirror(source) if values and not values.constant else None
        result = original(to, source, non_blocking)
        if not to.is_cuda:
            return result
        if not source.is_cuda and source.numel() * source.itemsize <= _TABLE and not source.is_floating_point():
            self.known.write(to, source, False)
        elif values and values.constant and self.known.whole(to):
            self.known.note(to, False).constant = values.constant[0], to.dtype
        elif mirror is not None:
            self.known.write(to, mirror, values.chosen)
        elif self.known.find(to):
            self.known.forget(to)
        return result

    # ---- what the program reads, and what the driver and other ranks do with it --------------------------------------

    def settle(self, tensor):
        """All that the stream has before is done, without Python's lock."""
        if not self.torch.cuda.is_current_stream_capturing():
            self.torch.cuda.current_stream(tensor.device).synchronize()

    def store(self, tensor):
        """The memory of the GPU gets the tensor's values; False: they are unknown, have gaps or are too large."""
        mirror = self.known.mirror(tensor) if tensor.numel() * tensor.itemsize <= _STORED else None
        if mirror is None or not tensor.is_contiguous():
            return False
        self.settle(tensor)
        bytes_ = mirror.numel() * mirror.itemsize
        return self.driver.sim_memory_store(tensor.data_ptr(), mirror.data_ptr(), bytes_) == 0

    def fetch(self, host, tensor):
        if self.torch.cuda.is_current_stream_capturing():
            return False
        self.torch.cuda.synchronize(tensor.device)
        address = tensor.untyped_storage().data_ptr()
        return self.driver.sim_memory_fetch(host.data_ptr(), address, host.nbytes()) == 0

    def read(self, original, to, source, non_blocking):
        if not self.follow_from([source]):
            return original(to, source, non_blocking)
        self.say()
        stored = self.store(source)
        result = original(to, source, non_blocking)
        mirror = None if stored else self.known.mirror(source)
        if mirror is not None:
            self.settle(source)
            to.copy_(mirror)
        return result

    def scalar(self, original, tensor):
        if isinstance(tensor, self.torch.Tensor) and tensor.is_cuda and self.follow_from([tensor]):
            self.say()
            self.store(tensor)
        return original(tensor)

    def counted(self, op, original, tensor, *args, **kwargs):
        """A result, or the first of several, is as long as the GPU counts."""
        if not tensor.is_cuda or not self.follow_from([tensor]):
            return original(tensor, *args, **kwargs)

        def with_count(*args, **kwargs):
            self.driver.sim_read_as(ctypes.byref(ctypes.c_uint64(count)))
            try:
                return original(*args, **kwargs)
            finally:
                self.driver.sim_read_as(None)

        found = op(self.mirrored(tensor), *args, **kwargs)
        count = len(found[0] if isinstance(found, tuple) else found)
        self.say()
        return self.again(op, with_count, tensor, *args, **kwargs)

    def exchange(self, name, original, *args, **kwargs):
        given = list(self.tensors(args[:1] if name == "allreduce_" else args[1:2]))
        if not given or not self.follow_from(given):
            return original(*args, **kwargs)
        if any(tensor.numel() * tensor.itemsize > _CARRIED for tensor in given):
            return self.gather(name, given, original, args, kwargs)
        stored = all([self.store(tensor) for tensor in given])
        result = original(*args, **kwargs)
        for tensor in self.tensors(args[:1]) if stored else ():
            self.known.note(tensor, True).on_device = True
        return result

    def gather(self, name, given, original, args, kwargs):
        """The others have what the caller has, since the rule is the same for them."""
        mirror = self.known.mirror(given[0]) if len(given) == 1 and name.strip("_").startswith("allgather") else None
        result = original(*args, **kwargs)
        for tensor in self.tensors(args[:1]) if mirror is not None else ():
            parts = tensor.numel() // mirror.numel()
            self.known.write(tensor, mirror.reshape(-1).repeat(parts).view(tensor.shape))
        return result


_routing = []


def balance(torch, imbalance, say):
    """Changes torch, whose CUDA is being initialised; say() is called when a program learns what follows from the rule."""
    if not _routing:
        _routing.append(_Routing(torch, imbalance, say))
