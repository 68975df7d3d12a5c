# SPDX-License-Identifier: MIT
"""The functions of flash-attn 2.7.4 that Transformer Engine calls, and what their backward pass keeps."""
import flash_attn_2_cuda as compiled
import torch


def contiguous(*tensors):
    return [x.contiguous() if x.stride(-1) != 1 else x for x in tensors]


def _flash_attn_forward(q, k, v, dropout_p, softmax_scale, causal, window_size_left=-1, window_size_right=-1, softcap=0.0,
                        alibi_slopes=None, return_softmax=False):
    return compiled.fwd(*contiguous(q, k, v), dropout_p, causal, return_softmax and dropout_p > 0)


def _flash_attn_varlen_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal,
                               window_size_left=-1, window_size_right=-1, softcap=0.0, alibi_slopes=None, return_softmax=False,
                               block_table=None, leftpad_k=None, seqused_k=None, zero_tensors=False):
    return compiled.varlen_fwd(*contiguous(q, k, v), cu_seqlens_q, dropout_p, causal, return_softmax and dropout_p > 0)


def _flash_attn_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, dropout_p, softmax_scale, causal, window_size_left=-1,
                         window_size_right=-1, softcap=0.0, alibi_slopes=None, deterministic=False, rng_state=None):
    _, q, k, v, _ = contiguous(dout, q, k, v, out)
    return compiled.bwd(q, k, v, dq, dk, dv, deterministic)


def _flash_attn_varlen_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                                dropout_p, softmax_scale, causal, window_size_left=-1, window_size_right=-1, softcap=0.0,
                                alibi_slopes=None, deterministic=False, rng_state=None, zero_tensors=False):
    _, q, k, v, _ = contiguous(dout, q, k, v, out)
    return compiled.varlen_bwd(q, k, v, dq, dk, dv, cu_seqlens_q, deterministic)


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, lengths, dropout, scale, causal, deterministic):
        if lengths is None:
            out, sums, _, state = _flash_attn_forward(q, k, v, dropout, scale, causal)
        else:
            out, sums, _, state = _flash_attn_varlen_forward(q, k, v, *lengths, dropout, scale, causal)
        ctx.save_for_backward(q, k, v, out, sums, state)
        ctx.rest = lengths, dropout, scale, causal, deterministic
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, out, sums, state = ctx.saved_tensors
        lengths, dropout, scale, causal, deterministic = ctx.rest
        grads = [torch.empty_like(x) for x in (q, k, v)]
        if lengths is None:
            _flash_attn_backward(dout, q, k, v, out, sums, *grads, dropout, scale, causal, deterministic=deterministic)
        else:
            _flash_attn_varlen_backward(dout, q, k, v, out, sums, *grads, *lengths, dropout, scale, causal,
                                        deterministic=deterministic)
        return (*grads, None, None, None, None, None)


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
                    deterministic=False, return_attn_probs=False):
    return Attention.apply(q, k, v, None, dropout_p, softmax_scale, causal, deterministic)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None,
                           causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False,
                           return_attn_probs=False, block_table=None):
    return Attention.apply(q, k, v, (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k), dropout_p, softmax_scale, causal,
                           deterministic)
