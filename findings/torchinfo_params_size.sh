#!/bin/sh
# SPDX-License-Identifier: MIT
# torchinfo 1.8.0: "Params size" has the bytes of modules without children alone, and of a tied weight once for each of its modules.
# Of torch.nn.MultiheadAttention, whose weights lie beside a child, it says 0 of 1.05 MB; of an embedding that is also the output
# layer 8.39 of 4.19 MB.  "Total params" has all of the first, so both numbers of one summary disagree.
#
# gpuprof counts what was allocated.
. "$(dirname "$0")/lib.sh"
packages all torch==2.15.0 torchinfo==1.8.0 numpy
cat >"$work/size.py" <<'END'
import torch
import torchinfo
from torch import nn


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(256, 8, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x)[0]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(1024, 1024)
        self.head = nn.Linear(1024, 1024, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding(x))


for model, x in ((Attention(), torch.zeros(2, 64, 256)), (Tied(), torch.zeros(8, dtype=torch.long))):
    summary = torchinfo.summary(model, input_data=x, verbose=0)
    print(type(model).__name__, "params", summary.total_params, "bytes", summary.total_param_bytes, "of", sum(p.nbytes for p in model.parameters()))
END
"$work/all/bin/python3" "$work/size.py" 2>"$work/log" | same 'Attention params 263168 bytes 0 of 1052672
Tied params 2097152 bytes 8388608 of 4194304'
