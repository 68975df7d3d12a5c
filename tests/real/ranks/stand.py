# SPDX-License-Identifier: MIT
"""Ranks that wait for what never comes: stand.py CASE.  Called by tests/real/stand.sh."""
import datetime
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

WIDTH = 64  # the simulated NCCL waits for messages up to 64 KiB
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def _say(*words):
    """A line in one piece, with PYTHONUNBUFFERED too: the other ranks print at the same time."""
    print(" ".join(map(str, words)) + "\n", end="", flush=True)


def _receive(source, group=None):
    dist.recv(torch.zeros(WIDTH, device=device), source, group=group)
    torch.cuda.synchronize(device)


def key():
    """A key that only the absent rank sets."""
    dist.distributed_c10d._get_default_store().get("never")


def caught():
    """A key that comes too late for the limit of the store: the program knows PyTorch's error."""
    try:
        dist.distributed_c10d._get_default_store().wait(["never"], datetime.timedelta(seconds=2))
    except dist.DistStoreError as error:
        _say("caught", error)


def key_reduce():
    """The other rank is in a collective."""
    if rank == 0:
        key()
    dist.all_reduce(torch.zeros(WIDTH, device=device))
    torch.cuda.synchronize(device)


def key_receive():
    """The other rank waits for this one's message; for it some versions make a communicator first, whose key this one sets."""
    if rank == 0:
        key()
    _receive(0)


def recv():
    """Both ranks that run wait for the other."""
    _receive(1 - rank)


def groups():
    """The same with many groups, each with threads of PyTorch's that look again and again."""
    members = list(range(world))
    many = [dist.new_group(members) for _ in range(48)]
    for group in many:
        dist.all_reduce(torch.zeros(WIDTH, device=device), group=group)
    torch.cuda.synchronize(device)
    _receive(1 - rank, many[-1])


def behind():
    """The wait is in the queue of the GPU; the program waits for an event."""
    dist.irecv(torch.zeros(WIDTH, device=device), 1 - rank)
    done = torch.cuda.Event()
    done.record()
    while not done.query():
        time.sleep(0.01)
    torch.cuda.synchronize(device)


def thread():
    """In a thread of the program, while the main one waits for that."""
    other = threading.Thread(target=_receive, args=(1 - rank,))
    other.start()
    other.join()


torch.cuda.set_device(device)
dist.init_process_group("nccl")
dist.all_reduce(torch.zeros(WIDTH, device=device))
torch.cuda.synchronize()
_say("begun", rank)
globals()[sys.argv[1]]()
_say("ended", rank)
