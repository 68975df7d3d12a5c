#!/bin/sh
# SPDX-License-Identifier: MIT
# PyTorch 2.15.0: where expandable segments are to be shared by handles that a GPU does not support, its error message says "Set
# PYTORCH_CUDA_ALLOC_CONF=expandable_segments_handle_type:posix_fd".  The parser of that variable refuses this key as unrecognized,
# so a program that follows the message ends at its first use of the GPU with another error.  It needs no GPU to see both.
#
# gpuprof's parser of the same settings refuses the key too.
. "$(dirname "$0")/lib.sh"
packages all torch==2.15.0 numpy
cat >"$work/settings.py" <<'END'
import os
import sys

import torch

with open(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10_cuda.so"), "rb") as file:
    print("its message names the key:", b"PYTORCH_CUDA_ALLOC_CONF=expandable_segments_handle_type:posix_fd" in file.read())
for setting in "expandable_segments:True", "expandable_segments_handle_type:posix_fd":
    try:
        torch._C._accelerator_setAllocatorSettings(setting)
        print(setting, "is accepted")
    except Exception as error:
        print(setting, "is refused:", str(error).split("\n")[0])
END
"$work/all/bin/python3" "$work/settings.py" 2>"$work/errors" | same "its message names the key: True
expandable_segments:True is accepted
expandable_segments_handle_type:posix_fd is refused: Unrecognized key 'expandable_segments_handle_type' in Accelerator allocator config."
