/* SPDX-License-Identifier: MIT
 *
 * test_context.c: contexts, their memory, modules and streams against a model, after every one of thousands of random
 * calls: the device of each context, the count of contexts, what is held, the events, and which streams capture.
 */
#include "account/feed/block.h"
#include "account/feed/context.h"
#include "account/feed/feed.h"
#include "account/feed/graph.h"
#include "account/feed/start.h"
#include "account/tap.h"
#include "base/thread.h"
#include "lib/accountcheck.h"
#include "lib/accounts.h"
#include "lib/random.h"
#include "record/ringread.h"
#include <criterion/criterion.h>
#include <string.h>

#define GPUS     2
#define CONTEXTS 8
#define BLOCKS   40
#define STREAMS  10
#define CHUNKS   64u

static struct gp_ringread *reader;

static void setup(void)
{
    accounts_start(CHUNKS, (struct gp_feed_setup){.map_limit = 1 << 16});
    reader = accounts_reader(CHUNKS);
    cr_assert(gp_thread_enter());
}

TestSuite(context, .init = setup, .fini = accounts_check, .timeout = 60);

/* ---- the model --------------------------------------------------------------------------------------------------- */

static struct {
    uint32_t number; /* 0: not known */
    int device;
    bool is_counted;
} contexts[CONTEXTS]; /* some share a place in the table of contexts */
static struct {
    bool live, heard, module;
    unsigned context; /* CONTEXTS: of none, so it survives all of them */
    int device;
    uint64_t bytes;
} blocks[BLOCKS];
static struct {
    bool live;
    unsigned capture;
    uint32_t context;
} streams[STREAMS];
static int64_t count[GPUS], ended[GPUS], ended_heard[GPUS];

static void listen(const char *what)
{
    const struct gp_wire_event *event;
    ssize_t got = gp_ringread_poll(reader, UINT64_MAX, &event);
    for (; got > 0; got--, event++) {
        uint64_t at = event->address & 0xfff;
        if (event->type == GP_EVENT_CONTEXT_DESTROYED) {
            ended_heard[event->device]++;
            continue;
        }
        cr_assert(at < BLOCKS && (event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_FREE), "%s", what);
        cr_assert_eq(blocks[at].heard, event->type == GP_EVENT_FREE, "%s: block %u twice", what, (unsigned)at);
        cr_assert(event->bytes == blocks[at].bytes && event->requested_bytes == blocks[at].bytes &&
                      event->stream == 0 && event->device == blocks[at].device &&
                      event->kind == (blocks[at].module ? GP_KIND_MODULE : GP_KIND_LINEAR),
                  "%s: block %u", what, (unsigned)at);
        blocks[at].heard = event->type == GP_EVENT_ALLOC;
    }
}

static void check(const char *what)
{
    int64_t held[GPUS][2] = {{0}};
    listen(what);
    for (unsigned i = 0; i < BLOCKS; i++) {
        cr_assert_eq(blocks[i].heard, blocks[i].live, "%s: block %u in events", what, i);
        if (blocks[i].live)
            held[blocks[i].device][blocks[i].module] += (int64_t)blocks[i].bytes;
    }
    for (int device = 0; device < GPUS; device++) {
        struct gp_wire_device is;
        cr_assert_eq(ended_heard[device], ended[device], "%s: ends of contexts", what);
        if (!gp_tap_device((unsigned)device, &is))
            continue;
        cr_assert_eq(is.kinds[GP_KIND_LINEAR].current_bytes, held[device][0], "%s: device %d", what, device);
        cr_assert_eq(is.kinds[GP_KIND_MODULE].current_bytes, held[device][1], "%s: device %d", what, device);
        cr_assert_eq(is.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current, held[device][0], "%s", what);
        cr_assert_eq(is.kinds[GP_KIND_CONTEXT].live, count[device], "%s: contexts of device %d", what, device);
    }
    for (unsigned i = 0; i < CONTEXTS; i++)
        if (contexts[i].number)
            cr_assert_eq(gp_feed_context_device(contexts[i].number), contexts[i].device, "%s: context %u", what, i);
    for (uint64_t i = 0; i < STREAMS; i++) {
        cr_assert_eq(gp_feed_stream_is_capturing(0x900 + i), streams[i].live && streams[i].capture, "%s", what);
        cr_assert_eq(gp_feed_stream_device(0x900 + i),
                     streams[i].live ? gp_feed_context_device(streams[i].context) : GP_DEVICE_UNKNOWN, "%s", what);
    }
    cr_assert_eq(lost[GP_LOST_MAP], 0);
}

/* ---- random calls ------------------------------------------------------------------------------------------------ */

static void context_call(unsigned i)
{
    static uint32_t next = 7;
    int device = (int)draw_below(GPUS);
    if (!contexts[i].number) {
        next += i % 2 ? 1024 : 1; /* the same place again */
        contexts[i].number = next;
        contexts[i].device = device;
        bool learned = draw_below(4) == 0;
        if (learned)
            gp_feed_context_learned(next, device);
        else
            gp_feed_context_created(next, device);
        contexts[i].is_counted = !learned;
        count[device] += !learned;
        check("a context");
        return;
    }
    uint32_t number = contexts[i].number;
    device = contexts[i].device;
    bool announced = draw_below(2);
    gp_feed_context_destroyed(number, device, announced);
    contexts[i].number = 0;
    for (unsigned j = 0; j < BLOCKS; j++)
        blocks[j].live = blocks[j].live && blocks[j].context != i;
    count[device] -= contexts[i].is_counted;
    ended[device] += contexts[i].is_counted || announced;
    check("the end of a context");
    gp_feed_context_destroyed(number, device, false); /* already known */
    gp_feed_context_destroyed(number, GP_DEVICE_UNKNOWN, true);
    gp_feed_context_destroyed(0, device, true);
    check("the end of no context");
    cr_assert_eq(gp_feed_context_device(number), GP_DEVICE_UNKNOWN);
}

static void block_call(unsigned i)
{
    uint64_t address = 0x70000 + i;
    if (blocks[i].live) {
        bool ok = draw_below(4);
        if (blocks[i].module) {
            gp_feed_module_unloaded((uint32_t)address);
            blocks[i].live = false;
        } else {
            uint32_t token = gp_feed_free_begin(GP_SPACE_DEVICE, address);
            cr_assert(token);
            gp_feed_free_end(token, ok, 0);
            blocks[i].live = !ok;
        }
        check("a free");
        return;
    }
    unsigned context = draw_below(CONTEXTS + 1);
    if (context < CONTEXTS && !contexts[context].number)
        return;
    blocks[i].live = true;
    blocks[i].context = context;
    blocks[i].module = context < CONTEXTS && draw_below(3) == 0;
    blocks[i].device = context < CONTEXTS ? contexts[context].device : (int)draw_below(GPUS);
    blocks[i].bytes = 512 + draw_below(5000);
    uint32_t number = context < CONTEXTS ? contexts[context].number : 0;
    if (blocks[i].module)
        gp_feed_module_loaded((uint32_t)address, blocks[i].bytes, number);
    else
        gp_feed_alloc(&(struct gp_allocation){.space = GP_SPACE_DEVICE,
                                              .kind = GP_KIND_LINEAR,
                                              .device = blocks[i].device,
                                              .ctx = number,
                                              .address = address,
                                              .bytes = blocks[i].bytes,
                                              .requested_bytes = blocks[i].bytes});
    check("memory");
}

static void stream_call(unsigned i)
{
    unsigned what = draw_below(4);
    if (!streams[i].live) {
        streams[i].live = true;
        streams[i].capture = 0;
        streams[i].context = contexts[draw_below(CONTEXTS)].number;
        gp_feed_stream_created(0x900 + i, streams[i].context);
    } else if (what == 0) {
        gp_feed_stream_destroyed(0x900 + i);
        streams[i].live = false;
    } else if (what == 1 && !streams[i].capture) {
        streams[i].capture = GP_CAPTURE_NEW + draw_below(3);
        gp_feed_capture_begin(0x900 + i, (enum gp_capture)streams[i].capture);
    } else if (what > 1) {
        gp_feed_capture_end(0x900 + i, draw_below(2));
        streams[i].capture = 0;
    }
    check("a stream");
}

Test(context, thousands_of_random_calls)
{
    gp_feed_primary_context(0, 41);
    for (unsigned turn = 0; turn < 6000; turn++) {
        unsigned what = draw_below(8);
        if (what == 0)
            context_call(draw_below(CONTEXTS));
        else if (what < 5)
            block_call(draw_below(BLOCKS));
        else
            stream_call(draw_below(STREAMS));
        cr_assert_eq(gp_feed_primary_of(0), 41);
    }
    gp_feed_primary_context(1, 42);
    cr_expect(gp_feed_primary_of(0) == 41 && gp_feed_primary_of(1) == 42);
    cr_expect_eq(gp_feed_primary_of(-1), 0);
    cr_expect_eq(gp_feed_context_device(0), GP_DEVICE_UNKNOWN);
    gp_feed_module_loaded(5, 4096, 999999); /* a context that is not known */
    gp_feed_module_unloaded(5);
    gp_feed_context_learned(3, -1);
    check("calls about nothing");
}

/* An allocation is looked for in the graphs only while a graph is captured again. */
Test(context, graphs_that_are_captured_again)
{
    gp_feed_context_created(1, 0);
    gp_feed_stream_created(5, 1);
    gp_feed_stream_created(6, 1);
    gp_feed_graph_node(0x5000, 512, 0, 77, 78);
    cr_assert(gp_feed_graph_knows(0x5000));
    for (unsigned i = 0; i < 4; i++) {
        cr_expect_not(gp_feed_recaptured(0x5000));
        gp_feed_capture_begin(5, GP_CAPTURE_AGAIN);
        cr_expect(gp_feed_recaptured(0x5000));
        cr_expect_not(gp_feed_recaptured(0x6000));
        gp_feed_capture_begin(6, GP_CAPTURE_AGAIN);
        gp_feed_capture_end(6, i % 2);
        cr_expect(gp_feed_recaptured(0x5000));
        if (i < 3)
            gp_feed_capture_end(5, i % 2);
        else
            gp_feed_stream_destroyed(5);
    }
    cr_expect_not(gp_feed_recaptured(0x5000));
    cr_expect(gp_feed_graph_knows(0x5000));
}

/* The graph of a capture that is discarded, or whose stream goes, is gone; one that was handed out is not. */
Test(context, graphs_end_with_their_captures)
{
    for (unsigned way = 0; way < 5; way++) {
        uint64_t address = 0x5000 + way * 4096, graph = 80 + way, stream = 5 + way;
        gp_feed_stream_created(stream, 1);
        gp_feed_capture_begin(stream, way < 3 ? GP_CAPTURE_NEW : GP_CAPTURE_INTO);
        gp_feed_graph_node(address, 512, 0, 70 + way, graph);
        gp_feed_capture_graph(stream, graph);
        if (way == 0)
            gp_feed_capture_end(stream, false);
        else if (way == 1 || way == 3)
            gp_feed_capture_end(stream, true);
        else
            gp_feed_stream_destroyed(stream);
        cr_expect_eq(gp_feed_graph_knows(address), way != 1 && way != 2, "way %u", way);
    }
}
