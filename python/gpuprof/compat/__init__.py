# SPDX-License-Identifier: MIT
"""The statistics of this process with each system's own names, meanings and errors.

`torch`        torch.cuda: every reset affects all peaks, including the deprecated reset_max_memory_allocated
`paddle`       paddle.device.cuda: reset_max_memory_allocated and reset_max_memory_reserved reset one peak each
`tensorflow`   tf.config.experimental: get_memory_info, reset_memory_stats, get_memory_usage
`rmm`          rmm.statistics: push_statistics and pop_statistics, with numbers relative to the push

None of these modules imports the system that it is named after.
"""
from . import paddle, rmm, tensorflow, torch

__all__ = ["paddle", "rmm", "tensorflow", "torch"]
