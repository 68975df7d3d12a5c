/* SPDX-License-Identifier: MIT
 *
 * test_batching.c: when batches of events are sent, what they have, and which events count as lost (src/session/batch.c):
 * the listener's semaphore and the clock are the test's, and a batch is read where batch.c leaves it.
 */
#include "session/batch.h"
#include "session/session.h"
#include "session_fixture.h"

TestSuite(batching, .timeout = 60);

#define MS      (SECOND / 1000)
#define CHUNKS  4u
#define ROOM    (CHUNKS * GP_RING_EVENTS)
#define FOREVER UINT64_MAX

static uint64_t turn, made;
static uint32_t used;

/* As a thread of the program does it (feed.h). */
static void event_at(uint64_t time_ns)
{
    gp_batch_coming(time_ns);
    if (!turn || used == GP_RING_EVENTS) {
        struct gp_wire_chunk *taken = &test_session.chunks[turn++ % test_session.chunk_count];
        taken->written_before += GP_CHUNK_COUNT(taken->state);
        taken->state = GP_CHUNK_STATE(turn, 0, used = 0);
    }
    struct gp_wire_chunk *chunk = &test_session.chunks[(turn - 1) % test_session.chunk_count];
    chunk->events[used] = (struct gp_wire_event){.seq = (turn - 1) * GP_RING_EVENTS + used,
                                                 .time_ns = time_ns,
                                                 .address = ++made,
                                                 .type = GP_EVENT_ALLOC,
                                                 .kind = GP_KIND_LINEAR};
    chunk->state = GP_CHUNK_STATE(turn, 0, ++used);
    test_events++;
    gp_batch_heard();
}

static void events(unsigned count)
{
    while (count--)
        event_at(test_now);
}

static void row(unsigned index, int64_t allocated_high, int64_t reserved_high, bool named)
{
    test_present[index] = true;
    test_rows[index] =
        (struct gp_batch_device){.flags = named ? GP_DEVICE_IDENTIFIED | GP_DEVICE_PRESENT : GP_DEVICE_PRESENT,
                                 .allocated_high_bytes = allocated_high,
                                 .reserved_high_bytes = reserved_high,
                                 .asleep_high_bytes = allocated_high + 1};
}

static bool highs_are(int64_t allocated, int64_t reserved)
{
    const struct gp_batch_device *is = &test_batch->devices[0];
    return is->allocated_high_bytes == allocated && is->reserved_high_bytes == reserved &&
           is->asleep_high_bytes == allocated + 1;
}

/* A session with a small ring and one device; no viewer listens. */
static void begin(void)
{
    struct gp_session_hooks hooks = test_hooks();
    test_open(&hooks);
    memset(test_present, 0, sizeof(test_present));
    test_session.chunk_count = CHUNKS;
    row(0, 100, 200, true);
}

static void listeners(uint16_t count)
{
    gpuprof_batch_semaphore = count;
}

/* What the last batch is: its number, events, losses and flags. */
#define EXPECT_BATCH(_seq, _events, _lost, _flags)                                                                     \
    do {                                                                                                               \
        cr_expect_eq(test_batch->seq, _seq, "batch %lu", test_batch->seq);                                             \
        cr_expect_eq(test_batch->bytes, offsetof(struct gp_batch, events) + (_events) * sizeof(struct gp_wire_event),  \
                     "%u bytes", test_batch->bytes);                                                                   \
        cr_expect_eq(test_batch->lost, _lost, "%lu lost", test_batch->lost);                                           \
        cr_expect_eq(test_batch->flags, _flags);                                                                       \
        cr_expect_eq(test_batch->time_ns, test_now);                                                                   \
        cr_expect(test_batch->device_count == 0 && test_batch->event_count == 0);                                      \
    } while (0)

Test(batching, without_a_listener)
{
    begin();
    cr_expect_eq(gp_batch_work(), FOREVER);
    events(10);
    cr_expect_eq(test_session.mailbox->doorbell, 1); /* the events were noted, and no viewer was there */
    cr_expect_eq(gp_batch_work(), FOREVER);
    gp_batch_tell();
    cr_expect_null(test_batch);
    cr_expect_eq(test_watched, 0);
    gp_batch_last();
    cr_expect_null(test_batch);
}

/* From the first event to the sleep, and what wakes the thread. */
Test(batching, from_an_event_to_silence)
{
    begin();
    listeners(1);
    cr_expect_eq(gp_batch_work(), FOREVER, "no event has rung");
    test_now += MS;
    uint32_t bell = test_session.mailbox->doorbell;
    test_wakes = 0;
    event_at(test_now);
    cr_expect(test_session.mailbox->doorbell == bell + 1 && test_wakes == 1 &&
              test_woken == &test_session.mailbox->doorbell);
    events(2);
    cr_expect(test_session.mailbox->doorbell == bell + 1 && test_wakes == 1, "it is awake");
    cr_expect_eq(gp_batch_work(), 4 * MS);
    EXPECT_BATCH(1, 3, 0, 0);
    cr_expect(test_batch->magic == GP_BATCH_MAGIC && test_batch->abi == GP_BATCH_ABI);
    cr_expect_arr_eq(test_batch->session_id, test_session.header->session_id, 16);
    cr_expect(test_batch->events[0].address == 1 && test_batch->events[2].address == 3);
    cr_expect_eq(test_watched, 1);
    test_now += 4 * MS;
    cr_expect_eq(gp_batch_work(), 4 * MS, "quiet");
    EXPECT_BATCH(1, 3, 0, 0 * (test_now -= 4 * MS));
    test_now += 4 * MS + 4 * MS;
    events(1);
    cr_expect_eq(test_wakes, 1, "it looks by itself");
    cr_expect_eq(gp_batch_work(), 4 * MS);
    EXPECT_BATCH(2, 1, 0, 0);
    uint64_t last = test_now;
    test_now = last + 95 * MS;
    cr_expect_eq(gp_batch_work(), 4 * MS);
    test_now = last + 96 * MS;
    cr_expect_eq(gp_batch_work(), 4 * MS);
    test_now = last + 97 * MS;
    cr_expect_eq(gp_batch_work(), 3 * MS, "the rest of the silence");
    test_now = last + 100 * MS - 1;
    cr_expect_eq(gp_batch_work(), 1);
    test_now = last + 100 * MS;
    cr_expect_eq(gp_batch_work(), 2 * MS, "it goes to sleep");
    test_now += 2 * MS;
    cr_expect_eq(gp_batch_work(), 10 * SECOND);
    EXPECT_BATCH(3, 0, 0, 0); /* one more round */
    test_now += 10 * SECOND;
    cr_expect_eq(gp_batch_work(), 10 * SECOND, "it looks whether a viewer listens");
    cr_expect_eq(test_batch->seq, 3);
    event_at(test_now);
    cr_expect(test_wakes == 2 && test_session.mailbox->doorbell == bell + 2);
    cr_expect_eq(gp_batch_work(), 4 * MS);
    EXPECT_BATCH(4, 1, 0, 0);
}

/* An event while it goes to sleep. */
Test(batching, an_event_just_before_the_sleep)
{
    begin();
    listeners(1);
    events(1);
    gp_batch_work();
    test_now += 100 * MS;
    cr_expect_eq(gp_batch_work(), 2 * MS);
    events(1);
    cr_expect_eq(test_session.mailbox->doorbell, 2);
    cr_expect_eq(gp_batch_work(), 4 * MS);
    EXPECT_BATCH(2, 1, 0, 0);
}

/* The more events a round finds, the sooner is the next one. */
Test(batching, pauses_depend_on_the_number_of_events)
{
    static const struct {
        unsigned events;
        uint64_t pause;
    } cases[] = {{1, 4 * MS},    {ROOM / 8, 4 * MS}, {ROOM / 8 + 1, MS},
                 {ROOM / 4, MS}, {ROOM / 4 + 1, 0},  {ROOM - 60, 0}};
    begin();
    listeners(1);
    events(1);
    gp_batch_work();
    for (unsigned i = 0; i < 6; i++) {
        test_now += MS;
        events(cases[i].events);
        cr_expect_eq(gp_batch_work(), cases[i].pause, "%u events", cases[i].events);
        EXPECT_BATCH(2 + i, cases[i].events, 0, 0);
    }
}

/* Events later than the round wait for the next one, which comes soon. */
Test(batching, events_of_the_future_are_held)
{
    begin();
    listeners(1);
    events(1);
    gp_batch_work();
    test_now += MS;
    event_at(test_now + 5);
    cr_expect_eq(gp_batch_work(), 4 * MS);
    EXPECT_BATCH(2, 0, 0, 0);
    test_now += 4 * MS;
    cr_expect_eq(gp_batch_work(), 4 * MS, "not silent");
    EXPECT_BATCH(3, 1, 0, 0);
    test_now += 100 * MS;
    cr_expect_eq(gp_batch_work(), 2 * MS);
    events(1);
    test_now -= 1;
    cr_expect_eq(gp_batch_work(), 4 * MS);
    test_now += 1;
    cr_expect_eq(gp_batch_work(), 4 * MS);
    EXPECT_BATCH(5, 1, 0, 0);
}

/* Up to 256 events and eight devices are in a batch. */
Test(batching, batches_have_a_limit)
{
    static const struct {
        unsigned events, batches, rest;
    } cases[] = {{255, 1, 255}, {256, 1, 256}, {257, 2, 1}, {512, 2, 256}, {513, 3, 1}};
    begin();
    test_session.chunk_count = 16;
    listeners(1);
    events(1);
    gp_batch_work();
    for (unsigned i = 0; i < 5; i++) {
        uint64_t seq = test_batch->seq;
        test_now += MS;
        events(cases[i].events);
        gp_batch_work();
        EXPECT_BATCH(seq + cases[i].batches, cases[i].rest, 0, 0);
        cr_expect_eq(test_batch->events[cases[i].rest - 1].address, made);
    }
    static const unsigned devices[] = {7, 8, 9, 16, 17, 64};
    for (unsigned i = 0; i < 6; i++) {
        for (unsigned k = 0; k < devices[i]; k++)
            row(k, 1, 1, true);
        uint64_t seq = test_batch->seq;
        gp_batch_tell();
        cr_expect_eq(test_batch->seq, seq + devices[i] / 8 + 1);
        if (devices[i] % 8)
            cr_expect_eq(test_batch->devices[devices[i] % 8 - 1].device, (int)devices[i] - 1);
    }
}

/* ---- losses ------------------------------------------------------------------------------------------------------ */

Test(batching, events_that_are_lost)
{
    begin();
    events(50);
    gp_batch_work();
    test_now += MS;
    listeners(1);
    events(10);
    gp_batch_work();
    EXPECT_BATCH(1, 10, 0, 0); /* those from before are in no batch */
    test_now += MS;
    events(ROOM + 60);
    gp_batch_work();
    uint64_t lost = test_batch->lost, sent = (test_batch->bytes - offsetof(struct gp_batch, events)) / 64;
    cr_expect_eq(lost + sent, ROOM + 60, "%lu lost, %lu sent", lost, sent);
    cr_expect_gt(lost, 0);
    test_now += MS;
    test_session.header->lost[GP_LOST_RING] += 7; /* found no place in the ring */
    test_events += 7;
    events(1);
    gp_batch_work();
    cr_expect_eq(test_batch->lost, lost + 7);
    test_now += MS;
    events(1);
    test_session.chunks[(turn - 1) % CHUNKS].events[used - 1].type = GP_EVENT_TYPES; /* damaged */
    gp_batch_work();
    cr_expect_eq(test_batch->lost, lost + 8);
}

/* The last listener goes and another one comes: what happened between them is lost to neither. */
Test(batching, listeners_come_and_go)
{
    begin();
    listeners(1);
    events(3);
    gp_batch_work();
    test_session.header->lost[GP_LOST_RING] += 2;
    test_events += 2;
    test_now += MS;
    events(1);
    gp_batch_work();
    EXPECT_BATCH(2, 1, 2, 0);
    listeners(0);
    test_now += MS;
    events(5);
    cr_expect_eq(gp_batch_work(), FOREVER);
    cr_expect_eq(test_watched, 0);
    cr_expect_eq(gp_batch_work(), FOREVER);
    events(10);
    test_session.header->lost[GP_LOST_RING] += 9;
    test_events += 9;
    gp_batch_work();
    test_now += MS;
    listeners(2);
    events(4);
    cr_expect_eq(gp_batch_work(), 4 * MS);
    cr_expect_eq(test_watched, 1);
    cr_expect_eq(test_batch->seq, 3);
    uint64_t sent = (test_batch->bytes - offsetof(struct gp_batch, events)) / 64;
    cr_expect_eq(sent, 4, "%lu", sent);
    cr_expect(test_batch->lost >= 2 && test_batch->lost <= 2 + 5, "%lu", test_batch->lost);
}

/* An event that was stamped before the listener's first, and written later, is not the listener's. */
Test(batching, events_from_before_the_listener)
{
    begin();
    listeners(1);
    test_now += MS;
    event_at(test_now);
    event_at(test_now - 1); /* noted as the first */
    gp_batch_work();
    EXPECT_BATCH(1, 2, 0, 0);
    test_now += MS;
    event_at(test_now - MS - 2);
    event_at(test_now);
    gp_batch_work();
    EXPECT_BATCH(2, 1, 1, 0); /* one of them is from before */
}

static void first_batch(uint32_t chunks, unsigned sent, unsigned lost)
{
    cr_assert_eq(gp_thread_life_start(), 0);
    cr_assert_eq(gp_session_open(&test_session, &(struct gp_session_size){.wide = true}), 0);
    test_now = 100 * SECOND;
    row(0, 1, 1, true);
    gp_batch_start(&test_session);
    test_session.chunk_count = chunks;
    events(5);
    gp_batch_work();
    listeners(1);
    test_now += MS;
    events(5);
    gp_batch_work();
    EXPECT_BATCH(1, sent, lost, 0);
}

/* The ordinary ring is read from its oldest event, a wider one from now on: what made the thread look is lost. */
Test(batching, an_ordinary_ring)
{
    first_batch(512, 5, 0);
}

Test(batching, a_wide_ring)
{
    first_batch(1024, 0, 5);
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

/* The highest values of a device without an identity are sent again until it has one. */
Test(batching, a_device_that_is_not_known_yet)
{
    begin();
    listeners(1);
    row(0, 500, 600, false);
    events(1);
    gp_batch_work();
    cr_expect(highs_are(500, 600));
    row(0, 300, 700, false);
    gp_batch_tell();
    cr_expect(highs_are(500, 700));
    row(0, 400, 100, true);
    gp_batch_tell();
    cr_expect(highs_are(500, 700));
    gp_batch_tell();
    cr_expect(highs_are(400, 100));
    row(0, 900, 900, false);
    gp_batch_tell();
    listeners(0);
    gp_batch_work();
    listeners(1);
    row(0, 5, 6, false);
    events(1);
    gp_batch_work();
    cr_expect(highs_are(5, 6), "a peak from before is not for the next listener");
}

/* While it is not known, the thread asks fifty times before it sleeps. */
Test(batching, it_is_asked_for_again)
{
    begin();
    listeners(1);
    row(0, 5, 6, false);
    events(1);
    gp_batch_work();
    test_now += 100 * MS;
    cr_expect_eq(gp_batch_work(), 2 * MS);
    for (unsigned i = 1; i < 50; i++) {
        cr_expect_eq(gp_batch_work(), 100 * MS, "%u", i);
        cr_expect_eq(test_batch->seq, 1 + i);
    }
    cr_expect_eq(gp_batch_work(), 10 * SECOND);
    cr_expect_eq(test_batch->seq, 51);
    cr_expect_eq(gp_batch_work(), 10 * SECOND);
    cr_expect_eq(test_batch->seq, 51);
    gp_batch_tell(); /* it is asked again after that */
    cr_expect_eq(gp_batch_work(), 100 * MS);
    row(0, 5, 6, true);
    cr_expect_eq(gp_batch_work(), 10 * SECOND);
    cr_expect_eq(test_batch->seq, 54);
    cr_expect_eq(gp_batch_work(), 10 * SECOND);
    cr_expect_eq(test_batch->seq, 54);
}

/* ---- numbers on request, start and end --------------------------------------------------------------------------- */

/* A new listener that asks has the numbers at once, and the thread does not begin to work for it. */
Test(batching, numbers_on_request)
{
    begin();
    listeners(1);
    gp_batch_tell();
    EXPECT_BATCH(1, 0, 0, 0);
    cr_expect_eq(test_watched, 1);
    cr_expect_eq(gp_batch_work(), 10 * SECOND);
    cr_expect_eq(test_batch->seq, 1);
    events(1);
    cr_expect_eq(gp_batch_work(), 4 * MS);
    test_now += 100 * MS;
    gp_batch_work(); /* asleep, and one more round is due */
    gp_batch_tell();
    EXPECT_BATCH(3, 0, 0, 0);
    cr_expect_eq(gp_batch_work(), 10 * SECOND);
    EXPECT_BATCH(4, 0, 0, 0);
}

Test(batching, the_last_batch)
{
    begin();
    listeners(1);
    events(1);
    gp_batch_work();
    test_now += MS;
    event_at(test_now + 1000);
    gp_batch_last();
    EXPECT_BATCH(2, 1, 0, GP_BATCH_LAST); /* with what would have been held */
    gp_batch_tell();
    gp_batch_last();
    cr_expect_eq(test_batch->seq, 2);
    cr_expect_eq(gp_batch_work(), FOREVER);
    cr_expect_eq(test_watched, 0);
    cr_expect_eq(test_batch->seq, 2);
}

/* A listener that is there when the library starts is looked at at once. */
Test(batching, a_listener_from_the_start)
{
    listeners(1);
    begin();
    cr_expect_eq(test_watched, 1);
    cr_expect_eq(gp_batch_work(), 4 * MS);
    EXPECT_BATCH(1, 0, 0, 0);
    listeners(0);
    cr_expect_eq(gp_batch_work(), FOREVER);
    cr_expect_eq(test_watched, 0);
}
