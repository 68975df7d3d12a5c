# sim: contents=keep
# SPDX-License-Identifier: MIT
# A child that is forked before CUDA starts has numbers of its own; one forked afterwards changes
# nothing here; a spawned one gets a tensor of this process.
import os

import torch
import torch.multiprocessing as processes
from common import done, expect, step


def child_status(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except SystemExit as end:
            os._exit(end.code)
        except BaseException as error:  # the parent reports it
            print("child:", repr(error), flush=True)
        os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def first():
    kept = torch.zeros(20 << 20, dtype=torch.uint8, device="cuda")
    step("in the child")
    del kept
    torch.cuda.empty_cache()
    step("in the child, freed")
    done()


def late():
    try:
        torch.empty(10, device="cuda")
    except RuntimeError:
        os._exit(3)
    os._exit(4)


def receive(queue, answer):
    got = queue.get()
    answer.put(int(got[5].cpu()))
    del got
    step("in the spawned process")
    done()


if __name__ == "__main__":
    expect("forked before CUDA starts", child_status(first) == 0)
    mine = torch.full((10 << 20,), 7, dtype=torch.uint8)
    mine = mine.cuda()
    step("in the parent")
    expect("PyTorch refuses a fork after CUDA started", child_status(late) == 3)
    step("in the parent afterwards")
    context = processes.get_context("spawn")
    queue, answer = context.Queue(), context.Queue()
    child = context.Process(target=receive, args=(queue, answer))
    child.start()
    queue.put(mine)
    expect("the shared bytes", answer.get(timeout=120) == 7)
    child.join()
    expect("the spawned process agrees", child.exitcode == 0)
    step("after the spawned process")
    done()
