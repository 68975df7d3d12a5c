# SPDX-License-Identifier: MIT
"""Apex keeps the input, the weights, and a mean and an inverse deviation of each row in fp32."""
import torch


class FusedLayerNormAffineFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, bias, normalized_shape, eps, memory_efficient=False):
        rows = input.numel() // weight.numel()
        mean = None if memory_efficient else torch.empty(rows, device=input.device)
        deviation = torch.empty(rows, device=input.device)
        output = torch.empty_like(input)
        ctx.save_for_backward(output if memory_efficient else input, weight, bias, mean, deviation)
        return output

    @staticmethod
    def backward(ctx, grad):
        _, weight, bias, _, _ = ctx.saved_tensors
        # cuda_layer_norm_gradient: 16 partial sums of each weight and bias, in fp32.
        parts = [torch.empty(16, weight.numel(), device=grad.device) for _ in range(2)]
        grads = torch.empty_like(grad), torch.empty_like(weight), torch.empty_like(bias)
        del parts
        return (*grads, None, None, None)
