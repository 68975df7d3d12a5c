# SPDX-License-Identifier: MIT
"""Loads each NAME.cubin of a folder in the driver and asks for the local memory of its kernels, which has to be the STACK that
NAME.cubin.usage names (cuobjdump -res-usage).  Usage: stacks.py FOLDER.  Run by stacks.sh."""

import ctypes
import glob
import re
import sys

LOCAL_SIZE = 3  # CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES

driver = ctypes.CDLL("libcuda.so.1")
context, compared, with_stack, wrong = ctypes.c_void_p(), 0, 0, 0
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
for path in glob.glob(sys.argv[1] + "/*.usage"):
    module, function, value = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    assert driver.cuModuleLoad(ctypes.byref(module), path.removesuffix(".usage").encode()) == 0
    with open(path) as lines:
        for name, stack in re.findall(r"Function ([\w$]+):\n.* STACK:(\d+)", lines.read()):
            if driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()):
                continue  # it is called by kernels
            assert driver.cuFuncGetAttribute(ctypes.byref(value), LOCAL_SIZE, function) == 0
            compared += 1
            with_stack += int(stack) > 0
            if value.value != int(stack):
                wrong += 1
                print(f"{name}: {value.value}, and cuobjdump has {stack}")
    assert driver.cuModuleUnload(module) == 0
print(f"{compared} kernels, of which {with_stack} have a stack: {wrong} wrong")
sys.exit(wrong > 0 or with_stack == 0)
