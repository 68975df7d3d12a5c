# SPDX-License-Identifier: MIT
# sim: gpu=a100-40g,contents=none,fill=random
"""Two steps of TRL's GRPO: texts are made, rewarded and trained on."""
import itertools
import os
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import datasets.fingerprint
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

# Some versions of datasets and pandas cannot pickle a table, of which this would be the hash.
number = itertools.count()
datasets.fingerprint.Hasher.hash = classmethod(lambda _, value: f"{next(number):016x}")

words = ["<pad>", "<bos>", "<eos>", "<unk>", *(f"w{i}" for i in range(8188))]
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>",
                                    unk_token="<unk>")
with torch.device("cuda"):
    model = LlamaForCausalLM(LlamaConfig(hidden_size=512, intermediate_size=1408, num_hidden_layers=4, num_attention_heads=8,
                                         num_key_value_heads=4, vocab_size=8192, pad_token_id=0, bos_token_id=1, eos_token_id=2))
prompts = [" ".join(f"w{row * 64 + i}" for i in range(64)) for row in range(16)]


def reward(completions, **_):
    return [float(len(text)) for text in completions]


with tempfile.TemporaryDirectory() as folder:
    arguments = GRPOConfig(output_dir=folder, per_device_train_batch_size=4, num_generations=4, max_completion_length=32,
                           max_steps=2, report_to="none", save_strategy="no", disable_tqdm=True)
    trainer = GRPOTrainer(model=model, reward_funcs=reward, args=arguments, processing_class=tokenizer,
                          train_dataset=Dataset.from_dict({"prompt": prompts}))
    trainer.train()
print(torch.cuda.max_memory_allocated())
