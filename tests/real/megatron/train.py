# SPDX-License-Identifier: MIT
"""Trains with Megatron-LM's own pretrain_gpt.py and prints what its functional tests keep: train.py MEGATRON ARGUMENTS...

Called by tests/real/megatron.sh.  Megatron-LM's last rank writes its memory to a log of TensorBoard after each step; this log is
printed instead.  MEGATRON_SKIP=N: the first N steps find an overflow, as they do where fp16 begins with a loss scale of 2^32.
MEGATRON_KEEPS=1: the batches of a step stay on the GPU until the next one, as they did from Megatron-LM's commit 5e4fc931ba
(21 May 2026) to bf32f4415e (6 July).  Its data iterator keeps each batch for a second run of the step, and the step put its copies on
the GPU into that same dict.
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

if os.environ.get("MEGATRON_KEEPS"):
    from megatron.core import rerun_state_machine

    rerun_state_machine.copy = types.SimpleNamespace(copy=lambda batch: batch)

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
