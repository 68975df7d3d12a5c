/* SPDX-License-Identifier: MIT
 * libcusparse.so.11 and .12.  Descriptors of vectors and matrices answer as they were made; products
 * that the library would size have no elements, since every result is zeros. */
#include "standin.h"

enum { STANDIN_NO_MEMORY = 2, STANDIN_INVALID = 3, STANDIN_NOT_SUPPORTED = 10 };
enum { STREAM = 1, MODE, BATCH, STRIDE, ATTRIBUTE = 100 };
/* The formats have cuSPARSE's numbers. */
enum { CSR = 1, CSC, COO, COO_AOS, BLOCKED_ELL, BSR, SLICED_ELL, DENSE_VECTOR, DENSE_MATRIX, SPARSE_VECTOR };

#include "cusparse.def"

S(cusparseSetStream, STREAM, 2)
G(cusparseGetStream, STREAM, 2, word, 0)
S(cusparseSetPointerMode, MODE, 2)
G(cusparseGetPointerMode, MODE, 2, int, 0)

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

#define MADE(_what, _kind) CREATED(cusparseCreate##_what, _kind) CREATED(cusparseCreateConst##_what, _kind)
MADE(Csr, CSR)
MADE(Csc, CSC)
MADE(Coo, COO)
CREATED(cusparseCreateCooAoS, COO_AOS)
MADE(BlockedEll, BLOCKED_ELL)
MADE(Bsr, BSR)
MADE(SlicedEll, SLICED_ELL)
MADE(DnVec, DENSE_VECTOR)
MADE(DnMat, DENSE_MATRIX)
MADE(SpVec, SPARSE_VECTOR)

#define ASKED(_what, _widths) TOLD(cusparse##_what##Get, _widths) TOLD(cusparseConst##_what##Get, _widths)
ASKED(Csr, "llllll"
           "iiii")
ASKED(Csc, "llllll"
           "iiii")
ASKED(Coo, "llllll"
           "iii")
TOLD(cusparseCooAoSGet, "lllll"
                        "iii")
ASKED(BlockedEll, "llllll"
                  "iii")
ASKED(DnVec, "ll"
             "i")
ASKED(DnMat, "llll"
             "ii")
ASKED(SpVec, "llll"
             "iii")

/* The position of the elements among the arguments. */
static int values_position(const struct standin_object *object)
{
    static const int positions[] = {
        [CSR] = 7, [CSC] = 7,        [COO] = 7,          [COO_AOS] = 6,      [BLOCKED_ELL] = 7,
        [BSR] = 9, [SLICED_ELL] = 9, [DENSE_VECTOR] = 3, [DENSE_MATRIX] = 5, [SPARSE_VECTOR] = 5};
    int kind = standin_type(object);
    return kind >= CSR && kind <= SPARSE_VECTOR ? positions[kind] : 2;
}

static int values_get(word descriptor, word *values)
{
    const struct standin_object *object = standin_object(descriptor);
    *values = standin_kept(object, values_position(object));
    return 0;
}

static int values_set(word descriptor, word values)
{
    struct standin_object *object = standin_object(descriptor);
    return standin_replace(object, values_position(object), values) ? 0 : STANDIN_NO_MEMORY;
}

#define VALUES(_what)                                                                                                  \
    EXPORT int cusparse##_what##GetValues(word descriptor, word *values) __attribute__((alias("values_get")));         \
    EXPORT int cusparseConst##_what##GetValues(word descriptor, word *values) __attribute__((alias("values_get")));    \
    EXPORT int cusparse##_what##SetValues(word descriptor, word values) __attribute__((alias("values_set")));
VALUES(DnVec)
VALUES(DnMat)
VALUES(SpVec)
VALUES(SpMat)

static int pointers_set(word descriptor, word offsets, word indices, word values)
{
    struct standin_object *object = standin_object(descriptor);
    bool done = standin_replace(object, 5, offsets) && standin_replace(object, 6, indices) &&
                standin_replace(object, 7, values);
    return done ? 0 : STANDIN_NO_MEMORY;
}
EXPORT int cusparseCsrSetPointers(word descriptor, word offsets, word indices, word values)
    __attribute__((alias("pointers_set")));
EXPORT int cusparseCscSetPointers(word descriptor, word offsets, word indices, word values)
    __attribute__((alias("pointers_set")));
EXPORT int cusparseCooSetPointers(word descriptor, word rows, word columns, word values)
    __attribute__((alias("pointers_set")));

EXPORT int cusparseSpMatGetSize(word descriptor, int64_t *rows, int64_t *columns, int64_t *elements);
EXPORT int cusparseSpMatGetSize(word descriptor, int64_t *rows, int64_t *columns, int64_t *elements)
{
    const struct standin_object *object = standin_object(descriptor);
    int64_t kept[5];
    for (int i = 0; i < 5; i++)
        kept[i] = (int64_t)standin_kept(object, i + 2);
    *rows = kept[0];
    *columns = kept[1];
    *elements = kept[2];
    if (standin_type(object) == BSR) { /* in blocks, of kept[3] by kept[4] */
        *rows *= kept[3];
        *columns *= kept[4];
        *elements *= kept[3] * kept[4];
    } else if (standin_type(object) == BLOCKED_ELL) {
        *elements = kept[0] * kept[3];
    }
    return 0;
}

EXPORT int cusparseSpMatGetFormat(word descriptor, int *format);
EXPORT int cusparseSpMatGetFormat(word descriptor, int *format)
{
    *format = standin_type(standin_object(descriptor));
    return 0;
}

EXPORT int cusparseSpMatGetIndexBase(word descriptor, int *base);
EXPORT int cusparseSpMatGetIndexBase(word descriptor, int *base)
{
    const struct standin_object *object = standin_object(descriptor);
    int kind = standin_type(object);
    *base = (int)standin_kept(object, kind == COO || kind == BLOCKED_ELL ? 9
                                      : kind == COO_AOS                  ? 8
                                      : kind >= BSR                      ? 12
                                                                         : 10);
    return 0;
}

EXPORT int cusparseSpVecGetIndexBase(word descriptor, int *base);
EXPORT int cusparseSpVecGetIndexBase(word descriptor, int *base)
{
    *base = (int)standin_kept(standin_object(descriptor), 7);
    return 0;
}

S(cusparseSpMatSetStridedBatch, BATCH, 2)
G(cusparseSpMatGetStridedBatch, BATCH, 2, int, 1)
S(cusparseCsrSetStridedBatch, BATCH, 2)
S(cusparseCooSetStridedBatch, BATCH, 2)
S(cusparseBsrSetStridedBatch, BATCH, 2)

EXPORT int cusparseDnMatSetStridedBatch(word descriptor, int count, int64_t stride);
EXPORT int cusparseDnMatSetStridedBatch(word descriptor, int count, int64_t stride)
{
    struct standin_object *object = standin_object(descriptor);
    bool done = standin_set_number(object, BATCH, count) && standin_set_number(object, STRIDE, stride);
    return done ? 0 : STANDIN_NO_MEMORY;
}

EXPORT int cusparseDnMatGetStridedBatch(word descriptor, int *count, int64_t *stride);
EXPORT int cusparseDnMatGetStridedBatch(word descriptor, int *count, int64_t *stride)
{
    const struct standin_object *object = standin_object(descriptor);
    *count = (int)standin_number(object, BATCH, 1);
    *stride = standin_number(object, STRIDE, 0);
    return 0;
}

/* Fill mode and diagonal type: an int each. */
EXPORT int cusparseSpMatSetAttribute(word descriptor, int attribute, const int *value, size_t size);
EXPORT int cusparseSpMatSetAttribute(word descriptor, int attribute, const int *value, size_t size)
{
    if (size != sizeof *value)
        return STANDIN_INVALID;
    return standin_set_number(standin_object(descriptor), ATTRIBUTE + attribute, *value) ? 0 : STANDIN_NO_MEMORY;
}

EXPORT int cusparseSpMatGetAttribute(word descriptor, int attribute, int *value, size_t size);
EXPORT int cusparseSpMatGetAttribute(word descriptor, int attribute, int *value, size_t size)
{
    if (size != sizeof *value)
        return STANDIN_INVALID;
    *value = (int)standin_number(standin_object(descriptor), ATTRIBUTE + attribute, 0);
    return 0;
}

/* The matrices of the older interface return their settings. */
#define SETTING(_what)                                                                                                 \
    S(cusparseSetMat##_what, __LINE__, 2)                                                                              \
    EXPORT int cusparseGetMat##_what(word descriptor);                                                                 \
    EXPORT int cusparseGetMat##_what(word descriptor)                                                                  \
    {                                                                                                                  \
        return (int)standin_number(standin_object(descriptor), __LINE__, 0);                                           \
    }
SETTING(Type)
SETTING(FillMode)
SETTING(DiagType)
SETTING(IndexBase)

/* ---- computations whose output is a descriptor --------------------------------------------------------------------- */

#define COMPUTES(_function, _position)                                                                                 \
    EXPORT int _function(ARGS);                                                                                        \
    EXPORT int _function(ARGS)                                                                                         \
    {                                                                                                                  \
        UNREAD;                                                                                                        \
        word values = 0;                                                                                               \
        values_get(a##_position, &values);                                                                             \
        standin_written(values, 0);                                                                                    \
        return 0;                                                                                                      \
    }
COMPUTES(cusparseAxpby, 5)
COMPUTES(cusparseGather, 3)
COMPUTES(cusparseScatter, 3)
COMPUTES(cusparseRot, 5)
COMPUTES(cusparseSpMV, 7)
COMPUTES(cusparseSpMM, 8)
COMPUTES(cusparseSpSV_solve, 6)
COMPUTES(cusparseSpSM_solve, 7)
COMPUTES(cusparseSDDMM, 8)
COMPUTES(cusparseSparseToDense, 3)
COMPUTES(cusparseDenseToSparse_convert, 3)

/* ---- the library ------------------------------------------------------------------------------------------------- */

static int version(int part)
{
    static const int versions[][3] = {{11, 7, 5}, {12, 7, 2}};
    return standin_version(part, versions[standin_major() >= 12]);
}

EXPORT int cusparseGetVersion(void *handle, int *value);
EXPORT int cusparseGetVersion(void *handle, int *value)
{
    (void)handle;
    *value = version(0) * 1000 + version(1) * 100 + version(2);
    return 0;
}

EXPORT int cusparseGetProperty(int part, int *value);
EXPORT int cusparseGetProperty(int part, int *value)
{
    return standin_property(part, value, version, STANDIN_INVALID);
}

EXPORT const char *cusparseGetErrorName(int status);
EXPORT const char *cusparseGetErrorName(int status)
{
    switch (status) {
    case 0:
        return "CUSPARSE_STATUS_SUCCESS";
    case STANDIN_NO_MEMORY:
        return "CUSPARSE_STATUS_ALLOC_FAILED";
    case STANDIN_INVALID:
        return "CUSPARSE_STATUS_INVALID_VALUE";
    case STANDIN_NOT_SUPPORTED:
        return "CUSPARSE_STATUS_NOT_SUPPORTED";
    default:
        return "CUSPARSE_STATUS_INTERNAL_ERROR";
    }
}

EXPORT const char *cusparseGetErrorString(int status);
EXPORT const char *cusparseGetErrorString(int status)
{
    return status == 0 ? "success" : status == STANDIN_NOT_SUPPORTED ? "not supported" : "failed";
}
