# SPDX-License-Identifier: MIT
"""torchtitan's train.py, and the symmetric memory that it has at its end, which its log does not count: run.py ARGUMENT...

Called by tests/real/torchtitan.sh.
"""
import atexit
import runpy
import sys


def say():
    module = sys.modules.get("torch.distributed._symmetric_memory")
    tensors = module._group_name_to_workspace_tensor.values() if module else ()
    print("symmetric", sum(tensor.nbytes for tensor in tensors if tensor is not None), flush=True)


atexit.register(say)
sys.argv[0] = "train.py"
runpy.run_path("train.py", run_name="__main__")
