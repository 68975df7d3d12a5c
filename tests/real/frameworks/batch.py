# SPDX-License-Identifier: MIT
"""batch.py: SGLang's own benchmark of one batch, with a Llama whose weights are made up: four prompts, graphs of the decoding step,
eight words.  All in one process.  SGLang compiles kernels of its own, so it needs nvcc (CUDA_HOME), once."""
import contextlib
import io
import json
import os
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import llama
from sglang.benchmark import one_batch
from sglang.srt.server_args import ServerArgs
from tokenizers import Tokenizer, models


def main():
    with tempfile.TemporaryDirectory() as folder:
        llama.write(folder, bos_token_id=1, eos_token_id=2)
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
