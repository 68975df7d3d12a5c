#!/bin/sh
# SPDX-License-Identifier: MIT
# torchao 0.18.0: a quantized weight says of itself the type and the bytes that it had before.  So nbytes of the parameters,
# get_memory_footprint() of transformers 5.24.0 and compute_module_sizes() of accelerate 1.15.0, by which device_map="auto" places
# layers, say the same number before and after quantize_(): here 35.6 MB for a model of 18.5 MB.
#
# gpuprof counts what was allocated.
. "$(dirname "$0")/lib.sh"
packages all torch==2.15.0 torchao==0.18.0 transformers==5.24.0 accelerate==1.15.0 numpy
cat >"$work/footprint.py" <<'END'
import torch
from accelerate.utils import compute_module_sizes
from torchao.quantization import Int8WeightOnlyConfig, quantize_
from transformers import LlamaConfig, LlamaForCausalLM


def held(tensor):
    """A tensor that is made of others has no memory of its own."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return tensor.nbytes
    return sum(held(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0])


def say(when):
    print(when, "footprint", model.get_memory_footprint(return_buffers=False), "accelerate", compute_module_sizes(model)["model.layers"],
          "of the layers, nbytes", sum(p.nbytes for p in model.parameters()), "held", sum(held(p) for p in model.parameters()))


model = LlamaForCausalLM(LlamaConfig(hidden_size=512, intermediate_size=2048, num_hidden_layers=4, num_attention_heads=8, vocab_size=1000))
model.to(torch.bfloat16)
say("before:")
quantize_(model, Int8WeightOnlyConfig())
say("after:")
END
"$work/all/bin/python3" "$work/footprint.py" 2>"$work/log" | same 'before: footprint 35611648 accelerate 33562624 of the layers, nbytes 35611648 held 35611648
after: footprint 35611648 accelerate 33562624 of the layers, nbytes 35611648 held 18460552'
