/* SPDX-License-Identifier: MIT
 *
 * Transfers, collectives, order and signals: kernels compute nothing, so nothing is moved and
 * nobody waits.  What would have been written on this PE counts as computed, which makes it zeros.
 * Arguments of values and of other PEs' memory are not read. */
#include "nvshmem.h"

#include "standin/standin.h"

enum { STANDIN_NOT_SUPPORTED = 7 };

RULE(none, )
RULE(w1_0, W(1, 0))
RULE(w2_0, W(2, 0))

#define ONE(_name, _rule) F(_name, _rule)
#define EMPTY
#define TYPED(_prefix, _type, _rest, _rule) F(_prefix##_##_type##_##_rest, _rule)
#define EACH(_types, _prefix, _rest, _rule) TYPES_##_types(TYPED, _prefix, _rest, _rule)
#define SIZED(_name, _size, _rest, _rule)   F(_name##_size##_rest, _rule)
#define SIZES(_name, _rest, _rule)                                                                                     \
    SIZED(_name, 8, _rest, _rule)                                                                                      \
    SIZED(_name, 16, _rest, _rule)                                                                                     \
    SIZED(_name, 32, _rest, _rule) SIZED(_name, 64, _rest, _rule) SIZED(_name, 128, _rest, _rule)
#include "nvshmem.def"

/* What returns a value of another PE returns 0, of its type. */
typedef signed char t_schar, t_int8;
typedef unsigned char t_uchar, t_uint8;
typedef short t_short, t_int16;
typedef unsigned short t_ushort, t_uint16, t_bfloat16, t_half;
typedef int t_int, t_int32;
typedef unsigned t_uint, t_uint32;
typedef long t_long, t_int64, t_ptrdiff;
typedef unsigned long t_ulong, t_uint64, t_size;
typedef long long t_longlong;
typedef unsigned long long t_ulonglong;
typedef char t_char;
typedef float t_float;
typedef double t_double;
#define ZERO(_prefix, _type, _rest, _rule)                                                                             \
    EXPORT t_##_type _prefix##_##_type##_##_rest(void);                                                                \
    EXPORT t_##_type _prefix##_##_type##_##_rest(void)                                                                 \
    {                                                                                                                  \
        return 0;                                                                                                      \
    }
TYPES_ALL(ZERO, nvshmem, g, )
TYPES_ALL(ZERO, nvshmemx, g_on_stream, )
TYPES_FETCH(ZERO, nvshmem, atomic_fetch, )
TYPES_FETCH(ZERO, nvshmem, atomic_swap, )

EXPORT uint64_t nvshmem_signal_fetch(const uint64_t *signal);
EXPORT uint64_t nvshmem_signal_fetch(const uint64_t *signal)
{
    (void)signal;
    return 0;
}

EXPORT void nvshmem_query_thread(int *provided);
EXPORT void nvshmem_query_thread(int *provided)
{
    *provided = 2; /* serialized */
}

/* Memory of the program as a part of the heap. */
#define NO_BUFFER(_name)                                                                                               \
    EXPORT void *_name(void);                                                                                          \
    EXPORT void *_name(void)                                                                                           \
    {                                                                                                                  \
        standin_unsupported(#_name);                                                                                   \
        return NULL;                                                                                                   \
    }
NO_BUFFER(nvshmemx_buffer_register_symmetric)
NO_BUFFER(nvshmemx_buffer_register_symmetric_at_preferred_address)
