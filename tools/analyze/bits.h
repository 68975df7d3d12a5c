/* SPDX-License-Identifier: MIT
 *
 * bits.h: a set of small numbers, in order: add, remove, the next and the one before, each in a few steps however many
 * there are.  With the addresses of a recording sorted once it answers "which live block lies here".
 */
#ifndef GP_ANALYZE_BITS_H
#define GP_ANALYZE_BITS_H

#include <stdbool.h>
#include <stdint.h>

#define GP_BITS_LEVELS 6 /* 64^6 > 2^32 */
#define GP_BITS_NONE   UINT32_MAX

struct gp_bits {
    uint64_t *words;                 /* every level, the finest first */
    uint64_t *level[GP_BITS_LEVELS]; /* [0]: a bit per number; [n]: a bit per word of [n - 1] that is not 0 */
    uint32_t count;
    unsigned levels;
};

/* An empty set of numbers below count.  0, -ENOMEM. */
int gp_bits_init(struct gp_bits *bits, uint32_t count);
void gp_bits_fini(struct gp_bits *bits);

static inline bool gp_bits_has(const struct gp_bits *bits, uint32_t number)
{
    return bits->level[0][number / 64] >> (number % 64) & 1;
}

void gp_bits_add(struct gp_bits *bits, uint32_t number);
void gp_bits_remove(struct gp_bits *bits, uint32_t number);
/* The smallest number >= from; the largest number <= from; GP_BITS_NONE. */
uint32_t gp_bits_next(const struct gp_bits *bits, uint32_t from);
uint32_t gp_bits_before(const struct gp_bits *bits, uint32_t from);

#endif
