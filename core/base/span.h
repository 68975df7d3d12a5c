/* SPDX-License-Identifier: MIT
 *
 * span.h: address ranges that do not overlap, in order. A set is a treap in memory from mmap; nodes
 * never move. The caller has a lock.
 */
#ifndef GP_BASE_SPAN_H
#define GP_BASE_SPAN_H

#include <stdbool.h>
#include <stdint.h>

struct gp_span {
    uint64_t address, bytes;
    uint8_t device, owner; /* the caller's, as the union */
    union {
        struct gp_span_memory { /* of the driver (memory.c) */
            uint32_t heaps;     /* that reach into it */
            uint8_t space, kind, segment;
        } memory;
        struct gp_span_heap {
            uint64_t pieces; /* the memory below it */
            uint8_t door;    /* whose it is */
        } heap;
        struct gp_span_block { /* in a segment with heaps */
            uint64_t pool;     /* of a library, that handed it out; 0: the program told of it */
            bool rest;         /* outside of them */
        } block;
        struct gp_span_claim { /* of a framework (ground.c) */
            uint64_t asleep;   /* bytes with no memory under them */
            uint64_t counted;  /* bytes that count as allocated */
        } claim;
    };
    uint32_t priority;
    struct gp_span *left, *right; /* left of an unused span: the next unused one */
};

struct gp_span_set {
    struct gp_span *root, *unused;
    uint64_t count, limit; /* limit: the most spans, 0 none */
};

/* The lowest span with an address in [address, address + bytes); NULL: none. */
struct gp_span *gp_span_in(const struct gp_span_set *set, uint64_t address, uint64_t bytes);
/* The span that starts at the address; NULL: none. */
struct gp_span *gp_span_at(const struct gp_span_set *set, uint64_t address);
/* Adds a range that overlaps none of the set, with the caller's fields 0. NULL: no memory, or the limit. */
struct gp_span *gp_span_put(struct gp_span_set *set, uint64_t address, uint64_t bytes);
/* Makes a span shorter or longer; it must not reach the next one. */
static inline void gp_span_resize(struct gp_span *span, uint64_t bytes)
{
    span->bytes = bytes;
}
void gp_span_drop(struct gp_span_set *set, struct gp_span *span);

#endif
