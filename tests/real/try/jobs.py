# SPDX-License-Identifier: MIT
"""Jobs of people's frameworks as they are, or with one change made by hand, for tests/real/try.sh: jobs.py JOB [CHANGE].
Prints the peak of PyTorch's allocator."""
import os
import sys
import tempfile

import torch
from torch.utils.checkpoint import checkpoint

os.environ["HF_HUB_OFFLINE"] = "1"
job, how = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""


def adamw(parameters):
    if how == "8bit":
        import bitsandbytes

        return bitsandbytes.optim.AdamW8bit(parameters)
    return torch.optim.AdamW(parameters, **({"fused": True} if how == "fused" else {}))


def checkpointed(blocks):
    """Each block is called through a checkpoint."""
    for block in blocks if how == "checkpoint" else ():
        block.forward = lambda *args, own=block.forward, **kwargs: checkpoint(own, *args, use_reentrant=False, **kwargs)


def switched(model):
    if how == "checkpoint":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def train(model, batches, loss, optimizer):
    for batch in batches:
        loss(model, batch).backward()
        optimizer.step()
        optimizer.zero_grad()


def words(count, rows, length, vocabulary):
    return [torch.randint(100, vocabulary, (rows, length), device="cuda") for _ in range(count)]


def of_words(model, batch):
    return model(input_ids=batch, labels=batch).loss


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = switched(GPT2LMHeadModel(GPT2Config(n_layer=6)).cuda())
    train(model, words(3, 4, 512, 50000), of_words, adamw(model.parameters()))


def lora():
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
                         num_key_value_heads=4, vocab_size=32000)
    model = switched(LlamaForCausalLM(config).cuda().to(torch.bfloat16))
    model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    train(model, words(3, 4, 512, 32000), of_words, adamw(p for p in model.parameters() if p.requires_grad))


def bert():
    """BERT by transformers' Trainer."""
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    class Words(torch.utils.data.Dataset):
        def __len__(self):
            return 24

        def __getitem__(self, i):
            return {"input_ids": torch.full((256,), 100 + i), "labels": torch.tensor(0)}

    more = {"checkpoint": {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}},
            "8bit": {"optim": "adamw_bnb_8bit"}}.get(how, {})
    model = BertForSequenceClassification(BertConfig(num_hidden_layers=12)).cuda()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, per_device_train_batch_size=8, max_steps=3, report_to="none",
                                      save_strategy="no", **{"optim": "adamw_torch", **more})
        Trainer(model=model, args=arguments, train_dataset=Words()).train()


def unet():
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(sample_size=32, cross_attention_dim=768, block_out_channels=(160, 320, 640, 640)).cuda()
    checkpointed(part for part in model.modules() if type(part).__name__ == "ResnetBlock2D")
    batches = [(torch.randn(4, 4, 32, 32, device="cuda"), torch.randn(4, 77, 768, device="cuda")) for _ in range(3)]
    train(model, batches, lambda m, b: m(b[0], 10, b[1]).sample.square().mean(), adamw(model.parameters()))


def vit():
    import timm

    model = timm.create_model("vit_base_patch16_224").cuda()
    checkpointed(model.blocks)
    train(model, [torch.randn(16, 3, 224, 224, device="cuda") for _ in range(3)], lambda m, x: m(x).sum(),
          adamw(model.parameters()))


def moe():
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(hidden_size=512, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=8,
                           num_key_value_heads=4, num_local_experts=4, vocab_size=32000)
    model = switched(MixtralForCausalLM(config).cuda())
    train(model, words(3, 4, 512, 32000), of_words, adamw(model.parameters()))


def resnet():
    import torchvision

    model = torchvision.models.resnet50().cuda()
    checkpointed(block for layer in (model.layer1, model.layer2, model.layer3, model.layer4) for block in layer)
    train(model, [torch.randn(16, 3, 224, 224, device="cuda") for _ in range(3)], lambda m, x: m(x).sum(),
          adamw(model.parameters()))


{"gpt2": gpt2, "lora": lora, "bert": bert, "unet": unet, "vit": vit, "moe": moe, "resnet": resnet}[job]()
print("peak", torch.cuda.max_memory_allocated(), flush=True)
