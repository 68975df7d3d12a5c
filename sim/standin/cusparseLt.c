/* SPDX-License-Identifier: MIT
 * libcusparseLt.so.0.  Its handles and descriptors are structures of the program, of 512 bytes and more:
 * what a later question needs is kept in their first words. */
#include "standin.h"

#include <string.h>

enum { STANDIN_INVALID = 3, STANDIN_NOT_SUPPORTED = 10 };

struct matrix {
    int64_t rows, columns;
    int type, sparse;
};
struct product {
    struct matrix a, b;
};

RULE(none, )
RULE(w4_0, W(4, 0))
RULE(w4_4, W(4, 4))
RULE(w6_0, W(6, 0))
RULE(w6_4, W(6, 4))
RULE(w8_0, W(8, 0))
F(cusparseLtInit, none)
F(cusparseLtDestroy, none)
F(cusparseLtMatDescriptorDestroy, none)
F(cusparseLtMatDescSetAttribute, none)
F(cusparseLtMatmulDescSetAttribute, none)
F(cusparseLtMatmulAlgSetAttribute, none)
F(cusparseLtMatmulAlgSelectionInit, none)
F(cusparseLtMatmulAlgSelectionDestroy, none)
F(cusparseLtMatmulPlanDestroy, none)
F(cusparseLtMatmul, w8_0)
F(cusparseLtMatmulSearch, w8_0)
F(cusparseLtSpMMAPrune, w4_0)
F(cusparseLtSpMMAPrune2, w6_0)
F(cusparseLtSpMMAPruneCheck, w4_4)
F(cusparseLtSpMMAPruneCheck2, w6_4)
F(cusparseLtSpMMACompress, w4_0)
F(cusparseLtSpMMACompress2, w6_0)

EXPORT int cusparseLtDenseDescriptorInit(ARGS);
EXPORT int cusparseLtDenseDescriptorInit(ARGS)
{
    UNREAD;
    *(struct matrix *)a2 = (struct matrix){.rows = (int64_t)a3, .columns = (int64_t)a4, .type = (int)a7};
    return 0;
}

EXPORT int cusparseLtStructuredDescriptorInit(ARGS);
EXPORT int cusparseLtStructuredDescriptorInit(ARGS)
{
    cusparseLtDenseDescriptorInit(ALL);
    ((struct matrix *)a2)->sparse = 1;
    return 0;
}

EXPORT int cusparseLtMatmulDescriptorInit(ARGS);
EXPORT int cusparseLtMatmulDescriptorInit(ARGS)
{
    UNREAD;
    *(struct product *)a2 = (struct product){*(const struct matrix *)a5, *(const struct matrix *)a6};
    return 0;
}

EXPORT int cusparseLtMatmulPlanInit(ARGS);
EXPORT int cusparseLtMatmulPlanInit(ARGS)
{
    UNREAD;
    *(struct product *)a2 = *(const struct product *)a3;
    return 0;
}

/* Of one element of a cudaDataType. */
static size_t element(int type)
{
    switch (type) {
    case 0:
        return 4;
    case 1:
        return 8;
    case 2:
    case 14:
        return 2;
    default: /* 8 bits */
        return 1;
    }
}

/* Half of the elements, and two bits for the place of each. */
static void compressed(const struct matrix *matrix, size_t *bytes, size_t *buffer)
{
    size_t elements = (size_t)(matrix->rows * matrix->columns);
    *bytes = elements * element(matrix->type) / 2 + elements / 8;
    *buffer = 0;
    standin_assumed("compressed matrices: half of the elements and two bits for each, no buffer");
}

EXPORT int cusparseLtSpMMACompressedSize(void *handle, const struct product *plan, size_t *bytes, size_t *buffer);
EXPORT int cusparseLtSpMMACompressedSize(void *handle, const struct product *plan, size_t *bytes, size_t *buffer)
{
    (void)handle;
    compressed(plan->b.sparse ? &plan->b : &plan->a, bytes, buffer);
    return 0;
}

EXPORT int cusparseLtSpMMACompressedSize2(void *handle, const struct matrix *matrix, size_t *bytes, size_t *buffer);
EXPORT int cusparseLtSpMMACompressedSize2(void *handle, const struct matrix *matrix, size_t *bytes, size_t *buffer)
{
    (void)handle;
    compressed(matrix, bytes, buffer);
    return 0;
}

EXPORT int cusparseLtMatmulGetWorkspace(void *handle, const void *plan, size_t *bytes);
EXPORT int cusparseLtMatmulGetWorkspace(void *handle, const void *plan, size_t *bytes)
{
    (void)handle;
    (void)plan;
    *bytes = 0;
    standin_assumed("cusparseLtMatmulGetWorkspace: no workspace");
    return 0;
}

static int attribute_zero(void *handle, const void *of, int attribute, void *data, size_t bytes)
{
    (void)handle;
    (void)of;
    (void)attribute;
    memset(data, 0, bytes);
    return 0;
}
EXPORT int cusparseLtMatDescGetAttribute(void *handle, const void *of, int attribute, void *data, size_t bytes)
    __attribute__((alias("attribute_zero")));
EXPORT int cusparseLtMatmulDescGetAttribute(void *handle, const void *of, int attribute, void *data, size_t bytes)
    __attribute__((alias("attribute_zero")));

/* There is one algorithm, number 0: attribute 1 asks for the largest. */
EXPORT int cusparseLtMatmulAlgGetAttribute(void *handle, const void *of, int attribute, int *data, size_t bytes);
EXPORT int cusparseLtMatmulAlgGetAttribute(void *handle, const void *of, int attribute, int *data, size_t bytes)
{
    attribute_zero(handle, of, attribute, data, bytes);
    if (attribute == 1 && bytes >= sizeof *data)
        *data = 1;
    return 0;
}

static int version(int part)
{
    static const int newest[3] = {0, 8, 1};
    return standin_version(part, newest);
}

EXPORT int cusparseLtGetVersion(void *handle, int *value);
EXPORT int cusparseLtGetVersion(void *handle, int *value)
{
    (void)handle;
    *value = version(0) * 1000 + version(1) * 100 + version(2);
    return 0;
}

EXPORT int cusparseLtGetProperty(int part, int *value);
EXPORT int cusparseLtGetProperty(int part, int *value)
{
    return standin_property(part, value, version, STANDIN_INVALID);
}

EXPORT const char *cusparseLtGetErrorName(int status);
EXPORT const char *cusparseLtGetErrorName(int status)
{
    return status == 0 ? "CUSPARSE_STATUS_SUCCESS" : "CUSPARSE_STATUS_NOT_SUPPORTED";
}

EXPORT const char *cusparseLtGetErrorString(int status);
EXPORT const char *cusparseLtGetErrorString(int status)
{
    return status == 0 ? "success" : "not supported";
}
