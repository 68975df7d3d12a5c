# SPDX-License-Identifier: MIT
"""What PyTorch computes from the indices of a top-k, on the GPU and, of the same indices, on the host: both are equal, and the
indices give each candidate the same number of rows.  values.py [PART]: only the first PART of the candidates get any."""
import sys

import torch
from torch.nn import functional

ROWS, CANDIDATES, TAKEN = 96, 16, 2
part = int(sys.argv[1]) if len(sys.argv) > 1 else CANDIDATES
failed = 0


def same(name, gpu, host):
    global failed
    ok = gpu.is_cuda and gpu.dtype == host.dtype and torch.equal(gpu.cpu(), host)
    failed += not ok
    if not ok:
        print(f"{name}: {gpu.cpu().flatten()[:8].tolist()} on the GPU, {host.flatten()[:8].tolist()} on the host")


def counts(i, like):
    """Each way in which programs count, sort and mask."""
    flat, device = i.flatten(), i.device
    mask = torch.zeros(like, dtype=torch.float32, device=device).int().scatter(1, i, 1).bool()
    per = mask.sum(dim=0)
    yield "sum", per
    rows = torch.arange(ROWS, device=device).unsqueeze(1)
    put = torch.zeros(like, device=device).index_put_((rows, i), torch.ones(i.shape, device=device)).bool()
    yield "put", put
    yield "put, counted", put.sum(dim=0)
    yield "wider", per.long().reshape(4, -1).sum(axis=1)
    yield "part", per[4:8].contiguous().view(2, 2)
    yield "bincount", torch.bincount(flat, minlength=CANDIDATES)
    whole = flat if flat.is_cuda else flat.double()  # of whole numbers it is the GPU's alone
    yield "histogram", torch.histc(whole, bins=CANDIDATES, min=0, max=CANDIDATES - 1).long()
    yield "histogram of floats", torch.histc(flat.float(), bins=CANDIDATES, min=0, max=CANDIDATES - 1).long()
    yield "one hot", functional.one_hot(i, CANDIDATES).permute(2, 1, 0)
    yield "hit", torch.greater(functional.one_hot(i, CANDIDATES).sum(dim=(0, 1)), 0).nonzero()
    yield "where", torch.where(functional.one_hot(i, CANDIDATES).permute(2, 1, 0)[1])[1]
    yield "sort", flat.sort(stable=True)[0]
    yield "argsort", flat.argsort(stable=True)
    yield "rows", flat.argsort(stable=True) // TAKEN
    yield "argsort of a mask", mask.T.contiguous().reshape(-1).argsort(descending=True, stable=True)[: flat.numel()] % ROWS
    yield "masked", torch.arange(ROWS, device=device).unsqueeze(0).expand(CANDIDATES, -1).masked_select(mask.T.contiguous())
    yield "offsets", per.cumsum(0, dtype=torch.int32)
    yield "padded", (per + 15) // 16 * 16
    yield "largest", per.max()
    yield "repeated", torch.repeat_interleave(torch.arange(CANDIDATES, device=device), per)
    yield "concatenated", torch.cat([per, torch.zeros(1, dtype=per.dtype, device=device)])
    yield "indexed", per[i]
    yield "any", mask.any(dim=1)
    yield "unique", torch.unique(flat)
    yield "added", torch.zeros(CANDIDATES, dtype=torch.int64, device=device).scatter_add(0, flat, torch.ones_like(flat))
    written = torch.full((4,), -1, dtype=torch.int64, device=device)
    written[1:3] = per[:2]
    yield "written in part", written


def compare(scores, **options):
    i = torch.topk(scores, TAKEN, **options)[1]
    on_host = i.cpu()
    per = torch.bincount(on_host.flatten(), minlength=CANDIDATES)
    wanted = [ROWS * TAKEN // part if n < part else 0 for n in range(CANDIDATES)]
    if per.tolist() != wanted or not (on_host.sort(dim=1)[0].diff(dim=1) > 0).all():
        sys.exit(f"{per.tolist()} rows of a candidate, wanted {wanted}, and each twice")
    for (name, gpu), (_, host) in zip(counts(i, (ROWS, CANDIDATES)), counts(on_host, (ROWS, CANDIDATES))):
        same(name, gpu, host)
    return i


weight = torch.randn(CANDIDATES, 8, device="cuda", requires_grad=True)
compare(torch.randn(ROWS, 8, device="cuda") @ weight.T, dim=-1)
with torch.inference_mode():
    compare(torch.randn(ROWS, CANDIDATES, device="cuda"), sorted=False)
torch.use_deterministic_algorithms(True, warn_only=True)
compare(torch.randn(ROWS, CANDIDATES, device="cuda"))
torch.use_deterministic_algorithms(False)
compiled = torch.compile(lambda scores: torch.topk(scores * 2, TAKEN)[1], dynamic=False)
same("compiled", compiled(torch.randn(ROWS, CANDIDATES, device="cuda")), compare(torch.randn(ROWS, CANDIDATES, device="cuda")).cpu())
first = torch.topk(torch.randn(CANDIDATES, ROWS, device="cuda"), TAKEN, dim=0)[1]
same("in the first dimension", first, compare(torch.randn(ROWS, CANDIDATES, device="cuda")).cpu().T)
one = torch.randn(ROWS, CANDIDATES, device="cuda").argmax(-1)
same("argmax", one, torch.arange(ROWS) % part)

# Not known: more candidates than experts, other numbers, and memory that something else has written since.
many = torch.topk(torch.randn(4, 50000, device="cuda"), TAKEN)[1]
failed += any(many.flatten().tolist())
whole = torch.topk(torch.randint(9, (ROWS, CANDIDATES), device="cuda"), TAKEN)[1]
failed += any(whole.flatten().tolist())
over = torch.topk(torch.randn(ROWS, CANDIDATES, device="cuda"), TAKEN)[1]
over.random_(3)
failed += any(over.flatten().tolist())
zeros = torch.zeros(ROWS, CANDIDATES, device="cuda")
zeros.scatter_(1, torch.topk(torch.randn(ROWS, CANDIDATES, device="cuda"), TAKEN)[1], torch.randn(ROWS, TAKEN, device="cuda"))
import gpuprof_routing  # noqa: E402

failed += gpuprof_routing._routing[0].known.find(zeros) is not None
sys.exit(f"{failed} failed" if failed else print("equal"))
