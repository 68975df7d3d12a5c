# SPDX-License-Identifier: MIT
"""A step of transformers' Mixtral whose experts run one after the other: mixtral.py.  Prints how many words the experts got, and
PyTorch's peak: "words N..", "peak BYTES"."""
import torch
from torch.nn import functional
from transformers import MixtralConfig, MixtralForCausalLM

WORDS = 2048
config = MixtralConfig(
    hidden_size=512,
    intermediate_size=1024,
    num_hidden_layers=1,
    num_attention_heads=8,
    num_key_value_heads=8,
    num_local_experts=8,
    vocab_size=1000,
    experts_implementation="eager",
)
with torch.device("cuda"):
    model = MixtralForCausalLM(config)
inputs, linear = [], functional.linear


def seen(x, *others):
    if x.dim() == 2:
        inputs.append(len(x))
    return linear(x, *others)


functional.linear = seen
words = torch.randint(0, 1000, (4, WORDS // 4), device="cuda")
model(input_ids=words, labels=words, output_router_logits=True).loss.backward()
print("words", *sorted(n for n in inputs if n != WORDS), flush=True)
print("peak", torch.cuda.max_memory_allocated(), flush=True)
