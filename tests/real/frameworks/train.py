# SPDX-License-Identifier: MIT
"""Trains or runs a model the way that users of a framework do: train.py CASE [ARGUMENT...].  Models are built from their
configurations, data are made up.  Prints what PyTorch says of its memory: "peak ALLOCATED RESERVED"."""
import os
import sys
import tempfile

import torch

os.environ["HF_HUB_OFFLINE"] = "1"


def case(function):
    """Those that frameworks.sh runs."""
    return function


class Words(torch.utils.data.Dataset):
    """Sequences of random words; of a causal model the labels are the words."""

    def __init__(self, count, length, words, classes=0):
        made = torch.Generator().manual_seed(1)
        self.words = torch.randint(100, words, (count, length), generator=made)
        self.labels = torch.randint(0, classes, (count,), generator=made) if classes else self.words

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        return {"input_ids": self.words[i], "labels": self.labels[i]}


def steps(model, batches, optimizer, loss):
    for batch in batches:
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()


def llama(layers=4, **more):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=layers, num_attention_heads=16,
                         num_key_value_heads=4, vocab_size=32000, max_position_embeddings=2048, **more)
    with torch.device("cuda"):
        return LlamaForCausalLM(config)


@case
def trainer(batch=4, **more):
    """The example of transformers' page on the anatomy of a model's memory."""
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    model = BertForSequenceClassification(BertConfig(vocab_size=30522, hidden_size=1024, num_hidden_layers=24,
                                                     num_attention_heads=16, intermediate_size=4096)).to("cuda")
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, per_device_train_batch_size=batch, max_steps=3, report_to="none",
                                      save_strategy="no", **more)
        Trainer(model=model, args=arguments, train_dataset=Words(3 * batch, 512, 30000, 2)).train()


@case
def trainer_workers():
    """Mixed precision, accumulation, checkpointing, workers that load, and a checkpoint that is written."""
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, per_device_train_batch_size=2, gradient_accumulation_steps=2, bf16=True,
                                      gradient_checkpointing=True, max_steps=2, report_to="none", save_steps=2,
                                      dataloader_num_workers=2)
        Trainer(model=llama(2), args=arguments, train_dataset=Words(16, 512, 32000)).train()
        assert os.path.exists(os.path.join(folder, "checkpoint-2")), "no checkpoint"


@case
def generate():
    model = llama().to(torch.bfloat16).eval()
    words = torch.randint(100, 32000, (4, 256), device="cuda")
    made = model.generate(words, max_new_tokens=32, min_new_tokens=32, do_sample=False, pad_token_id=0)
    assert made.shape[1] == 288, made.shape


@case
def lora():
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(llama().to(torch.bfloat16), LoraConfig(r=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
    trained = [p for p in model.parameters() if p.requires_grad]
    words = [torch.randint(100, 32000, (2, 512), device="cuda") for _ in range(3)]
    steps(model, words, torch.optim.AdamW(trained), lambda m, w: m(input_ids=w, labels=w).loss)


@case
def eight_bit():
    import bitsandbytes

    model = llama()
    words = [torch.randint(100, 32000, (2, 512), device="cuda") for _ in range(3)]
    steps(model, words, bitsandbytes.optim.AdamW8bit(model.parameters()), lambda m, w: m(input_ids=w, labels=w).loss)


@case
def four_bit():
    """LoRA over weights of four bits."""
    import bitsandbytes

    layer = bitsandbytes.nn.Linear4bit(4096, 4096, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4").cuda()
    x = torch.randn(8, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    layer(x).sum().backward()


@case
def accelerated():
    from accelerate import Accelerator

    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    model = llama()
    loader = torch.utils.data.DataLoader(Words(8, 512, 32000), batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), loader)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


@case
def lightning():
    import lightning
    from torch import nn

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))

        def training_step(self, batch, _):
            return nn.functional.mse_loss(self.layers(batch), batch)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(max_epochs=1, accelerator="gpu", devices=1, precision="bf16-mixed", default_root_dir=folder,
                                    logger=False, enable_progress_bar=False)
        trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(64, 1024), batch_size=16))


@case
def unet():
    from diffusers import DDPMScheduler, UNet2DConditionModel

    model = UNet2DConditionModel(sample_size=32, cross_attention_dim=768, block_out_channels=(160, 320, 640, 640)).cuda()
    model.enable_gradient_checkpointing()
    optimizer, noise = torch.optim.AdamW(model.parameters()), DDPMScheduler()
    for _ in range(3):
        x, text = torch.randn(2, 4, 32, 32, device="cuda"), torch.randn(2, 77, 768, device="cuda")
        eps, t = torch.randn_like(x), torch.randint(0, 1000, (2,), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            made = model(noise.add_noise(x, eps, t), t, text).sample
        torch.nn.functional.mse_loss(made.float(), eps).backward()
        optimizer.step()
        optimizer.zero_grad()


@case
def resnet():
    import torchvision

    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    scaler = torch.amp.GradScaler("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    made = torchvision.datasets.FakeData(48, (3, 224, 224), 1000, torchvision.transforms.ToTensor())
    for x, y in torch.utils.data.DataLoader(made, batch_size=16, num_workers=2, pin_memory=True):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = torch.nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@case
def convolutions():
    """Of one to three dimensions and each type, with TF32 and without, forward alone and with backward."""
    from itertools import product

    nn = torch.nn
    layers = [nn.Conv1d(80, 256, 3, padding=1), nn.Conv1d(64, 64, 128, padding=64, groups=16), nn.ConvTranspose1d(64, 32, 8),
              nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 3, groups=4), nn.Conv2d(32, 64, 1, stride=2),
              nn.Conv2d(16, 16, 33, padding=16), nn.ConvTranspose2d(32, 16, 4, stride=2),
              nn.Conv3d(16, 24, 3), nn.ConvTranspose3d(8, 8, 2)]
    kinds = torch.float32, torch.float16, torch.bfloat16, torch.float64
    for layer, kind, torch.backends.cudnn.allow_tf32 in product(layers, kinds, (True, False)):
        layer.cuda().to(kind).zero_grad()
        size = {3: (512,), 4: (64, 64), 5: (16, 16, 16)}[layer.weight.dim()]
        x = torch.randn(2, layer.in_channels, *size, device="cuda", dtype=kind)
        for form in (torch.contiguous_format, torch.channels_last)[:2 if x.dim() == 4 else 1]:
            x = x.to(memory_format=form).detach().requires_grad_()
            layer.to(memory_format=form)(x).sum().backward()
            with torch.no_grad():
                layer(x)


@case
def compiled():
    """Inductor's kernels are compiled by Triton."""
    model = torch.compile(llama(2))
    words = [torch.randint(100, 32000, (2, 256), device="cuda") for _ in range(3)]
    steps(model, words, torch.optim.AdamW(model.parameters()), lambda m, w: m(input_ids=w, labels=w).loss)


@case
def graphs():
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(4))).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    x = torch.randn(512, 2048, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()


@case
def lowbit():
    """The optimizer of eight bits of torchao, which compiles its step."""
    import timm
    from torchao.optim import AdamW8bit

    model = timm.create_model("vit_base_patch16_224", num_classes=45).cuda()
    images = [torch.randn(8, 3, 224, 224, device="cuda") for _ in range(2)]

    def loss(m, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return torch.nn.functional.cross_entropy(m(x), torch.zeros(8, dtype=torch.long, device="cuda"))
    steps(model, images, AdamW8bit(model.parameters()), loss)


@case
def litgpt(name="phi-1_5", length="1044", batch="1"):
    """LoRA as litgpt's tables describe it: the longest sequence, bf16-true, the query and the value adapted with rank 8."""
    from litgpt.lora import GPT, Config, mark_only_lora_as_trainable
    from litgpt.utils import chunked_cross_entropy

    config = Config.from_name(name, lora_r=8, lora_alpha=16, lora_dropout=0.05, lora_query=True, lora_value=True)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = GPT(config)
    mark_only_lora_as_trainable(model)
    model.max_seq_length = int(length)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-4, weight_decay=0.01)
    words = torch.randint(0, config.vocab_size, (int(batch), int(length)), device="cuda")
    for _ in range(2):
        logits = model(words, lm_head_chunk_size=128)
        logits[-1] = logits[-1][..., :-1, :]
        chunked_cross_entropy(logits, words[..., 1:]).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
    print("peak", torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
