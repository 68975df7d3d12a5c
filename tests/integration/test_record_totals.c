/* SPDX-License-Identifier: MIT
 *
 * test_record_totals.c: what a recording adds up to is what the statistics said, for random programs on one and on
 * several threads (tests/programs/record_walk.c) under every allocator: allocated and reserved bytes of each device, and
 * their peaks since the moment before, at every moment.
 */
#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <criterion/criterion.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/full.h"
#include "lib/paths.h"
#include "lib/spawn.h"

TestSuite(record_totals, .timeout = 900);

#define DEVICES 2
#define BATCH   250 /* programs of one process */

struct walk_options {
    const char *allocator, *settings, *stacks, *memory, *source;
    const char *threads; /* "0": some programs have several */
    bool pools;          /* whose reserved bytes are polled: only allocated ones are compared */
    bool all;            /* graphs too, and contexts; the lines have the ledger's numbers */
};

static char folder[64], file[96];

static void work_begin(void)
{
    snprintf(folder, sizeof(folder), "/tmp/gpuprof-test-totals-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/r.gpuprof", folder);
}

static void work_end(void)
{
    unlink(file);
    rmdir(folder);
}

/* ---- one process ------------------------------------------------------------------------------------------------- */

struct totals {
    long long allocated, allocated_peak, reserved, reserved_peak;
};

/* The recording's totals of each device, along a walk. most: the highest peaks that were said. */
struct derived {
    struct gp_level level[DEVICES];
    struct totals totals[DEVICES], most[DEVICES], truth[DEVICES];
    const struct walk_options *options;
};

static void totals_most(struct totals *most, const struct totals *said)
{
    most->allocated = said->allocated;
    most->reserved = said->reserved;
    if (said->allocated_peak > most->allocated_peak)
        most->allocated_peak = said->allocated_peak;
    if (said->reserved_peak > most->reserved_peak)
        most->reserved_peak = said->reserved_peak;
}

static void derived_apply(struct derived *derived, const struct gp_recording *recording,
                          const struct gp_flow_change *change)
{
    int32_t device =
        change->item->device < recording->device_count ? recording->devices[change->item->device].ordinal : -1;
    if (device < 0 || device >= DEVICES)
        return;
    gp_level_apply(&derived->level[device], change);
    struct totals *totals = &derived->totals[device];
    totals->allocated = derived->level[device].allocated;
    static const struct gp_flow_polled none;
    totals->reserved = derived->options->all ? gp_flow_polled_reserved(&none, &derived->level[device])
                                             : derived->level[device].reserved;
    if (totals->allocated > totals->allocated_peak)
        totals->allocated_peak = totals->allocated;
    if (totals->reserved > totals->reserved_peak)
        totals->reserved_peak = totals->reserved;
}

static void totals_same(const struct totals *said, const struct totals *found, const char *what, unsigned moment,
                        int device)
{
    cr_assert(memcmp(said, found, sizeof(*said)) == 0,
              "%s: moment %u, device %d: the statistics say allocated %lld (peak %lld), reserved %lld (peak %lld); "
              "the recording adds up to %lld (%lld), %lld (%lld)",
              what, moment, device, said->allocated, said->allocated_peak, said->reserved, said->reserved_peak,
              found->allocated, found->allocated_peak, found->reserved, found->reserved_peak);
}

/* Peaks with polled parts are lower bounds (docs/accounting.md), and a recording may know a better one. Without slack the
 * threads' calls in flight would have to end at once: the ledger counts a block a little longer. */
static void totals_bounded(const struct totals *said, const struct totals *found, const struct totals *truth,
                           const char *what, unsigned moment, int device)
{
    struct totals same = *found;
    same.allocated_peak = said->allocated_peak;
    same.reserved_peak = said->reserved_peak;
    totals_same(said, &same, what, moment, device);
    cr_assert(said->allocated == truth->allocated && said->reserved == truth->reserved,
              "%s: moment %u, device %d: the statistics say allocated %lld, reserved %lld; the ledger has %lld, %lld",
              what, moment, device, said->allocated, said->reserved, truth->allocated, truth->reserved);
    cr_assert(said->allocated_peak <= truth->allocated_peak && said->reserved_peak <= truth->reserved_peak,
              "%s: moment %u, device %d: the statistics say peaks of %lld, reserved %lld; the ledger's are %lld, %lld",
              what, moment, device, said->allocated_peak, said->reserved_peak, truth->allocated_peak,
              truth->reserved_peak);
    cr_assert(found->allocated_peak >= said->allocated_peak && found->reserved_peak >= said->reserved_peak,
              "%s: moment %u, device %d: the statistics say peaks of %lld, reserved %lld; the recording has %lld, %lld",
              what, moment, device, said->allocated_peak, said->reserved_peak, found->allocated_peak,
              found->reserved_peak);
}

/* Compares the lines of one moment, at its mark. Returns the rest of the lines. */
static const char *moment_check(const char *lines, unsigned moment, struct derived *derived, const char *what)
{
    unsigned number;
    int device, used;
    struct totals said, truth;
    while (sscanf(lines, "%u %d %lld %lld %lld %lld%n", &number, &device, &said.allocated, &said.allocated_peak,
                  &said.reserved, &said.reserved_peak, &used) == 6 &&
           number == moment) {
        const struct totals *found = &derived->totals[device];
        lines += used;
        totals_most(&derived->most[device], &said);
        if (derived->options->all) {
            cr_assert_eq(sscanf(lines, "%lld %lld %lld %lld%n", &truth.allocated, &truth.allocated_peak,
                                &truth.reserved, &truth.reserved_peak, &used),
                         4);
            lines += used;
            totals_most(&derived->truth[device], &truth);
            totals_bounded(&said, found, &truth, what, moment, device);
            totals_most(&derived->most[device], found);
        } else {
            if (derived->options->pools) {
                said.reserved = found->reserved;
                said.reserved_peak = found->reserved_peak;
            }
            totals_same(&said, found, what, moment, device);
        }
        lines += strspn(lines, "\n");
    }
    for (device = 0; device < DEVICES; device++) {
        derived->totals[device].allocated_peak = derived->totals[device].allocated;
        derived->totals[device].reserved_peak = derived->totals[device].reserved;
    }
    return lines;
}

static bool mark_number(const struct gp_recording *recording, const struct gp_rec_event *event, unsigned *number)
{
    return event->type == GP_EVENT_MARK && sscanf(recording->strings + event->bytes, "moment %u", number) == 1;
}

static void series_check(struct gp_series *series, long long peak, long long last, const char *what)
{
    int64_t high = 0;
    for (uint32_t i = 0; i < series->count; i++)
        high = series->points[i].high > high ? series->points[i].high : high;
    cr_assert_eq(high, peak, "%s: the series has a peak of %lld instead of %lld", what, (long long)high, peak);
    cr_assert_eq(series->points[series->count - 1].last, last, "%s: the end of the series", what);
    free(series);
}

static void bill_check(struct gp_bill *bill, long long peak, const char *what)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < bill->count; i++)
        if (bill->rows[i].bytes > 0 && strcmp(bill->rows[i].what, "rounding by the driver") != 0)
            sum += bill->rows[i].bytes;
    cr_assert_eq(sum, peak, "%s: the bill adds up to %lld instead of %lld", what, (long long)sum, peak);
    free(bill);
}

static void map_check(struct gp_segments *map, long long allocated, const char *what)
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < map->block_count; i++)
        if (map->blocks[i].state == GP_BLOCK_LIVE &&
            (map->blocks[i].kind != GP_KIND_VMM || map->blocks[i].requested_bytes))
            sum += (int64_t)map->blocks[i].bytes;
    cr_assert_eq(sum, allocated, "%s: the segment map has %lld allocated instead of %lld", what, (long long)sum,
                 allocated);
    free(map);
}

/* The analyses of the whole recording. */
static void analyses_check(const struct gp_flow *flow, const struct derived *derived, const char *what)
{
    for (uint32_t d = 0; d < flow->recording->device_count; d++) {
        int32_t device = flow->recording->devices[d].ordinal;
        if (device < 0 || device >= DEVICES)
            continue;
        const struct totals *most = &derived->most[device], *truth = &derived->truth[device];
        cr_assert(!derived->options->all ||
                      (most->allocated_peak <= truth->allocated_peak && most->reserved_peak <= truth->reserved_peak),
                  "%s: device %d: the recording has peaks of %lld, reserved %lld; the ledger's are %lld, %lld", what,
                  device, most->allocated_peak, most->reserved_peak, truth->allocated_peak, truth->reserved_peak);
        struct gp_peak *peak = gp_flow_peak(flow, d, 0);
        cr_assert_eq(peak->bytes, most->allocated_peak, "%s: peak", what);
        free(peak);
        static const uint32_t points[] = {200, 1u << 20};
        for (unsigned i = 0; i < 2; i++) {
            series_check(gp_flow_allocated(flow, d, GP_KIND_NONE, points[i]), most->allocated_peak, most->allocated,
                         what);
            if (!derived->options->pools)
                series_check(gp_flow_reserved(flow, d, points[i]), most->reserved_peak, most->reserved, what);
        }
        if (!derived->options->pools)
            bill_check(gp_flow_bill(flow, d), most->reserved_peak, what);
        map_check(gp_flow_segments(flow, d, 0), most->allocated, what);
        struct gp_fragmentation *fragmentation = gp_flow_fragmentation(flow, d, 50);
        const struct gp_fragment_point *end = &fragmentation->points[fragmentation->count - 1];
        cr_assert_eq(end->allocated_bytes, most->allocated, "%s: fragmentation at the end", what);
        if (!derived->options->pools)
            cr_assert_eq(end->reserved_bytes, most->reserved, "%s: fragmentation at the end", what);
        free(fragmentation);
    }
}

static unsigned totals_check(const struct gp_recording *recording, const char *lines,
                             const struct walk_options *options, const char *what)
{
    struct gp_flow *flow = gp_flow_new(recording);
    cr_assert_not_null(flow);
    struct gp_flow_walk walk = gp_flow_begin(flow);
    struct gp_flow_change change;
    struct derived derived = {.options = options};
    unsigned moments = 0, number;
    bool more = gp_flow_next(&walk, &change);
    for (size_t i = 0; i < recording->event_count; i++) {
        for (; more && (change.event == GP_REC_NONE || change.event <= i); more = gp_flow_next(&walk, &change))
            derived_apply(&derived, recording, &change);
        if (mark_number(recording, &recording->events[i], &number)) {
            cr_assert_eq(number, moments, "%s: mark %u instead of %u", what, number, moments);
            lines = moment_check(lines, moments++, &derived, what);
        }
    }
    cr_expect_eq(*lines, '\0', "%s: lines without a mark: %.40s", what, lines);
    analyses_check(flow, &derived, what);
    gp_flow_free(flow);
    return moments;
}

/* Returns the number of moments. */
static unsigned walk_check(const struct walk_options *options, unsigned first, unsigned count)
{
    char sim[64], allocator[64], settings[96], record[128], stacks[32], source[48], from[16], many[16], what[128],
        why[256];
    snprintf(sim, sizeof(sim), "--sim=devices=2,memory=%s", options->memory);
    snprintf(allocator, sizeof(allocator), "--allocator=%s", options->allocator);
    snprintf(settings, sizeof(settings), "--alloc-conf=%s", options->settings ? options->settings : "");
    unlink(file); /* of an earlier turn */
    snprintf(record, sizeof(record), "--record=%s", file);
    snprintf(stacks, sizeof(stacks), "--stacks=%s", options->stacks);
    snprintf(source, sizeof(source), "GPUPROF_SOURCE=%s", options->source ? options->source : "");
    snprintf(from, sizeof(from), "%u", first);
    snprintf(many, sizeof(many), "%u", count);
    snprintf(what, sizeof(what), "%s%s%s, stacks %s, memory %s, source %s, from program %u", options->allocator,
             options->settings ? " " : "", options->settings ? options->settings : "", options->stacks, options->memory,
             options->source ? options->source : "any", first);
    const char *argv[16] = {path_command(), "run", sim, record, stacks, allocator};
    unsigned args = 6;
    if (options->settings)
        argv[args++] = settings;
    const char *const program[] = {"--",
                                   path_program("record_walk"),
                                   from,
                                   many,
                                   options->threads,
                                   options->all     ? "all"
                                   : options->pools ? "pools"
                                                    : NULL};
    for (unsigned i = 0; i < sizeof(program) / sizeof(program[0]); i++)
        argv[args++] = program[i];
    const char *env[] = {options->source ? source : NULL, NULL};
    struct spawn_result result;
    cr_assert_eq(spawn_run(&(struct spawn_options){.argv = argv, .env = env}, &result), 0);
    cr_assert(!result.is_timed_out && result.status == 0, "%s: %s: %s", what, spawn_status_text(&result), result.err);
    struct gp_recording *recording = NULL;
    cr_assert_eq(gp_recording_open(&recording, file, why, sizeof(why), NULL, NULL), 0, "%s: %s", what, why);
    cr_assert(recording->complete && recording->from_start);
    cr_assert_eq(recording->dropped, 0, "%s: %lu events lost", what, (unsigned long)recording->dropped);
    unsigned moments = totals_check(recording, result.out, options, what);
    gp_recording_free(recording);
    spawn_result_free(&result);
    return moments;
}

/* ---- all ---------------------------------------------------------------------------------------------------------- */

static void programs_check(const struct walk_options *options, unsigned first, unsigned count)
{
    work_begin();
    for (unsigned at = first; at < first + count; at += BATCH) {
        unsigned left = first + count - at;
        cr_expect_geq(walk_check(options, at, left < BATCH ? left : BATCH), left < BATCH ? left : BATCH);
    }
    work_end();
}

#define TOTALS_TEST(_name, ...)                                                                                        \
    Test(record_totals, _name)                                                                                         \
    {                                                                                                                  \
        const struct walk_options options = {__VA_ARGS__};                                                             \
        programs_check(&options, 0, test_is_full() ? 1000 : 30);                                                       \
    }

TOTALS_TEST(plain, "off", .stacks = "off", .memory = "1GiB", .threads = "0")
TOTALS_TEST(pools, "off", .stacks = "native", .memory = "1GiB", .threads = "0", .pools = true)
TOTALS_TEST(hooks, "off", .stacks = "native", .memory = "1GiB", .threads = "0", .source = "hooks")
TOTALS_TEST(all, "off", .stacks = "off", .memory = "1GiB", .threads = "4", .source = "cupti", .all = true)
TOTALS_TEST(all_hooks, "off", .stacks = "off", .memory = "1GiB", .threads = "4", .source = "hooks", .all = true)
TOTALS_TEST(caching, "caching", .stacks = "off", .memory = "512MiB", .threads = "0")
TOTALS_TEST(caching_stacks, "caching", .stacks = "native", .memory = "1GiB", .threads = "0")
TOTALS_TEST(caching_growable, "caching", "expandable_segments:True", .stacks = "off", .memory = "512MiB",
            .threads = "0")
TOTALS_TEST(pytorch, "pytorch", .stacks = "native", .memory = "512MiB", .threads = "0")
TOTALS_TEST(pytorch_growable, "pytorch", "expandable_segments:True", .stacks = "off", .memory = "512MiB",
            .threads = "0")
TOTALS_TEST(auto_growth, "auto_growth", .stacks = "native", .memory = "512MiB", .threads = "0")
TOTALS_TEST(prealloc, "prealloc", .stacks = "native", .memory = "1GiB", .threads = "0")
TOTALS_TEST(passthrough, "passthrough", .stacks = "off", .memory = "512MiB", .threads = "0")
