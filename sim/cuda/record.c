/* SPDX-License-Identifier: MIT
 * Memory records: every range of addresses that the driver knows, in a treap by base.
 * Called with the lock held by every file that makes or looks up memory.  Owns no bytes itself. */
#include "sim.h"

static struct sim_memory *sim_root;
static uint64_t sim_memory_id;

/* Heap order by a scrambled id (the finaliser of splitmix64): random enough for balance, and
 * repeatable. */
static uint64_t sim_priority(const struct sim_memory *memory)
{
    uint64_t x = memory->id * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* All of `tree` below `base` goes to *left, the rest to *right. */
static void sim_tree_split(struct sim_memory *tree, CUdeviceptr base, struct sim_memory **left,
                           struct sim_memory **right)
{
    while (tree) {
        if (tree->base < base) {
            *left = tree;
            left = &tree->right;
            tree = tree->right;
        } else {
            *right = tree;
            right = &tree->left;
            tree = tree->left;
        }
    }
    *left = *right = NULL;
}

static struct sim_memory *sim_tree_merge(struct sim_memory *left, struct sim_memory *right)
{
    struct sim_memory *root, **at = &root;
    while (left && right) {
        if (sim_priority(left) > sim_priority(right)) {
            *at = left;
            at = &left->right;
            left = left->right;
        } else {
            *at = right;
            at = &right->left;
            right = right->left;
        }
    }
    *at = left ? left : right;
    return root;
}

void sim_memory_insert(struct sim_memory *memory, struct sim_context *context)
{
    memory->id = ++sim_memory_id;
    struct sim_memory **at = &sim_root;
    uint64_t priority = sim_priority(memory);
    while (*at && sim_priority(*at) >= priority)
        at = memory->base < (*at)->base ? &(*at)->left : &(*at)->right;
    sim_tree_split(*at, memory->base, &memory->left, &memory->right);
    *at = memory;
    memory->link = NULL;
    memory->next = NULL;
    memory->context_uid = context ? context->uid : 0;
    if (context) {
        memory->next = context->memory;
        memory->link = &context->memory;
        if (memory->next)
            memory->next->link = &memory->next;
        context->memory = memory;
    }
    sim_hazard_born(memory);
}

void sim_memory_remove(struct sim_memory *memory)
{
    sim_hazard_dying(memory);
    struct sim_memory **at = &sim_root;
    while (*at != memory)
        at = memory->base < (*at)->base ? &(*at)->left : &(*at)->right;
    *at = sim_tree_merge(memory->left, memory->right);
    if (memory->link) {
        *memory->link = memory->next;
        if (memory->next)
            memory->next->link = memory->link;
    }
}

struct sim_memory *sim_memory_find(CUdeviceptr address)
{
    struct sim_memory *best = NULL;
    for (struct sim_memory *at = sim_root; at;) {
        if (at->base <= address) {
            best = at;
            at = at->right;
        } else {
            at = at->left;
        }
    }
    return best && address - best->base < best->size ? best : NULL;
}

struct sim_memory *sim_memory_next(CUdeviceptr address)
{
    struct sim_memory *best = NULL;
    for (struct sim_memory *at = sim_root; at;) {
        if (at->base >= address) {
            best = at;
            at = at->left;
        } else {
            at = at->right;
        }
    }
    return best;
}

CUresult sim_memory_check(CUdeviceptr address, size_t size, int device, bool write, struct sim_memory **first)
{
    struct sim_memory *memory = sim_memory_find(address);
    if (first)
        *first = memory;
    while (memory) {
        size_t offset = address - memory->base;
        size_t part = memory->size - offset < size ? memory->size - offset : size;
        CUresult result = memory->access ? memory->access(memory, offset, part, device, write) : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS || part == size)
            return result;
        /* Only mappings may be crossed: two allocations that happen to be neighbours are two
         * objects. */
        if (memory->type != SIM_MEMORY_VMM)
            break;
        address += part;
        size -= part;
        memory = sim_memory_find(address);
        if (memory && memory->type != SIM_MEMORY_VMM)
            break;
    }
    return CUDA_ERROR_INVALID_VALUE;
}
