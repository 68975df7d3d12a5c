/* SPDX-License-Identifier: MIT
 *
 * reader_base.h: what the tortures of the readers of events share: the product's event.c with what it stands on, a ring,
 * and the word that tells whether somebody reads.
 */
#ifndef GP_TEST_TORTURE_READER_BASE_H
#define GP_TEST_TORTURE_READER_BASE_H

#include "../../src/account/event.c"

#include "base/testpoint.h"
#include "record/ringread.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNKS = 1024 };

struct gp_accounts gp_accounts;
__thread struct gp_thread gp_thread;
uint32_t gp_site_modes;

static struct gp_ring ring;
static struct gp_wire_chunk *chunks;
static uint64_t lost[GP_LOSTS];
static uint32_t x_listened;
static const uint16_t unarmed;
static __thread uint64_t reader_state;

static uint64_t reader_random(void)
{
    if (!reader_state) {
        uint64_t own = (uint64_t)(uintptr_t)&reader_state;
        __asm__("" : "+r"(own)); /* framework_oracle.h: else GCC 14 does not link */
        reader_state = own;
    }
    uint64_t x = reader_state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    return x ^ x >> 31;
}

void gp_testpoint(const char *name)
{
    (void)name;
    if (reader_random() % 32 == 0)
        sched_yield();
}

/* ---- what the product's files stand on ----------------------------------------------------------------------------- */

void gp_feed_lost(enum gp_wire_lost cause)
{
    __atomic_fetch_add(&lost[cause], 1, __ATOMIC_RELAXED);
}

/* Never called. */
uint32_t gp_site_here(int device, enum gp_wire_kind kind, bool summed)
{
    return (uint32_t)device + (uint32_t)kind + summed;
}
void gp_site_alloc(uint32_t site, uint64_t bytes)
{
    (void)site;
    (void)bytes;
}
void gp_site_free(uint32_t site, uint64_t bytes)
{
    (void)site;
    (void)bytes;
}
uint32_t gp_site_partial;
void gp_site_plain_alloc(unsigned device, uint64_t bytes)
{
    (void)device;
    (void)bytes;
}
void gp_site_plain_free(unsigned device, uint64_t bytes)
{
    (void)device;
    (void)bytes;
}
void gp_oom_capture(const char *api, uint32_t error, uint64_t asked_bytes, int device, uint32_t site)
{
    (void)api;
    (void)error;
    (void)asked_bytes;
    (void)device;
    (void)site;
}
bool gp_framework_failed(int device)
{
    return device < 0;
}
const char *gp_framework_name(void)
{
    return NULL;
}
void gp_feed_oom_context(uint32_t ctx, uint64_t context)
{
    (void)ctx;
    (void)context;
}

/* ---- the ring ------------------------------------------------------------------------------------------------------ */

static int reader_copy(void *arg, void *into, size_t bytes, uint64_t offset)
{
    const uint64_t *from = (const uint64_t *)(const void *)((const char *)arg + offset);
    uint64_t *to = into;
    for (size_t i = 0; i < bytes / sizeof(*to); i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
    return 0;
}

static void reader_begin_ring(void)
{
    chunks =
        mmap(NULL, CHUNKS * sizeof(*chunks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (chunks == MAP_FAILED || gp_ring_init(&ring, chunks, CHUNKS, &lost[GP_LOST_RING]) != 0)
        exit(1);
    gp_accounts.setup = (struct gp_feed_setup){.ring = &ring, .lost = lost, .armed = &unarmed, .listened = &x_listened};
}

#endif
