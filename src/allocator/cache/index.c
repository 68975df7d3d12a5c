/* SPDX-License-Identifier: MIT
 *
 * index.c: blocks by size and address, in a treap (Seidel and Aragon, Algorithmica 1996): a search
 * tree shaped by random priorities, so that no order of sizes makes it deep. Runs under the cache's
 * lock.
 */
#include "allocator/cache/internal.h"

static bool block_less(const struct gp_block *block, uint64_t bytes, uint64_t address)
{
    return block->bytes < bytes || (block->bytes == bytes && block->address < address);
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

static uint32_t index_priority(uint64_t address)
{
    /* Fibonacci hashing: addresses are not random, but these products are random enough. */
    return (uint32_t)((address >> 8) * 0x9e3779b97f4a7c15ull >> 32);
}

void gp_index_put(struct gp_index *index, struct gp_block *block)
{
    struct gp_block **place = &index->root;
    block->priority = index_priority(block->address);
    while (*place && (*place)->priority >= block->priority)
        place = block_less(*place, block->bytes, block->address) ? &(*place)->right : &(*place)->left;
    index_split(*place, block->bytes, block->address, &block->left, &block->right);
    *place = block;
    index->count++;
}

static struct gp_block *index_join(struct gp_block *low, struct gp_block *high)
{
    struct gp_block *root = NULL, **place = &root;
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
    return root;
}

void gp_index_take(struct gp_index *index, struct gp_block *block)
{
    struct gp_block **place = &index->root;
    while (*place != block)
        place = block_less(*place, block->bytes, block->address) ? &(*place)->right : &(*place)->left;
    *place = index_join(block->left, block->right);
    block->left = block->right = NULL;
    index->count--;
}

struct gp_block *gp_index_fit(const struct gp_index *index, uint64_t bytes)
{
    struct gp_block *best = NULL, *at = index->root;
    while (at) {
        if (at->bytes >= bytes) {
            best = at;
            at = at->left;
        } else {
            at = at->right;
        }
    }
    return best;
}

struct gp_block *gp_index_largest(const struct gp_index *index)
{
    struct gp_block *at = index->root;
    while (at && at->right)
        at = at->right;
    return at;
}
