#!/bin/sh
# SPDX-License-Identifier: MIT
# A rank of vLLM or SGLang whose other ranks are absent waits for none of them: the modules of both that would are changed when
# they are loaded.  The modules here have what the change needs of the real ones, which wait for ever, or fail.
#   test_sim_absent_serving.sh BUILD
# Run: script
set -u
build=$(cd "${1:?usage: test_sim_absent_serving.sh BUILD}" && pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
for folder in vllm/distributed/device_communicators vllm/v1/executor torch/distributed; do
    mkdir -p "$work/$folder"
done
for folder in vllm vllm/distributed vllm/distributed/device_communicators vllm/v1 vllm/v1/executor torch; do
    : >"$work/$folder/__init__.py"
done
cat >"$work/torch/distributed/__init__.py" <<'PY'
class ProcessGroup:
    def __init__(self, ranks):
        self.ranks = ranks


def get_process_group_ranks(group):
    return group.ranks
PY
cat >"$work/vllm/distributed/parallel_state.py" <<'PY'
def in_the_same_node_as(pg, source_rank=0):
    raise TimeoutError("an absent rank opens no shared memory")
PY
cat >"$work/vllm/distributed/device_communicators/shm_broadcast.py" <<'PY'
class MessageQueue:
    @staticmethod
    def create_from_process_group(pg, max_chunk_bytes, max_chunks, writer_rank=0):
        raise TimeoutError("an absent rank opens no queue")
PY
cat >"$work/vllm/distributed/device_communicators/pynccl.py" <<'PY'
import gpuprof_absent

told = []
gpuprof_absent._tell_group = told.append


class PyNcclCommunicator:
    def __init__(self, group, device, fail=False):
        self.known = told[-1]
        if fail:
            raise RuntimeError("no communicator")
PY
# As in 0.8: the executor for torchrun is in this module, and refuses to run beside the program.
cat >"$work/vllm/v1/executor/abstract.py" <<'PY'
import os


class Executor:
    @staticmethod
    def get_class(vllm_config):
        return vllm_config.parallel_config.distributed_executor_backend


class ExecutorWithExternalLauncher:
    def _init_executor(self):
        assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
        self.ready = True
PY
# As in 0.20.
cat >"$work/vllm/v1/executor/uniproc_executor.py" <<'PY'
class UniProcExecutor:
    def _init_executor(self):
        self.ready = self._distributed_args()


class ExecutorWithExternalLauncher(UniProcExecutor):
    def _init_executor(self):
        raise AssertionError("to get deterministic execution")

    def _distributed_args(self):
        return "env://"
PY
export RANK=5 WORLD_SIZE=16 LOCAL_WORLD_SIZE=4 GPUPROF_SIM_RANKS=5
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$build/lib/gpuprof/sim/python:$work" python3 - <<'PY'
import os
import sys
from types import SimpleNamespace

import torch.distributed as dist
import vllm.distributed.device_communicators.pynccl as pynccl
import vllm.distributed.device_communicators.shm_broadcast as shm_broadcast
import vllm.distributed.parallel_state as parallel_state
import vllm.v1.executor.abstract as abstract
import vllm.v1.executor.uniproc_executor as uniproc_executor

passed = failed = 0


def judge(what, ok):
    global passed, failed
    passed, failed = passed + ok, failed + (not ok)
    if not ok:
        print("FAILED ", what)


world = dist.ProcessGroup(list(range(16)))
judge("the own node has four ranks", parallel_state.in_the_same_node_as(world, 5) == [4 <= i < 8 for i in range(16)])
judge("places in a group are not ranks", parallel_state.in_the_same_node_as(dist.ProcessGroup([1, 5, 7]), 2) == [False, True, True])
try:
    parallel_state.in_the_same_node_as(SimpleNamespace(rank=0, world_size=2))
    judge("a group of vLLM's own is asked as before", False)
except TimeoutError:
    judge("a group of vLLM's own is asked as before", True)
judge("no queue", shm_broadcast.MessageQueue.create_from_process_group(world, 1 << 22, 6) is None)

one = pynccl.PyNcclCommunicator(dist.ProcessGroup([1, 5]), "cuda:1")
judge("NCCL's stand-in knows the members", one.known == [1, 5] and pynccl.told[-1] == [])
try:
    pynccl.PyNcclCommunicator(dist.ProcessGroup([1, 5]), "cuda:1", fail=True)
except RuntimeError:
    judge("and forgets them if that fails", pynccl.told[-2:] == [[1, 5], []])


def config(size):
    return SimpleNamespace(parallel_config=SimpleNamespace(world_size=size, distributed_executor_backend="mp"))


judge("one worker of a job", abstract.Executor.get_class(config(16)) == "external_launcher")
judge("a server of one rank stays", abstract.Executor.get_class(config(1)) == "mp")
try:
    abstract.Executor.get_class(config(8))
    judge("another size is refused", False)
except RuntimeError as error:
    judge("another size is refused", "vLLM starts 8 workers, and the job has 16 ranks: run it with --world=8" in str(error))
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
for module in abstract, uniproc_executor:
    executor = module.ExecutorWithExternalLauncher()
    executor._init_executor()
    judge(f"{module.__name__} starts its worker", executor.ready in (True, "env://"))
judge("the program's own choice stays", os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "1")
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
PY
