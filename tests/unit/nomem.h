/* SPDX-License-Identifier: MIT
 * nomem.h: an allocator of memory that takes the C library's place in a test program, counts the blocks that are held and
 * fails once when it is told to.  The sanitizers have an allocator of their own: then nothing fails. */
#ifndef GP_TEST_UNIT_NOMEM_H
#define GP_TEST_UNIT_NOMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

static long nomem_held;                /* blocks */
static __thread long nomem_after = -1; /* this thread's call after so many more fails; -1: none does */
static __thread bool nomem_failed;     /* it did */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define NOMEM_WORKS 1
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void __libc_free(void *block);

static bool nomem_now(void)
{
    if (nomem_after < 0 || nomem_after-- > 0)
        return false;
    nomem_failed = true;
    return true;
}

static void *nomem_counted(void *block)
{
    __atomic_fetch_add(&nomem_held, block != NULL, __ATOMIC_RELAXED);
    return block;
}

void *malloc(size_t bytes)
{
    return nomem_now() ? NULL : nomem_counted(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes)
{
    return nomem_now() ? NULL : nomem_counted(__libc_calloc(count, bytes));
}

void *realloc(void *block, size_t bytes)
{
    if (nomem_now())
        return NULL;
    void *again = __libc_realloc(block, bytes);
    __atomic_fetch_add(&nomem_held, (block == NULL) - (again == NULL), __ATOMIC_RELAXED);
    return again;
}

void free(void *block)
{
    __atomic_fetch_sub(&nomem_held, block != NULL, __ATOMIC_RELAXED);
    __libc_free(block);
}
#else
#define NOMEM_WORKS 0
#endif

#endif
