# SPDX-License-Identifier: MIT
"""models.py: the public sizes of models that tests/real/serving.sh starts, and a tokenizer of eight words.  No weights."""
import json
import os

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

QWEN3_MOE = {
    **QWEN3,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}

MODELS = {
    "llama-3.1-8b": LLAMA,
    "llama-3.3-70b": {**LLAMA, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
                      "num_attention_heads": 64},
    "qwen3-reranker-0.6b": {**QWEN3, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
                            "num_attention_heads": 16, "vocab_size": 151669, "tie_word_embeddings": True},
    "qwen3-8b": QWEN3,
    "qwen3-14b": {**QWEN3, "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 40,
                  "num_attention_heads": 40},
    "qwen3-32b": {**QWEN3, "hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64,
                  "num_attention_heads": 64},
    "qwen3-30b-a3b": {**QWEN3_MOE, "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
                      "num_hidden_layers": 48},
    "qwen3-30b-a3b-fp8": {**QWEN3_MOE, "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
                          "num_hidden_layers": 48,
                          "quantization_config": {**FP8, "modules_to_not_convert": [
                              "lm_head", *(f"model.layers.{layer}.mlp.gate" for layer in range(48))]}},
    "qwen3-235b-a22b-fp8": {**QWEN3_MOE, "moe_intermediate_size": 1536, "num_hidden_layers": 94,
                            "num_attention_heads": 64,
                            "quantization_config": {**FP8, "modules_to_not_convert": [
                                "lm_head", *(f"model.layers.{layer}.mlp.gate" for layer in range(94))]}},
    "qwq-32b": {**QWEN3, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 5120,
                "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40, "vocab_size": 152064,
                "max_position_embeddings": 131072},
}


def write(name, folder):
    """Writes the description of the model, and what a server asks of a tokenizer."""
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({"bos_token_id": 1, "eos_token_id": 2, **MODELS[name]}, file)
    words = {str(number): number for number in range(8)}
    with open(os.path.join(folder, "tokenizer.json"), "w") as file:
        json.dump({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                   "pre_tokenizer": None, "post_processor": None, "decoder": None,
                   "model": {"type": "WordLevel", "vocab": words, "unk_token": "0"}}, file)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "0", "eos_token": "2"}, file)
