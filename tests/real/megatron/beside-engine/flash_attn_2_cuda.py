# SPDX-License-Identifier: MIT
"""Stands in for flash-attn's compiled functions: results and temporary memory have the sizes of the real ones."""
import torch


def rounded(number, multiple):
    return (number + multiple - 1) // multiple * multiple


def results(q, rows):
    state = torch.empty(2, dtype=torch.int64, device=q.device)
    return torch.empty_like(q), torch.empty(rows, dtype=torch.float32, device=q.device), q.new_empty(0), state


# Without a split of keys: flash-attn splits them only where there is no dropout and few rows.
def fwd(q, k, v, dropout, causal, returned):
    batch, rows, heads, _ = q.shape
    assert not returned
    return results(q, (batch, heads, rows))


def varlen_fwd(q, k, v, cu_seqlens_q, dropout, causal, returned):
    total, heads, _ = q.shape
    assert not returned
    return results(q, (heads, total))


def gradients(q, k, v, dq, dk, dv, batch, shape, deterministic):
    """shape: that of the sum of dq, in fp32.  A deterministic sum has a part for each of the blocks of threads that run together."""
    heads = q.shape[-2]
    if dq is None:
        dq = torch.empty_like(q)
    if dk is None:
        dk = torch.empty_like(k)
    if dv is None:
        dv = torch.empty_like(v)
    if deterministic:
        units = torch.cuda.get_device_properties(q.device).multi_processor_count
        shape = ((units + batch * heads - 1) // (batch * heads), *shape)
    parts = torch.empty(shape, dtype=torch.float32, device=q.device)
    if k.shape[-2] != heads:
        wide = [x.new_empty((*x.shape[:-2], heads, x.shape[-1])) for x in (k, v)]
        del wide
    del parts
    return dq, dk, dv


def width(q):
    return rounded(q.shape[-1], 32) if q.shape[-1] <= 192 else 256


def bwd(q, k, v, dq, dk, dv, deterministic):
    batch, rows, heads, _ = q.shape
    rows = rounded(rows, 128)
    sums = torch.empty((batch, heads, rows), dtype=torch.float32, device=q.device)
    gradients(q, k, v, dq, dk, dv, batch, (batch, rows, heads, width(q)), deterministic)
    return sums


def varlen_bwd(q, k, v, dq, dk, dv, cu_seqlens_q, deterministic):
    total, heads, _ = q.shape
    batch = cu_seqlens_q.numel() - 1
    rows = total + 128 * batch
    sums = torch.empty((heads, rows), dtype=torch.float32, device=q.device)
    gradients(q, k, v, dq, dk, dv, batch, (rows, heads, width(q)), deterministic)
    return sums
