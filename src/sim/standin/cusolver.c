/* SPDX-License-Identifier: MIT
 * libcusolver.so.11 and .12.  Factorizations need no workspace and find no error. */
#include "standin.h"

enum { STANDIN_NO_MEMORY = 2, STANDIN_INVALID = 3, STANDIN_NOT_SUPPORTED = 9 };
enum { STREAM = 1, MATH, DETERMINISTIC, STRATEGY, SPECIAL, CONTROL, MANTISSA, OFFSET, ALGORITHMS, FORMAT, RESET };

#include "cusolver.def"

/* cuSOLVER 12 has a handle of cuBLAS 13, and a workspace for it: seen on capability 9.0. */
EXPORT int cusolverDnCreate(struct standin_object **handle);
EXPORT int cusolverDnCreate(struct standin_object **handle)
{
    struct standin_object *object = standin_new(0);
    bool done = object && (standin_major() < 12 ||
                           (standin_take_blas(object, 13) && standin_take(object, standin_blas_recommended(), false)));
    if (!done) {
        standin_drop(object);
        return STANDIN_NO_MEMORY;
    }
    *handle = object;
    return 0;
}

S(cusolverDnSetStream, STREAM, 2)
G(cusolverDnGetStream, STREAM, 2, word, 0)
S(cusolverSpSetStream, STREAM, 2)
G(cusolverSpGetStream, STREAM, 2, word, 0)
S(cusolverDnSetMathMode, MATH, 2)
G(cusolverDnGetMathMode, MATH, 2, int, 0)
S(cusolverDnSetDeterministicMode, DETERMINISTIC, 2)
G(cusolverDnGetDeterministicMode, DETERMINISTIC, 2, int, 1)
S(cusolverDnSetEmulationStrategy, STRATEGY, 2)
G(cusolverDnGetEmulationStrategy, STRATEGY, 2, int, 0)
S(cusolverDnSetEmulationSpecialValuesSupport, SPECIAL, 2)
G(cusolverDnGetEmulationSpecialValuesSupport, SPECIAL, 2, int, 0)
S(cusolverDnSetFixedPointEmulationMantissaControl, CONTROL, 2)
G(cusolverDnGetFixedPointEmulationMantissaControl, CONTROL, 2, int, 0)
S(cusolverDnSetFixedPointEmulationMaxMantissaBitCount, MANTISSA, 2)
G(cusolverDnGetFixedPointEmulationMaxMantissaBitCount, MANTISSA, 2, int, 0)
S(cusolverDnSetFixedPointEmulationMantissaBitOffset, OFFSET, 2)
G(cusolverDnGetFixedPointEmulationMantissaBitOffset, OFFSET, 2, int, 0)
S(cusolverRfSetResetValuesFastMode, RESET, 2)
G(cusolverRfGetResetValuesFastMode, RESET, 2, int, 0)
KEPT(cusolverRfSetAlgs)
TOLD(cusolverRfGetAlgs, "ii")

static int version(int part)
{
    static const int versions[][3] = {{11, 7, 5}, {12, 0, 9}};
    return standin_version(part, versions[standin_major() >= 12]);
}

EXPORT int cusolverGetProperty(int part, int *value);
EXPORT int cusolverGetProperty(int part, int *value)
{
    return standin_property(part, value, version, STANDIN_INVALID);
}

EXPORT int cusolverGetVersion(int *value);
EXPORT int cusolverGetVersion(int *value)
{
    *value = version(0) * 1000 + version(1) * 100 + version(2);
    return 0;
}
