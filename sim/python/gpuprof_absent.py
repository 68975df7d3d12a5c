# SPDX-License-Identifier: MIT
"""PyTorch's torch.distributed where only some ranks of the job run, on the simulated GPU.

GPUPROF_SIM_RANKS names the ranks that run ("0,8-15"), WORLD_SIZE says how many there are.  The stand-in for NCCL answers
for the absent ones (sim/nccl/present.c); what it cannot know is told to it from here: the members of each group.  This
module answers for them in the rest: PyTorch's stores, the barriers behind init_process_group and new_group, groups
of Gloo, and the functions that send objects.  sitecustomize loads it, and calls distributed().

GPUPROF_SIM_STORE is the port of this machine at which the lowest rank that runs serves the others.  GPUPROF_SIM_PEERS is
a file, of messages to absent ranks and from them; GPUPROF_SIM_WAITS one of ranks that have not moved for a while, and of
what they wait for; GPUPROF_SIM_SAYS one of reasons why ranks end.
"""
import atexit
import ctypes
import functools
import hashlib
import inspect
import os
import pickle
import re
import sys
import threading
import time
import types
import weakref

_SECONDS_ALONE = 5  # that a key may be missing while none of the others can set it
_SECONDS_IDLE = 25  # until a rank says where it stands
_SECONDS_POLLING = 0.2  # of processor time in these, by threads that look again and again
_SECONDS_POLLING_TASK = 0.004  # and of each thread: PyTorch 2.7 and 2.10 have two of each group that look
_SECONDS_LAST = 60  # that the rank that serves the others waits for them at its end
_SYMMETRIC = re.compile(r"SymmetricMemory/[^/]+/[^/]+$")  # /NUMBER/RANK, of torch.distributed._symmetric_memory
_ID = re.compile(r"(?:nccl_storekey_\d+(?:_(\d+))?|UniqueNCCLID:(\d+)|\d+|(\d+):(\d+))$")


def _ranks(text):
    ranks = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        ranks.update(range(int(first), int(last or first) + 1))
    return ranks


def _number(name):
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else -1


def _who():
    """The ranks that run, or None: all of the job."""
    world, own = _number("WORLD_SIZE"), _number("RANK")
    try:
        there = {rank for rank in _ranks(os.environ.get("GPUPROF_SIM_RANKS", "")) if rank < world}
    except ValueError:
        there = set()
    return sorted(there) if own in there and len(there) < world else None


PRESENT = _who()
_own, _world = _number("RANK"), _number("WORLD_SIZE")
_groups = {}  # name: ranks of the job
_said = set()


def _name(ranks):
    """For messages: ranks as a short list."""
    text = ", ".join(map(str, ranks[:4]))
    return text + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")


def _append(variable, text):
    path = os.environ.get(variable)
    if path and (variable, text) not in _said:
        _said.add((variable, text))
        try:
            with open(path, "a") as file:
                file.write(text + "\n")
        except OSError:
            pass


def _assume(text):
    _append("GPUPROF_STANDIN_REPORT", f"{os.getpid()}\ttorch.distributed\tassumed\t{text}")


def _refused(text):
    """An error that ends the program; the command has it too."""
    _append("GPUPROF_SIM_SAYS", " ".join(text.split()))
    return RuntimeError("gpuprof: sim: " + text)


def _peer(peer, members):
    _append("GPUPROF_SIM_PEERS", f"{_own}\t{peer}\t{','.join(map(str, members if len(members) <= 1024 else []))}")


# What programs call the groups of their pipelines: "mesh_pp" (torchtitan), "PIPELINE_MODEL_PARALLEL_GROUP" (Megatron).
_PIPELINE = re.compile(r"(?:^|[^a-z])(?:pp|pipe|pipeline|stages?)(?:[^a-z]|$)", re.IGNORECASE)
_PIPELINE_MOST = 64  # ranks


def _pipeline(ranks):
    """These will send to each other.  The command learns it before the first message, and loses less of its run."""
    if _own in ranks and 1 < len(ranks) <= _PIPELINE_MOST:
        for rank in ranks:
            if rank not in PRESENT:
                _peer(rank, ranks)


# ---- the stand-in for NCCL -------------------------------------------------------------------------------------------


@functools.lru_cache(None)
def _nccl(name):
    try:
        return getattr(ctypes.CDLL("libnccl.so.2"), name)
    except (OSError, AttributeError):
        return None


def _tell_group(ranks):
    tell = _nccl("sim_nccl_group")
    if tell:
        tell((ctypes.c_int * len(ranks))(*ranks), len(ranks))


def _tell_id(value, ranks):
    tell = _nccl("sim_nccl_id")
    if tell:
        tell(ctypes.create_string_buffer(bytes(value), 128), (ctypes.c_int * len(ranks))(*ranks), len(ranks))


# ---- stores ----------------------------------------------------------------------------------------------------------

_lock = threading.Lock()
_base = None
_stores = []
_waits = []  # the keys that are waited for


def _make_base(c):
    """What the ranks that run share: of one alone its memory, else a server of the lowest."""
    global _base
    with _lock:
        if _base is None and len(PRESENT) == 1:
            _base = c.HashStore()
        elif _base is None:
            from datetime import timedelta

            port = _number("GPUPROF_SIM_STORE")
            if port < 1:
                raise _refused("GPUPROF_SIM_STORE names no port, and several ranks run")
            first = _own == PRESENT[0]
            _base = c.TCPStore(
                "127.0.0.1", port, None, first, timedelta(seconds=300), wait_for_workers=False, multi_tenant=first
            )
            atexit.register(_leave, _base, first)
        return _base


def _leave(base, first):
    """The server stays until the others have gone."""
    try:
        gone = base.add("gpuprof/ended", 1)
        until = time.monotonic() + _SECONDS_LAST
        while first and gone < len(PRESENT) and time.monotonic() < until:
            time.sleep(0.05)
            gone = base.add("gpuprof/ended", 0)
    except RuntimeError:
        pass


def _bytes(value):
    return value.encode() if isinstance(value, str) else bytes(value)


def _store_class(c, error):
    class Store(c.Store):
        """A store of the job, in which absent ranks have set what they would set."""

        def __init__(self, *names, **_unused):
            super().__init__()
            _stores.append(self)  # C++ keeps its own half alone, which then has no functions
            self._store = _make_base(c)
            self._prefix = "/".join(str(name) for name in names[:2]) + "/"
            self._limit = None

        def _key(self, key):
            return self._prefix + self._said_by(key)

        def set(self, key, value):
            value = _bytes(value)
            self._identify(key, value)
            self._store.set(self._key(key), value)

        def get(self, key):
            self._await([key], self._limit)
            value = self._store.get(self._key(key))
            self._identify(key, value)
            return value

        def add(self, key, number):
            there = self._store.add(self._key(key), number)
            ranks, name = self._group(key)
            if name == "num_members" and ranks:  # of a barrier in C++
                there += sum(rank not in PRESENT for rank in ranks)
            return there

        def check(self, keys):
            return self._store.check([self._key(key) for key in keys])

        def wait(self, keys, timeout=None):
            self._await(list(keys), timeout or self._limit)

        def compare_set(self, key, expected, wanted):
            return self._store.compare_set(self._key(key), expected, wanted)

        def delete_key(self, key):
            return self._store.delete_key(self._key(key))

        def num_keys(self):
            return self._store.num_keys()

        def append(self, key, value):
            self._store.append(self._key(key), value)

        def multi_get(self, keys):
            self._await(list(keys), self._limit)
            return [self.get(key) for key in keys]

        def multi_set(self, keys, values):
            for key, value in zip(keys, values):
                self.set(key, value)

        def has_extended_api(self):
            return True

        def clone(self):
            return self

        def set_timeout(self, timeout):
            self._limit = timeout

        # -- what absent ranks set

        def _group(self, key):
            """The ranks of the group in whose part of the store the key is, and the key's own name."""
            parts = key.split("/")
            if self is _objects:
                return None, parts[-1]
            if _SYMMETRIC.search(key):
                parts[-2:-1] = []  # a group may have that number as its name
            for part in reversed(parts[:-1]):  # that of the world is in front of each
                if part in _groups:
                    return _groups[part], parts[-1]
            return None, parts[-1]

        def _said_by(self, key):
            """What an absent rank says of its symmetric memory is what the next one that runs says: each sends its own
            handle to the next process around the ring, as often as there are others."""
            parts = key.rsplit("/", 2)
            if not _SYMMETRIC.search(key) or not parts[-1].isdigit():
                return key
            ranks, place = self._group(key)[0] or [], int(parts[-1])
            if _own not in ranks or place >= len(ranks) or ranks[place] in PRESENT:
                return key
            _assume("symmetric memory: an absent rank has there what a rank that runs has; without multicast")
            after = next(at for at in range(place + 1, place + len(ranks)) if ranks[at % len(ranks)] in PRESENT)
            return "/".join((*parts[:-1], str(after % len(ranks))))

        def _identify(self, key, value):
            if len(value) == 128:
                ranks, name = self._group(key)
                match = _ID.match(name)
                if ranks and match and match[3]:
                    ranks = [ranks[int(match[3])], ranks[int(match[4])]]
                if ranks and match:
                    _tell_id(value, ranks)

        def _sets(self, key, count):
            """The rank of the job that sets a key with an id of NCCL; None: it is another one."""
            ranks, name = self._group(key)
            match = _ID.match(name) if ranks and not _SYMMETRIC.search(key) else None
            if not match:
                return None
            if match[3]:
                return ranks[int(match[3])]
            root = int(match[1] or match[2] or 0)
            each = _number("TORCH_NCCL_RANKS_PER_ROOT")
            roots = max(count, -(-len(ranks) // (each if each > 0 else 128)), root + 1)
            if not (match[1] or match[2]):
                roots = 1
            few, more = len(ranks) // roots, len(ranks) % roots
            return ranks[root * (few + 1) if root < more else more * (few + 1) + (root - more) * few]

        def _await(self, keys, timeout):
            missing = [key for key in keys if not self.check([key])]
            for key in missing:
                setter = self._sets(key, len(keys))
                if setter is not None and setter not in PRESENT:
                    # The same in each process.
                    digest = hashlib.sha512(self._key(key).encode()).digest()
                    self._store.set(self._key(key), (digest + digest)[:128])
            missing = [key for key in missing if not self.check([key])]
            if missing:
                self._await_present(missing, timeout)

        def _await_present(self, missing, timeout):
            start, alone, counted, waited = time.monotonic(), None, False, missing[0]
            limit = timeout.total_seconds() if timeout else 300
            _waits.append(waited)
            try:
                while missing:
                    now = time.monotonic()
                    if now - start > limit:
                        # As PyTorch's own stores say it; its callers catch it, and look again.
                        raise error(f"wait timeout after {limit * 1000:.0f}ms, keys: {', '.join(missing)}")
                    if now - start > 1 and len(PRESENT) > 1 and not counted:
                        self._store.add("gpuprof/waiting", 1)
                        counted = True
                    alone = (alone or now) if self._all_wait(counted) else None
                    ended = self._store.add("gpuprof/ended", 0) if alone and now - alone > _SECONDS_ALONE else 0
                    text = f"rank {_own} of {_world} waits for the key '{missing[0]}', "
                    if ended:
                        raise _refused(
                            f"{text}and {ended} of the ranks that run ({_name(PRESENT)}) ended before: look at what ended the "
                            "first of them."
                        )
                    setter = self._sets(missing[0], 1) if alone else None
                    if setter in PRESENT and setter != _own:  # it waits too, and may say for what
                        if now - alone > 2 * _SECONDS_ALONE:
                            raise _refused(f"{text}which rank {setter} would set, and that one waits too.")
                    elif alone and now - alone > _SECONDS_ALONE:
                        raise _refused(
                            f"{text}which only an absent rank would set: of this job ranks {_name(PRESENT)} run.  Run the "
                            "rank that sets it too (--ranks)."
                        )
                    time.sleep(0.002 if now - start < 1 else min((now - start) / 20, 0.5))
                    missing = [key for key in missing if not self.check([key])]
            finally:
                _waits.remove(waited)
                if counted:
                    self._store.add("gpuprof/waiting", -1)

        def _all_wait(self, counted):
            if len(PRESENT) == 1:
                return True
            waiting = self._store.add("gpuprof/waiting", 0) if counted else 0
            return waiting > 0 and waiting + self._store.add("gpuprof/ended", 0) >= len(PRESENT)

    return Store


_objects = None  # the store of objects


# ---- objects ---------------------------------------------------------------------------------------------------------

_turns = {}


def _turn(*what):
    _turns[what] = _turns.get(what, 0) + 1
    return f"{'/'.join(map(str, what))}/{_turns[what]}"


def _members(c10d, group):
    if group is None or group is c10d.GroupMember.WORLD:
        return list(range(_world)), "world"
    name = c10d._world.pg_names.get(group)
    ranks = c10d.get_process_group_ranks(group)
    return ranks, str(name)


def _put(key, value):
    _objects.set(key, pickle.dumps(value))


def _take(key):
    return pickle.loads(_objects.get(key))


def _copy(value):
    return pickle.loads(pickle.dumps(value))


def _of_group(own, other):
    """A rank of the job: given by itself, or by its place in the group."""

    def find(ranks, arguments):
        value, place = arguments.get(own), arguments.get(other)
        return ranks[place] if place is not None else value

    return find


_dst, _src = _of_group("dst", "group_dst"), _of_group("src", "group_src")


def _all_gather_object(c10d, a):
    ranks, name = _members(c10d, a.get("group"))
    key, own = _turn("gather", name), a["obj"]
    _put(f"{key}/{_own}", own)
    for place, rank in enumerate(ranks):
        a["object_list"][place] = _take(f"{key}/{rank}") if rank in PRESENT else _copy(own)


def _gather_object(c10d, a):
    ranks, name = _members(c10d, a.get("group"))
    key, own, to = _turn("gather", name), a["obj"], _dst(ranks, a)
    _put(f"{key}/{_own}", own)
    if _own == (ranks[0] if to is None else to) and a.get("object_gather_list") is not None:
        for place, rank in enumerate(ranks):
            a["object_gather_list"][place] = _take(f"{key}/{rank}") if rank in PRESENT else _copy(own)


def _broadcast_object_list(c10d, a):
    ranks, name = _members(c10d, a.get("group"))
    key, source = _turn("broadcast", name), _src(ranks, a)
    source = 0 if source is None else source
    if source == _own:
        _put(key, list(a["object_list"]))
    elif source in PRESENT:
        a["object_list"][:] = _take(key)
    else:
        _assume("objects that an absent rank broadcasts are those that the receiver has there already")


def _scatter_object_list(c10d, a):
    ranks, name = _members(c10d, a.get("group"))
    key, source = _turn("scatter", name), _src(ranks, a)
    source = 0 if source is None else source
    into = a.get("scatter_object_output_list")
    if source == _own:
        _put(key, list(a["scatter_object_input_list"]))
    if source in PRESENT:
        into[0] = _take(key)[ranks.index(_own)]
    else:
        _assume("objects that an absent rank scatters are those that the receiver has there already")


def _family(ranks):
    """Groups of the same number and distance of ranks, like the pipelines of a job, do the same at the same place."""
    steps = {after - before for before, after in zip(ranks, ranks[1:])}
    return f"{len(ranks)}x{steps.pop()}" if len(steps) == 1 else "-".join(map(str, ranks))


def _route(ranks, name, source, to):
    """The keys of the next object: between these two ranks, and between any at their places in groups alike."""
    places = f"{ranks.index(source)}>{ranks.index(to)}"
    turn = _turn("object", name, places)
    return turn, f"like/{_family(ranks)}/{places}/{turn.rpartition('/')[2]}"


def _send_object_list(c10d, a):
    ranks, name = _members(c10d, a.get("group"))
    to = _dst(ranks, a)
    exact, alike = _route(ranks, name, _own, to)
    _put(exact, list(a["object_list"]))
    _put(alike, list(a["object_list"]))
    if to not in PRESENT:
        _peer(to, ranks)


def _recv_object_list(c10d, a):
    ranks, name = _members(c10d, a.get("group"))
    source = _src(ranks, a)
    if source is None:
        raise _refused("recv_object_list from any rank: not while ranks of the job are absent")
    exact, alike = _route(ranks, name, source, _own)
    if source not in PRESENT:
        _peer(source, ranks)
        _assume("objects of an absent rank are those of the rank at its place in another group")
    a["object_list"][:] = _take(exact if source in PRESENT else alike)
    return source


def _monitored_barrier(c10d, a):
    ranks, name = _members(c10d, a.get("group"))
    _meet(_turn("barrier", name), ranks)


def _meet(key, ranks):
    there = sum(rank in PRESENT for rank in ranks)
    if _objects.add(key, 1) == there:
        _objects.set(key + "/all", b"1")
    _objects.wait([key + "/all"])


# ---- what an absent rank broadcasts -----------------------------------------------------------------------------------

_READS = "item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__"
_HEARD_BYTES = 1 << 16  # a flag or a few numbers, by which programs decide; weights are larger
_looks = []  # once
_heard = {}  # address of the storage: (absent rank, weak reference to the tensor)


def _look_at_reads(torch):
    def looking(read):
        @functools.wraps(read)
        def call(self, *args, **kwargs):
            if self.is_cuda and self.numel():
                rank, tensor = _heard.get(self.untyped_storage().data_ptr(), (None, lambda: None))
                if tensor() is not None:
                    _assume(
                        f"rank {_own} read back what absent rank {rank} broadcasts, and found what it had there itself: "
                        f"if CMD decides by it, add {rank} to --ranks"
                    )
            return read(self, *args, **kwargs)

        return call

    for name in _READS:
        setattr(torch.Tensor, name, looking(getattr(torch.Tensor, name)))


def _broadcast(c10d):
    own = c10d.broadcast
    signature = inspect.signature(own)

    @functools.wraps(own)
    def call(*args, **kwargs):
        a, result = signature.bind(*args, **kwargs).arguments, own(*args, **kwargs)
        tensor, group = a["tensor"], a.get("group")
        if tensor.is_cuda and tensor.nbytes <= _HEARD_BYTES and group is not c10d.GroupMember.NON_GROUP_MEMBER:
            import torch

            ranks, _ = _members(c10d, group)
            source, at = _src(ranks, a), tensor.untyped_storage().data_ptr()
            _heard.pop(at, None)
            if source is not None and source not in PRESENT:
                if not _looks:
                    _looks.append(_look_at_reads(torch))
                _heard[at] = source, weakref.ref(tensor)
        return result

    c10d.broadcast = call


def _instead(c10d, name, function):
    signature = inspect.signature(getattr(c10d, name))

    @functools.wraps(getattr(c10d, name))
    def call(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        group = bound.arguments.get("group")
        if group is c10d.GroupMember.NON_GROUP_MEMBER:
            return None
        return function(c10d, bound.arguments)

    setattr(c10d, name, call)


# ---- groups ----------------------------------------------------------------------------------------------------------


def _fake(c, rank, size):
    """Answers as if each rank of the group had what this one has."""
    options = None
    if "Options" in vars(c.FakeProcessGroup):  # not those of Backend, which older versions inherit
        options = c.FakeProcessGroup.Options()
        if hasattr(options, "simulate_uniform_ranks"):
            options.simulate_uniform_ranks = True
    _assume("what Gloo sends: each rank has what the receiver has")
    if hasattr(c.FakeProcessGroup, "_create_internal"):
        return c.FakeProcessGroup._create_internal(rank, size, options)
    return c.FakeProcessGroup(rank, size)


def _gloo(c10d, c):
    if hasattr(c10d, "_create_gloo_process_group"):
        c10d._create_gloo_process_group = lambda opts, _options: _fake(c, opts.group_rank, opts.group_size)
        return

    class Group(type):
        def __instancecheck__(cls, group):  # c10d asserts it of what it has just made
            return isinstance(group, c.FakeProcessGroup)

    class ProcessGroupGloo(metaclass=Group):  # of versions before 2.13 or so
        def __new__(cls, _store, rank, size, *_args, **_kwargs):
            return _fake(c, rank, size)

    # c10d calls them of Gloo's groups; the fake group lacks them, or raises.
    c.FakeProcessGroup._set_sequence_number_for_group = lambda _group: None
    c.FakeProcessGroup._set_default_timeout = lambda _group, _timeout: None
    if not hasattr(c.FakeProcessGroup, "options"):  # 2.8 writes there what the group is called
        c.FakeProcessGroup.options = types.SimpleNamespace()
    c10d.ProcessGroupGloo = ProcessGroupGloo


def _barrier(c10d):
    own = c10d.barrier

    @functools.wraps(own)
    def barrier(group=None, *args, **kwargs):
        if group is not c10d.GroupMember.NON_GROUP_MEMBER and "nccl" not in str(c10d.get_backend(group)):
            ranks, name = _members(c10d, group)
            _meet(_turn("barrier", name), ranks)
        return own(group, *args, **kwargs)

    c10d.barrier = barrier


def _new_groups(c10d):
    helper, barrier = c10d._new_process_group_helper, c10d._store_based_barrier
    signature = inspect.signature(helper)
    last = []

    @functools.wraps(helper)
    def new(*args, **kwargs):
        a = signature.bind(*args, **kwargs).arguments
        ranks = list(a["global_ranks_in_group"]) or list(range(a["group_size"]))
        _groups[str(a["group_name"])] = ranks
        last[:] = ranks
        if _PIPELINE.search(a.get("group_desc") or ""):
            _pipeline(ranks)
        _tell_group(ranks)
        try:
            return helper(*args, **kwargs)
        finally:
            _tell_group([])

    # Of the whole world, or of the group that has just been made.
    @functools.wraps(barrier)
    def meet(rank, store, group_name, rendezvous_count, *args, **kwargs):
        ranks = range(_world) if rendezvous_count == _world else last
        there = sum(other in PRESENT for other in ranks)
        return barrier(rank, store, group_name, there, *args, **kwargs)

    c10d._new_process_group_helper, c10d._store_based_barrier = new, meet
    if hasattr(c10d, "split_group"):
        _split_group(c10d)


def _split_group(c10d):
    """Its members are those of the list that has this rank, by their places in the parent."""
    split = c10d.split_group
    signature = inspect.signature(split)

    @functools.wraps(split)
    def call(*args, **kwargs):
        a = signature.bind(*args, **kwargs).arguments
        parent, _ = _members(c10d, a.get("parent_pg"))
        own = parent.index(_own)
        ranks = next((places for places in a.get("split_ranks") or () if own in places), [])
        ranks = [parent[place] for place in ranks]
        if _PIPELINE.search(a.get("group_desc") or ""):
            _pipeline(ranks)
        _tell_group(ranks)
        try:
            group = split(*args, **kwargs)
        finally:
            _tell_group([])
        if ranks and group is not c10d.GroupMember.NON_GROUP_MEMBER:
            _groups[str(c10d._world.pg_names.get(group))] = ranks
        return group

    c10d.split_group = call


def stages(module):
    """torch.distributed.pipelining.stage: a stage says which group its pipeline is."""
    base = module._PipelineStageBase
    init = base.__init__
    signature = inspect.signature(init)

    @functools.wraps(init)
    def begin(self, *args, **kwargs):
        init(self, *args, **kwargs)
        group = signature.bind(self, *args, **kwargs).arguments.get("group")
        _pipeline(_members(sys.modules["torch.distributed.distributed_c10d"], group)[0])

    base.__init__ = begin


def symmetric(module):
    """torch.distributed._symmetric_memory: up to 2.7 the first rank of a group names a file by which its ranks meet, and an
    absent one names none.  They meet in the store of the group, as in later versions."""
    if "FileStore" not in module.enable_symm_mem_for_group.__code__.co_names:
        return

    def enable(group_name):
        if group_name in module._group_name_to_store:
            return
        c10d = module.c10d
        group = c10d._resolve_process_group(group_name)
        store = c10d.PrefixStore("symmetric_memory", c10d._get_process_group_store(group))
        module._group_name_to_store[group_name] = store
        module._SymmetricMemory.set_group_info(group_name, group.rank(), group.size(), store)

    module.enable_symm_mem_for_group = enable


# ---- ranks that do not move ------------------------------------------------------------------------------------------


def _waited_for():
    """In words: the call of NCCL and the rank, or the key of the store; nothing if it is neither."""
    text, tell = ctypes.create_string_buffer(200), _nccl("sim_nccl_waits")
    if tell and tell(text, ctypes.c_size_t(len(text))):
        return text.value.decode(errors="replace")
    return f"the key '{_waits[-1]}', which no rank has set" if _waits else ""


def _tasks():
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


def _watch(thread):
    """Says where the program stands if its process has used no time for a while; the command decides what follows."""
    before, since = time.process_time(), time.monotonic()
    while True:
        time.sleep(1)
        now, used = time.monotonic(), time.process_time()
        if used - before > _SECONDS_POLLING + _SECONDS_POLLING_TASK * _tasks():
            before, since = used, now
        if now - since < _SECONDS_IDLE:
            continue
        before, since = used, now
        frame, frames = sys._current_frames().get(thread), []
        while frame is not None and len(frames) < 64:
            code = frame.f_code
            frames.append(f"{code.co_filename}:{frame.f_lineno}:{code.co_name}")
            frame = frame.f_back
        texts = [_waited_for(), *frames]
        _append("GPUPROF_SIM_WAITS", "\t".join([str(_own), *(text.replace("\t", " ") for text in texts)]))


def launcher(module):
    """torchrun inside a script of a job whose ranks are there already: this process is one of them, so it becomes the program."""
    own = module.elastic_launch.__call__

    @functools.wraps(own)
    def call(self, *args):
        local, wanted = _number("LOCAL_WORLD_SIZE"), self._config.nproc_per_node
        if wanted != local:
            raise SystemExit(
                str(
                    _refused(
                        f"torchrun in the program starts {wanted} ranks on a node, and the job has {local}: run it with "
                        f"--local-world={wanted}"
                    )
                )
            )
        if not isinstance(self._entrypoint, str):
            return {_own: self._entrypoint(*args)}
        sys.stdout.flush()
        os.execvp(self._entrypoint, [self._entrypoint, *map(str, args)])

    module.elastic_launch.__call__ = call


def distributed(c10d):
    """Changes torch.distributed.distributed_c10d, which has just been loaded."""
    global _objects
    from datetime import timedelta

    import torch
    import torch._C._distributed_c10d as c
    import torch.distributed.rendezvous as rendezvous

    store = _store_class(c, torch._C._DistStoreError)
    # Of symmetric memory: absent ranks have the device of one that runs; a multicast object would come from the first
    # of its group.
    os.environ.setdefault("TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES", "1")
    os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
    # A program may make its store itself.  Who would serve it does not matter.
    class TCPStore(store):
        def __init__(self, host_name, port=0, *_args, **_kwargs):
            super().__init__("tcp", port)
            self.host, self.port = host_name, port

    class FileStore(store):
        def __init__(self, file_name, *_args, **_kwargs):
            super().__init__("file", os.path.abspath(file_name))

    for kind in TCPStore, FileStore:
        for module in sys.modules["torch.distributed"], rendezvous, c10d:
            if hasattr(module, kind.__name__):
                setattr(module, kind.__name__, kind)
    _objects = store("objects")
    _objects.set_timeout(timedelta(weeks=1))  # another stage may compile for long; the command sees ranks that do not move
    _gloo(c10d, c)
    _new_groups(c10d)
    _barrier(c10d)
    _broadcast(c10d)
    for name, function in {
        "all_gather_object": _all_gather_object,
        "gather_object": _gather_object,
        "broadcast_object_list": _broadcast_object_list,
        "scatter_object_list": _scatter_object_list,
        "send_object_list": _send_object_list,
        "recv_object_list": _recv_object_list,
        "monitored_barrier": _monitored_barrier,
    }.items():
        if hasattr(c10d, name):
            _instead(c10d, name, function)
    threading.Thread(target=_watch, args=(threading.main_thread().ident,), daemon=True).start()
