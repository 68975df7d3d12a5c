/* SPDX-License-Identifier: MIT
 *
 * index.c: blocks by size and address. Each class of sizes has a treap (Seidel and Aragon, Algorithmica 1996): a search
 * tree shaped by random priorities, so that no order of sizes makes it deep. A walk reads one cache line of each block
 * that it passes. Runs under the cache's lock.
 */
#include "allocator/cache/internal.h"

#define INDEX_STEPS 16u /* classes to a power of two */

void gp_index_open(struct gp_index *index, struct gp_block **roots)
{
    *index = (struct gp_index){.roots = roots};
}

/* Grows with the size; the last class has all sizes from 2^39 on. */
unsigned gp_index_class(uint64_t bytes)
{
    uint64_t units = bytes >> 8; /* of the smallest granule */
    if (units < INDEX_STEPS)
        return (unsigned)units;
    unsigned power = 63 - (unsigned)__builtin_clzll(units) - 4;
    unsigned class = (power + 1) * INDEX_STEPS + (unsigned)(units >> power) % INDEX_STEPS;
    return class < GP_INDEX_CLASSES ? class : GP_INDEX_CLASSES - 1;
}

static bool block_less(const struct gp_block *block, uint64_t bytes, uint64_t address)
{
    return block->bytes < bytes || (block->bytes == bytes && gp_block_at(block) < address);
}

/* Splits the tree: everything below (bytes, address) goes to *low, the rest to *high. */
static void index_split(struct gp_block *tree, uint64_t bytes, uint64_t address, struct gp_block **low,
                        struct gp_block **high)
{
    while (tree) {
        if (block_less(tree, bytes, address)) {
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

static uint32_t block_priority(const struct gp_block *block)
{
    /* Fibonacci hashing: addresses are not random, but these products are random enough. */
    return (uint32_t)((gp_block_at(block) >> 8) * 0x9e3779b97f4a7c15ull >> 32);
}

void gp_index_put(struct gp_index *index, struct gp_block *block)
{
    unsigned class = gp_index_class(block->bytes);
    struct gp_block **place = &index->roots[class];
    uint64_t address = gp_block_at(block);
    uint32_t priority = block_priority(block);
    while (*place && block_priority(*place) >= priority)
        place = block_less(*place, block->bytes, address) ? &(*place)->right : &(*place)->left;
    index_split(*place, block->bytes, address, &block->left, &block->right);
    *place = block;
    index->map[class / 64] |= 1ull << class % 64;
    index->count++;
}

static struct gp_block *index_join(struct gp_block *low, struct gp_block *high)
{
    struct gp_block *root = NULL, **place = &root;
    while (low && high) {
        if (block_priority(low) >= block_priority(high)) {
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
    return root;
}

void gp_index_take(struct gp_index *index, struct gp_block *block)
{
    unsigned class = gp_index_class(block->bytes);
    struct gp_block **place = &index->roots[class];
    uint64_t address = gp_block_at(block);
    while (*place != block)
        place = block_less(*place, block->bytes, address) ? &(*place)->right : &(*place)->left;
    *place = index_join(block->left, block->right);
    block->left = block->right = NULL;
    if (!index->roots[class])
        index->map[class / 64] &= ~(1ull << class % 64);
    index->count--;
}

struct gp_block *gp_index_fit(const struct gp_index *index, uint64_t bytes)
{
    struct gp_block *best = NULL;
    unsigned class = gp_index_next(index, gp_index_class(bytes));
    for (; !best && class < GP_INDEX_CLASSES; class = gp_index_next(index, class + 1))
        for (struct gp_block *at = index->roots[class]; at;)
            if (at->bytes >= bytes) {
                best = at;
                at = at->left;
            } else {
                at = at->right;
            }
    return best;
}

struct gp_block *gp_index_largest(const struct gp_index *index)
{
    for (unsigned word = GP_INDEX_CLASSES / 64; word-- > 0;) {
        if (!index->map[word])
            continue;
        struct gp_block *at = index->roots[word * 64 + 63 - (unsigned)__builtin_clzll(index->map[word])];
        while (at->right)
            at = at->right;
        return at;
    }
    return NULL;
}
