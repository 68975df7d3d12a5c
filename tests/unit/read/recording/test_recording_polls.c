/* SPDX-License-Identifier: MIT
 *
 * test_recording_polls.c: what polls of pools and graphs have read, as memory in the flow (tools/read/recording/polls.c): for
 * random programs, whose polls take time, no peak is above what was held at once, and none below what a poll proves.
 */
#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <base/numbers.h>
#include <criterion/criterion.h>
#include <gpuprof/wire.h>
#include <lib/recmake.h>
#include <read/recording/internal.h>
#include <read/recording/recording.h>
#include <stdlib.h>
#include <string.h>

#define MIB  (1ll << 20)
#define ROOM 16

static struct recmake *make;
static uint64_t now_ns;
static int64_t blocks[ROOM]; /* of the program, 0: none; at 2 MiB x (index + 1) */
static int64_t own, used, held, used_high, told_high, truth[2], proved[2];
static bool with_graphs;

static uint64_t draws;

static unsigned draw_to(unsigned count)
{
    draws = draws * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)((draws >> 33) % count);
}

static void look(void)
{
    truth[0] = own + used > truth[0] ? own + used : truth[0];
    truth[1] = own + held > truth[1] ? own + held : truth[1];
    used_high = used > used_high ? used : used_high;
}

static void program_step(void)
{
    unsigned at = draw_to(ROOM);
    recmake_at(make, now_ns += 1 + draw_to(3));
    if (draw_to(3) == 0) { /* what only polls see */
        held = (int64_t)draw_to(9) * 32 * MIB;
        used = with_graphs && held ? (int64_t)draw_to((unsigned)(held / MIB + 1)) * MIB : 0;
    } else if (blocks[at]) {
        recmake_free(make, 0, GP_KIND_LINEAR, (at + 1ull) << 21);
        own -= blocks[at];
        blocks[at] = 0;
    } else {
        blocks[at] = (1 + (int64_t)draw_to(64)) * MIB;
        recmake_alloc(make, 0, GP_KIND_LINEAR, (at + 1ull) << 21, (uint64_t)blocks[at], 0);
        own += blocks[at];
    }
    look();
}

static void event(uint8_t type, uint8_t kind, uint64_t address, int64_t bytes)
{
    recmake_event(
        make,
        &(struct gp_rec_event){
            .time_ns = now_ns, .type = type & 15, .kind = kind & 15, .address = address, .bytes = (uint64_t)bytes});
}

static void poll(void)
{
    int64_t low = own, read_used = used, read_held = held, rose = 0;
    unsigned steps = draw_to(4), when = draw_to(steps + 1);
    event(GP_EVENT_SEGMENT_UNMAP, GP_KIND_POOL, 0, 0);
    for (unsigned i = 0; i <= steps; i++) {
        if (i == when) {
            read_used = used, read_held = held;
            rose = used_high > told_high ? used_high : 0;
            told_high = used_high;
        }
        if (i < steps)
            program_step();
        low = own < low ? own : low;
    }
    if (with_graphs && rose)
        event(GP_EVENT_SEGMENT_MAP, GP_KIND_GRAPH, GP_POLL_ROSE, rose);
    if (with_graphs)
        event(GP_EVENT_SEGMENT_MAP, GP_KIND_GRAPH, 0, read_used);
    event(GP_EVENT_SEGMENT_MAP, GP_KIND_POOL, 0, read_held);
    proved[0] = low + read_used > proved[0] ? low + read_used : proved[0];
    proved[0] = rose > proved[0] ? rose : proved[0];
    proved[1] = low + read_held > proved[1] ? low + read_held : proved[1];
}

static struct gp_recording *program(unsigned seed)
{
    make = recmake_new(1ll << 40);
    now_ns = 1000000000;
    draws = seed;
    memset(blocks, 0, sizeof(blocks));
    own = used = held = used_high = told_high = truth[0] = truth[1] = proved[0] = proved[1] = 0;
    with_graphs = seed % 2;
    for (unsigned i = 10 + draw_to(200); i > 0; i--)
        draw_to(6) == 0 ? poll() : program_step();
    if (seed % 3)
        poll();
    struct gp_recording *recording = recmake_done(make);
    cr_assert_eq(gp_read_polls(recording), 0);
    free(recording->peer);
    recording->peer = malloc((recording->event_count + 1) * sizeof(*recording->peer));
    cr_assert_eq(gp_recording_match(recording), 0);
    return recording;
}

Test(recording_polls, no_peak_is_above_what_was_held_nor_below_what_is_proved)
{
    for (unsigned seed = 1; seed <= 2000; seed++) {
        struct gp_recording *recording = program(seed);
        struct gp_flow *flow = gp_flow_new(recording);
        struct gp_flow_walk walk = gp_flow_begin(flow);
        struct gp_flow_change change;
        struct gp_level level = {0};
        const struct gp_flow_polled none = gp_flow_polled_begin(flow, 0);
        int64_t peaks[2] = {0};
        uint64_t time_ns = 0;
        while (gp_flow_next(&walk, &change)) {
            gp_level_apply(&level, &change);
            int64_t reserved = gp_flow_polled_reserved(&none, &level);
            peaks[0] = level.allocated > peaks[0] ? level.allocated : peaks[0];
            peaks[1] = reserved > peaks[1] ? reserved : peaks[1];
            cr_assert_geq(change.time_ns, time_ns, "program %u: the order", seed);
            time_ns = change.time_ns;
        }
        for (int i = 0; i < 2; i++)
            cr_assert(peaks[i] <= truth[i] && peaks[i] >= proved[i], "program %u, %s: a peak of %lld, of %lld to %lld",
                      seed, i ? "reserved" : "allocated", (long long)peaks[i], (long long)proved[i],
                      (long long)truth[i]);
        gp_flow_free(flow);
        gp_recording_free(recording);
    }
}

/* Own memory, then a graph's 64 MiB at a poll, which stay. */
Test(recording_polls, memory_of_graphs_is_allocated_and_a_part_of_the_peak)
{
    make = recmake_new(1ll << 40);
    uint32_t site =
        recmake_site(make, GP_KIND_GRAPH, (const struct recmake_frame[]){{"f", "a.py", 1}, {NULL, NULL, 0}});
    now_ns = 1000000000;
    recmake_at(make, now_ns);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 1 << 21, 10 * MIB, 0);
    recmake_alloc(make, 0, GP_KIND_GRAPH, 1ull << 40, 64 * MIB, site);
    for (int i = 0; i < 3; i++) {
        event(GP_EVENT_SEGMENT_UNMAP, GP_KIND_POOL, 0, 0);
        event(GP_EVENT_SEGMENT_MAP, GP_KIND_GRAPH, 0, 64 * MIB);
        event(GP_EVENT_SEGMENT_MAP, GP_KIND_POOL, 0, 96 * MIB);
        now_ns += 100000000;
    }
    struct gp_recording *recording = recmake_done(make);
    cr_assert_eq(gp_read_polls(recording), 0);
    cr_expect(recording->polled);
    cr_assert_eq(recording->event_count, 2 + 2, "equal readings are one piece of memory");
    free(recording->peer);
    recording->peer = malloc((recording->event_count + 1) * sizeof(*recording->peer));
    cr_assert_eq(gp_recording_match(recording), 0);
    struct gp_flow *flow = gp_flow_new(recording);
    struct gp_peak *peak = gp_flow_peak(flow, 0, 0);
    cr_assert_eq(peak->bytes, 74 * MIB);
    cr_assert_eq(peak->count, 2);
    cr_expect_eq(peak->parts[0].site, site, "all nodes have this site");
    cr_expect_eq(peak->parts[0].bytes, 64 * MIB);
    struct gp_bill *bill = gp_flow_bill(flow, 0);
    int64_t sum = 0;
    for (uint32_t i = 0; i < bill->count; i++)
        sum += bill->rows[i].bytes > 0 && strcmp(bill->rows[i].what, "rounding by the driver") != 0
                   ? bill->rows[i].bytes
                   : 0;
    cr_expect_eq(sum, 106 * MIB, "the bill adds up to %lld", (long long)sum);
    free(bill);
    free(peak);
    gp_flow_free(flow);
    gp_recording_free(recording);
}
