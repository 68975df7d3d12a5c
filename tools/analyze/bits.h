/* SPDX-License-Identifier: MIT
 *
 * bits.h: an ordered set of small numbers, with add, remove, next and before in at most
 * GP_BITS_LEVELS steps.  The analyses sort the addresses of a recording once and use such a set to
 * find the live block at an address.
 */
#ifndef GP_ANALYZE_BITS_H
#define GP_ANALYZE_BITS_H

#include <stdbool.h>
#include <stdint.h>

#define GP_BITS_LEVELS 6 /* 64^6 > 2^32 */
#define GP_BITS_NONE   UINT32_MAX

struct gp_bits {
    uint64_t *words;                 /* of all levels */
    uint64_t *level[GP_BITS_LEVELS]; /* [0]: a bit per number; [n]: a bit per word of [n - 1], set if it is not 0 */
    uint32_t count;
    unsigned levels;
};

/* Makes an empty set of numbers below count.  0 or -ENOMEM. */
int gp_bits_init(struct gp_bits *bits, uint32_t count);
void gp_bits_fini(struct gp_bits *bits);

static inline bool gp_bits_has(const struct gp_bits *bits, uint32_t number)
{
    return bits->level[0][number / 64] >> (number % 64) & 1;
}

void gp_bits_add(struct gp_bits *bits, uint32_t number);
void gp_bits_remove(struct gp_bits *bits, uint32_t number);
/* The smallest member >= from, and the largest member <= from; GP_BITS_NONE if there is none. */
uint32_t gp_bits_next(const struct gp_bits *bits, uint32_t from);
uint32_t gp_bits_before(const struct gp_bits *bits, uint32_t from);

#endif
