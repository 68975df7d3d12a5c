# SPDX-License-Identifier: MIT
"""Stands in for Apex's softmax where the mask is the diagonal's: a new result, and a gradient in place of that of the result."""
import torch


def forward(input, scale):
    return torch.empty_like(input)


def backward(grad, result, scale):
    return grad
