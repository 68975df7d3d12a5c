/* SPDX-License-Identifier: MIT
 * libcublas.so.11 to .13.  The copies of vectors and matrices are made. */
#include "standin.h"

enum { STANDIN_NO_MEMORY = 3, STANDIN_NOT_SUPPORTED = 15 };
enum { STREAM, POINTER_MODE, MATH_MODE, ATOMICS, SM_COUNT, EMULATION, BLOCK, PINNING };

#define ZERO(_type, _function)                                                                                         \
    EXPORT _type _function(void);                                                                                      \
    EXPORT _type _function(void)                                                                                       \
    {                                                                                                                  \
        return 0;                                                                                                      \
    }
#include "cublas.def"

S(cublasSetStream_v2, STREAM, 2)
G(cublasGetStream_v2, STREAM, 2, word, 0)
S(cublasSetPointerMode_v2, POINTER_MODE, 2)
G(cublasGetPointerMode_v2, POINTER_MODE, 2, int, 0)
S(cublasSetMathMode, MATH_MODE, 2)
G(cublasGetMathMode, MATH_MODE, 2, int, 0)
S(cublasSetAtomicsMode, ATOMICS, 2)
G(cublasGetAtomicsMode, ATOMICS, 2, int, 0)
S(cublasSetSmCountTarget, SM_COUNT, 2)
G(cublasGetSmCountTarget, SM_COUNT, 2, int, 0)
S(cublasSetEmulationStrategy, EMULATION, 2)
G(cublasGetEmulationStrategy, EMULATION, 2, int, 0)
S(cublasSetEmulationSpecialValuesSupport, EMULATION + 100, 2)
G(cublasGetEmulationSpecialValuesSupport, EMULATION + 100, 2, int, 0)
S(cublasSetFixedPointEmulationMantissaControl, EMULATION + 101, 2)
G(cublasGetFixedPointEmulationMantissaControl, EMULATION + 101, 2, int, 0)
S(cublasSetFixedPointEmulationMaxMantissaBitCount, EMULATION + 102, 2)
G(cublasGetFixedPointEmulationMaxMantissaBitCount, EMULATION + 102, 2, int, 0)
S(cublasSetFixedPointEmulationMantissaBitOffset, EMULATION + 103, 2)
G(cublasGetFixedPointEmulationMantissaBitOffset, EMULATION + 103, 2, int, 0)
S(cublasSetFixedPointEmulationMantissaBitCountPointer, EMULATION + 104, 2)
G(cublasGetFixedPointEmulationMantissaBitCountPointer, EMULATION + 104, 2, word, 0)
S(cublasXtSetBlockDim, BLOCK, 2)
G(cublasXtGetBlockDim, BLOCK, 2, int, 2048)
S(cublasXtSetPinningMemMode, PINNING, 2)
G(cublasXtGetPinningMemMode, PINNING, 2, int, 0)

/* ---- handles ----------------------------------------------------------------------------------------------------- */

EXPORT int cublasCreate_v2(struct standin_object **handle);
EXPORT int cublasCreate_v2(struct standin_object **handle)
{
    struct standin_object *object = standin_new(0);
    if (!standin_take_blas(object, standin_major())) {
        standin_drop(object);
        return STANDIN_NO_MEMORY;
    }
    *handle = object;
    return 0;
}

EXPORT int cublasDestroy_v2(struct standin_object *handle);
EXPORT int cublasDestroy_v2(struct standin_object *handle)
{
    standin_drop(standin_object((word)handle));
    return 0;
}

/* The handle keeps its own workspace, which cublasSetStream goes back to. */
RULE(workspace, )
F(cublasSetWorkspace_v2, workspace)

/* ---- versions ---------------------------------------------------------------------------------------------------- */

static int version(int part)
{
    static const int versions[][3] = {{11, 11, 3}, {12, 9, 1}, {13, 1, 0}};
    int major = standin_major();
    return standin_version(part, versions[major == 11 ? 0 : major == 12 ? 1 : 2]);
}

EXPORT int cublasGetProperty(int part, int *value);
EXPORT int cublasGetProperty(int part, int *value)
{
    return standin_property(part, value, version, 7);
}

EXPORT int cublasGetVersion_v2(void *handle, int *value);
EXPORT int cublasGetVersion_v2(void *handle, int *value)
{
    (void)handle;
    *value = version(0) * 10000 + version(1) * 100 + version(2);
    return 0;
}

EXPORT int cublasGetVersion(int *value);
EXPORT int cublasGetVersion(int *value)
{
    return cublasGetVersion_v2(NULL, value);
}

EXPORT size_t cublasGetCudartVersion(void);
EXPORT size_t cublasGetCudartVersion(void)
{
    return (size_t)(version(0) * 1000 + version(1) * 10);
}

/* The first generation of the interface keeps the last error; there is none. */
RULE(no_error, )
F(cublasGetError, no_error)

EXPORT const char *cublasGetStatusName(int status);
EXPORT const char *cublasGetStatusName(int status)
{
    switch (status) {
    case 0:
        return "CUBLAS_STATUS_SUCCESS";
    case 1:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case 3:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case 7:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case 11:
        return "CUBLAS_STATUS_MAPPING_ERROR";
    case 15:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

EXPORT const char *cublasGetStatusString(int status);
EXPORT const char *cublasGetStatusString(int status)
{
    return status == 0 ? "success" : status == 3 ? "no memory for it" : status == 15 ? "not supported" : "failed";
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

EXPORT int cublasAlloc(int count, int size, word *pointer);
EXPORT int cublasAlloc(int count, int size, word *pointer)
{
    *pointer = standin_device_alloc((size_t)count * (size_t)size);
    return *pointer ? 0 : STANDIN_NO_MEMORY;
}

EXPORT int cublasFree(word pointer);
EXPORT int cublasFree(word pointer)
{
    standin_device_free(pointer);
    return 0;
}

static int copied(int error)
{
    return error ? 11 : 0;
}

static int vector(int64_t n, int64_t size, word x, int64_t x_step, word y, int64_t y_step)
{
    if (n <= 0)
        return 0;
    if (x_step == 1 && y_step == 1) /* no pitch is too wide for it */
        return copied(standin_device_copy(y, 0, x, 0, (size_t)(n * size), 1));
    return copied(standin_device_copy(y, (size_t)(y_step * size), x, (size_t)(x_step * size), (size_t)size, (size_t)n));
}

static int matrix(int64_t rows, int64_t columns, int64_t size, word a, int64_t a_step, word b, int64_t b_step)
{
    return copied(standin_device_copy(b, (size_t)(b_step * size), a, (size_t)(a_step * size), (size_t)(rows * size),
                                      (size_t)columns));
}

#define VECTOR(_function)                                                                                              \
    EXPORT int _function(int n, int size, word x, int x_step, word y, int y_step);                                     \
    EXPORT int _function(int n, int size, word x, int x_step, word y, int y_step)                                      \
    {                                                                                                                  \
        return vector(n, size, x, x_step, y, y_step);                                                                  \
    }                                                                                                                  \
    EXPORT int _function##_64(int64_t n, int64_t size, word x, int64_t x_step, word y, int64_t y_step);                \
    EXPORT int _function##_64(int64_t n, int64_t size, word x, int64_t x_step, word y, int64_t y_step)                 \
    {                                                                                                                  \
        return vector(n, size, x, x_step, y, y_step);                                                                  \
    }
#define MATRIX(_function)                                                                                              \
    EXPORT int _function(int rows, int columns, int size, word a, int a_step, word b, int b_step);                     \
    EXPORT int _function(int rows, int columns, int size, word a, int a_step, word b, int b_step)                      \
    {                                                                                                                  \
        return matrix(rows, columns, size, a, a_step, b, b_step);                                                      \
    }                                                                                                                  \
    EXPORT int _function##_64(int64_t rows, int64_t columns, int64_t size, word a, int64_t a_step, word b,             \
                              int64_t b_step);                                                                         \
    EXPORT int _function##_64(int64_t rows, int64_t columns, int64_t size, word a, int64_t a_step, word b,             \
                              int64_t b_step)                                                                          \
    {                                                                                                                  \
        return matrix(rows, columns, size, a, a_step, b, b_step);                                                      \
    }
VECTOR(cublasSetVector)
VECTOR(cublasGetVector)
VECTOR(cublasSetVectorAsync)
VECTOR(cublasGetVectorAsync)
MATRIX(cublasSetMatrix)
MATRIX(cublasGetMatrix)
MATRIX(cublasSetMatrixAsync)
MATRIX(cublasGetMatrixAsync)
