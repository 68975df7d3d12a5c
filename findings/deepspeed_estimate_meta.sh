#!/bin/sh
# SPDX-License-Identifier: MIT
# DeepSpeed 0.19.8 with PyTorch 2.13.0: estimate_zero3_model_states_mem_needs_all_live and its sibling for ZeRO-2 tell tensors apart
# by the address of their data.  On the meta device, where people build a model that is too large for the machine, every address
# is 0: the estimate counts one parameter of the model, here 1 thousand of 8 million, and still names the largest layer rightly.
# The printed need is near 0 GB for a model of any size, without a warning.
#
# gpuprof's dry run counts what the program allocates and asks no estimator.
. "$(dirname "$0")/lib.sh"
packages all torch==2.13.0 numpy 'setuptools<80' wheel
# Built from source, without its kernels.
DS_BUILD_OPS=0 "$work/all/bin/python3" -m pip install --quiet --no-build-isolation deepspeed==0.19.8 >"$work/log" 2>&1 || {
    echo "skipped: DeepSpeed cannot be installed: $(tail -n 1 "$work/log")"
    exit 77
}
cat >"$work/estimate.py" <<'END'
import torch
from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs_all_live
from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs_all_live

for device in "cpu", "meta":
    with torch.device(device):
        model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)])
    print(f"{device}: {sum(p.numel() for p in model.parameters())} parameters", flush=True)
    estimate_zero3_model_states_mem_needs_all_live(model, num_gpus_per_node=1, num_nodes=1)
    estimate_zero2_model_states_mem_needs_all_live(model, num_gpus_per_node=1, num_nodes=1)
END
"$work/all/bin/python3" "$work/estimate.py" 2>"$work/errors" | grep -E '^(cpu|meta)|^SW|none, offload_optimizer=none, zero_init=1|  offload_optimizer=none|\| offload_optimizer=none' |
    sed 's/  */ /g' | same 'cpu: 8396800 parameters
SW: Model with 8M total params, 1M largest layer params.
 0.01GB | 0.14GB | offload_param=none, offload_optimizer=none, zero_init=1
SW: Model with 8M total params.
 0.05GB | 0.16GB | offload_optimizer=none
meta: 8396800 parameters
SW: Model with 0M total params, 1M largest layer params.
 0.01GB | 0.00GB | offload_param=none, offload_optimizer=none, zero_init=1
SW: Model with 0M total params.
 0.00GB | 0.00GB | offload_optimizer=none'
