/* SPDX-License-Identifier: MIT
 * libcublasLt.so.11 to .13.  Descriptors remember their attributes; a question for algorithms has one
 * answer, which needs no workspace. */
#include "standin.h"

#include <string.h>

enum { STANDIN_NO_MEMORY = 3, STANDIN_INVALID = 7, STANDIN_NOT_SUPPORTED = 15 };
enum { CAPACITY = -1 };

RULE(none, )
RULE(w9_0, W(9, 0))
RULE(w11_0, W(11, 0))
RULE(c1, CREATE(1))
RULE(d1, DROP(1))

F(cublasLtCreate, c1)
F(cublasLtDestroy, d1)
F(cublasLtMatmulDescCreate, c1)
F(cublasLtMatmulDescDestroy, d1)
F(cublasLtMatmulPreferenceCreate, c1)
F(cublasLtMatmulPreferenceDestroy, d1)
F(cublasLtMatrixLayoutDestroy, d1)
F(cublasLtMatrixTransformDescCreate, c1)
F(cublasLtMatrixTransformDescDestroy, d1)
F(cublasLtEmulationDescCreate, c1)
F(cublasLtEmulationDescDestroy, d1)
F(cublasLtGroupedMatrixLayoutCreate, c1)
F(cublasLtMatmul, w11_0)
F(cublasLtMatrixTransform, w9_0)
F(cublasLtHeuristicsCacheSetCapacity, none)
F(cublasLtLoggerSetCallback, none)
F(cublasLtLoggerSetFile, none)
F(cublasLtLoggerOpenFile, none)
F(cublasLtLoggerSetLevel, none)
F(cublasLtLoggerSetMask, none)
F(cublasLtLoggerForceDisable, none)
F(cublasLtDisableCpuInstructionsSetMask, none)

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

/* A descriptor of the program's own memory is cleared: it is then none of ours, and remembers nothing. */
static int descriptor_init(void *descriptor, size_t size)
{
    memset(descriptor, 0, size);
    return 0;
}

static int descriptor_set(word descriptor, int attribute, const void *bytes, size_t size)
{
    return standin_set(standin_object(descriptor), attribute, bytes, size, false) ? 0 : STANDIN_NO_MEMORY;
}

/* An attribute that was never set is zero. */
static int descriptor_get(word descriptor, int attribute, void *bytes, size_t size, size_t *written)
{
    size_t have;
    const void *value = standin_get(standin_object(descriptor), attribute, &have);
    if (written)
        *written = value ? have : size;
    if (!bytes || size == 0)
        return 0;
    memset(bytes, 0, size);
    if (value)
        memcpy(bytes, value, have < size ? have : size);
    return 0;
}

#define DESCRIPTOR(_kind)                                                                                              \
    EXPORT int cublasLt##_kind##Init_internal(void *descriptor, size_t size);                                          \
    EXPORT int cublasLt##_kind##Init_internal(void *descriptor, size_t size)                                           \
    {                                                                                                                  \
        return descriptor_init(descriptor, size);                                                                      \
    }                                                                                                                  \
    EXPORT int cublasLt##_kind##SetAttribute(word descriptor, int attribute, const void *bytes, size_t size);          \
    EXPORT int cublasLt##_kind##SetAttribute(word descriptor, int attribute, const void *bytes, size_t size)           \
    {                                                                                                                  \
        return descriptor_set(descriptor, attribute, bytes, size);                                                     \
    }                                                                                                                  \
    EXPORT int cublasLt##_kind##GetAttribute(word descriptor, int attribute, void *bytes, size_t size,                 \
                                             size_t *written);                                                         \
    EXPORT int cublasLt##_kind##GetAttribute(word descriptor, int attribute, void *bytes, size_t size,                 \
                                             size_t *written)                                                          \
    {                                                                                                                  \
        return descriptor_get(descriptor, attribute, bytes, size, written);                                            \
    }
DESCRIPTOR(MatmulDesc)
DESCRIPTOR(MatmulPreference)
DESCRIPTOR(MatrixLayout)
DESCRIPTOR(MatrixTransformDesc)
DESCRIPTOR(EmulationDesc)

EXPORT int cublasLtGroupedMatrixLayoutInit_internal(void *descriptor, size_t size);
EXPORT int cublasLtGroupedMatrixLayoutInit_internal(void *descriptor, size_t size)
{
    return descriptor_init(descriptor, size);
}

/* The attributes 0 to 5 are type, order, rows, columns, leading dimension and batch count. */
EXPORT int cublasLtMatrixLayoutCreate(struct standin_object **layout, int type, uint64_t rows, uint64_t columns,
                                      int64_t step);
EXPORT int cublasLtMatrixLayoutCreate(struct standin_object **layout, int type, uint64_t rows, uint64_t columns,
                                      int64_t step)
{
    int one = 1;
    *layout = standin_new(0);
    bool known = *layout && standin_set(*layout, 0, &type, sizeof type, false) &&
                 standin_set(*layout, 2, &rows, sizeof rows, false) &&
                 standin_set(*layout, 3, &columns, sizeof columns, false) &&
                 standin_set(*layout, 4, &step, sizeof step, false) && standin_set(*layout, 5, &one, sizeof one, false);
    return known ? 0 : STANDIN_NO_MEMORY;
}

/* ---- algorithms -------------------------------------------------------------------------------------------------- */

struct algorithm {
    uint64_t data[8];
};
struct heuristic {
    struct algorithm algorithm;
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
};

static void algorithm_first(struct heuristic *result)
{
    *result = (struct heuristic){.algorithm.data[0] = 1, .waves = 1};
    standin_assumed("cublasLtMatmul: its algorithm needs no workspace");
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(ARGS);
EXPORT int cublasLtMatmulAlgoGetHeuristic(ARGS)
{
    UNREAD;
    int wanted = (int)a8;
    if (wanted > 0)
        algorithm_first((struct heuristic *)a9);
    *(int *)a10 = wanted > 0;
    return wanted > 0 ? 0 : STANDIN_INVALID;
}
EXPORT int cublasLtMatmulAlgoGetHeuristicForStream(ARGS) __attribute__((alias("cublasLtMatmulAlgoGetHeuristic")));

EXPORT int cublasLtMatmulAlgoCheck(ARGS);
EXPORT int cublasLtMatmulAlgoCheck(ARGS)
{
    UNREAD;
    algorithm_first((struct heuristic *)a8);
    return 0;
}
EXPORT int cublasLtMatmulAlgoCheckForStream(ARGS) __attribute__((alias("cublasLtMatmulAlgoCheck")));

EXPORT int cublasLtMatmulAlgoGetIds(ARGS);
EXPORT int cublasLtMatmulAlgoGetIds(ARGS)
{
    UNREAD;
    int wanted = (int)a8;
    if (wanted > 0)
        *(int *)a9 = 1;
    *(int *)a10 = wanted > 0;
    return 0;
}

EXPORT int cublasLtMatmulAlgoInit(ARGS);
EXPORT int cublasLtMatmulAlgoInit(ARGS)
{
    UNREAD;
    *(struct algorithm *)a9 = (struct algorithm){{(uint64_t)(int)a8}};
    return 0;
}

/* Attribute 0 is the identifier; the others are kept in one word each, as far as there are words. */
EXPORT int cublasLtMatmulAlgoConfigSetAttribute(struct algorithm *algorithm, unsigned attribute, const void *bytes,
                                                size_t size);
EXPORT int cublasLtMatmulAlgoConfigSetAttribute(struct algorithm *algorithm, unsigned attribute, const void *bytes,
                                                size_t size)
{
    if (size > sizeof(uint64_t))
        return STANDIN_INVALID;
    if (attribute < 8)
        memcpy(&algorithm->data[attribute], bytes, size);
    return 0;
}

EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const struct algorithm *algorithm, unsigned attribute, void *bytes,
                                                size_t size, size_t *written);
EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const struct algorithm *algorithm, unsigned attribute, void *bytes,
                                                size_t size, size_t *written)
{
    uint64_t value = attribute < 8 ? algorithm->data[attribute] : 0;
    if (written)
        *written = size ? size : sizeof(int);
    if (size > sizeof value)
        return STANDIN_INVALID;
    if (size)
        memcpy(bytes, &value, size);
    return 0;
}

/* What an algorithm can do: nothing beyond the plain product. */
EXPORT int cublasLtMatmulAlgoCapGetAttribute(const struct algorithm *algorithm, int attribute, void *bytes, size_t size,
                                             size_t *written);
EXPORT int cublasLtMatmulAlgoCapGetAttribute(const struct algorithm *algorithm, int attribute, void *bytes, size_t size,
                                             size_t *written)
{
    (void)algorithm;
    (void)attribute;
    if (written)
        *written = size;
    if (size)
        memset(bytes, 0, size);
    return 0;
}

/* ---- the library ------------------------------------------------------------------------------------------------- */

EXPORT int cublasLtHeuristicsCacheGetCapacity(size_t *capacity);
EXPORT int cublasLtHeuristicsCacheGetCapacity(size_t *capacity)
{
    *capacity = 8192;
    return 0;
}

static int version(int part)
{
    static const int versions[][3] = {{11, 11, 3}, {12, 9, 1}, {13, 1, 0}};
    int major = standin_major();
    return standin_version(part, versions[major == 11 ? 0 : major == 12 ? 1 : 2]);
}

EXPORT size_t cublasLtGetVersion(void);
EXPORT size_t cublasLtGetVersion(void)
{
    return (size_t)(version(0) * 10000 + version(1) * 100 + version(2));
}

EXPORT size_t cublasLtGetCudartVersion(void);
EXPORT size_t cublasLtGetCudartVersion(void)
{
    return (size_t)(version(0) * 1000 + version(1) * 10);
}

EXPORT int cublasLtGetProperty(int part, int *value);
EXPORT int cublasLtGetProperty(int part, int *value)
{
    return standin_property(part, value, version, STANDIN_INVALID);
}

EXPORT const char *cublasLtGetStatusName(int status);
EXPORT const char *cublasLtGetStatusName(int status)
{
    return status == 0 ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_SUPPORTED";
}

EXPORT const char *cublasLtGetStatusString(int status);
EXPORT const char *cublasLtGetStatusString(int status)
{
    return status == 0 ? "success" : "not supported";
}
