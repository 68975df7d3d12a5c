# SPDX-License-Identifier: MIT
"""Daemon threads are in a C call, without the GIL, while Python shuts down; afterwards their frames' code objects must be unchanged.

    python3 stack_held.py PROBE.so

Reading them in place relies on that.  Cases: functions that only the frame references, generators, coroutines, methods, names that are not ASCII.
"""
import asyncio
import ctypes
import functools
import gc
import os
import sys
import threading

library = ctypes.CDLL(os.path.abspath(sys.argv[1]))
CALLBACK = ctypes.CFUNCTYPE(None)
lock = threading.Lock()
ready = threading.Semaphore(0)
arrived = CALLBACK(lambda: ready.release() and None)


def hold():
    library.probe_hold(arrived)


def plain(n=20):
    return plain(n - 1) if n else hold()


def dropped():
    space = {"hold": hold}
    exec(compile("def größe():\n    hold()\n    return 1\ndef nur_rahmen(größe=größe):\n    return größe()\n", "<ü>", "exec"), space)
    call = space.pop("nur_rahmen")
    del space["größe"]
    code = call.__code__
    call.__defaults__ = call.__defaults__[0],
    call.__code__ = code.replace(co_name="für dieses Mal")
    del code
    gc.collect()
    call()


def replaced():
    def inner(box):
        box.pop().__code__ = plain.__code__
        gc.collect()
        hold()
    inner([inner])


def generator():
    def count(n):
        if n:
            yield from count(n - 1)
        yield hold()
    list(count(5))


def coroutine():
    async def leaf():
        hold()

    async def main():
        await asyncio.gather(leaf(), leaf())
    asyncio.run(main())


class Cycle:
    def __init__(self):
        self.me = self

    def method(self):
        sorted([1, 2], key=lambda _: hold())


def method():
    functools.partial(Cycle().method)()


kinds = plain, dropped, replaced, generator, coroutine, method
for kind in kinds:
    threading.Thread(target=kind, daemon=True).start()
for kind in kinds:
    assert ready.acquire(timeout=20), "a thread did not reach its call"
del kind, kinds
