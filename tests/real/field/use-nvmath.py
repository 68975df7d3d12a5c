# SPDX-License-Identifier: MIT
# sim: gpu=a100-40g
# nvmath-python: a Fourier transform of a host array, whose copy and result are in the driver's pool until free().
import numpy
import nvmath
from common import done, equal, ledger, say, step


def held():
    return ledger()["allocated_bytes"]["current"]


array = numpy.ones((1024, 1024), "complex64")
transform = nvmath.fft.FFT(array, execution="cuda")
step("the operand")
equal("its copy", held(), array.nbytes)
transform.plan()
step("a plan")
transform.execute()
step("a result")
say("held", held())
transform.free()
step("free")
equal("the end", held(), 0)
done()
