# SPDX-License-Identifier: MIT
"""rhythms.py FOLDER writes a snapshot of every program and leak of nets.py, as NET-NAME.pickle; the history begins before
the net is made, and for a name with "-warm" after a first step.  rhythms.py NET NAME only runs one, for a recording."""
import gc
import sys

import torch
from nets import LEAKS, NETS, PROGRAMS, Run

ALL = {**PROGRAMS, **LEAKS}


def snapshot(folder, net, name, warm):
    history = torch.cuda.memory._record_memory_history
    if not warm:
        history(stacks="python", max_entries=100000)
    run = Run(net)
    if warm:
        run.step()
        history(stacks="python", max_entries=100000)
    held = ALL[name](run)
    torch.cuda.memory._dump_snapshot(f"{folder}/{net}-{name}{'-warm' if warm else ''}.pickle")
    history(None)
    del run, held
    gc.collect()
    torch.cuda.empty_cache()


if len(sys.argv) == 3:
    held = (run := Run(sys.argv[1])), ALL[sys.argv[2]](run)
else:
    for net in NETS:
        for name in ALL:
            for warm in (False, True):
                snapshot(sys.argv[1], net, name, warm)
    print("all of them agree")
