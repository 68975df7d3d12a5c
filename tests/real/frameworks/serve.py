# SPDX-License-Identifier: MIT
"""serve.py: vLLM, with a Llama whose weights are made up, answers four prompts, sleeps, and is woken.  All in one process."""
import json
import os
import tempfile

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR",
                  HF_HUB_OFFLINE="1")
os.environ["VLLM_USE_FLASHINFER_SAMPLER"] = "0"  # would be compiled by nvcc
import torch
from vllm import LLM, SamplingParams

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


def free():
    return torch.cuda.mem_get_info()[0]


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(CONFIG, file)
        llm = LLM(model=folder, load_format="dummy", skip_tokenizer_init=True, max_model_len=2048, enforce_eager=True,
                  enable_sleep_mode=True)
        answers = llm.generate([{"prompt_token_ids": [1, 2, 3]}] * 4,
                               SamplingParams(max_tokens=4, detokenize=False, ignore_eos=True))
        print([len(answer.outputs[0].token_ids) for answer in answers])
        awake = free()
        llm.sleep(level=1)
        print("released", free() - awake)
        llm.wake_up()
        print("taken again", free() == awake)


if __name__ == "__main__":
    main()
