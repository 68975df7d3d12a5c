#!/bin/sh
# SPDX-License-Identifier: MIT
# Lightning 2.6.6: "Total estimated model params size" of ModelSummary, which a Trainer prints at its start, does not look at the
# parameters' types.  It takes four bytes for each parameter, and two if the Trainer's precision is "bf16-true".  A model that is
# in bfloat16 without that setting counts double, one in int8 four times, one in float64 half.
#
# gpuprof counts what was allocated.
. "$(dirname "$0")/lib.sh"
packages all torch==2.15.0 lightning==2.6.6 numpy
cat >"$work/summary.py" <<'END'
import lightning
import torch
from lightning.pytorch.utilities.model_summary import ModelSummary

for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.int8):
    module = lightning.LightningModule()
    module.weight = torch.nn.Parameter(torch.zeros(1000, 1000, dtype=dtype), requires_grad=False)
    print(dtype, "summary", ModelSummary(module).model_size, "MB, parameters", module.weight.nbytes / 1e6, "MB")
END
"$work/all/bin/python3" "$work/summary.py" 2>"$work/log" | same 'torch.float64 summary 4.0 MB, parameters 8.0 MB
torch.float32 summary 4.0 MB, parameters 4.0 MB
torch.bfloat16 summary 4.0 MB, parameters 2.0 MB
torch.int8 summary 4.0 MB, parameters 1.0 MB'
