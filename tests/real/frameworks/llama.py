# SPDX-License-Identifier: MIT
"""llama.py: the Llama whose weights are made up, for servers: serve.py and batch.py."""
import json
import os

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "torch_dtype": "bfloat16",
}


def write(folder, **more):
    """Writes its description, with what a server wants more of it."""
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({**CONFIG, **more}, file)
