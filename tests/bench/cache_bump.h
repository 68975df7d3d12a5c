/* SPDX-License-Identifier: MIT
 * cache_bump.h: a driver that costs nothing, for a cache whose own time or order is of interest. */
#ifndef GP_TEST_BENCH_CACHE_BUMP_H
#define GP_TEST_BENCH_CACHE_BUMP_H

#include "cache/cache.h"

static uint64_t bump_next = 1ull << 40, bump_calls;
#define BUMP_PAGE (2ull << 20)

static uint32_t bump_allocate(void *self, uint64_t bytes, uint64_t *address)
{
    (void)self;
    __atomic_fetch_add(&bump_calls, 1, __ATOMIC_RELAXED);
    *address = __atomic_fetch_add(&bump_next, (bytes + BUMP_PAGE - 1) / BUMP_PAGE * BUMP_PAGE, __ATOMIC_RELAXED);
    return 0;
}

static uint32_t bump_free(void *self, uint64_t address)
{
    (void)self;
    (void)address;
    __atomic_fetch_add(&bump_calls, 1, __ATOMIC_RELAXED);
    return 0;
}

static uint32_t bump_reserve(void *self, uint64_t bytes, uint64_t *address)
{
    return bump_allocate(self, bytes, address);
}

static uint32_t bump_range(void *self, uint64_t address, uint64_t bytes)
{
    (void)bytes;
    return bump_free(self, address);
}

static uint32_t bump_create(void *self, uint64_t bytes, uint64_t *handle)
{
    return bump_allocate(self, bytes, handle);
}

static uint32_t bump_map(void *self, uint64_t address, uint64_t bytes, const uint64_t *handles,
                         const uint64_t *handle_bytes, unsigned count)
{
    (void)bytes;
    (void)handles;
    (void)handle_bytes;
    (void)count;
    return bump_free(self, address);
}

static uint32_t bump_record(void *self, const uint64_t *streams, unsigned count, uint64_t *fence)
{
    (void)self;
    (void)streams;
    (void)count;
    *fence = 1;
    return 0;
}

static uint32_t bump_reached(void *self, uint64_t fence)
{
    (void)self;
    (void)fence;
    return 0;
}

static uint32_t bump_memory(void *self, uint64_t *free_bytes, uint64_t *total_bytes)
{
    (void)self;
    *free_bytes = *total_bytes = 80ull << 30;
    return 0;
}

/* Of struct gp_cache_setup. */
#define BUMP_BACKEND                                                                                                   \
    {                                                                                                                  \
        .page_bytes = BUMP_PAGE, .allocate = bump_allocate, .free = bump_free, .reserve = bump_reserve,                \
        .unreserve = bump_range, .create = bump_create, .destroy = bump_free, .map = bump_map, .unmap = bump_range,    \
        .record = bump_record, .query = bump_reached, .wait = bump_reached, .memory = bump_memory                      \
    }

#endif
