# SPDX-License-Identifier: MIT
"""Stands in for Apex's softmax where the mask is given: a new result, and a gradient in place of that of the result."""
import torch


def forward(input, mask, scale):
    return torch.empty_like(input)


def backward(grad, result, scale):
    return grad


def get_batch_per_block(query, key, batch, heads):
    # softmax.h: 128 threads a block, 32 a row, or fewer for short rows; two rows a warp up to 128 elements.
    elements = 1 << (key - 1).bit_length()
    warp = min(elements, 32)
    return 128 // warp * (2 if elements <= 128 else 1)
