# SPDX-License-Identifier: MIT
"""Calls a function of amp_C for lists of tensors."""


def multi_tensor_applier(function, overflow, tensors, *arguments):
    return function(2048 * 32, overflow, tensors, *arguments)
