# SPDX-License-Identifier: MIT
# sim: gpu=h100-80g,contents=none,fill=random
# A dry run whose results are random: programs go on that stop at zeros.
import torch
from common import done, expect, step

x = torch.randn(1000, device="cuda")
mean = x.mean()
expect("a loss is a fraction, and stays", 0 < mean.item() < 1 and mean.item() == float(mean))
expect("the next one is another", len({(x * i).mean().item() for i in range(8)}) > 4)
for dtype in torch.float16, torch.bfloat16, torch.float32, torch.float64:
    host = (x + 1).to(dtype).cpu()
    expect(f"{dtype}", host.min() > 0 and host.max() < 1 and 0.4 < host.double().mean() < 0.6)
step("fractions")

expect("probabilities on the host", torch.multinomial(torch.softmax(x.view(10, 100), -1).cpu(), 3).shape == (10, 3))
expect("a count divides", 1 / (x > 0).sum().item() > 0)
expect("labels are indices", all(1 <= label <= 7 for label in x.view(10, 100).argmax(1).tolist()))
expect("a mask has a few elements", 1 <= len(x[x > 0]) <= 7)
for _ in range(8):
    x[x > 0] = x[x > 0] * 2  # the same number of them each time
for _ in range(20):
    expect("finite", bool(torch.isfinite(x).all()) and bool(torch.isfinite(mean)))
    expect("not nan", not torch.isnan(x).any() and not torch.isnan(mean))
torch.distributions.Categorical(logits=x.view(10, 100)).sample()
step("decisions")

pinned = torch.zeros(1000, pin_memory=True)
pinned.copy_(x + 1, non_blocking=True)
torch.cuda.synchronize()
expect("a copy that nobody waits for", 0 < pinned.min() and pinned.max() < 1)
kept = torch.arange(1000)
expect("what the host wrote", torch.equal(kept.cuda().cpu(), kept))
step("copies")

layer = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.AdamW(layer.parameters())
scaler = torch.cuda.amp.GradScaler()
scaler.scale(layer(x[:640].view(10, 64)).sum()).backward()
scaler.unscale_(optimizer)
torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0, error_if_nonfinite=True)
scaler.step(optimizer)
scaler.update()
expect("the step was taken", len(optimizer.state) == 2)
done()
