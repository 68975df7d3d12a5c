/* SPDX-License-Identifier: MIT
 *
 * accounts.h: the accounts of this process, started as a session starts them, with what they write into.
 */
#ifndef GP_TEST_LIB_ACCOUNTS_H
#define GP_TEST_LIB_ACCOUNTS_H

#include "account/feed/block.h"
#include "account/feed/feed.h"
#include "account/feed/framework.h"
#include "account/feed/start.h"
#include "base/ring.h"
#include "base/thread.h"
#include "record/ringread.h"
#include <criterion/criterion.h>
#include <gpuprof/wire.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t lost[GP_LOSTS];
static struct gp_wire_failure failures[GP_WIRE_FAILURES];
static struct gp_wire_chunk *accounts_chunks;

static void accounts_no_poller(void)
{
}

/* With a ring of so many chunks.  SETUP needs a map_limit; what else it leaves out is filled in.  The thread does not
 * enter. */
static inline void accounts_start(uint32_t chunks, struct gp_feed_setup setup)
{
    static struct gp_ring ring;
    size_t bytes = chunks * sizeof(*accounts_chunks);
    accounts_chunks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(accounts_chunks, MAP_FAILED);
    cr_assert_eq(gp_ring_init(&ring, accounts_chunks, chunks, &lost[GP_LOST_RING]), 0);
    cr_assert_eq(gp_thread_life_start(), 0);
    setup.ring = &ring;
    setup.lost = lost;
    setup.failures = failures;
    if (!setup.wake_poller)
        setup.wake_poller = accounts_no_poller;
    cr_assert_eq(gp_feed_start(&setup), 0);
}

static inline int accounts_ring_copy(void *arg, void *into, size_t bytes, uint64_t offset)
{
    (void)arg;
    memcpy(into, (const char *)accounts_chunks + offset, bytes);
    return 0;
}

/* A reader of the ring's events, from the oldest on. */
static inline struct gp_ringread *accounts_reader(uint32_t chunks)
{
    struct gp_ringread *reader;
    cr_assert_eq(gp_ringread_new(&reader, accounts_ring_copy, NULL, chunks, GP_RINGREAD_OLDEST), 0);
    return reader;
}

/* How many events came since the last call, and of each type. */
static inline unsigned accounts_events(struct gp_ringread *reader, unsigned types[32])
{
    const struct gp_wire_event *event;
    ssize_t got = gp_ringread_poll(reader, UINT64_MAX, &event);
    memset(types, 0, 32 * sizeof(types[0]));
    for (ssize_t i = 0; i < got; i++)
        types[event[i].type]++;
    return got < 0 ? 0 : (unsigned)got;
}

/* The program allocates what it asked for; and linear memory of the first device, which it frees. */
static inline void accounts_block(enum gp_space space, enum gp_wire_kind kind, int device, uint64_t address,
                                  int64_t bytes)
{
    gp_feed_alloc(&(struct gp_allocation){.space = space,
                                          .kind = kind,
                                          .device = device,
                                          .address = address,
                                          .bytes = (uint64_t)bytes,
                                          .requested_bytes = (uint64_t)bytes});
}

static inline void accounts_linear(uint64_t address, int64_t bytes)
{
    accounts_block(GP_SPACE_DEVICE, GP_KIND_LINEAR, 0, address, bytes);
}

static inline void accounts_free(uint64_t address, bool ok)
{
    gp_feed_free_end(gp_feed_free_begin(GP_SPACE_DEVICE, address), ok, 0);
}

/* A framework's block, with totals that it does not tell. */
static inline void accounts_framework_block(uint64_t address, int64_t bytes)
{
    gp_feed_framework_block(
        &(struct gp_framework_event){
            .device = 0, .address = address, .bytes = bytes, .allocated_bytes = -1, .reserved_bytes = -1},
        0);
}

#endif
