/* SPDX-License-Identifier: MIT
 * strict_sort.h: a qsort that takes the C library's place in a test program.  It checks that the order is one: no element
 * is before itself, and of two elements the one is before the other or neither is.  Equal elements come out in an order
 * that depends on what is in them alone only if no comparison is missing, so it starts from the reverse order. */
#ifndef GP_TEST_UNIT_STRICT_SORT_H
#define GP_TEST_UNIT_STRICT_SORT_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define STRICT_ALL                                                                                                     \
    24u /* of so many elements all pairs are compared; of more, neighbours and pairs that are far apart */

static bool strict_on; /* only while the analyses run: the test's own library may sort as it likes */

static inline int strict_sign(int order)
{
    return (order > 0) - (order < 0);
}

static inline void strict_pair(const char *one, const char *other, int compare(const void *, const void *))
{
    int there = strict_sign(compare(one, other)), back = strict_sign(compare(other, one));
    cr_assert_eq(there, -back, "one way %d, the other way %d", there, back);
}

static void strict_merge(char *list, char *room, size_t count, size_t bytes, int compare(const void *, const void *))
{
    size_t half = count / 2, left = 0, right = half, to = 0;
    if (count < 2)
        return;
    strict_merge(list, room, half, bytes, compare);
    strict_merge(list + half * bytes, room, count - half, bytes, compare);
    while (left < half || right < count) {
        bool first = right == count || (left < half && compare(list + left * bytes, list + right * bytes) <= 0);
        memcpy(room + to++ * bytes, list + (first ? left++ : right++) * bytes, bytes);
    }
    memcpy(list, room, count * bytes);
}

void qsort(void *list, size_t count, size_t bytes, int compare(const void *, const void *))
{
    char *at = list, *room = count ? malloc(count * bytes) : NULL;
    for (size_t i = 0; strict_on && i < count; i++) {
        cr_assert_eq(compare(at + i * bytes, at + i * bytes), 0, "an element is not equal to itself");
        for (size_t k = i + 1; k < count; k += count <= STRICT_ALL || k < i + 2 ? 1 : count / 8)
            strict_pair(at + i * bytes, at + k * bytes, compare);
    }
    if (!count)
        return;
    cr_assert(room);
    for (size_t i = 0; i < count / 2; i++) {
        memcpy(room, at + i * bytes, bytes);
        memcpy(at + i * bytes, at + (count - 1 - i) * bytes, bytes);
        memcpy(at + (count - 1 - i) * bytes, room, bytes);
    }
    strict_merge(at, room, count, bytes, compare);
    free(room);
}

#endif
