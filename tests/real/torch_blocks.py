# SPDX-License-Identifier: MIT
#
# gpuprof attach --blocks on a PyTorch that runs: the blocks of `gpuprof snapshot` must be those of
# torch.cuda.memory_snapshot(), before and after, with threads that allocate and free meanwhile, with a main
# thread that comes late, and after a detach. Prints "N passed, N failed".
#
#   torch_blocks.py BUILD   outside: starts the program in the root of tests/real/torch-root, and runs the commands
#   torch_blocks.py inside  the program: asks for commands by lines on its output
import os, sys, threading, time


sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))
from attached import ask, check, command, devices, finish, handed_out, listed, pid, serve_torch

if sys.argv[1] != "inside":
    sys.exit(serve_torch(os.path.abspath(sys.argv[1]), __file__))

status, text = command("attach", "--blocks", pid)
check("before CUDA is loaded", (status, "does not use CUDA" in text), (1, True))
import torch

torch.cuda.is_available()
status, text = command("attach", "--blocks", pid)
check("before CUDA is initialised", (status, "PyTorch has not used CUDA yet" in text), (0, True))
check("detach", command("detach", pid)[0], 0)


def theirs():
    return handed_out(torch.cuda.memory_snapshot())


def same(what):
    want, have = theirs(), listed()
    check(f"{what}: as many blocks", len(have), len(want))
    check(f"{what}: blocks that only PyTorch has", [b for b in want if b not in set(have)][:5], [])
    check(f"{what}: blocks that only gpuprof has", [b for b in have if b not in set(want)][:5], [])


def differs(what):
    for row in devices():
        check(f"{what}: device {row['device']}: PyTorch's totals", row["before_attach_blocks_differs"], 0)
        allocated = torch.cuda.memory_allocated(row["device"])
        total = row["stats"]["allocated_bytes.all.current"] + row["before_attach_blocks_bytes"]
        check(f"{what}: device {row['device']}: allocated", total, allocated)


def blocks(device, count, seed=7):
    made = []
    for i in range(count):
        seed = seed * 1103515245 + 12345 & 0x7fffffff
        made.append(torch.empty(seed % 300000 + 1, dtype=torch.uint8, device=f"cuda:{device}"))
    return made


class Churn:
    """Threads that allocate and free, in a pattern of their own."""
    def __init__(self, count):
        self.stop, self.pause, self.quiet = False, False, 0
        self.threads = [threading.Thread(target=self.work, args=(i,)) for i in range(count)]
        for thread in self.threads:
            thread.start()

    def work(self, which):
        held, seed = [], which + 1
        while not self.stop:
            while self.pause and not self.stop:
                time.sleep(0.001)
            seed = seed * 1103515245 + 12345 & 0x7fffffff
            if len(held) > 200 or (held and seed >> 8 & 1):
                held.pop(seed % len(held))
            else:
                held.append(torch.empty(seed % 70000 + 1, dtype=torch.uint8, device=f"cuda:{which % 2}"))
        self.held = held

    def still(self):
        self.pause = True
        time.sleep(0.05)

    def end(self):
        self.stop = True
        for thread in self.threads:
            thread.join()


keep = blocks(0, 300) + blocks(1, 50)
del keep[::3]

# Nothing else runs.
status, text = command("attach", "--blocks", pid)
check("attach", (status, f"PyTorch had {len(theirs())} blocks" in text), (0, True))
same("attach")
more = blocks(0, 100, 99)
same("more")
differs("more")
del keep[::2]
same("some from before are freed")
del more[::2]
again = blocks(0, 100, 5)
same("places are used again")
differs("places are used again")
del keep, more
torch.cuda.empty_cache()
same("segments are freed")
check("again", command("attach", "--blocks", pid)[0], 0)
same("again")
differs("again")
check("detach", command("detach", pid)[0], 0)

# Threads allocate and free all the time.
for turn in range(4):
    churn = Churn(4)
    time.sleep(0.1)
    status, text = command("attach", "--blocks", pid)
    check(f"threads {turn}: attach", (status, "blocks before" in text), (0, True))
    time.sleep(0.05)
    churn.still()
    same(f"threads {turn}")
    first = torch.empty(10, device="cuda:0"), torch.empty(10, device="cuda:1")
    differs(f"threads {turn}")
    churn.pause = False
    time.sleep(0.1)
    churn.still()
    same(f"threads {turn}, later")
    differs(f"threads {turn}, later")
    churn.end()
    del churn.held, churn
    check(f"threads {turn}: detach", command("detach", pid)[0], 0)

# The main thread runs no Python for a while.
keep = blocks(0, 100)
answer = ask("run attach --blocks", pid)
check("busy: the command goes on", (answer[0], "runs no Python code now" in answer[1]), (0, True))
time.sleep(0.01)  # the call is made now
same("busy")
check("busy: detach", command("detach", pid)[0], 0)

# The request is left in the queue by a detach: it does nothing, and the next one works.
check("left: attach without", ask("run attach --blocks", pid, "; detach", pid, "; attach", pid)[0], 0)
time.sleep(0.01)
check("left: nothing was asked", [row["before_attach_blocks"] for row in devices()], [None, None])
check("left: later", command("attach", "--blocks", pid)[0], 0)
same("left")
check("left: detach", command("detach", pid)[0], 0)

finish()
