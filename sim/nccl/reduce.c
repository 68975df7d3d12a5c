/* SPDX-License-Identifier: MIT
 * Numbers of NCCL's types, and their reductions.  Each rank's numbers are added in the order of the ranks, in double
 * precision or in 64 bits, and rounded once: all ranks get the same result, which real NCCL's may differ from by
 * roundings. */
#include "nccl.h"

#include <math.h>
#include <string.h>

enum { NUMBER_REAL, NUMBER_WHOLE, NUMBER_NATURAL };

static const struct {
    const char *name;
    size_t size;
    int kind;
    int exponent, mantissa; /* of small floats */
    bool finite;            /* without infinities: all ones are one NaN */
} number_types[NCCL_TYPES] = {
    [NCCL_INT8] = {"int8", 1, NUMBER_WHOLE, 0, 0, false},
    [NCCL_UINT8] = {"uint8", 1, NUMBER_NATURAL, 0, 0, false},
    [NCCL_INT32] = {"int32", 4, NUMBER_WHOLE, 0, 0, false},
    [NCCL_UINT32] = {"uint32", 4, NUMBER_NATURAL, 0, 0, false},
    [NCCL_INT64] = {"int64", 8, NUMBER_WHOLE, 0, 0, false},
    [NCCL_UINT64] = {"uint64", 8, NUMBER_NATURAL, 0, 0, false},
    [NCCL_FLOAT16] = {"float16", 2, NUMBER_REAL, 5, 10, false},
    [NCCL_FLOAT32] = {"float32", 4, NUMBER_REAL, 0, 0, false},
    [NCCL_FLOAT64] = {"float64", 8, NUMBER_REAL, 0, 0, false},
    [NCCL_BFLOAT16] = {"bfloat16", 2, NUMBER_REAL, 8, 7, false},
    [NCCL_FLOAT8E4M3] = {"float8_e4m3", 1, NUMBER_REAL, 4, 3, true},
    [NCCL_FLOAT8E5M2] = {"float8_e5m2", 1, NUMBER_REAL, 5, 2, false},
};

static bool number_type(int type)
{
    return type >= 0 && type < NCCL_TYPES;
}

size_t nccl_type_size(int type)
{
    return number_type(type) ? number_types[type].size : 0;
}

const char *nccl_type_name(int type)
{
    return number_type(type) ? number_types[type].name : "unknown type";
}

static double number_small_read(unsigned bits, int e, int m, bool finite)
{
    int exponent = (int)(bits >> m) & ((1 << e) - 1), bias = (1 << (e - 1)) - 1;
    unsigned mantissa = bits & ((1u << m) - 1);
    double sign = bits >> (e + m) & 1 ? -1 : 1;
    bool top = exponent == (1 << e) - 1;
    if (finite ? top && mantissa == (1u << m) - 1 : top && mantissa)
        return NAN;
    if (top && !finite)
        return sign * INFINITY;
    if (!exponent)
        return sign * ldexp(mantissa, 1 - bias - m);
    return sign * ldexp(mantissa + (1u << m), exponent - bias - m);
}

/* To the nearest, ties to even; what is too large is infinite, or the largest number where there is no infinity. */
static unsigned number_small_write(double value, int e, int m, bool finite)
{
    unsigned sign = signbit(value) ? 1u << (e + m) : 0, ones = (1u << e) - 1;
    int bias = (1 << (e - 1)) - 1, exponent;
    if (isnan(value))
        return sign | ones << m | (finite ? (1u << m) - 1 : 1u << (m - 1));
    value = fabs(value);
    frexp(value, &exponent);
    exponent--; /* value = 1.x times 2 to this */
    if (value == 0 || exponent < 1 - bias)
        exponent = 1 - bias;
    unsigned largest = finite ? ones << m | ((1u << m) - 2) : ones << m;
    if (isinf(value) || exponent > (int)ones - bias)
        return sign | largest;
    /* In steps of the last bit, a number is its own bits, also across the border of an exponent. */
    unsigned steps = (unsigned)nearbyint(ldexp(value, m - exponent));
    unsigned bits = steps + ((unsigned)(exponent + bias - 1) << m);
    return sign | (bits < largest ? bits : largest);
}

static union nccl_number number_read(const void *from, size_t i, int type)
{
    union nccl_number n = {.natural = 0};
    uint16_t half;
    switch (type) {
    case NCCL_INT8:
        n.whole = ((const int8_t *)from)[i];
        break;
    case NCCL_UINT8:
        n.natural = ((const uint8_t *)from)[i];
        break;
    case NCCL_INT32:
        n.whole = ((const int32_t *)from)[i];
        break;
    case NCCL_UINT32:
        n.natural = ((const uint32_t *)from)[i];
        break;
    case NCCL_INT64:
        n.whole = ((const int64_t *)from)[i];
        break;
    case NCCL_UINT64:
        n.natural = ((const uint64_t *)from)[i];
        break;
    case NCCL_FLOAT32:
        n.real = (double)((const float *)from)[i];
        break;
    case NCCL_FLOAT64:
        n.real = ((const double *)from)[i];
        break;
    default:
        half = number_types[type].size == 2 ? ((const uint16_t *)from)[i] : ((const uint8_t *)from)[i];
        n.real = number_small_read(half, number_types[type].exponent, number_types[type].mantissa,
                                   number_types[type].finite);
        break;
    }
    return n;
}

static void number_write(void *to, size_t i, int type, union nccl_number n)
{
    unsigned bits;
    switch (type) {
    case NCCL_INT8:
    case NCCL_UINT8:
        ((uint8_t *)to)[i] = (uint8_t)n.natural;
        break;
    case NCCL_INT32:
    case NCCL_UINT32:
        ((uint32_t *)to)[i] = (uint32_t)n.natural;
        break;
    case NCCL_INT64:
    case NCCL_UINT64:
        ((uint64_t *)to)[i] = n.natural;
        break;
    case NCCL_FLOAT32:
        ((float *)to)[i] = (float)n.real;
        break;
    case NCCL_FLOAT64:
        ((double *)to)[i] = n.real;
        break;
    default:
        bits = number_small_write(n.real, number_types[type].exponent, number_types[type].mantissa,
                                  number_types[type].finite);
        if (number_types[type].size == 2)
            ((uint16_t *)to)[i] = (uint16_t)bits;
        else
            ((uint8_t *)to)[i] = (uint8_t)bits;
        break;
    }
}

void nccl_reduce_first(union nccl_number *to, const void *from, size_t count, int type)
{
    for (size_t i = 0; i < count; i++)
        to[i] = number_read(from, i, type);
}

/* Sums and products of whole numbers wrap as they do in the type itself. */
static void number_add(union nccl_number *to, union nccl_number n, int kind, int op)
{
    switch (op) {
    case NCCL_PROD:
        if (kind == NUMBER_REAL)
            to->real *= n.real;
        else
            to->natural *= n.natural;
        break;
    case NCCL_MAX:
    case NCCL_MIN:
        if (kind == NUMBER_REAL    ? (op == NCCL_MAX ? n.real > to->real : n.real < to->real)
            : kind == NUMBER_WHOLE ? (op == NCCL_MAX ? n.whole > to->whole : n.whole < to->whole)
                                   : (op == NCCL_MAX ? n.natural > to->natural : n.natural < to->natural))
            *to = n;
        break;
    default:
        if (kind == NUMBER_REAL)
            to->real += n.real;
        else
            to->natural += n.natural;
        break;
    }
}

void nccl_reduce_next(union nccl_number *to, const void *from, size_t count, int type, int op)
{
    for (size_t i = 0; i < count; i++)
        number_add(&to[i], number_read(from, i, type), number_types[type].kind, op);
}

void nccl_reduce_same(union nccl_number *to, const void *from, size_t count, int type, int op, int ranks)
{
    const int kind = number_types[type].kind;
    bool sums = op != NCCL_PROD && op != NCCL_MAX && op != NCCL_MIN;
    for (size_t i = 0; i < count; i++) {
        union nccl_number n = number_read(from, i, type);
        if (sums && kind == NUMBER_REAL)
            n.real *= ranks;
        else if (sums)
            n.natural *= (uint64_t)ranks;
        for (int k = op == NCCL_PROD ? ranks : 1; k > 0; k--)
            number_add(&to[i], n, kind, op);
    }
}

void nccl_reduce_last(void *to, union nccl_number *from, size_t count, int type, int op, int ranks)
{
    for (size_t i = 0; i < count; i++) {
        if (op == NCCL_AVG && number_types[type].kind == NUMBER_REAL)
            from[i].real /= ranks;
        else if (op == NCCL_AVG && number_types[type].kind == NUMBER_WHOLE)
            from[i].whole /= ranks;
        else if (op == NCCL_AVG)
            from[i].natural /= (unsigned)ranks;
        number_write(to, i, type, from[i]);
    }
}

void nccl_scale(void *values, size_t count, int type, const void *factor)
{
    union nccl_number by = number_read(factor, 0, type);
    for (size_t i = 0; i < count; i++) {
        union nccl_number n = number_read(values, i, type);
        number_add(&n, by, number_types[type].kind, NCCL_PROD);
        number_write(values, i, type, n);
    }
}
