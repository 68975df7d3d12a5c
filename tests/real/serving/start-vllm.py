# SPDX-License-Identifier: MIT
"""start-vllm.py: starts vLLM as `vllm serve` (or class LLM, if OPTIONS have "offline") does, with made-up weights, and ends.

start-vllm.py FOLDER MODEL OPTIONS: writes the model's sizes into FOLDER; OPTIONS are vLLM's engine arguments, as JSON.
"""
import json
import os
import sys

os.environ.update(VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", VLLM_CACHE_ROOT=os.path.join(sys.argv[1], "cache"))
os.environ["VLLM_USE_FLASHINFER_SAMPLER"] = "0"  # would be compiled by nvcc
os.environ["VLLM_SKIP_P2P_CHECK"] = "1"  # would compare what was copied: nothing is
import models  # noqa: E402


def main():
    folder, model, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    offline = options.pop("offline", False)
    models.write(model, folder)
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.llm_engine import LLMEngine

    arguments = EngineArgs(model=folder, load_format="dummy", skip_tokenizer_init=True, **options)
    LLMEngine.from_engine_args(arguments, UsageContext.LLM_CLASS if offline else UsageContext.OPENAI_API_SERVER)
    print("started", flush=True)


if __name__ == "__main__":
    main()
