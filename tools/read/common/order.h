/* SPDX-License-Identifier: MIT
 * order.h: the order of two numbers, as qsort wants it, and the higher or lower one of two.  The analyses use it; an operand is
 * evaluated twice. */
#ifndef GP_COMMON_ORDER_H
#define GP_COMMON_ORDER_H

#include <stdint.h>

#define GP_ORDER(one, other) (((one) > (other)) - ((one) < (other)))

/* For qsort and bsearch of uint64_t. */
static inline int gp_order_u64(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return GP_ORDER(a, b);
}

/* Sets a place to the value if that is higher, or lower. */
#define GP_RAISE(place, value) ((place) = (value) > (place) ? (value) : (place))
#define GP_LOWER(place, value) ((place) = (value) < (place) ? (value) : (place))

#endif
