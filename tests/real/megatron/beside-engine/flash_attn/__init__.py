# SPDX-License-Identifier: MIT
"""Stands in for flash-attn in a dry run: what Transformer Engine uses of it, with kernels that compute nothing.

Its functions allocate what those of version 2.7.4 allocate (csrc/flash_attn/flash_api.cpp).
"""
