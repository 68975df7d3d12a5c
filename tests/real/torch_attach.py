# SPDX-License-Identifier: MIT
#
# gpuprof is attached to a PyTorch that runs, and detached, from inside: what was there before must be
# what torch.cuda.memory_allocated and memory_reserved say at the attach, and afterwards both together
# must be torch's numbers. Prints "N passed, N failed".
#
#   torch_attach.py BUILD           outside: starts the program in the root of tests/real/torch-root, and is its viewer
#   torch_attach.py inside LIBRARY  the program: asks the viewer by lines on its output
import ctypes, json, mmap, os, struct, sys, time

# Offsets of struct gp_wire_header, struct gp_wire_mailbox and struct gp_wire_slot (wire.h).
MAILBOX_OFFSET, MAILBOX_BYTES, DOORBELL, SLOTS = 0x68, 0x70, 0, 64
DETACH, FREE, REQUESTED, DONE = 10, 0, 2, 3


def detach(pid):
    folder = f"/proc/{pid}/fd/"
    names = [n for n in os.listdir(folder) if os.readlink(folder + n).startswith("/memfd:gpuprof-session")]
    fd = os.open(folder + names[0], os.O_RDWR)
    header = os.pread(fd, 4096, 0)
    offset, = struct.unpack_from("<Q", header, MAILBOX_OFFSET)
    size, = struct.unpack_from("<I", header, MAILBOX_BYTES)
    box = mmap.mmap(fd, (size + 4095) & ~4095, offset=offset)
    struct.pack_into("<IIiI", box, SLOTS + 4, DETACH, 0, -1, os.getpid())
    struct.pack_into("<I", box, SLOTS, REQUESTED)
    bell, = struct.unpack_from("<I", box, DOORBELL)
    struct.pack_into("<I", box, DOORBELL, bell + 1)
    word = ctypes.c_uint32.from_buffer(box)
    ctypes.CDLL(None).syscall(202, ctypes.byref(word), 1, 100, None, None, 0)  # futex: wake
    end = time.time() + 10
    while struct.unpack_from("<I", box, SLOTS)[0] != DONE and time.time() < end:
        time.sleep(0.001)
    state, command, what, device, viewer, result = struct.unpack_from("<IIIiIi", box, SLOTS)
    struct.pack_into("<I", box, SLOTS, FREE)
    os.close(fd)
    return result if state == DONE else -110


sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))
from attached import ask, check, command, finish, pid, serve_torch

if sys.argv[1] != "inside":
    build = os.path.abspath(sys.argv[1])
    sys.exit(serve_torch(build, __file__, os.path.join(build, "lib/libgpuprof.so"), detach=lambda one: detach(int(one))))

import torch

library = sys.argv[2]


class State(ctypes.Structure):
    _fields_ = [("state", ctypes.c_uint32), ("error", ctypes.c_int32), ("text", ctypes.c_char * 248)]


def attach(settings=""):
    error = lib.gpuprof_attach(settings.encode())
    while not error and state.state == 1:
        time.sleep(0.001)
    if error or state.state != 2:
        print("no attach:", error, state.state, state.text.decode())
        sys.exit(1)


def stat(device):
    process = json.loads(command("stat", "--json", "-p", pid)[1])["processes"][0]
    return process, [d for d in process["devices"] if d["device"] == device][0]


def equal(what, device):
    process, row = stat(device)
    allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    ours = row["stats"]["allocated_bytes.all.current"]
    check(f"{what}: allocated", ours + row["before_attach_framework_allocated_bytes"], allocated)
    check(f"{what}: reserved", row["stats"]["reserved_bytes.all.current"] + row["before_attach_framework_reserved_bytes"],
          reserved)
    check(f"{what}: what the driver had", row["before_attach_bytes"], row["before_attach_framework_reserved_bytes"])
    check(f"{what}: unknown frees", process["lost"]["unknown_free"], 0)
    return row


keep = [torch.empty(n << 20, dtype=torch.uint8, device="cuda") for n in (1, 3, 30, 100)]
small = [torch.empty(1000, device="cuda") for _ in range(300)]
del keep[1]
lib = ctypes.CDLL(library)
state = State.in_dll(lib, "gpuprof_attach_state")

for turn in range(3):
    allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    attach()
    process, row = stat(0)
    check(f"{turn}: the driver's answer at the attach", row["before_attach_bytes"], reserved)
    check(f"{turn}: nothing of ours yet", row["stats"]["reserved_bytes.all.current"], 0)
    first = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    row = equal(f"{turn}: the first block", 0)
    check(f"{turn}: allocated before", row["before_attach_framework_allocated_bytes"], allocated)
    check(f"{turn}: reserved before", row["before_attach_framework_reserved_bytes"], reserved)
    more = [torch.empty(n << 20, dtype=torch.uint8, device="cuda") for n in (7, 64, 200)]
    equal(f"{turn}: more", 0)
    small = small[::2]
    equal(f"{turn}: blocks from before are freed", 0)
    keep = [torch.empty(90 << 20, dtype=torch.uint8, device="cuda")]
    torch.cuda.empty_cache()
    equal(f"{turn}: segments from before are freed", 0)
    check(f"{turn}: detach", ask("detach", pid), 0)
    time.sleep(0.1)
    check(f"{turn}: left", state.state, 0)
    check(f"{turn}: threads", [t for t in os.listdir("/proc/self/task")
                               if open(f"/proc/self/task/{t}/comm").read().startswith("gpuprof-")], [])
    after = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
    del after, more, first

finish()
