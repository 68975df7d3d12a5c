/* SPDX-License-Identifier: MIT
 *
 * reader_base.h: what the tortures of the readers of events share: the product's event.c with what it stands on, a ring,
 * and rounds. In a round the writers work; a reader comes, does what `record -p` does (it announces itself, opens the
 * ring, takes the time and walks), and goes again when the writers rest. An oracle says what a step, a walk and an event
 * are, and whether the walk with the events gives exactly the blocks that live.
 */
#ifndef GP_TEST_TORTURE_READER_BASE_H
#define GP_TEST_TORTURE_READER_BASE_H

#include "../../src/account/event.c"
#include "account/feed/failed.h"
#include "account/feed/feed.h"
#include "account/feed/start.h"
#include "account/framework.h"
#include "account/internal.h"
#include "account/oomfacts.h"

#include "base/compiler.h"
#include "lib/random.h"
#include "record/ringread.h"
#include "torture/yield.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNKS = 1024, WRITERS = 3 };

struct gp_accounts gp_accounts;
__thread struct gp_thread gp_thread;
uint32_t gp_site_modes;

static struct gp_ring ring;
static struct gp_wire_chunk *chunks;
static uint64_t lost[GP_LOSTS];
static uint32_t x_listened, x_go, x_stop, x_begun, x_resting;
static uint64_t reader_events, reader_walked, reader_wrong;
static const uint16_t unarmed;
static __thread uint64_t reader_state;

static uint64_t reader_random(void)
{
    if (!reader_state) {
        uint64_t own = (uint64_t)(uintptr_t)&reader_state;
        __asm__("" : "+r"(own)); /* framework_oracle.h: else GCC 14 does not link */
        reader_state = own;
    }
    return random_mix(&reader_state);
}

void gp_testpoint(const char *name)
{
    (void)name;
    if (reader_random() % 32 == 0)
        torture_yield();
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
void gp_oom_capture(const char *api, uint64_t asked_bytes, int device, uint32_t site, int failures)
{
    (void)api;
    (void)asked_bytes;
    (void)device;
    (void)site;
    (void)failures;
}
bool gp_framework_failed(int device, enum gp_wire_kind kind)
{
    (void)kind;
    return device < 0;
}
void gp_framework_history_begin(struct gp_framework *framework)
{
    framework->history_broken = true;
}
uint32_t gp_framework_history_alloc(struct gp_framework *framework, uint64_t bytes)
{
    return framework->history_broken || !bytes ? 0 : 1;
}
void gp_framework_history_free(struct gp_framework *framework, uint32_t number)
{
    framework->history_broken |= number == 0;
}
void gp_framework_gave_back(struct gp_framework *framework)
{
    framework->history_broken = true;
}
void gp_framework_look_at_survivors(struct gp_framework *framework, int device)
{
    framework->history_broken = device >= 0;
}
uint32_t gp_framework_context(const struct gp_framework *framework, uint64_t *context)
{
    *context = framework->x_context;
    return framework->x_ctx;
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

/* ---- what an oracle defines ------------------------------------------------------------------------------------------ */

static unsigned reader_most(void); /* steps of a writer in a round: no more events than the ring can hold */
static void reader_begin(void);
static void reader_step(unsigned writer);
static void reader_forget(void);         /* at the start of a round */
static void reader_walk(uint64_t begin); /* learns what lives */
static void reader_take(const struct gp_wire_event *event, uint64_t begin);
static bool reader_is_right(void);

/* ---- rounds ---------------------------------------------------------------------------------------------------------- */

static void *reader_write(void *arg)
{
    unsigned writer = (unsigned)(uintptr_t)arg;
    gp_thread.tid = gp_thread.number = writer + 1;
    for (uint32_t round = 0; !__atomic_load_n(&x_stop, __ATOMIC_RELAXED);) {
        uint32_t go = __atomic_load_n(&x_go, __ATOMIC_ACQUIRE);
        if (go % 2 == 0 || go == round) {
            torture_yield();
            continue;
        }
        round = go;
        __atomic_fetch_add(&x_begun, 1, __ATOMIC_RELEASE);
        for (unsigned i = 0; i < reader_most() && __atomic_load_n(&x_go, __ATOMIC_RELAXED) == go; i++)
            reader_step(writer);
        __atomic_fetch_add(&x_resting, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void reader_await(uint32_t *x_count)
{
    while (__atomic_load_n(x_count, __ATOMIC_ACQUIRE) != WRITERS)
        torture_yield();
    __atomic_store_n(x_count, 0, __ATOMIC_RELAXED);
}

static void reader_round(void)
{
    const struct gp_wire_event *events;
    struct gp_ringread *reader;
    struct gp_ringread_stats stats;
    reader_forget();
    __atomic_fetch_add(&x_go, 1, __ATOMIC_RELEASE);
    reader_await(&x_begun);
    for (uint64_t i = reader_random() % 64; i > 0; i--)
        torture_yield();
    __atomic_store_n(&x_listened, 1, __ATOMIC_RELEASE); /* as listen_begin */
    if (gp_ringread_new(&reader, reader_copy, chunks, CHUNKS, GP_RINGREAD_NOW) != 0)
        exit(1);
    uint64_t begin = gp_clock_ns();
    reader_walk(begin);
    for (uint64_t i = reader_random() % 16; i > 0; i--)
        torture_yield();
    __atomic_fetch_add(&x_go, 1, __ATOMIC_RELEASE);
    reader_await(&x_resting);
    ssize_t count = gp_ringread_poll(reader, UINT64_MAX, &events);
    for (ssize_t i = 0; i < count; i++)
        reader_take(&events[i], begin);
    gp_ringread_stats(reader, &stats);
    reader_events += (uint64_t)count;
    if (count < 0 || stats.overwritten || stats.damaged)
        exit(1);
    reader_wrong += !reader_is_right();
    gp_ringread_free(reader);
    __atomic_store_n(&x_listened, 0, __ATOMIC_RELEASE);
}

static unsigned reader_rounds(uint64_t end, unsigned least, bool until_wrong)
{
    pthread_t threads[WRITERS];
    unsigned rounds = 0;
    reader_begin_ring();
    reader_begin();
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_create(&threads[i], NULL, reader_write, (void *)(uintptr_t)i);
    for (; rounds < least || (gp_clock_ns() < end && !(until_wrong && reader_wrong)); rounds++)
        reader_round();
    __atomic_store_n(&x_stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    return rounds;
}

/* ---- main ------------------------------------------------------------------------------------------------------------ */

static inline int reader_main(const char *name, int argc, char **argv)
{
    uint64_t seconds = argc > 1 ? strtoull(argv[1], NULL, 0) : 8;
    unsigned rounds = reader_rounds(gp_clock_ns() + seconds * 1000000000ull, 20, false);
    bool passed = !reader_wrong && reader_events && reader_walked && !lost[GP_LOST_MISSED_FREE] && !lost[GP_LOST_RING];
    printf("%s: %u rounds, %llu events, %llu blocks in walks; %llu rounds wrong\n", name, rounds,
           (unsigned long long)reader_events, (unsigned long long)reader_walked, (unsigned long long)reader_wrong);
    printf("%u passed, %u failed\n", passed, !passed);
    return !passed;
}

static inline int reader_mutant_main(const char *name, int argc, char **argv)
{
    uint64_t seconds = argc > 1 ? strtoull(argv[1], NULL, 0) : 60; /* it ends when caught */
    unsigned rounds = reader_rounds(gp_clock_ns() + seconds * 1000000000ull, 1, true);
    printf("%s: %s in round %u\n%u passed, %u failed\n", name, reader_wrong ? "caught" : "not caught", rounds,
           reader_wrong != 0, !reader_wrong);
    return !reader_wrong;
}

#endif
