# SPDX-License-Identifier: MIT
"""Trains with Megatron-LM's own pretrain_gpt.py and prints what its functional tests keep: train.py MEGATRON ARGUMENTS...

Called by tests/real/megatron.sh.  Megatron-LM's last rank writes its memory to a log of TensorBoard after each step; this log is
printed instead.  MEGATRON_SKIP=N: the first N steps find an overflow, as they do where fp16 begins with a loss scale of 2^32.
"""
import os
import runpy
import sys
import types
import typing

if not hasattr(typing, "override"):  # Python before 3.12
    typing.override = lambda function: function
root = sys.argv[1]
sys.path[:0] = [root, os.path.dirname(__file__)]
sys.argv[:2] = [root + "/pretrain_gpt.py"]


class Writer:
    def __init__(self, *arguments, **options):
        pass

    def add_scalar(self, name, value, step, *others):
        if name in ("mem-allocated-bytes", "mem-max-allocated-bytes"):
            print("golden", os.environ["RANK"], step, name, int(value), file=sys.stderr, flush=True)

    def __getattr__(self, name):
        return lambda *arguments, **options: None


board = types.ModuleType("torch.utils.tensorboard")
board.SummaryWriter = Writer
sys.modules[board.__name__] = board

skipped = int(os.environ.get("MEGATRON_SKIP", 0))
if skipped:
    from megatron.core.optimizer.optimizer import MixedPrecisionOptimizer

    real = MixedPrecisionOptimizer._unscale_main_grads_and_check_for_nan

    def overflow(self):
        global skipped
        found = real(self)
        skipped -= 1
        return found or skipped >= 0

    MixedPrecisionOptimizer._unscale_main_grads_and_check_for_nan = overflow

runpy.run_path(sys.argv[0], run_name="__main__")
