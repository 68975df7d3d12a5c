# SPDX-License-Identifier: MIT
"""Daemon threads take stacks without the GIL, deep in Python, while the interpreter shuts down: must exit with status 0.

    python3 stack_daemon.py PROBE.so
"""
import ctypes
import os
import sys
import threading
import time

library = ctypes.CDLL(os.path.abspath(sys.argv[1]))
started = threading.Barrier(4)


def down(n, größe="ü"):
    if n:
        return down(n - 1)
    started.wait()
    library.probe_forever()


for depth in (3, 50, 110):
    threading.Thread(target=down, args=(depth,), daemon=True).start()
started.wait()
time.sleep(0.02 + os.getpid() % 7 * 0.001)
