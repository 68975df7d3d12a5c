# SPDX-License-Identifier: MIT
"""batch.py: SGLang's own benchmark of one batch, with a Llama whose weights are made up: four prompts, graphs of the decoding step,
eight words.  All in one process.  SGLang compiles kernels of its own, so it needs nvcc (CUDA_HOME), once."""
import contextlib
import io
import json
import os
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
from sglang.benchmark import one_batch
from sglang.srt.server_args import ServerArgs
from tokenizers import Tokenizer, models

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
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(CONFIG, file)
        words = Tokenizer(models.WordLevel({str(number): number for number in range(8)}, unk_token="0"))
        words.save(os.path.join(folder, "tokenizer.json"))
        with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
            json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "0"}, file)
        server = ServerArgs(model_path=folder, load_format="dummy", context_length=2048, attention_backend="triton",
                            sampling_backend="pytorch", disable_prefill_cuda_graph=True, log_level="error")
        bench = one_batch.BenchArgs(batch_size=(4,), input_len=(32,), output_len=(8,), result_filename="")
        with contextlib.redirect_stdout(io.StringIO()) as said:  # it says how long each step took
            one_batch.main(server, bench)
        print("ended", "Benchmark ..." in said.getvalue())


if __name__ == "__main__":
    main()
