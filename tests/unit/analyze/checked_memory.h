/* SPDX-License-Identifier: MIT
 * checked_memory.h: an allocator of memory that takes the C library's place in a test program.  It counts the blocks that
 * are held, fails once when it is told to, and ends the program if something was written behind a block.  New blocks
 * and freed ones are filled with garbage.  The sanitizers have an allocator of their own. */
#ifndef GP_TEST_UNIT_CHECKED_MEMORY_H
#define GP_TEST_UNIT_CHECKED_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static __attribute__((unused)) long memory_held; /* blocks */
static __attribute__((unused)) __thread long memory_after =
    -1; /* this thread's call after so many more fails; -1: none does */
static __attribute__((unused)) __thread bool memory_failed; /* it did */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define MEMORY_CHECKED 1
#define MEMORY_MAGIC   0x6370726f66676d65ull
#define MEMORY_GUARD   16u
#define MEMORY_FILL    4096u /* at most so much is filled */

struct memory_head {
    uint64_t bytes, magic;
};

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void __libc_free(void *block);

static bool memory_out(void)
{
    if (memory_after < 0 || memory_after-- > 0)
        return false;
    memory_failed = true;
    return true;
}

static void memory_fill(void *block, int byte, size_t bytes)
{
    memset(block, byte, bytes < MEMORY_FILL ? bytes : MEMORY_FILL);
}

/* NULL: the C library's own, which came another way. */
static struct memory_head *memory_of(void *block)
{
    struct memory_head *head = (struct memory_head *)block - 1;
    if (head->magic != MEMORY_MAGIC)
        return NULL;
    const unsigned char *guard = (const unsigned char *)block + head->bytes;
    for (unsigned i = 0; i < MEMORY_GUARD; i++) {
        if (guard[i] != 0xa5) {
            fprintf(stderr, "written behind a block of %llu bytes\n", (unsigned long long)head->bytes);
            abort();
        }
    }
    return head;
}

/* Large blocks of zeros are taken as such, because their pages are mostly not touched. */
static void *memory_new(size_t bytes, bool zeros)
{
    struct memory_head *head = NULL;
    size_t all = bytes + sizeof(*head) + MEMORY_GUARD;
    if (!memory_out() && bytes < SIZE_MAX / 2)
        head = zeros ? __libc_calloc(1, all) : __libc_malloc(all);
    if (!head)
        return NULL;
    *head = (struct memory_head){bytes, MEMORY_MAGIC};
    if (!zeros)
        memory_fill(head + 1, 0xcd, bytes);
    memset((char *)(head + 1) + bytes, 0xa5, MEMORY_GUARD);
    __atomic_fetch_add(&memory_held, 1, __ATOMIC_RELAXED);
    return head + 1;
}

void *malloc(size_t bytes)
{
    return memory_new(bytes, false);
}

void free(void *block)
{
    struct memory_head *head = block ? memory_of(block) : NULL;
    if (head) {
        memory_fill(block, 0xdd, head->bytes);
        head->magic = 0;
        __atomic_fetch_sub(&memory_held, 1, __ATOMIC_RELAXED);
    }
    __libc_free(head ? head : block);
}

void *calloc(size_t count, size_t bytes)
{
    size_t sum;
    return __builtin_mul_overflow(count, bytes, &sum) ? NULL : memory_new(sum, true);
}

void *realloc(void *block, size_t bytes)
{
    struct memory_head *head = block ? memory_of(block) : NULL;
    if (block && !head)
        return __libc_realloc(block, bytes);
    void *again = malloc(bytes);
    if (again && head) {
        memcpy(again, block, head->bytes < bytes ? head->bytes : bytes);
        free(block);
    }
    return again;
}
#else
#define MEMORY_CHECKED 0
#endif

#endif
