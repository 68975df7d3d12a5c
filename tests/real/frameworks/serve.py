# SPDX-License-Identifier: MIT
"""serve.py: vLLM, with a Llama whose weights are made up, answers four prompts, sleeps, and is woken.  All in one process."""
import os
import tempfile

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="ERROR",
                  HF_HUB_OFFLINE="1")
os.environ["VLLM_USE_FLASHINFER_SAMPLER"] = "0"  # would be compiled by nvcc
import llama
import torch
from vllm import LLM, SamplingParams


def free():
    return torch.cuda.mem_get_info()[0]


def main():
    with tempfile.TemporaryDirectory() as folder:
        llama.write(folder)
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
