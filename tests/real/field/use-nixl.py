# SPDX-License-Identifier: MIT
# sim: gpu=a100-40g
# NIXL: two agents register memory of PyTorch and one writes into the other's. They take no memory of the GPU.
import os

import torch
from common import done, equal, ledger, say, step
from nixl_cu12._api import nixl_agent, nixl_agent_config

MIB = 1 << 20


def held():
    return ledger()["allocated_bytes"]["current"]


one = torch.ones(64 * MIB, dtype=torch.uint8, device="cuda")
other = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
before = held()
first, second = (nixl_agent(name, nixl_agent_config(True, True, 0)) for name in ("first", "second"))
equal("two agents", held(), before)
step("agents")
registered = first.register_memory(one), second.register_memory(other)
equal("registered", held(), before)
name = first.add_remote_agent(second.get_agent_metadata())
transfer = first.initialize_xfer("WRITE", first.get_xfer_descs(one), second.get_xfer_descs(other), name)
state = first.transfer(transfer)
while state == "PROC":
    state = first.check_xfer_state(transfer)
say(state)
equal("a transfer", held(), before)
step("a transfer")
first.release_xfer_handle(transfer)
first.deregister_memory(registered[0])
second.deregister_memory(registered[1])
del first, second
equal("agents are gone", held(), before)
step("gone")
say("held", held())
try:
    done()
except SystemExit as status:
    # A destructor of its libnl-route ends the process with SIGSEGV after this, without gpuprof too.
    os._exit(status.code)
