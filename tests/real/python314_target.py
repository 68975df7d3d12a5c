# SPDX-License-Identifier: MIT
#
# A Python that uses the GPU while gpuprof is attached to it: for tests/real/python314.sh.
#
#   python314_target.py busy|asleep|bare|other|forked|forks FOLDER
#
# Makes FOLDER/ready, and runs until there is FOLDER/stop.  busy: its main thread runs Python.  asleep: it
# waits in one system call, and another thread does the work.  bare: busy without the module ctypes, which the
# script of gpuprof needs.  other: busy as another user.
# forked: busy in a child.  forks: its main thread is nearly always inside fork: it waits before the fork, where
# a request meets it, and after it, so that the child, which runs Python too, is first.
# With FOLDER/block it allocates 3 MiB once more.
# Its last line names the calls that failed.
import ctypes, os, sys, threading, time

what, folder = sys.argv[1:]
cuda = ctypes.CDLL("libcuda.so.1")
failed = []


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result != 0:
        failed.append(f"{name}: {result}")


def allocate(size):
    pointer = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    return pointer


def fork():
    child = ctypes.PyDLL(None).fork()  # not os.fork, in whose child Python forgets requests
    if not child:
        for _ in range(1000):
            pass
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed.append("a child")


def tick(reader, writer):
    """A child that writes until nobody can read any more."""
    if not os.fork():
        os.close(reader)
        try:
            while True:
                time.sleep(0.02)
                os.write(writer, b"x")
        except OSError:
            os._exit(0)


def work():
    call("cuCtxSetCurrent", context)
    blocks = 0
    while not os.path.exists(folder + "/stop"):
        call("cuMemFree_v2", allocate(1 << 20))
        if what == "forks":
            fork()
        if not blocks and os.path.exists(folder + "/block"):
            allocate(3 << 20)
            blocks = 1
            open(folder + "/blocked", "w").close()
        time.sleep(0.001)


if what == "forked" and os.fork():
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
if what == "forks":
    reader, writer = os.pipe()
    tick(reader, writer)
    os.close(writer)
    os.dup2(reader, 0)
    os.close(reader)
context = ctypes.c_void_p()
if what == "other":
    os.setuid(65534)
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
allocate(5 << 20)
if what == "forks":
    libc = ctypes.CDLL(None)
    libc.__register_atfork(libc.getchar, libc.getchar, None, None)
if what != "asleep":
    if what == "bare":
        sys.modules["ctypes"] = None
    open(folder + "/ready", "w").close()
    work()
else:
    reader, writer = os.pipe()
    thread = threading.Thread(target=lambda: (work(), os.write(writer, b"x")))
    thread.start()
    open(folder + "/ready", "w").close()
    os.read(reader, 1)
    thread.join()
print("failed:", failed, "threads:", threading.active_count(), flush=True)
