/* SPDX-License-Identifier: MIT
 *
 * span.c: see span.h. A treap (Seidel and Aragon, Algorithmica 1996): a search tree by address,
 * shaped by random priorities, so that no order of insertions makes it deep.
 */
#include "base/span.h"
#include "base/kept.h"
#include <string.h>

#define SPAN_CHUNK (64u << 10) /* a system call for each 1000 spans */

struct gp_span *gp_span_in(const struct gp_span_set *set, uint64_t address, uint64_t bytes)
{
    struct gp_span *lowest = NULL, *at = set->root;
    /* The spans are disjoint, so their ends rise with their addresses. */
    while (at) {
        bool above = at->address + at->bytes > address;
        if (above)
            lowest = at;
        at = above ? at->left : at->right;
    }
    /* Both differences are below the sizes, so nothing can wrap. */
    return lowest && (lowest->address <= address || lowest->address - address < bytes) ? lowest : NULL;
}

struct gp_span *gp_span_at(const struct gp_span_set *set, uint64_t address)
{
    struct gp_span *at = set->root;
    while (at && at->address != address)
        at = address < at->address ? at->left : at->right;
    return at;
}

static uint32_t span_priority(uint64_t address)
{
    /* Fibonacci hashing: addresses are not random, but these products are random enough. */
    return (uint32_t)((address >> 4) * 0x9e3779b97f4a7c15ull >> 32);
}

static bool span_more(struct gp_span_set *set)
{
    struct gp_span *chunk = gp_kept_map(SPAN_CHUNK, 0);
    if (!chunk)
        return false;
    for (unsigned i = 0; i < SPAN_CHUNK / sizeof(*chunk); i++) {
        chunk[i].left = set->unused;
        set->unused = &chunk[i];
    }
    return true;
}

/* Splits the tree: everything below the address goes to *low, the rest to *high. */
static void span_split(struct gp_span *tree, uint64_t address, struct gp_span **low, struct gp_span **high)
{
    while (tree) {
        if (tree->address < address) {
            *low = tree;
            low = &tree->right;
            tree = tree->right;
        } else {
            *high = tree;
            high = &tree->left;
            tree = tree->left;
        }
    }
    *low = *high = NULL;
}

struct gp_span *gp_span_put(struct gp_span_set *set, uint64_t address, uint64_t bytes)
{
    if ((set->limit && set->count >= set->limit) || (!set->unused && !span_more(set)))
        return NULL;
    struct gp_span *span = set->unused, **place = &set->root;
    set->unused = span->left;
    memset(span, 0, sizeof(*span));
    span->address = address;
    span->bytes = bytes;
    span->priority = span_priority(address);
    while (*place && (*place)->priority >= span->priority)
        place = (*place)->address < address ? &(*place)->right : &(*place)->left;
    span_split(*place, address, &span->left, &span->right);
    *place = span;
    set->count++;
    return span;
}

void gp_span_drop(struct gp_span_set *set, struct gp_span *span)
{
    struct gp_span **place = &set->root;
    while (*place != span)
        place = (*place)->address < span->address ? &(*place)->right : &(*place)->left;
    struct gp_span *low = span->left, *high = span->right;
    while (low && high) {
        if (low->priority >= high->priority) {
            *place = low;
            place = &low->right;
            low = low->right;
        } else {
            *place = high;
            place = &high->left;
            high = high->left;
        }
    }
    *place = low ? low : high;
    span->left = set->unused;
    set->unused = span;
    set->count--;
}
