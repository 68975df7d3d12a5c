# SPDX-License-Identifier: MIT
"""Stands in for NVIDIA's Apex in a dry run: what Megatron-LM uses of it, with kernels that compute nothing.

Each function allocates what Apex's allocates: results of the same sizes, and what the backward pass keeps.
"""
