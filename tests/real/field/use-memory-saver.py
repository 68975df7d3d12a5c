# SPDX-License-Identifier: MIT
# sim: gpu=a100-40g
# torch-memory-saver: tensors of a region give their memory back while they sleep, and PyTorch's own numbers do not see it.
import importlib.util
import os
import sys

# Its preloaded library has to be there from the start.
if "torch_memory_saver" not in os.environ.get("LD_PRELOAD", ""):
    folder = os.path.dirname(os.path.dirname(importlib.util.find_spec("torch_memory_saver").origin))
    hook = os.path.join(folder, "torch_memory_saver_hook_mode_preload_cu12.abi3.so")
    os.environ["LD_PRELOAD"] = os.environ["LD_PRELOAD"] + ":" + hook
    os.execv(sys.executable, [sys.executable] + sys.argv)

import gpuprof  # noqa: E402
import torch  # noqa: E402
from common import done, equal, ledger, say  # noqa: E402
from torch_memory_saver import torch_memory_saver  # noqa: E402

MIB = 1 << 20


def held():
    return ledger()["reserved_bytes"]["current"]


outside = torch.ones(30 * MIB, dtype=torch.uint8, device="cuda")
with torch_memory_saver.region():
    tensor = torch.ones(100 * MIB, dtype=torch.uint8, device="cuda")
say("awake", held(), torch.cuda.memory_allocated())
equal("awake", held(), 130 * MIB)
torch_memory_saver.pause()
say("asleep", held(), torch.cuda.memory_allocated())
equal("asleep", held(), 30 * MIB)
torch_memory_saver.resume()
say("awake again", held(), torch.cuda.memory_allocated())
equal("awake again", held(), 130 * MIB)
del tensor
torch.cuda.empty_cache()
say("deleted", held(), torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
stats = gpuprof.memory_stats()
equal("reserved", stats.get("reserved_bytes.all.current"), held())
equal("allocated, of PyTorch's blocks", stats.get("allocated_bytes.all.current"), torch.cuda.memory_allocated())
done()
