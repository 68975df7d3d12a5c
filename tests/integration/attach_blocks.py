# SPDX-License-Identifier: MIT
#
# gpuprof attach --blocks without PyTorch: a Python with the stand-ins of tests/framework for its libraries, and a module
# `torch` of its own. Called by test_attach_blocks.sh.
#
#   attach_blocks.py BUILD          outside: starts the program, with the Python that ATTACH_BLOCKS_PYTHON names, and runs
#                                   the commands that it asks for
#   attach_blocks.py BUILD inside   the program
import ctypes, json, os, sys, threading, time, types

build = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))
from attached import ask, check, clean, command, devices, finish, listed, pid, serve

if len(sys.argv) < 3:
    python = os.environ.get("ATTACH_BLOCKS_PYTHON", sys.executable).split()
    sys.exit(serve(build, [*clean(build), *python, os.path.abspath(__file__), build, "inside"]))


def attach(what, *said):
    status, text = command("attach", "--blocks", pid)
    check(what, (status, [s for s in said if s not in text]), (0, []))
    return text


def detach():
    check("detach", command("detach", pid)[0], 0)


def rows():
    return [(d["before_attach_blocks"], d["before_attach_blocks_bytes"], d["before_attach_blocks_differs"]) for d in devices()]


driver = ctypes.CDLL("libcuda.so.1")
check("cuInit", driver.cuInit(0), 0)
probe = command("attach", pid)
if probe[0] != 0:
    print("skipped:", probe[1])
    sys.exit(77)
attach("later, without PyTorch", "No blocks from before: PyTorch is not loaded there")
detach()

sys.path.insert(0, os.path.dirname(__file__))
allocator = ctypes.CDLL(os.path.join(build, "tests/framework/unsigned-now/libc10_cuda.so"))
allocator.torch_alloc.restype = ctypes.c_void_p
allocator.torch_alloc.argtypes = [ctypes.c_int, ctypes.c_size_t]
allocator.torch_free.argtypes = [ctypes.c_int, ctypes.c_void_p]
live, contexts = {}, []
for device in range(2):
    contexts.append(ctypes.c_void_p())
    check("a context", driver.cuDevicePrimaryCtxRetain(ctypes.byref(contexts[-1]), device), 0)


def alloc(device, size):
    driver.cuCtxSetCurrent(contexts[device])
    address = allocator.torch_alloc(device, size)
    live[device, address] = (size + 511) // 512 * 512
    return device, address


def free(block):
    del live[block]
    allocator.torch_free(*block)


def truth():
    return sorted((device, address, size) for (device, address), size in live.items())


def segments():
    """As PyTorch: segments with their blocks. Here a segment is a unit of the driver with what lies in it."""
    units = {}
    for device, address, size in truth():
        units.setdefault((device, address >> 21), []).append({"address": address, "size": size, "requested_size": size - 1,
                                                              "state": "active_allocated"})
    return [{"device": device, "address": unit << 21, "total_size": 2 << 20, "stream": 0, "is_expandable": False,
             "blocks": blocks + [{"address": 0, "size": 512, "state": "active_awaiting_free"}]}
            for (device, unit), blocks in units.items()]


cuda, inner, torch = types.ModuleType("torch.cuda"), types.ModuleType("torch._C"), types.ModuleType("torch")
cuda._initialized = False
attach("libraries without Python's part", "No blocks from before: PyTorch is not loaded there")
sys.modules.update({"torch": torch, "torch.cuda": cuda, "torch._C": inner})
attach("not used", "No blocks from before: PyTorch has not used CUDA yet")
detach()

cuda._initialized = True
keep = [alloc(i % 2, 1000 * (i + 1)) for i in range(40)]
calls = []


def snapshot(*arguments):
    calls.append(arguments)
    return {"segments": segments(), "device_traces": []}


inner._cuda_memorySnapshot = snapshot
attach("the blocks", f"PyTorch had 40 blocks before")
check("the call", calls, [()])
check("as many on each device", [r[0] for r in rows()], [20, 20])
check("a list", listed(), truth())
more = [alloc(0, 5000), alloc(1, 700000)]
check("new ones", listed(), truth())
for block in keep[::2] + [more.pop(0)]:
    free(block)
del keep[::2]
check("some are gone", listed(), truth())
keep += [alloc(0, 3000) for i in range(30)]
check("places are used again", listed(), truth())
sizes = [sum(size for (device, _), size in live.items() if device == i) for i in range(2)]
check("the totals agree", [r[2] for r in rows()], [0, 0])
# A recording begins with what was made since the attach, also in segments from before.
path = f"/tmp/gpuprof-test-blocks-{pid}.gpuprof"
check("record", command("record", "-p", pid, "--duration=1", "-o", path)[0], 0)
report = json.loads(command("report", "--json", path)[1])
status = json.loads(command("stat", "--json", "-p", pid)[1])["processes"][0]
check("a recording", [d["allocated_peak_bytes"] for d in report["devices"]],
      [d["stats"]["allocated_bytes.all.current"] for d in status["devices"]])
os.unlink(path)
attach("asked again", "PyTorch had 20 blocks before")
check("asked again", listed(), truth())
detach()


def raises(error):
    def function(*arguments):
        raise error
    return function


# An error is shown, and the program does not see it.
inner._cuda_memorySnapshot = raises(RuntimeError("not \x1b[31m now"))
try:
    raise KeyError("mine")
except KeyError as mine:
    attach("an error", "stay unknown: PyTorch's snapshot failed: not ?[31m now")
    check("the exception that is handled", sys.exc_info()[1] is mine, True)
check("an error", rows(), [(None, None, None)] * 2)
inner._cuda_memorySnapshot = lambda *arguments: {"segments": [17]}
attach("another form", "another form than is known here")
inner._cuda_memorySnapshot = lambda *arguments: 17
attach("no list", "another form than is known here")
del inner._cuda_memorySnapshot
attach("no function", "stay unknown")

# What ends the program is the program's.
inner._cuda_memorySnapshot = raises(KeyboardInterrupt())
interrupted = []
reader = threading.Thread(target=lambda: interrupted.append(ask("run attach --blocks", pid)))
reader.start()
try:
    while reader.is_alive():
        time.sleep(0.001)
    check("an interrupt", "seen", "by the program")
except KeyboardInterrupt:
    reader.join()
    check("an interrupt", "the program was interrupted meanwhile" in interrupted[0][1], True)

# The arguments of other versions.
inner._cuda_memorySnapshot = lambda pool: {"segments": segments()} if pool == (0, 0, False) else 1 / 0
attach("a tuple", f"PyTorch had {len(live)} blocks before")
detach()
inner._cuda_memorySnapshot = lambda pool: {"segments": segments()} if pool is None else 1 / 0
attach("none", f"PyTorch had {len(live)} blocks before")
check("none", listed(), truth())
detach()
inner._cuda_memorySnapshot = lambda: segments()
attach("a list", f"PyTorch had {len(live)} blocks before")
check("a list", listed(), truth())
detach()

# A request that is in the queue at a detach does nothing; the main thread runs no Python until the answers are here.
calls.clear()
inner._cuda_memorySnapshot = snapshot
said = ask("run attach --blocks", pid, "; detach", pid)
check("late: the command goes on", (said[0], "runs no Python code now" in said[1]), (0, True))
time.sleep(0.01)
check("late: nothing is called", calls, [])
attach("late: again", f"PyTorch had {len(live)} blocks before")
detach()

finish()
