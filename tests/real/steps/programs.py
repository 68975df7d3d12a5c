# SPDX-License-Identifier: MIT
"""Programs that take a known number of steps, for steps.sh: programs.py CASE.  Without an argument it lists the cases."""
import os
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

os.environ["HF_HUB_OFFLINE"] = "1"
CASES = {}


def case(steps):
    """steps: what the program takes; None: it takes none, and what repeats must not be called that."""
    def keep(function):
        CASES[function.__name__] = (steps, function)
        return function
    return keep


def net(layers=6, width=256):
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(layers))).cuda()


def batch(width=256):
    return torch.zeros(1024, width, device="cuda")


def loop(model, optimizer, steps, extra=None):
    for step in range(steps):
        x = batch()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if extra:
            extra(step)


@case(1)
def one_step():
    model = net()
    loop(model, torch.optim.AdamW(model.parameters(), fused=True), 1)


@case(2)
def two_steps():
    model = net()
    loop(model, torch.optim.AdamW(model.parameters(), fused=True), 2)


@case(3)
def sgd():
    model = net()
    loop(model, torch.optim.SGD(model.parameters(), lr=0.1), 3)


@case(12)
def sgd_gradients_stay():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(12):
        x = batch()
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


@case(10)
def foreach():
    model = net()
    loop(model, torch.optim.Adam(model.parameters(), foreach=True), 10)


def accumulated(optimizer, model, steps, each):
    for micro in range(steps * each):
        x = batch()
        loss = model(x).sum() / each
        loss.backward()
        if (micro + 1) % each == 0:
            optimizer.step()
            optimizer.zero_grad()


@case(5)
def accumulation_fused():
    model = net()
    accumulated(torch.optim.AdamW(model.parameters(), fused=True), model, 5, 4)


@case(5)
def accumulation_sgd():
    model = net()
    accumulated(torch.optim.SGD(model.parameters(), lr=0.1), model, 5, 4)


@case(5)
def accumulation_foreach():
    model = net()
    accumulated(torch.optim.AdamW(model.parameters(), foreach=True), model, 5, 4)


@case(1)
def accumulation_once():
    model = net()
    accumulated(torch.optim.AdamW(model.parameters(), fused=True), model, 1, 4)


def checkpointed(steps, reentrant, optimizer):
    blocks = nn.ModuleList(net(1) for _ in range(8))
    optimizer = optimizer(blocks.parameters())
    for _ in range(steps):
        x = batch().requires_grad_()
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=reentrant)
        x.sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@case(2)
def checkpoint_reentrant():
    checkpointed(2, True, lambda p: torch.optim.AdamW(p, fused=True))


@case(400)
def checkpoint_long():
    checkpointed(400, False, lambda p: torch.optim.AdamW(p, fused=True))


@case(4)
def checkpoint_plain():
    checkpointed(4, False, lambda p: torch.optim.SGD(p, lr=0.1))


@case(6)
def scaler():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    scale = torch.amp.GradScaler("cuda")
    for _ in range(6):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(batch()).sum()
        scale.scale(loss).backward()
        scale.step(optimizer)
        scale.update()
        optimizer.zero_grad()


@case(12)
def epochs_with_validation():
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(3):
        loop(model, optimizer, 4)
        with torch.no_grad():
            for _ in range(7):
                model(batch()).sum().item()


@case(8)
def gan():
    one, two = net(4), net(4)
    first, second = (torch.optim.Adam(m.parameters(), fused=True) for m in (one, two))
    for _ in range(8):
        first.zero_grad()
        made = one(batch())
        two(made.detach()).mean().backward()
        second.step()
        second.zero_grad()
        two(made).mean().backward()
        first.step()


@case(5)
def given_gradient():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        y = model(batch())
        y.backward(torch.ones_like(y))
        optimizer.step()
        optimizer.zero_grad()


@case(6)
def own_optimizer():
    class Signs(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 0.1})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad.sign(), alpha=-group["lr"])

    model = net()
    loop(model, Signs(model.parameters()), 6)


@case(7)
def in_the_backward_pass():
    model = net()
    optimizers = {p: torch.optim.Adam([p], foreach=False) for p in model.parameters()}

    def hook(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    for _ in range(7):
        x = batch()
        model(x).sum().backward()


@case(4)
def lbfgs():
    model = net(2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x = batch()
    for _ in range(4):
        def closure():
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            return loss
        target = batch()
        optimizer.step(closure)


@case(6)
def by_hand():
    weights = [torch.zeros(256, 256, device="cuda", requires_grad=True) for _ in range(4)]
    for _ in range(6):
        x = batch()
        for w in weights:
            x = torch.relu(x @ w)
        for w, g in zip(weights, torch.autograd.grad(x.sum(), weights)):
            with torch.no_grad():
                w -= 0.1 * g


@case(5)
def compiled():
    model = net()
    run = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(5):
        x = batch()
        run(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@case(5)
def inductor():
    model = net()
    run = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(5):
        x = batch()
        run(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@case(30)
def requests():
    model = net().eval()

    def handle(x):
        with torch.no_grad():
            for _ in range(5):
                x = model(x)
            return x
    for _ in range(30):
        x = batch()
        handle(x)


def gpt():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=128, n_positions=256)).eval().to("cuda")


def answer(model, words, new=12):
    return model.generate(words, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0)


@case(20)
def requests_generate():
    model = gpt()
    for _ in range(20):
        answer(model, torch.ones(2, 32, dtype=torch.long, device="cuda"))


@case(20)
def requests_in_one_line():
    model, words = gpt(), torch.ones(2, 32, dtype=torch.long, device="cuda")
    for _ in range(20):
        answer(model, words)


@case(None)
def generate_once():
    answer(gpt(), torch.ones(2, 32, dtype=torch.long, device="cuda"), 60)


@case(16)
def requests_threads():
    from concurrent.futures import ThreadPoolExecutor

    model = net().eval()

    def handle(_):
        with torch.no_grad():
            x = batch()
            y = model(x)
            return model(y).sum()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(handle, range(16)))


def pipeline():
    torch.backends.cudnn.enabled = False
    from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

    unet = UNet2DModel(sample_size=32, block_out_channels=(32, 64), down_block_types=("DownBlock2D", "DownBlock2D"),
                       up_block_types=("UpBlock2D", "UpBlock2D"), norm_num_groups=8)
    made = DDPMPipeline(unet, DDPMScheduler(num_train_timesteps=1000)).to("cuda")
    made.set_progress_bar_config(disable=True)
    return made


@case(None)
def denoise_once():
    pipeline()(batch_size=1, num_inference_steps=30, output_type="np")


@case(6)
def denoise():
    pipe = pipeline()
    for _ in range(6):
        pipe(batch_size=1, num_inference_steps=10, output_type="np")


@case(None)
def weights_only():
    kept = {}
    for i in range(60):
        kept[i] = torch.zeros(64, 1024, device="cuda")


@case(4)
def trainer():
    import tempfile
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    class Words(torch.utils.data.Dataset):
        def __len__(self):
            return 32

        def __getitem__(self, i):
            return {"input_ids": torch.ones(64, dtype=torch.long), "labels": torch.tensor(1)}
    model = BertForSequenceClassification(BertConfig(vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
                                                     intermediate_size=256)).to("cuda")
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, per_device_train_batch_size=2, gradient_accumulation_steps=3, max_steps=4,
                                      report_to="none", save_strategy="no", gradient_checkpointing=True)
        Trainer(model=model, args=arguments, train_dataset=Words()).train()


@case(6)
def accelerator():
    from accelerate import Accelerator

    accelerate = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    model = net()
    data = torch.utils.data.DataLoader(torch.zeros(48, 256), batch_size=4)
    model, optimizer, data = accelerate.prepare(model, torch.optim.AdamW(model.parameters(), fused=True), data)
    for x in data:
        with accelerate.accumulate(model):
            loss = model(x).square().mean()
            accelerate.backward(loss)
            if accelerate.sync_gradients:
                accelerate.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()


@case(9)
def lightning():
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net().cpu()

        def training_step(self, x, i):
            return self.net(x).square().mean()

        def validation_step(self, x, i):
            self.log("loss", self.net(x).square().mean())

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), fused=True)
    data = torch.utils.data.DataLoader(torch.zeros(12, 256), batch_size=4)
    lightning.Trainer(max_epochs=3, accelerator="cuda", devices=1, logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False).fit(Module(), data, data)


@case(3)
def as_megatron():
    """A function for each iteration, with micro-batches whose gradients are given, and gradients that stay."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def forward_backward(count):
        for _ in range(count):
            out = model(batch())
            torch.autograd.backward(out, grad_tensors=torch.ones_like(out))

    def train_step():
        optimizer.zero_grad(set_to_none=False)
        forward_backward(4)
        optimizer.step()
        return torch.zeros(1, device="cuda")

    for _ in range(3):
        loss = train_step()
        loss += 1


@case(3)
def fsdp2():
    import torch.distributed as dist
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
    from torch.distributed.fsdp import fully_shard

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    model = net(8)
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, nn.Sequential) and len(module) == 3)
    for block in model:
        fully_shard(block)
    fully_shard(model)
    loop(model, torch.optim.AdamW(model.parameters(), fused=True), 3)
    dist.destroy_process_group()


def language():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
                                        num_key_value_heads=2, vocab_size=1000, max_position_embeddings=256))


@case(5)
def deepspeed():
    import deepspeed as ds

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29555", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    ds.init_distributed("nccl")
    model = net()
    engine, *_ = ds.initialize(model=model, config={
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 2},
        "bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}})
    for _ in range(10):
        loss = engine(batch().bfloat16()).float().sum()
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    if len(sys.argv) == 1:
        for name, (steps, _) in CASES.items():
            print(name, steps)
        sys.exit()
    CASES[sys.argv[1]][1]()
