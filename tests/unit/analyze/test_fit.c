/* SPDX-License-Identifier: MIT
 * test_fit.c: the replays of `gpuprof fit` by what must hold for every allocator, on random recordings; and what the
 * command says. */
#include <analyze/fit.h>
#include <analyze/flow.h>
#include <lib/recsave.h>

#include <cache/policy.h>
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "train_fixture.h"
#include <unit/cmd/cli.h>

#define PAGE ((int64_t)GP_FIT_PAGE)

static int64_t up(int64_t bytes, int64_t step)
{
    return (bytes + step - 1) / step * step;
}

/* ---- random recordings ------------------------------------------------------------------------------------------- */

#define MOST_LIVE 300
#define SHARED    64 /* pages */

struct walk {
    uint64_t seed;
    unsigned events;
    bool small, large, pools, arrays;
};

static uint64_t walk_bytes(struct walk *walk)
{
    uint64_t any = random_next(&walk->seed);
    if (walk->small && (!walk->large || any % 2))
        return 1 + (any >> 8) % (1 << 20);
    return (1 << 20) + 1 + (any >> 8) % (200u << 20);
}

static uint8_t walk_kind(struct walk *walk)
{
    uint64_t any = random_next(&walk->seed) % 8;
    return walk->pools && any < 2 ? GP_KIND_POOL : walk->arrays && any == 2 ? GP_KIND_ARRAY : GP_KIND_LINEAR;
}

static struct gp_recording *walk_record(struct walk *walk)
{
    struct recmake *make = recmake_new(80 * GIB);
    struct {
        uint64_t address;
        uint8_t kind;
    } live[MOST_LIVE];
    unsigned count = 0;
    uint64_t address = 1ull << 40, now = 1000;
    for (unsigned i = 0; i < walk->events; i++) {
        recmake_at(make, ++now * MS);
        if (count == MOST_LIVE || (count && random_next(&walk->seed) % 100 < 45)) {
            unsigned at = (unsigned)(random_next(&walk->seed) % count);
            recmake_free(make, 0, live[at].kind, live[at].address);
            live[at] = live[--count];
            continue;
        }
        int64_t bytes = (int64_t)walk_bytes(walk);
        live[count].kind = walk_kind(walk);
        /* Small blocks lie side by side in some pages. */
        live[count].address =
            bytes <= 1 << 20 ? (1ull << 30) + i % SHARED * (uint64_t)PAGE + i * 512ull : (address += 1ull << 30);
        recmake_alloc(make, 0, live[count].kind, live[count].address, bytes, 0);
        count++;
    }
    return recmake_done(make);
}

/* ---- no allocator ------------------------------------------------------------------------------------------------- */

/* Blocks of up to 1 MiB share a page: arrays, which have no addresses, with one another, and the others by theirs.
 * Pools are rounded up together. */
Test(fit, without_a_cache_is_the_sum_of_the_drivers_pages)
{
    enum { LINEAR = GP_KIND_LINEAR, ARRAY = GP_KIND_ARRAY, POOL = GP_KIND_POOL };
    static const struct {
        const char *what;
        struct {
            uint8_t kind;
            int64_t address, bytes; /* 0: it is freed */
        } asked[6];
        int64_t pages, failed; /* the most; the request that fails with a page less */
    } rows[] = {
        {"two in a page", {{LINEAR, GIB, 512}, {LINEAR, GIB + MIB, MIB}}, 1, 0},
        {"two in two pages", {{LINEAR, GIB, 512}, {LINEAR, GIB + 2 * MIB, 512}}, 2, 1},
        {"one after the other", {{LINEAR, GIB, 512}, {LINEAR, GIB, 0}, {LINEAR, 2 * GIB, 512}}, 1, 0},
        {"large ones", {{LINEAR, GIB, MIB + 1}, {LINEAR, 2 * GIB, 4 * MIB}, {LINEAR, 3 * GIB, 4 * MIB + 1}}, 6, 2},
        {"a byte over a page", {{LINEAR, GIB, 2 * MIB + 1}}, 2, 0},
        {"arrays", {{ARRAY, 1, MIB}, {ARRAY, 2, MIB - 512}, {ARRAY, 3, 511}, {ARRAY, 4, 1}}, 2, 3},
        {"an array in a gap",
         {{ARRAY, 1, MIB}, {ARRAY, 2, MIB}, {ARRAY, 1, 0}, {ARRAY, 3, 512}, {ARRAY, 4, MIB}},
         2,
         4},
        {"pools", {{POOL, 1, 1}, {POOL, 2, 2 * MIB - 512}, {POOL, 3, 1}, {POOL, 1, 0}, {POOL, 4, 512}}, 2, 2},
        {"a pool that shrinks", {{POOL, 1, 2 * MIB}, {POOL, 1, 0}, {POOL, 2, 2 * MIB - 512}}, 1, 0},
        {"all of them", {{LINEAR, GIB, 512}, {ARRAY, 1, 512}, {POOL, 2, 512}, {LINEAR, 2 * GIB, 3 * MIB}}, 5, 3},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct recmake *make = recmake_new(80 * GIB);
        for (uint64_t k = 0; k < 6 && rows[i].asked[k].kind; k++) {
            const uint64_t address = (uint64_t)rows[i].asked[k].address;
            recmake_at(make, (1001 + k) * MS);
            if (rows[i].asked[k].bytes)
                recmake_alloc(make, 0, rows[i].asked[k].kind, address, (uint64_t)rows[i].asked[k].bytes, 0);
            else
                recmake_free(make, 0, rows[i].asked[k].kind, address);
        }
        struct gp_recording *r = recmake_done(make);
        struct gp_flow *flow = gp_flow_new(r);
        struct gp_fit_trace *trace = gp_fit_trace_new(flow, 0, false);
        const struct gp_fit_setup setup = {.policy = NULL};
        const uint64_t least = (uint64_t)(rows[i].pages * PAGE);
        struct gp_fit_sizes fit;
        struct gp_fit_end end;
        cr_assert_eq(gp_fit_find(trace, &setup, &fit), 0);
        cr_expect_eq(fit.smallest_bytes, least, "%s: %llu pages", rows[i].what,
                     (unsigned long long)fit.smallest_bytes / GP_FIT_PAGE);
        /* A pool takes 32 MiB where there is enough, so the smallest size is searched for. */
        if (trace->pools) {
            cr_expect(fit.enough_bytes >= 32ull << 20 && fit.replays > 1, "%s", rows[i].what);
            cr_expect(fit.fails_bytes + GP_FIT_PAGE == least, "%s", rows[i].what);
        } else {
            cr_expect(fit.enough_bytes == least && fit.replays == 1, "%s", rows[i].what);
            cr_expect_eq(fit.fails_bytes + GP_FIT_PAGE, up((int64_t)trace->load_bytes, PAGE), "%s", rows[i].what);
        }
        cr_assert_eq(gp_fit_play(trace, &setup, least - GP_FIT_PAGE, &end), 0);
        cr_assert_lt(end.failed, trace->count, "%s", rows[i].what);
        cr_expect_eq(trace->ops[end.failed].event, rows[i].failed, "%s: %u", rows[i].what,
                     trace->ops[end.failed].event);
        gp_fit_trace_free(trace);
        gp_flow_free(flow);
        gp_recording_free(r);
    }
}

/* ---- every allocator --------------------------------------------------------------------------------------------- */

static bool plays(const struct gp_fit_trace *trace, const struct gp_fit_setup *setup, uint64_t bytes, uint64_t *peak)
{
    struct gp_fit_end end;
    cr_assert_eq(gp_fit_play(trace, setup, bytes, &end), 0);
    *peak = end.peak;
    return end.failed == trace->count;
}

static void expect_bounds(const struct gp_fit_trace *trace, const struct gp_policy *policy, unsigned round)
{
    const struct gp_fit_setup setup = {.policy = policy, .yields = true};
    struct gp_fit_sizes fit;
    uint64_t peak, at_enough, spare;
    bool fits;
    cr_assert_eq(gp_fit_find(trace, &setup, &fit), 0, "%s", policy->name);
    cr_assert_geq(fit.smallest_bytes, trace->load_bytes, "%s %u", policy->name, round);
    cr_assert_leq(fit.smallest_bytes, fit.enough_bytes, "%s %u", policy->name, round);
    cr_assert_leq(fit.spare_bytes, fit.step_bytes);
    spare = fit.smallest_bytes < fit.enough_bytes ? fit.spare_bytes : 0;
    cr_assert_eq(gp_fit_fits(trace, &setup, fit.smallest_bytes - spare, &fits, &peak, &fit), 0);
    cr_assert(fits, "%s %u", policy->name, round);
    cr_assert_leq(peak, fit.smallest_bytes - spare);
    cr_assert_leq(fit.smallest_bytes - fit.fails_bytes, fit.step_bytes);
    cr_assert_eq(gp_fit_fits(trace, &setup, fit.fails_bytes - fit.spare_bytes, &fits, &peak, &fit), 0);
    cr_assert(!fits, "%s %u", policy->name, round);
    if (policy->first_fraction > 0)
        return;
    /* From there on the limit is never met, so every size gives the same replay. */
    cr_assert(plays(trace, &setup, fit.enough_bytes, &at_enough));
    for (uint64_t more = 1; more <= 3; more++) {
        cr_assert(plays(trace, &setup, fit.enough_bytes + more * 17 * GP_FIT_PAGE, &peak));
        cr_assert_eq(peak, at_enough, "%s %u", policy->name, round);
    }
}

Test(fit, smallest_size_lies_between_the_load_and_the_peak)
{
    for (unsigned round = 0; round < 6; round++) {
        struct walk walk = {round + 11, 1500, true, round % 2, round == 3, round == 5};
        struct gp_recording *r = walk_record(&walk);
        struct gp_flow *flow = gp_flow_new(r);
        struct gp_fit_trace *trace = gp_fit_trace_new(flow, 0, false);
        cr_assert_eq(trace->requests, GP_FIT_OF_DRIVER);
        for (unsigned i = 0; gp_policy_at(i); i++)
            expect_bounds(trace, gp_policy_at(i), round);
        gp_fit_trace_free(trace);
        gp_flow_free(flow);
        gp_recording_free(r);
    }
}

/* ---- rising and falling addresses -------------------------------------------------------------------------------- */

/* Where no replay with falling addresses is made, it would be the same: with every size between what never fits and what
 * is enough.  false: one is made. */
static bool expect_one_way(const struct gp_fit_trace *trace, const struct gp_policy *policy, unsigned round)
{
    struct gp_fit_setup setup = {.policy = policy, .yields = round % 2};
    struct gp_fit_sizes fit, once = {0};
    struct gp_fit_end ends[2];
    bool fits, one = false;
    cr_assert_eq(gp_fit_find(trace, &setup, &fit), 0);
    for (uint64_t i = 0; i <= 8; i++) {
        const uint64_t bytes = trace->load_bytes + (fit.enough_bytes - trace->load_bytes) / 8 * i;
        for (unsigned way = 0; way < 2; way++) {
            setup.downward = way;
            cr_assert_eq(gp_fit_play(trace, &setup, bytes, &ends[way]), 0);
        }
        setup.downward = false;
        once.replays = 0;
        cr_assert_eq(gp_fit_fits(trace, &setup, bytes, &fits, NULL, &once), 0);
        if (once.replays == 1 && (fits || !trace->packs)) {
            cr_expect_eq(ends[0].failed, ends[1].failed, "%s %u", policy->name, round);
            cr_expect_eq(ends[0].peak, ends[1].peak, "%s %u", policy->name, round);
            cr_expect_eq(ends[0].used, ends[1].used, "%s %u", policy->name, round);
        }
        one |= once.replays == 1;
    }
    return one;
}

/* Without the pages that only replays without a cache ask for, the answer is the same. */
static void expect_cached(const struct gp_flow *flow, const struct gp_fit_trace *trace, const struct gp_policy *policy)
{
    const struct gp_fit_setup setup = {.policy = policy};
    struct gp_fit_trace *cached = gp_fit_trace_cached(flow, 0);
    struct gp_fit_sizes fit, other;
    unsigned pages = 0;
    cr_assert_eq(gp_fit_find(trace, &setup, &fit), 0);
    cr_assert_eq(gp_fit_find(cached, &setup, &other), 0);
    cr_assert_eq(cached->count, trace->count);
    for (size_t i = 0; i < trace->count; i++)
        pages += trace->ops[i].pages != cached->ops[i].pages;
    cr_expect(pages > 0 && fit.smallest_bytes == other.smallest_bytes && fit.enough_bytes == other.enough_bytes);
    gp_fit_trace_free(cached);
}

Test(fit, where_no_address_plays_a_part_one_replay_is_enough)
{
    const struct gp_policy *found = gp_policy_find("pytorch");
    struct gp_policy growable = *found;
    char why[256];
    cr_assert_eq(gp_policy_configure(&growable, "expandable_segments:True", why, sizeof(why)), 0);
    growable.whole_pages = true;
    unsigned packs = 0;
    for (unsigned round = 0; round < 8; round++) {
        struct walk walk = {round + 71, 1500, true, round % 4, false, round % 2};
        struct gp_recording *r = walk_record(&walk);
        struct gp_flow *flow = gp_flow_new(r);
        struct gp_fit_trace *trace = gp_fit_trace_new(flow, 0, false);
        packs += trace->packs;
        cr_expect_eq(expect_one_way(trace, found, round), !trace->packs, "%u", round);
        expect_one_way(trace, &growable, round);
        expect_cached(flow, trace, found);
        cr_expect_eq(expect_one_way(trace, gp_policy_find("caching"), round), false, "the lowest of equal blocks");
        gp_fit_trace_free(trace);
        gp_flow_free(flow);
        gp_recording_free(r);
    }
    cr_expect(packs > 0 && packs <= 4, "arrays of a part of a page: %u", packs);
}

/* Two arrays, a gap of the first one's size, and one that fits in the gap alone: first from below, then from above. */
Test(fit, small_driver_allocations_are_packed_both_ways)
{
    static const int64_t halves[] = {MIB, MIB, MIB, 0};
    for (unsigned apart = 0; apart < 2; apart++) {
        struct recmake *make = recmake_new(80 * GIB);
        recmake_at(make, 1001 * MS);
        for (uint64_t i = 0; halves[i]; i++)
            recmake_alloc(make, 0, GP_KIND_ARRAY, i + 1, (uint64_t)halves[i], 0);
        if (apart) { /* half of the first page, and a half in it or in the second one; then one of them is empty or not */
            recmake_free(make, 0, GP_KIND_ARRAY, 1);
            recmake_alloc(make, 0, GP_KIND_ARRAY, 4, MIB, 0);
            recmake_free(make, 0, GP_KIND_ARRAY, 3);
        }
        struct gp_recording *r = recmake_done(make);
        struct gp_flow *flow = gp_flow_new(r);
        struct gp_fit_trace *trace = gp_fit_trace_new(flow, 0, false);
        cr_expect_eq(trace->packs, apart);
        gp_fit_trace_free(trace);
        gp_flow_free(flow);
        gp_recording_free(r);
    }
}

/* ---- a long recording -------------------------------------------------------------------------------------------- */

static struct gp_fit_trace *long_trace(size_t count)
{
    struct gp_fit_trace *trace = calloc(1, sizeof(*trace));
    uint32_t bytes[300] = {0};
    uint64_t load = 0, seed = 1;
    trace->ops = calloc(count, sizeof(*trace->ops));
    for (trace->count = 0; trace->count < count; trace->count++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        uint32_t slot = (uint32_t)(seed >> 33) % 300;
        bool take = !bytes[slot];
        bytes[slot] = take ? 512u << (seed >> 40) % 15 : bytes[slot];
        trace->ops[trace->count] = (struct gp_fit_op){.bytes = bytes[slot],
                                                      .stream = GP_FIT_STREAM_ANY,
                                                      .kind = take ? GP_FIT_TAKE : GP_FIT_GIVE,
                                                      .slot = slot,
                                                      .event = GP_REC_NONE};
        load += take ? bytes[slot] : -(uint64_t)bytes[slot];
        trace->load_bytes = load > trace->load_bytes ? load : trace->load_bytes;
        bytes[slot] = take ? bytes[slot] : 0;
    }
    trace->slots = 300;
    return trace;
}

/* One of ten blocks stays in each segment, so large ones need new segments: all sizes up to nearly twice the load fail. */
static struct gp_fit_trace *rough_trace(size_t count)
{
    enum { SEGMENTS = 50, SMALL = SEGMENTS * 10, LARGE = SEGMENTS * 9 / 10 };
    struct gp_fit_trace *trace = calloc(1, sizeof(*trace));
    trace->ops = calloc(count, sizeof(*trace->ops));
    for (uint32_t i = 0; i < SMALL * 2 + LARGE; i++) {
        bool take = i < SMALL || i >= SMALL * 2;
        if (take || i % 10)
            trace->ops[trace->count++] = (struct gp_fit_op){.bytes = (uint64_t)(i < SMALL * 2 ? 2 * MIB : 20 * MIB),
                                                            .kind = take ? GP_FIT_TAKE : GP_FIT_GIVE,
                                                            .slot = i < SMALL ? i : i - SMALL,
                                                            .event = GP_REC_NONE};
    }
    for (uint32_t i = 0; trace->count < count; i++)
        trace->ops[trace->count++] = (struct gp_fit_op){
            .bytes = 512, .kind = i % 2 ? GP_FIT_GIVE : GP_FIT_TAKE, .slot = 1, .event = GP_REC_NONE};
    trace->load_bytes = (uint64_t)(SEGMENTS * 20 * MIB);
    trace->slots = SMALL + LARGE;
    trace->streams = true;
    return trace;
}

static unsigned long_progress;

static void long_listen(unsigned parts)
{
    long_progress += parts == 0;
}

/* Sizes that fail are replayed in part, and not one after the other. */
static void expect_bisection(struct gp_fit_trace *trace, uint32_t most_replays)
{
    const struct gp_fit_setup setup = {.policy = gp_policy_find("pytorch"), .progress = long_listen};
    struct gp_fit_sizes fit, slow = {0};
    bool fits;
    long_progress = 0;
    cr_assert_eq(gp_fit_find(trace, &setup, &fit), 0);
    cr_expect_eq(long_progress, fit.replays, "no address plays a part");
    cr_expect_leq(fit.replays, most_replays, "%u", fit.replays);
    uint64_t low = (uint64_t)up((int64_t)trace->load_bytes, PAGE) - PAGE, high = fit.enough_bytes;
    cr_assert_gt(high - low, 4 * fit.step_bytes);
    while (high - low > fit.step_bytes) {
        uint64_t middle = low + (uint64_t)up((int64_t)(high - low) / 2, PAGE);
        cr_assert_eq(gp_fit_fits(trace, &setup, middle - fit.spare_bytes, &fits, NULL, &slow), 0);
        *(fits ? &high : &low) = middle;
    }
    cr_expect_eq(fit.smallest_bytes, high);
    cr_expect_eq(fit.fails_bytes, low);
    gp_fit_trace_free(trace);
}

Test(fit, a_long_recording_has_the_answer_of_bisection)
{
    expect_bisection(long_trace((1u << 20) + 5), 12);
    expect_bisection(rough_trace((1u << 20) + 5), 100);
}

/* ---- the whole answer -------------------------------------------------------------------------------------------- */

static void segment(struct recmake *make, bool add, uint64_t address, uint64_t bytes)
{
    recmake_event(make, &(struct gp_rec_event){.time_ns = 1500 * MS,
                                               .address = address,
                                               .bytes = bytes,
                                               .type = add ? GP_EVENT_SEGMENT_ALLOC : GP_EVENT_SEGMENT_FREE,
                                               .kind = GP_KIND_LINEAR,
                                               .device = 0});
}

static struct gp_fit_result judge(const struct gp_recording *r, const struct gp_fit_question *question)
{
    struct gp_flow *flow = gp_flow_new(r);
    struct gp_fit_result result;
    cr_assert_eq(gp_fit_judge(flow, 0, question, &result), 0);
    cr_assert_eq(gp_fit_judge_held(flow, &result), 0);
    gp_flow_free(flow);
    return result;
}

/* Blocks of a framework: a segment of 20 MiB with blocks, one of 64 MiB, and memory beside it. */
static struct gp_recording *framework_that(bool empties)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t a = site(make, "a", 1), b = site(make, "b", 2);
    recmake_at(make, 1500 * MS);
    segment(make, true, 0x10000000, 20 * MIB);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x10000000, 5 * MIB, a);
    segment(make, true, 0x20000000, 64 * MIB);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x20000000, 64 * MIB, b);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x40000000, 30 * MIB, b); /* another library's */
    recmake_at(make, 1600 * MS);
    recmake_free(make, 0, GP_KIND_LINEAR, 0x20000000);
    if (empties)
        segment(make, false, 0x20000000, 64 * MIB);
    segment(make, true, 0x30000000, 100 * MIB);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x30000000, 100 * MIB, b);
    return recmake_done(make);
}

static struct gp_recording *framework(void)
{
    return framework_that(false);
}

Test(fit, a_cache_that_the_program_empties_is_emptied)
{
    struct gp_recording *r = framework_that(true);
    struct gp_fit_result result =
        judge(r, &(struct gp_fit_question){.gpu_bytes = 1ull << 30, .tenants = 1, .context_bytes = 0});
    cr_expect_eq(result.rows[0].peak_bytes, 150 * MIB, "the segment of 64 MiB went back");
    cr_expect_eq(result.rows[0].smallest_bytes, 150 * MIB);
    gp_fit_result_fini(&result);
    gp_recording_free(r);
}

Test(fit, blocks_of_a_framework_go_through_its_allocator)
{
    struct gp_recording *r = framework();
    struct gp_fit_result result =
        judge(r, &(struct gp_fit_question){.gpu_bytes = 1ull << 30, .tenants = 1, .context_bytes = 0});
    cr_assert_eq(result.requests, GP_FIT_OF_FRAMEWORK);
    cr_assert_str_eq(result.rows[0].allocator, "pytorch");
    cr_assert(result.rows[0].fits);
    cr_expect_eq(result.rows[0].peak_bytes, 214 * MIB);
    /* The idle segment of 64 MiB goes back before the one of 100 MiB is taken. */
    cr_expect_eq(result.rows[0].smallest_bytes, 150 * MIB);
    cr_expect_eq(result.unexplained_bytes, 0);
    gp_fit_result_fini(&result);
    result = judge(
        r, &(struct gp_fit_question){.gpu_bytes = 1ull << 30, .tenants = 1, .context_bytes = 0, .allocator = "off"});
    cr_expect_eq(result.rows[0].smallest_bytes, 214 * MIB, "off: its segments stay as they were");
    gp_fit_result_fini(&result);
    gp_recording_free(r);
}

/* Segments that grew are a setting.  Sizes that PyTorch has not are those of an allocator that nothing replays. */
Test(fit, the_allocator_is_told_by_its_name_or_its_sizes)
{
    static const struct {
        const char *recorded; /* gpuprof's allocator, "" the program's own */
        bool grew;
        const char *allocator, *conf;
        unsigned odd; /* from 1, the event whose size is none of PyTorch's: 1 a segment, 2 a block, 5 beside both */
    } rows[] = {{"", false, "pytorch", "", 0},
                {"", true, "pytorch", "expandable_segments:True", 0},
                {"pytorch", false, "pytorch", "", 0},
                {"pytorch", true, "pytorch", "expandable_segments:True", 0},
                {"caching", true, "caching", "", 0},
                {"a newer one", true, "caching", "", 0},
                {"", false, "off", "", 1},
                {"", false, "off", "", 2},
                {"", false, "pytorch", "", 5}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gp_recording *r = framework();
        r->allocator = rows[i].recorded;
        for (size_t k = 0; rows[i].grew && k < r->event_count; k++)
            if (r->events[k].type == GP_EVENT_SEGMENT_ALLOC)
                r->events[k].type = GP_EVENT_SEGMENT_MAP;
        if (rows[i].odd)
            r->events[rows[i].odd - 1].bytes--;
        struct gp_fit_result result =
            judge(r, &(struct gp_fit_question){.gpu_bytes = 1ull << 30, .tenants = 1, .context_bytes = 0});
        cr_expect_str_eq(result.rows[0].allocator, rows[i].allocator, "row %zu", i);
        cr_expect_str_eq(result.rows[0].conf, rows[i].conf, "row %zu", i);
        gp_fit_result_fini(&result);
        gp_recording_free(r);
    }
}

Test(fit, names_the_request_that_fails_and_what_was_held)
{
    struct gp_recording *r = framework();
    struct gp_fit_result result = judge(
        r, &(struct gp_fit_question){.gpu_bytes = 148 * MIB + (64 << 20), .tenants = 1, .context_bytes = 64 << 20});
    cr_assert(!result.rows[0].fits);
    cr_expect_eq(result.context, GP_FIT_GIVEN);
    cr_expect_eq(result.rows[0].smallest_bytes, (150 + 64) * MIB);
    cr_expect_eq(result.asked_bytes, 100 * MIB);
    cr_expect_eq(result.free_bytes, (148 - 50) * MIB);
    cr_expect_eq(result.fails_ns, 1600 * MS);
    cr_expect_eq(r->events[result.event].address, 0x30000000);
    cr_assert_eq(result.held->count, 2, "before the request and after the frees of that instant there is a, b, and b");
    gp_fit_result_fini(&result);
    gp_recording_free(r);
}

Test(fit, tenants_multiply_and_the_context_counts_for_each)
{
    struct gp_recording *r = framework();
    for (uint32_t tenants = 1; tenants < 5; tenants++) {
        struct gp_fit_result result =
            judge(r, &(struct gp_fit_question){
                         .gpu_bytes = 1000 * MIB, .tenants = tenants, .context_bytes = 100 * MIB, .all = true});
        cr_expect_eq(result.rows[0].smallest_bytes, tenants * 250 * MIB);
        cr_expect_eq(result.rows[0].fits, true, "%u tenants", tenants);
        cr_expect_eq(result.count, 7, "the recorded allocator is among the others");
        gp_fit_result_fini(&result);
    }
    struct gp_fit_result result =
        judge(r, &(struct gp_fit_question){.gpu_bytes = 90 * MIB, .tenants = 1, .context_bytes = -1});
    cr_expect(!result.rows[0].fits);
    cr_expect_eq(result.context, GP_FIT_ASSUMED);
    cr_expect_eq(result.asked_bytes, 0, "the context takes all");
    gp_fit_result_fini(&result);
    gp_recording_free(r);
}

Test(fit, context_is_what_nvml_reports_beyond_the_counted_bytes)
{
    struct recmake *make = recmake_new(GIB);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x10000000, 64 * MIB, 0);
    recmake_sample(make, &(struct gp_rec_sample){
                             .time_ns = 1000 * MS, .reserved_bytes = 64 * MIB, .used_bytes = -1, .process_bytes = -1});
    recmake_sample(make,
                   &(struct gp_rec_sample){
                       .time_ns = 1000 * MS, .reserved_bytes = 64 * MIB, .used_bytes = -1, .process_bytes = 364 * MIB});
    struct gp_recording *r = recmake_done(make);
    struct gp_fit_result result =
        judge(r, &(struct gp_fit_question){.gpu_bytes = 1ull << 30, .tenants = 1, .context_bytes = -1});
    cr_expect_eq(result.context, GP_FIT_MEASURED);
    cr_expect_eq(result.context_bytes, 300 * MIB);
    gp_fit_result_fini(&result);
    gp_recording_free(r);
}

Test(fit, code_counts_unless_the_context_was_measured)
{
    for (int measured = 0; measured < 2; measured++) {
        struct recmake *make = recmake_new(GIB);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x10000000, 64 * MIB, 0);
        recmake_alloc(make, 0, GP_KIND_MODULE, 1, 7 * MIB, 0);
        if (measured)
            recmake_sample(make, &(struct gp_rec_sample){.time_ns = 1000 * MS,
                                                         .reserved_bytes = 64 * MIB,
                                                         .used_bytes = -1,
                                                         .process_bytes = 364 * MIB});
        struct gp_recording *r = recmake_done(make);
        struct gp_fit_result result =
            judge(r, &(struct gp_fit_question){.gpu_bytes = 1ull << 30, .tenants = 1, .context_bytes = -1});
        cr_expect_eq(result.rows[0].smallest_bytes, measured ? 364 * MIB : (64 + 8 + 256) * MIB);
        gp_fit_result_fini(&result);
        gp_recording_free(r);
    }
}

/* Graphs and pools share what was polled, so what graphs hold changes with each block of a pool. */
Test(fit, polled_memory_of_graphs_counts)
{
    struct recmake *make = recmake_new(GIB);
    recmake_at(make, 1100 * MS);
    recmake_alloc(make, 0, GP_KIND_GRAPH, 0x900000000, MIB, 0);
    recmake_sample(make, &(struct gp_rec_sample){
                             .time_ns = 1101 * MS, .reserved_bytes = 100 * MIB, .used_bytes = -1, .process_bytes = -1});
    for (uint64_t i = 0; i < 30; i++) {
        recmake_at(make, (1102 + i) * MS);
        recmake_alloc(make, 0, GP_KIND_POOL, i << 24, 2 * MIB, 0);
    }
    struct gp_recording *r = recmake_done(make);
    struct gp_fit_result result =
        judge(r, &(struct gp_fit_question){.gpu_bytes = 1ull << 30, .tenants = 1, .context_bytes = 0});
    cr_expect_eq(result.rows[0].smallest_bytes, 102 * MIB, "the first block comes beside what graphs hold");
    gp_fit_result_fini(&result);
    gp_recording_free(r);
}

/* Two streams: each has its segment, and the events do not tell which block is whose. The code of kernels is no part of
 * what the replay lacks. */
Test(fit, what_a_replay_cannot_explain_counts)
{
    static const int64_t codes[] = {0, 1, 7 * MIB, 14 * MIB};
    for (size_t k = 0; k < sizeof(codes) / sizeof(codes[0]); k++) {
        const int64_t code = codes[k];
        struct recmake *make = recmake_new(GIB);
        recmake_at(make, 1500 * MS);
        if (code)
            recmake_alloc(make, 0, GP_KIND_MODULE, 1, (uint64_t)code, 0);
        for (uint64_t i = 1; i <= 2; i++) {
            segment(make, true, i << 28, 40 * MIB);
            recmake_alloc(make, 0, GP_KIND_LINEAR, i << 28, 40 * MIB, 0);
            recmake_free(make, 0, GP_KIND_LINEAR, i << 28);
        }
        struct gp_recording *r = recmake_done(make);
        struct gp_fit_result result =
            judge(r, &(struct gp_fit_question){.gpu_bytes = 1ull << 30, .tenants = 1, .context_bytes = 0});
        cr_expect_eq(result.unexplained_bytes, 40 * MIB, "code of %lld bytes", (long long)code);
        cr_expect_eq(result.rows[0].smallest_bytes, 80 * MIB + up(code, PAGE));
        gp_fit_result_fini(&result);
        gp_recording_free(r);
    }
}

/* ---- requests that got no memory --------------------------------------------------------------------------------- */

enum { ALLOC, FREE, OOM };

/* What nothing served counts, with what was held then; a request that its thread repeats with success does not. */
Test(fit, what_was_refused_counts)
{
    static const struct {
        const char *what;
        struct {
            uint8_t type, thread;
            int64_t mib; /* FREE: of the block before the last */
        } events[8];
        uint64_t pages; /* the smallest size */
        uint32_t refused;
        uint64_t retried;
    } rows[] = {
        {"the end", {{ALLOC, 0, 100}, {OOM, 0, 400}}, 250, 1, 0},
        {"a retry", {{ALLOC, 0, 100}, {OOM, 0, 400}, {FREE, 0, 0}, {ALLOC, 0, 400}}, 200, 0, 1},
        {"not a retry", {{ALLOC, 0, 100}, {OOM, 0, 400}, {FREE, 0, 0}, {ALLOC, 0, 402}}, 250, 1, 0},
        {"two retries", {{OOM, 0, 400}, {OOM, 0, 400}, {OOM, 0, 400}, {ALLOC, 0, 400}}, 200, 0, 3},
        {"none of three", {{ALLOC, 0, 100}, {OOM, 0, 400}, {OOM, 0, 400}, {OOM, 0, 400}}, 250, 3, 0},
        {"halves", {{OOM, 0, 800}, {OOM, 0, 400}, {ALLOC, 0, 200}}, 400, 2, 0},
        {"a later step gets it", {{OOM, 0, 400}, {ALLOC, 0, 2}, {ALLOC, 0, 400}}, 201, 1, 0},
        {"another thread gets it", {{OOM, 0, 400}, {ALLOC, 1, 400}}, 200, 1, 0},
        {"another thread is in between", {{OOM, 0, 400}, {ALLOC, 1, 2}, {ALLOC, 0, 400}}, 201, 0, 1},
        {"less than what was held later", {{OOM, 0, 100}, {ALLOC, 0, 50}, {ALLOC, 0, 400}}, 225, 1, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct recmake *make = recmake_new(80 * GIB);
        uint64_t address = GIB;
        for (unsigned k = 0; k < 8 && (rows[i].events[k].mib || rows[i].events[k].type); k++) {
            const uint64_t bytes = (uint64_t)rows[i].events[k].mib * MIB;
            static const uint8_t types[] = {GP_EVENT_ALLOC, GP_EVENT_FREE, GP_EVENT_OOM};
            const uint8_t type = types[rows[i].events[k].type];
            recmake_event(make, &(struct gp_rec_event){.time_ns = (1001 + k) * MS,
                                                       .type = type & 15,
                                                       .kind = type == GP_EVENT_OOM ? 0 : GP_KIND_LINEAR,
                                                       .address = type == GP_EVENT_ALLOC  ? (address += GIB)
                                                                  : type == GP_EVENT_FREE ? address
                                                                                          : 0,
                                                       .thread = rows[i].events[k].thread & 1,
                                                       .bytes = bytes});
        }
        struct gp_recording *r = recmake_done(make);
        struct gp_flow *flow = gp_flow_new(r);
        const struct gp_fit_question question = {
            .gpu_bytes = (rows[i].pages - 1) * GP_FIT_PAGE, .tenants = 1, .context_bytes = 0};
        struct gp_fit_result is;
        cr_assert_eq(gp_fit_judge(flow, 0, &question, &is), 0);
        cr_expect_eq(is.rows[0].smallest_bytes, rows[i].pages * GP_FIT_PAGE, "%s: %llu", rows[i].what,
                     (unsigned long long)(is.rows[0].smallest_bytes / GP_FIT_PAGE));
        cr_expect(!is.rows[0].fits, "%s", rows[i].what);
        cr_expect_eq(is.refused_requests, rows[i].refused, "%s: %u", rows[i].what, is.refused_requests);
        cr_expect_eq(is.retried_requests, rows[i].retried, "%s: %zu", rows[i].what, is.retried_requests);
        gp_fit_result_fini(&is);
        gp_flow_free(flow);
        gp_recording_free(r);
    }
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static char *saved(const struct gp_recording *r, const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "/tmp/gpuprof-test-fit-%d-%s", (int)getpid(), name);
    cr_assert_eq(recsave(r, path), 0);
    return path;
}

Test(fit_command, refuses_what_it_cannot_answer, .init = find_binary)
{
    struct recmake *make = recmake_new(GIB);
    recmake_mark(make, "nothing");
    struct gp_recording *r = recmake_done(make);
    char *path = saved(r, "empty");
    expect(run("fit"), 2, NULL, "no recording given");
    expect(run("fit %s", path), 2, NULL, "--gpu is needed");
    expect(run("fit %s --gpu 0", path), 2, NULL, "--gpu");
    expect(run("fit %s --gpu 3XB", path), 2, NULL, "--gpu");
    expect(run("fit %s --gpu 1GiB --tenants 0", path), 2, NULL, "--tenants");
    expect(run("fit %s --gpu 1GiB --all --allocator caching", path), 2, NULL, "--all tries every");
    expect(run("fit %s --gpu 1GiB --alloc-conf max_split_size_mb:64", path), 2, NULL, "name one with --allocator");
    expect(run("fit %s --gpu 1GiB --allocator caching --alloc-conf a:1", path), 2, NULL, "unknown key");
    expect(run("fit %s --gpu 1GiB", path), 1, NULL, "no memory of a GPU");
    expect(run("fit /nonexistent --gpu 1GiB"), 1, NULL, "No such file");
    unlink(path);
    gp_recording_free(r);
}

Test(fit_command, answers_for_each_device, .init = find_binary)
{
    struct recmake *make = recmake_new(GIB);
    uint32_t second = recmake_device(make, 1, GIB), place = site(make, "load_weights", 3);
    recmake_at(make, 1200 * MS);
    recmake_mark(make, "begin");
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x10000000, 64 * MIB, place);
    recmake_at(make, 1300 * MS);
    recmake_alloc(make, second, GP_KIND_LINEAR, 0x20000000, 200 * MIB, place);
    struct gp_recording *r = recmake_done(make);
    char *path = saved(r, "devices");
    expect(run("fit %s --gpu 200MiB --context 0", path), 0, "device 1: fits in 200.0 MiB", NULL);
    struct result result = run("fit %s --gpu 196MiB --context 0 --json", path);
    cr_assert_eq(result.status, 3, "%s", result.err);
    json_t *top = json_loads(result.out, 0, NULL), *one = json_array_get(json_object_get(top, "devices"), 1);
    cr_assert(top, "%s", result.out);
    cr_expect_str_eq(json_string_value(json_object_get(top, "schema")), "gpuprof.fit/1");
    cr_expect(json_is_false(json_object_get(top, "fits")));
    cr_expect_eq(json_integer_value(json_object_get(top, "gpu_bytes")), 196 * MIB);
    cr_expect_eq(json_integer_value(json_object_get(top, "peak_bytes")), 200 * MIB);
    cr_expect_eq(json_integer_value(json_object_get(top, "smallest_bytes")), 200 * MIB);
    cr_expect_str_eq(json_string_value(json_object_get(top, "allocator")), "off");
    cr_expect_eq(json_integer_value(json_object_get(top, "fails_at_ns")), 300 * (json_int_t)MS);
    cr_expect_eq(json_array_size(json_object_get(top, "held")), 0, "nothing was held on that device");
    const json_t *fails = json_object_get(one, "fails");
    cr_expect_eq(json_integer_value(json_object_get(fails, "asked_bytes")), 200 * MIB);
    cr_expect_str_eq(json_string_value(json_object_get(fails, "function")), "load_weights");
    cr_expect_str_eq(json_string_value(json_object_get(fails, "mark")), "begin");
    json_decref(top);
    expect(run("fit %s --gpu 196MiB --context 0", path), 3, "asked: 200.0 MiB by load_weights", NULL);
    unlink(path);
    gp_recording_free(r);
}
