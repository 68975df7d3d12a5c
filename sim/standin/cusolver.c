/* SPDX-License-Identifier: MIT
 * libcusolver.so.11 and .12.  Factorizations find no error. */
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

/* ---- workspaces -------------------------------------------------------------------------------------------------- */

/* Rules that explain what cuSOLVER 12 took on an H200 for square matrices of 16 to 2048 in fp32, in
 * elements: to 512 bytes, but for those of getrf and of syevd beyond 1024.  Other types are assumed to need as many. */
static int64_t cholesky(int64_t n)
{
    return n * n / 1024 + 64;
}

static int64_t lu(int64_t n)
{
    return n <= 512 ? 4 * n + 128 : n <= 1024 ? 3 * n + 128 : 51 * n / 8 + 128;
}

static int64_t qr(int64_t n)
{
    return (1 << 19) + 1024 * (n < 256 ? 256 : n) + 128;
}

static int64_t qr_matrix(int64_t n)
{
    return n <= 128 ? 80 * n + 32000 : 384 * n + 16640;
}

static int64_t qr_product(int64_t m, int64_t n)
{
    return 2 * m * n + 769 * m + 65760;
}

/* Jacobi's method: two matrices for singular values, one for eigenvalues. */
static int64_t jacobi(int64_t m, int64_t n, int matrices)
{
    return matrices * m * n + n * n / 256 + (32 * matrices + 1) * n + 1056;
}

static int64_t eigenvalues(int64_t n)
{
    return 257 * n * n / 64 + 137 * n / 2 + 76544;
}

/* The answer is an int for elements, at position _to. */
#define ELEMENTS(_function, _elements, _to)                                                                            \
    EXPORT int _function##_bufferSize(ARGS);                                                                           \
    EXPORT int _function##_bufferSize(ARGS)                                                                            \
    {                                                                                                                  \
        UNREAD;                                                                                                        \
        standin_assumed(FACTORIZED);                                                                                   \
        *(int *)a##_to = (int)(_elements);                                                                             \
        return 0;                                                                                                      \
    }
/* Answers in bytes for the device and the host; the type of the computation comes before them. */
#define BYTES(_function, _elements, _type, _device, _host)                                                             \
    EXPORT int _function##_bufferSize(ARGS);                                                                           \
    EXPORT int _function##_bufferSize(ARGS)                                                                            \
    {                                                                                                                  \
        UNREAD;                                                                                                        \
        standin_assumed(FACTORIZED);                                                                                   \
        *(size_t *)a##_device = (size_t)(_elements)*element((int)_type);                                               \
        *(size_t *)a##_host = 0;                                                                                       \
        return 0;                                                                                                      \
    }
#define FACTORIZED "factorizations: the workspace that rules of cuSOLVER 12 on capability 9.0 give"

/* A cudaDataType: R_64F is 1, C_32F 4, C_64F 5. */
static size_t element(int type)
{
    return type == 5 ? 16 : type == 1 || type == 4 ? 8 : 4;
}

#define TYPES(_t, _or, _sy)                                                                                            \
    ELEMENTS(cusolverDn##_t##potrf, cholesky((int)a3), 6)                                                              \
    ELEMENTS(cusolverDn##_t##getrf, lu((int)a3), 6)                                                                    \
    ELEMENTS(cusolverDn##_t##geqrf, qr((int)a3), 6)                                                                    \
    ELEMENTS(cusolverDn##_t##_or##gqr, qr_matrix((int)a3), 8)                                                          \
    ELEMENTS(cusolverDn##_t##_or##mqr, qr_product((int)a4, (int)a5), 12)                                               \
    ELEMENTS(cusolverDn##_t##gesvdj, jacobi((int)a4, (int)a5, 2), 13)                                                  \
    ELEMENTS(cusolverDn##_t##gesvdjBatched, 4 * (int64_t)(int)a3 * (int)a4 * (int)a14, 12)                             \
    ELEMENTS(cusolverDn##_t##_sy##evj, jacobi((int)a4, (int)a4, 1), 8)                                                 \
    ELEMENTS(cusolverDn##_t##_sy##evd, eigenvalues((int)a4), 8)
TYPES(S, or, sy)
TYPES(D, or, sy)
TYPES(C, un, he)
TYPES(Z, un, he)
BYTES(cusolverDnXpotrf, cholesky((int64_t)a4), a8, 9, 10)
BYTES(cusolverDnXgeqrf, qr((int64_t)a4), a10, 11, 12)
BYTES(cusolverDnXsyevd, eigenvalues((int64_t)a5), a11, 12, 13)

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
