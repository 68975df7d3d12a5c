# SPDX-License-Identifier: MIT
"""Takes the same stack repeatedly while other threads try to disturb it; every stack must equal the first.

    python3 stack_stress.py PROBE.so SECONDS

Disturbances: sys._current_frames and walks over its frames, the collector, tracing of all threads switched on and off, code objects
created and dropped, threads started and ended.
"""
import ctypes
import gc
import os
import sys
import threading
import time

released = ctypes.CDLL(os.path.abspath(sys.argv[1]))
held = ctypes.PyDLL(os.path.abspath(sys.argv[1]))
SECONDS = float(sys.argv[2])
for library in (released, held):
    library.probe_repeat.restype = ctypes.c_long
    library.probe_repeat.argtypes = ctypes.c_double, ctypes.POINTER(ctypes.c_long)
stop = threading.Event()
counts = []
disturbed = {}


def disturber(function):
    def loop():
        while not stop.is_set():
            function()
            disturbed[function.__name__] = disturbed.get(function.__name__, 0) + 1
    return threading.Thread(target=loop)


def current_frames():
    for frame in sys._current_frames().values():
        while frame is not None:
            frame.f_lineno, frame.f_locals, frame.f_code.co_qualname if sys.version_info >= (3, 11) else None
            frame = frame.f_back


def collect():
    [[i] for i in range(100)]
    gc.collect()


def make_code():
    for i in range(20):
        space = {}
        exec(compile("\n" * i + "def größe_%d():\n    return %d\n" % (i, i), "<ü%d>" % i, "exec"), space)
        space["größe_%d" % i]()


def trace():
    def tracer(frame, event, arg):
        return tracer
    switch = getattr(threading, "settrace_all_threads", sys.settrace)
    switch(tracer)
    time.sleep(0.001)
    switch(None)


def come_and_go():
    threads = [threading.Thread(target=sum, args=([1],)) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]


def generator(n, library):
    if n:
        yield from generator(n - 1, library)
    else:
        taken = ctypes.c_long()
        yield (library.probe_repeat(SECONDS if library is released else 0.05, ctypes.byref(taken)), taken.value)


def down(n, library):
    if n:
        return down(n - 1, library)
    counts.extend(generator(5, library))


def held_for_a_while():
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        down(20, held)


disturbers = [disturber(f) for f in (current_frames, collect, make_code, trace, come_and_go)]
takers = [threading.Thread(target=down, args=(n, released)) for n in (0, 10, 60)] + [threading.Thread(target=held_for_a_while)]
for thread in takers + disturbers:
    thread.start()
down(30, released)
for thread in takers:
    thread.join()
stop.set()
for thread in disturbers:
    thread.join()
taken, wrong = sum(count[1] for count in counts), sum(count[0] for count in counts)
print("stacks", taken, "wrong", wrong, "disturbed", disturbed)
idle = [f for f in ("current_frames", "collect", "make_code", "trace", "come_and_go") if not disturbed.get(f)]
if idle:
    print("FAILED: never ran:", idle)
print("%d passed, %d failed, 0 skipped" % (wrong == 0 and not idle, wrong != 0 or bool(idle)))
sys.exit(wrong != 0 or bool(idle))
