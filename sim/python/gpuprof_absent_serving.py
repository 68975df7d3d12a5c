# SPDX-License-Identifier: MIT
"""vLLM and SGLang where only some ranks of the job run, on the simulated GPU.

Both start a process for each GPU of the server, and wait for all of them.  Under `gpuprof dryrun --world` each rank that
runs is the command itself, so vLLM makes one worker in it, as under torchrun.  SGLang is told so by its own options
(--nnodes, --node-rank).  gpuprof_absent answers for torch.distributed; what both have beside it is answered here, in a
function for each module, which sitecustomize calls when it has been loaded.
"""
import functools
import os

import gpuprof_absent as absent


def _members(group):
    """The ranks of a group of PyTorch; None: it is one of vLLM's or SGLang's own."""
    import torch.distributed as dist

    return dist.get_process_group_ranks(group) if isinstance(group, dist.ProcessGroup) else None


def parallel_state(module):
    """vllm.distributed.parallel_state and SGLang's copy of it: who is on the same node is found out with shared memory."""
    own = module.in_the_same_node_as

    @functools.wraps(own)
    def same_node(pg, source_rank=0):
        ranks = _members(pg)
        if ranks is None:
            return own(pg, source_rank)
        each = int(os.environ["LOCAL_WORLD_SIZE"])
        return [rank // each == ranks[source_rank] // each for rank in ranks]

    module.in_the_same_node_as = same_node


def shm_broadcast(module):
    """Objects go through torch.distributed where there is no queue; a queue waits until each reader has opened it."""
    module.MessageQueue.create_from_process_group  # noqa: B018 # another version
    module.MessageQueue.create_from_process_group = staticmethod(lambda *_args, **_kwargs: None)


def pynccl(module):
    """Communicators that are made without torch.distributed, of the members of one of its groups."""
    own = module.PyNcclCommunicator.__init__

    @functools.wraps(own)
    def init(self, group, *args, **kwargs):
        absent._tell_group(_members(group) or [])
        try:
            own(self, group, *args, **kwargs)
        finally:
            absent._tell_group([])

    module.PyNcclCommunicator.__init__ = init


def abstract(module):
    """vllm.v1.executor.abstract: one worker, whatever would start the others."""
    own = module.Executor.get_class

    def get_class(vllm_config):
        parallel = vllm_config.parallel_config
        if parallel.world_size == absent._world:
            parallel.distributed_executor_backend = "external_launcher"
        elif parallel.world_size > 1:
            raise absent._refused(
                f"vLLM starts {parallel.world_size} workers, and the job has {absent._world} ranks: run it with "
                f"--world={parallel.world_size}"
            )
        return own(vllm_config)

    module.Executor.get_class = staticmethod(get_class)
    uniproc_executor(module)


def uniproc_executor(module):
    """vLLM wants the engine in the same process as the program, which does not matter to a worker."""
    cls = getattr(module, "ExecutorWithExternalLauncher", None)
    if cls is None:  # in another module of this version
        return
    own = cls._init_executor
    if hasattr(cls, "_distributed_args"):
        cls._init_executor = cls.__mro__[1]._init_executor
        return

    @functools.wraps(own)
    def init(self):
        name = "VLLM_ENABLE_V1_MULTIPROCESSING"
        before, os.environ[name] = os.environ.get(name), "0"
        try:
            own(self)
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before

    cls._init_executor = init

