/* SPDX-License-Identifier: MIT
 * limits.h: what a reader may cost: 1 s of processor time for each megabyte or part of it, and 64 MiB and 8 times the
 * file in memory, as a sanitizer counts it (without one, only the time is checked).  A reader that costs more aborts the
 * fuzz target.  limits_begin() before each call of a reader, limits_end(bytes of the file) behind it. */
#ifndef GP_TEST_FUZZ_LIMITS_H
#define GP_TEST_FUZZ_LIMITS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void *, size_t), void (*)(const volatile void *))
    __attribute__((weak));
size_t __sanitizer_get_allocated_size(const volatile void *) __attribute__((weak));

static struct {
    uint64_t live, most, began_ns; /* bytes that are allocated, and their peak since the start */
    int hooked;
} limits;

static void limits_malloc(const volatile void *at, size_t bytes)
{
    (void)at;
    limits.live += bytes;
    limits.most = limits.live > limits.most ? limits.live : limits.most;
}

static void limits_free(const volatile void *at)
{
    size_t bytes = at ? __sanitizer_get_allocated_size(at) : 0;
    limits.live -= bytes < limits.live ? bytes : limits.live;
}

static uint64_t limits_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline void limits_begin(void)
{
    if (!limits.hooked && __sanitizer_install_malloc_and_free_hooks)
        __sanitizer_install_malloc_and_free_hooks(limits_malloc, limits_free);
    limits.hooked = 1;
    limits.live = limits.most = 0;
    limits.began_ns = limits_now();
}

/* Bytes that are compressed count as what they may become. */
static inline void limits_end(const uint8_t *data, uint64_t bytes)
{
    uint64_t took_ns = limits_now() - limits.began_ns;
    if (bytes > 1 && data[0] == 0x1f && data[1] == 0x8b)
        bytes = (16u << 20) + 128 * bytes;
    if (took_ns > 1000000000 * (1 + bytes / 1000000) || limits.most > (64u << 20) + 8 * bytes) {
        fprintf(stderr, "a file of %llu bytes took %llu ms and %llu bytes of memory\n", (unsigned long long)bytes,
                (unsigned long long)(took_ns / 1000000), (unsigned long long)limits.most);
        abort();
    }
}

#endif
