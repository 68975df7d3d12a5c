# SPDX-License-Identifier: MIT
"""run.py RESULT PROGRAM [ARGUMENT...]: runs PROGRAM as python3 does, and writes three accounts of the memory at its end to the
file RESULT: PyTorch's own, the simulator's ledger and gpuprof's."""
import ctypes
import json
import os
import runpy
import sys


def accounts(result):
    said = {"torch": None, "gpuprof": None}
    torch = sys.modules.get("torch")
    fields = [f"{what}_bytes.all.{field}" for what in ("reserved", "allocated") for field in ("current", "peak")]
    if torch and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        said["torch"] = {key: torch.cuda.memory_stats().get(key, 0) for key in fields}
    if ctypes.CDLL("libcuda.so.1").sim_ledger_write((result + ".ledger").encode()):
        sys.exit("run.py: the simulator wrote no ledger")
    with open(result + ".ledger") as file:
        said["ledger"] = json.load(file)["devices"][0]
    if os.environ.get("CUDA_INJECTION64_PATH"):
        import gpuprof

        said["gpuprof"] = {key: gpuprof.memory_stats(0)[key] for key in fields}
    with open(result, "w") as file:
        json.dump(said, file)


if __name__ == "__main__":
    result, program = sys.argv[1:3]
    # The data loader's workers and other processes started anew import this file, and run nothing here.
    sys.argv[:] = sys.argv[2:]
    sys.path[0] = os.path.dirname(os.path.abspath(program))
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    accounts(result)
