/* SPDX-License-Identifier: MIT
 *
 * reader_oracle.h: a reader of events comes while frameworks allocate and free blocks, walks over the live blocks, and
 * goes again.
 *
 * framework.c and event.c are the product's, over the real map, ring and counters. The reader does what
 * `record -p` does: it announces itself, opens the ring, takes the time and walks. Then the writers stop, and the walk
 * with the events after it must give exactly the blocks that live. A writer owns a device, as under PyTorch's lock.
 */
#ifndef GP_TEST_TORTURE_READER_ORACLE_H
#define GP_TEST_TORTURE_READER_ORACLE_H

#include "torture/reader_base.h"

#include "../../src/account/framework.c"

enum { WRITERS = 3, BLOCKS = 48, MOST = 8000 };

static struct gp_account reader_accounts[WRITERS];
static uint32_t x_go, x_stop, x_begun, x_resting;
static uint8_t x_live[WRITERS][BLOCKS], known[WRITERS][BLOCKS];
static uint64_t reader_events, reader_walked, reader_wrong;

struct gp_account *gp_account_of(int device)
{
    return &reader_accounts[device];
}

struct gp_move gp_account_block_move(const struct gp_record *record)
{
    return (struct gp_move){.bytes = (int64_t)record->bytes};
}

uint64_t gp_account_move(int device, enum gp_counter_op op, const struct gp_move *move)
{
    (void)device;
    (void)op;
    (void)move;
    return 0;
}

/* ---- threads ------------------------------------------------------------------------------------------------------- */

static uint64_t reader_address(unsigned writer, unsigned block)
{
    return ((uint64_t)writer + 1) << 40 | (uint64_t)block << 9;
}

/* Works while a round goes, and no more than the ring can hold. */
static void *reader_write(void *arg)
{
    unsigned writer = (unsigned)(uintptr_t)arg;
    gp_thread.tid = gp_thread.number = writer + 1;
    for (uint32_t round = 0; !__atomic_load_n(&x_stop, __ATOMIC_RELAXED);) {
        uint32_t go = __atomic_load_n(&x_go, __ATOMIC_ACQUIRE);
        if (go % 2 == 0 || go == round) {
            sched_yield();
            continue;
        }
        round = go;
        __atomic_fetch_add(&x_begun, 1, __ATOMIC_RELEASE);
        for (unsigned i = 0; i < MOST && __atomic_load_n(&x_go, __ATOMIC_RELAXED) == go; i++) {
            unsigned block = (unsigned)(reader_random() % BLOCKS);
            uint8_t *live = &x_live[writer][block];
            gp_feed_framework_block(&(struct gp_framework_event){.device = (int)writer,
                                                                 .address = reader_address(writer, block),
                                                                 .bytes = *live ? -512 : 512,
                                                                 .allocated_bytes = -1},
                                    0);
            *live = !*live;
        }
        __atomic_fetch_add(&x_resting, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* ---- a round ------------------------------------------------------------------------------------------------------- */

static void reader_know(uint64_t address, bool is_live)
{
    known[(address >> 40) - 1][address >> 9 & 0xff] = is_live;
}

static void reader_await(uint32_t *x_count)
{
    while (__atomic_load_n(x_count, __ATOMIC_ACQUIRE) != WRITERS)
        sched_yield();
    __atomic_store_n(x_count, 0, __ATOMIC_RELAXED);
}

static bool reader_walk(struct gp_record *record, void *arg)
{
    if (record->time_ns < *(uint64_t *)arg)
        reader_know(record->key, true);
    reader_walked++;
    return false;
}

static void reader_round(void)
{
    const struct gp_wire_event *events;
    struct gp_ringread *reader;
    struct gp_ringread_stats stats;
    memset(known, 0, sizeof(known));
    __atomic_fetch_add(&x_go, 1, __ATOMIC_RELEASE);
    reader_await(&x_begun);
    for (uint64_t i = reader_random() % 64; i > 0; i--)
        sched_yield();
    __atomic_store_n(&x_listened, 1, __ATOMIC_RELEASE); /* as listen_begin */
    if (gp_ringread_new(&reader, reader_copy, chunks, CHUNKS, GP_RINGREAD_NOW) != 0)
        exit(1);
    uint64_t begin = gp_clock_ns();
    gp_map_each(gp_accounts.blocks, reader_walk, &begin);
    for (uint64_t i = reader_random() % 16; i > 0; i--)
        sched_yield();
    __atomic_fetch_add(&x_go, 1, __ATOMIC_RELEASE);
    reader_await(&x_resting);
    ssize_t count = gp_ringread_poll(reader, UINT64_MAX, &events);
    for (ssize_t i = 0; i < count; i++)
        reader_know(events[i].address, events[i].type == GP_EVENT_ALLOC);
    gp_ringread_stats(reader, &stats);
    reader_events += (uint64_t)count;
    if (count < 0 || stats.overwritten || stats.damaged)
        exit(1);
    reader_wrong += memcmp(known, x_live, sizeof(known)) != 0;
    gp_ringread_free(reader);
    __atomic_store_n(&x_listened, 0, __ATOMIC_RELEASE);
}

static void reader_rounds(uint64_t end, unsigned least, bool until_wrong, unsigned *rounds)
{
    pthread_t threads[WRITERS];
    reader_begin_ring();
    if (gp_map_new(&gp_accounts.blocks, 1u << 20) != 0)
        exit(1);
    for (unsigned i = 0; i < WRITERS; i++)
        if (gp_counter_new(&reader_accounts[i].counter, GP_GAUGES, GP_SHARDS) != 0 ||
            gp_counter_new(&reader_accounts[i].owners, GP_OWNER_GAUGES * GP_WIRE_OWNERS, GP_SHARDS) != 0)
            exit(1);
        else
            gp_gauge_block_bundles(reader_accounts[i].counter);
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_create(&threads[i], NULL, reader_write, (void *)(uintptr_t)i);
    for (*rounds = 0; *rounds < least || (gp_clock_ns() < end && !(until_wrong && reader_wrong)); ++*rounds)
        reader_round();
    __atomic_store_n(&x_stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
}

#endif
