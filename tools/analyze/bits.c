/* SPDX-License-Identifier: MIT
 * bits.c: ordered sets of small numbers; see flow.h.  Called by ranges.c and by the analyses that
 * look for the live block at an address. */
#include <analyze/flow.h>
#include <analyze/ranges.h>

#include <errno.h>
#include <stdlib.h>

int gp_ranges_bits_init(struct gp_bits *bits, uint32_t count)
{
    size_t words[GP_BITS_LEVELS], total = 0, at = 0, n = count ? count : 1;
    *bits = (struct gp_bits){.count = count};
    do {
        n = (n + 63) / 64;
        words[bits->levels++] = n;
        total += n;
    } while (n > 1);
    bits->words = calloc(total, sizeof(*bits->words));
    if (!bits->words)
        return -ENOMEM;
    for (unsigned i = 0; i < bits->levels; i++) {
        bits->level[i] = bits->words + at;
        at += words[i];
    }
    return 0;
}

void gp_ranges_bits_fini(struct gp_bits *bits)
{
    free(bits->words);
    bits->words = NULL;
}

void gp_ranges_bits_add(struct gp_bits *bits, uint32_t number)
{
    for (unsigned i = 0; i < bits->levels; i++, number /= 64)
        bits->level[i][number / 64] |= 1ull << (number % 64);
}

void gp_ranges_bits_remove(struct gp_bits *bits, uint32_t number)
{
    for (unsigned i = 0; i < bits->levels; i++, number /= 64) {
        bits->level[i][number / 64] &= ~(1ull << (number % 64));
        if (bits->level[i][number / 64])
            return;
    }
}

/* Goes up until a word has a bit on the wanted side, then down along the nearest bits. */
uint32_t gp_ranges_bits_next(const struct gp_bits *bits, uint32_t from)
{
    uint64_t at = from;
    if (from >= bits->count)
        return GP_BITS_NONE;
    for (unsigned i = 0; i < bits->levels; i++) {
        uint64_t word = bits->level[i][at / 64] & (~0ull << (at % 64));
        if (word) {
            at = at / 64 * 64 + (unsigned)__builtin_ctzll(word);
            while (i-- > 0)
                at = at * 64 + (unsigned)__builtin_ctzll(bits->level[i][at]);
            return (uint32_t)at;
        }
        at = at / 64 + 1;
        if (i + 1 < bits->levels && at >= (uint64_t)(bits->level[i + 1] - bits->level[i]))
            return GP_BITS_NONE;
    }
    return GP_BITS_NONE;
}

uint32_t gp_ranges_bits_before(const struct gp_bits *bits, uint32_t from)
{
    uint64_t at = from < bits->count ? from : bits->count - 1;
    if (!bits->count)
        return GP_BITS_NONE;
    for (unsigned i = 0; i < bits->levels; i++) {
        uint64_t word = bits->level[i][at / 64] & (~0ull >> (63 - at % 64));
        if (word) {
            at = at / 64 * 64 + 63 - (unsigned)__builtin_clzll(word);
            while (i-- > 0)
                at = at * 64 + 63 - (unsigned)__builtin_clzll(bits->level[i][at]);
            return (uint32_t)at;
        }
        if (at / 64 == 0)
            return GP_BITS_NONE;
        at = at / 64 - 1;
    }
    return GP_BITS_NONE;
}
