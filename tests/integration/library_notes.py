# SPDX-License-Identifier: MIT
"""`report`, `explain` and `stat` say alike what libraries do with GPU memory (tools/analyze/libraries.def).
library_notes.py BUILD_DIR

The libraries are stand-ins with the file names of real ones: shared objects and a folder of Python.  tests/real/field has the
real ones."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv[1])
GPUPROF = os.path.join(BUILD, "bin", "gpuprof")
MIB = 1 << 20
TAKE = """
#include <stddef.h>
extern int cuMemAlloc_v2(unsigned long long *address, size_t bytes);
int take(size_t bytes) { unsigned long long address; return cuMemAlloc_v2(&address, bytes); }
"""
DEVICE = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0 and driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
def take(mib):
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20)) == 0
"""
PROGRAM = """
import ctypes, sys
from tinygrad import device
device.take(64)
for path, mib in zip(sys.argv[1::2], sys.argv[2::2]):
    assert ctypes.CDLL(path).take(ctypes.c_size_t(int(mib) << 20)) == 0
device.take(1)
print("ready", flush=True)
sys.stdin.readline()
"""


def build(folder):
    os.makedirs(os.path.join(folder, "tinygrad"))
    for name, text in ("take.c", TAKE), ("tinygrad/device.py", DEVICE), ("program.py", PROGRAM):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            out.write(text)
    libraries = []
    # The name of the second has a sequence for terminals, and the third only ends like a library's.
    for name, mib in ("libdrjit-core.so", 96), ("libfaiss\x1b[31m.so", 32), ("notlibkvikio.so", 16):
        path = os.path.join(folder, name)
        sim = os.path.join(BUILD, "lib", "gpuprof", "sim")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", path, os.path.join(folder, "take.c"), f"-L{sim}", "-l:libcuda.so.1"], check=True)
        libraries += [path, str(mib)]
    return libraries


def gpuprof(*arguments):
    return subprocess.run([GPUPROF, *arguments], stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout


def seen(folder, libraries, stacks, file):
    """What `stat` says of the program while it holds its memory, as text and as JSON; the recording is in the file."""
    command = [GPUPROF, "run", "--sim", f"--stacks={stacks}", f"--record={file}", "--force", "--", sys.executable, os.path.join(folder, "program.py"), *libraries]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert program.stdout.readline() == "ready\n"
        # gpuprof run waits for the program as its child.
        with open(f"/proc/{program.pid}/task/{program.pid}/children", encoding="ascii") as children:
            pids = children.read().split()
        pid = next((pid for pid in pids if b"program.py" in open(f"/proc/{pid}/cmdline", "rb").read()), str(program.pid))
        text, found = gpuprof("stat", "-p", pid), json.loads(gpuprof("stat", "-p", pid, "--json"))
    finally:
        program.communicate("\n", timeout=60)
    assert program.returncode == 0
    return text, found["processes"][0]["devices"][0]["libraries"]


def held(rows):
    return [(row["library"], row["bytes"] // MIB) for row in rows]


def check(folder):
    libraries, file = build(folder), os.path.join(folder, "file.gpuprof")
    every = [("Dr.Jit", 96), ("tinygrad", 65), ("faiss", 32)]
    text, rows = seen(folder, libraries, "all", file)
    assert held(rows) == every, rows
    reported = json.loads(gpuprof("report", file, "--json"))["devices"][0]["libraries"]
    assert reported == rows, reported  # the same sentences and versions
    # Of explain, the rows that hold the least are the first to go where it would have more than 2 KB.
    said = gpuprof("explain", file, "--json")
    explained = json.loads(said)["libraries"]
    assert explained and explained == rows[: len(explained)] and len(said) <= 2048, said
    sentence = f"Dr.Jit (96.00 MiB; as seen in version {rows[0]['version_seen']}): {rows[0]['rule']}"
    for shown in text, gpuprof("explain", file):
        assert sentence in shown and "\x1b" not in shown and "KvikIO" not in shown, shown
    assert f"    {sentence}\n" in text
    assert "Dr.Jit (96.00 MiB; as seen in version" in gpuprof("report", file)
    print("ok      report, explain and stat say the same")
    # Without stacks the owners are known, and they are shared objects: Python's files are not.
    text, rows = seen(folder, libraries, "off", file)
    assert held(rows) == [every[0], every[2]], rows
    assert sentence in text and "tinygrad" not in text, text
    print("ok      stat without stacks")


work = tempfile.mkdtemp(prefix="gpuprof-test-notes.")
try:
    check(work)
    print("2 passed, 0 failed")
finally:
    shutil.rmtree(work)
