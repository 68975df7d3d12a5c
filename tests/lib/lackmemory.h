/* SPDX-License-Identifier: MIT
 *
 * lackmemory.h: the C library's allocator for one test program, which includes this file in one source: it counts the
 * blocks that are held, and fails where a test wants it.  Only the thread that asks for a failure sees it.
 */
#ifndef GP_TEST_LIB_LACKMEMORY_H
#define GP_TEST_LIB_LACKMEMORY_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define MEMORY_NEVER 0u

static long memory_blocks;                  /* that this program holds */
static _Thread_local unsigned memory_fails; /* so many allocations from now one fails; MEMORY_NEVER */
static _Thread_local bool memory_failed;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which have an allocator of their own */
#define MEMORY_IS_COUNTED true

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void __libc_free(void *block);

static bool memory_lacks(void)
{
    if (memory_fails == MEMORY_NEVER || --memory_fails != 0)
        return false;
    memory_failed = true;
    errno = ENOMEM;
    return true;
}

static void *memory_counted(void *block)
{
    __atomic_fetch_add(&memory_blocks, block != NULL, __ATOMIC_RELAXED);
    return block;
}

void *malloc(size_t bytes)
{
    return memory_lacks() ? NULL : memory_counted(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes)
{
    return memory_lacks() ? NULL : memory_counted(__libc_calloc(count, bytes));
}

void *realloc(void *block, size_t bytes)
{
    if (memory_lacks())
        return NULL;
    void *again = __libc_realloc(block, bytes);
    __atomic_fetch_add(&memory_blocks, (block == NULL) - (again == NULL), __ATOMIC_RELAXED);
    return again;
}

void free(void *block)
{
    __atomic_fetch_sub(&memory_blocks, block != NULL, __ATOMIC_RELAXED);
    __libc_free(block);
}

#else
#define MEMORY_IS_COUNTED false
#endif

static inline long memory_held(void)
{
    return __atomic_load_n(&memory_blocks, __ATOMIC_RELAXED);
}

struct memory_tried {
    unsigned calls; /* allocations that were made to fail, one at a time */
    unsigned none;  /* of them: act returned 0, as it had another way */
    unsigned wrong; /* of them: act returned neither 0 nor -ENOMEM; or not 0 in the end, without a failure */
    unsigned kept;  /* times when act did not give back all blocks */
};

/* Calls act(arg) with its first allocation failing, then with its second, until none fails any more. */
static inline struct memory_tried memory_each(int (*act)(void *arg), void *arg)
{
    struct memory_tried tried = {0};
    do {
        long before = memory_held();
        memory_failed = false;
        memory_fails = MEMORY_IS_COUNTED ? tried.calls + 1 : MEMORY_NEVER;
        int rc = act(arg);
        memory_fails = MEMORY_NEVER;
        tried.calls += memory_failed;
        tried.none += memory_failed && rc == 0;
        tried.wrong += rc != 0 && !(memory_failed && rc == -ENOMEM);
        tried.kept += memory_held() != before;
    } while (memory_failed);
    return tried;
}

#endif
