/* SPDX-License-Identifier: MIT
 *
 * test_analyze_grid.c: analyses that do not start from a recording, over many small inputs whose values lie on the limits of
 * their rules and next to them.  The results are those of tests/golden/analyze_grid.txt.
 */
#include <analyze/fit.h>
#include <analyze/forecast.h>
#include <analyze/ranks.h>
#include <analyze/uses.h>

#include "checked_memory.h"
#include "sheet.h"
#include "strict_sort.h"
#include "train_fixture.h"

#define SECOND 1000000000ull

static uint64_t state = 88172645463325252ull;

static unsigned draw(unsigned below)
{
    return (unsigned)(random_next(&state) >> 24) % below;
}

#define PICK(...)                                                                                                      \
    ({                                                                                                                 \
        static const int64_t list_[] = {__VA_ARGS__};                                                                  \
        list_[draw(sizeof(list_) / sizeof(list_[0]))];                                                                 \
    })

/* ---- forecasts ----------------------------------------------------------------------------------------------------- */

struct feed {
    struct gp_forecast forecast;
    struct gp_forecast_sample sample;
    unsigned shape;
    int64_t work; /* of most steps */
};

/* The next step, or moment: most are alike, some differ by just as much as they may, or a little more. */
static void feed_next(struct feed *feed)
{
    struct gp_forecast_sample *now = &feed->sample;
    bool odd = draw(8) == 0;
    int64_t kept = feed->shape % 3 == 0 ? PICK(0, 100) : feed->shape % 3 == 1 ? PICK(0, 0, 0, 0, 100, -100) : 0;
    int64_t work = odd ? feed->work + PICK(20, 21, -20, -21, 1000, -500, -1000) : feed->work + PICK(0, 0, 1, -1);
    now->time_ns += (uint64_t)PICK(SECOND / 2, SECOND / 2, SECOND / 2, SECOND, 1, 0);
    now->taken_bytes += work + kept > 0 ? work + kept : 0;
    now->last = now->last + kept > 0 ? now->last + kept : 0;
    now->low = now->last - (draw(4) ? 0 : now->last / 2);
    now->high = now->last + PICK(0, 500, 500, 700);
    int64_t allocs = feed->shape % 5 == 4 ? 0 : odd ? PICK(5, 20, 21, 4) : 10;
    now->allocs += allocs;
    now->frees += feed->shape % 5 == 3 ? allocs * 3 / 4 - (draw(4) ? 0 : 1) : allocs;
    if (feed->shape % 7 == 1)
        now->fresh_bytes += PICK(0, 0, 20, 21);
    gp_forecast_feed(&feed->forecast, now);
}

static void put_result(struct sheet *sheet, const struct gp_forecast_result *is)
{
    SHEET_NUMBERS(sheet, is->verdict, is->points, (int64_t)is->seen_ns, is->peak_bytes, is->step_bytes,
                  is->headroom_bytes);
    sheet_real(sheet, is->bytes_per_second);
    sheet_real(sheet, is->confidence);
    sheet_real(sheet, is->seconds_to_oom);
    sheet_line(sheet);
}

static void sheet_forecasts(struct sheet *sheet)
{
    for (unsigned round = 0; round < 1500; round++) {
        struct feed feed = {.shape = round % 35, .work = PICK(1000, 1000, 0, 100000)};
        unsigned samples = draw(12) ? 1 + draw(30) : 64 + draw(200);
        gp_forecast_begin(&feed.forecast, round % 3 ? GP_FORECAST_STEPS : GP_FORECAST_MOMENTS);
        if (feed.shape % 7 == 2)
            feed.sample.allocs = feed.sample.frees = feed.sample.taken_bytes = -1;
        for (unsigned i = 0; i < samples; i++) {
            feed_next(&feed);
            struct gp_forecast_result is;
            struct gp_forecast_room room = {PICK(-1, 0, 1, 5000, INT64_MAX), PICK(-1, 0, 1, 4000), PICK(-1, 0, 1, 77)};
            gp_forecast_find(&feed.forecast, draw(5) ? &room : NULL, &is);
            put_result(sheet, &is);
        }
    }
    for (unsigned verdict = GP_FORECAST_SHORT; verdict <= GP_FORECAST_GROWS; verdict++)
        sheet_word(sheet, gp_forecast_word(verdict));
}

/* ---- ranks --------------------------------------------------------------------------------------------------------- */

#define RANKS 5u

static struct gp_series *series_drawn(uint64_t begin, uint64_t end)
{
    unsigned count = draw(5);
    struct gp_series *series = calloc(1, sizeof(*series) + 5 * sizeof(series->points[0]));
    cr_assert(series);
    uint64_t at = begin;
    for (unsigned i = 0; i < count && at <= end; i++, at += (uint64_t)PICK(1, 100, 200, 399, 400, 401)) {
        int64_t low = PICK(0, 5, 7), high = low + PICK(0, 1, 9);
        series->points[series->count++] = (struct gp_series_point){at, low, high, draw(2) ? low : high};
    }
    return series;
}

static struct gp_job_rank rank_drawn(unsigned number, bool known, bool one_host)
{
    uint64_t begin = 200 * SECOND + (uint64_t)PICK(0, 0, 1, 200, 400);
    struct gp_job_rank rank = {.number = draw(6) ? (int32_t)number : 1,
                               .ooms = draw(6) == 0,
                               .from_torch = draw(12) == 0,
                               .begin_ns = begin,
                               .end_ns = begin + (uint64_t)PICK(0, 1, 400, 800, 1200),
                               .begin_unix_ns =
                                   1000 * SECOND + begin +
                                   (uint64_t)(draw(3) ? 0 : PICK(60 * SECOND, 60 * SECOND + 1, 1, 400, -60 * SECOND)),
                               .headroom_bytes = known ? PICK(0, 0, 1, 5) : PICK(-1, 0, 4),
                               .peak_bytes = PICK(10, 10, 11, 12),
                               .site_count = draw(5)};
    snprintf(rank.host, sizeof(rank.host), "%s", one_host || draw(2) ? "a" : draw(2) ? "b" : "");
    rank.allocated = draw(8) ? series_drawn(rank.begin_ns, rank.end_ns) : NULL;
    rank.sites = calloc(5, sizeof(*rank.sites));
    cr_assert(rank.sites);
    for (unsigned i = 0; i < rank.site_count; i++) {
        struct gp_rank_site *row = &rank.sites[i];
        snprintf(row->name, sizeof(row->name), "%c", 'w' + draw(3));
        snprintf(row->owner, sizeof(row->owner), "%s", draw(2) ? "torch" : "nccl");
        row->kind = draw(3) == 0;
        row->peak_bytes = PICK(0, 1, 1, 3);
    }
    return rank;
}

static void put_rows(struct sheet *sheet, const struct gp_rank_row *rows, uint32_t count)
{
    sheet_number(sheet, count);
    for (uint32_t i = 0; i < count; i++) {
        sheet_word(sheet, rows[i].name);
        sheet_word(sheet, rows[i].owner);
        SHEET_NUMBERS(sheet, rows[i].kind, rows[i].worst_bytes, rows[i].median_bytes, rows[i].holders);
    }
}

static void put_ranks(struct sheet *sheet, const struct gp_ranks *all)
{
    SHEET_NUMBERS(sheet, all->count, all->clock, (int64_t)all->begin_unix_ns, (int64_t)all->length_ns,
                  all->lowest_bytes, all->median_bytes, all->highest_bytes);
    for (uint32_t i = 0; i < all->count; i++) {
        SHEET_NUMBERS(sheet, all->ranks[i].number, all->ranks[i].by_headroom, (int64_t)all->ranks[i].shift_ns);
        for (uint32_t m = 0; m < GP_RANK_POINT; m += 50)
            sheet_number(sheet, gp_ranks_at(all, &all->ranks[i], m + i % 2));
    }
    for (uint32_t m = 0; m < GP_RANK_POINT; m++)
        if (m % 25 < 2 || m == GP_RANK_POINT - 1)
            SHEET_NUMBERS(sheet, (int64_t)all->moments[m].time_ns, all->moments[m].low, all->moments[m].median,
                          all->moments[m].high, all->moments[m].ranks);
    put_rows(sheet, all->sites, all->site_count);
    put_rows(sheet, all->owners, all->owner_count);
    sheet_line(sheet);
}

static void sheet_ranks(struct sheet *sheet)
{
    for (unsigned round = 0; round < 400; round++) {
        struct gp_job_rank ranks[RANKS];
        uint32_t count = 1 + draw(RANKS);
        bool known = draw(2), one_host = draw(3);
        for (uint32_t i = 0; i < count; i++)
            ranks[i] = rank_drawn(i, known, one_host);
        struct gp_ranks *all = gp_ranks_find(ranks, count);
        put_ranks(sheet, all);
        gp_ranks_free(all);
        for (uint32_t i = 0; i < count; i++) {
            free(ranks[i].allocated);
            free(ranks[i].sites);
        }
    }
}

/* ---- call sites of two recordings ---------------------------------------------------------------------------------- */

static void sheet_matches(struct sheet *sheet)
{
    static const char *const stacks[] = {"a", "b"};
    for (unsigned round = 0; round < 3000; round++) {
        uint32_t lines[2][80][3], rows[2][80], counts[2], row_count = 0;
        struct gp_diff_site sites[2][80];
        uint32_t most = round % 100 == 99 ? 80 : 6, moved = draw(4); /* 64 of one and 64 of the other: 4096 pairs */
        for (int side = 0; side < 2; side++) {
            counts[side] = most == 80 ? 63 + draw(4) : draw(most);
            for (uint32_t i = 0; i < counts[side]; i++) {
                for (unsigned frame = 0; frame < 3; frame++)
                    lines[side][i][frame] = (frame == 2 && round % 2 ? 4 : draw(most == 80 ? 90 : 7)) + side * moved;
                sites[side][i] = (struct gp_diff_site){.stack = stacks[most == 80 ? 0 : draw(2)],
                                                       .lines = lines[side][i],
                                                       .line_count = most == 80 ? 3 : 1 + draw(3)};
            }
        }
        const struct gp_diff_site *const both[2] = {sites[0], sites[1]};
        uint32_t *out[2] = {rows[0], rows[1]};
        cr_assert(gp_diff_match(both, counts, out, &row_count));
        sheet_number(sheet, row_count);
        for (int side = 0; side < 2; side++)
            for (uint32_t i = 0; i < counts[side]; i++)
                sheet_number(sheet, rows[side][i]);
        sheet_line(sheet);
    }
}

/* ---- small blocks of a driver -------------------------------------------------------------------------------------- */

#define HELD 24u

static void sheet_device(struct sheet *sheet)
{
    for (unsigned round = 0; round < 120; round++) {
        struct gp_fit_device device = {.size = (uint64_t)PICK(4, 12, 40) * GP_FIT_PAGE, .downward = round % 2};
        struct {
            uint64_t bytes, place;
            bool there;
        } held[HELD] = {{0}};
        for (unsigned i = 0; i < 200; i++) {
            unsigned at = draw(HELD);
            if (held[at].there) {
                gp_fit_device_give(&device, held[at].bytes, held[at].place);
                held[at].there = false;
            } else {
                held[at].bytes =
                    (uint64_t)(round % 3 ? PICK(0, 1, 511, 512, 513, 64 * 512, 65 * 512, 128 * 512, MIB)
                                         : PICK(MIB - 1, MIB, MIB + 1, GP_FIT_PAGE, GP_FIT_PAGE + 1, 700000, 512));
                held[at].there = gp_fit_device_take(&device, held[at].bytes, &held[at].place);
                SHEET_NUMBERS(sheet, held[at].there, (int64_t)held[at].place);
            }
            SHEET_NUMBERS(sheet, (int64_t)device.used, (int64_t)device.peak);
        }
        for (unsigned i = 0; i < HELD; i++)
            if (held[i].there)
                gp_fit_device_give(&device, held[i].bytes, held[i].place);
        cr_expect_eq(device.used, 0, "round %u: %llu bytes remain", round, (unsigned long long)device.used);
        gp_fit_device_fini(&device);
        cr_expect(!device.small && !device.runs && !device.peak && device.size);
        sheet_line(sheet);
    }
}

/* ---- all of it ----------------------------------------------------------------------------------------------------- */

Test(grid, of_values_at_the_limits, .timeout = 120)
{
    static const struct {
        const char *name;
        void (*put)(struct sheet *sheet);
    } grids[] = {
        {"forecasts", sheet_forecasts}, {"ranks", sheet_ranks}, {"matches", sheet_matches}, {"device", sheet_device}};
    static struct golden_sheets golden;
    golden_begin(&golden, "tests/golden/analyze_grid.txt");
    for (unsigned i = 0; i < sizeof(grids) / sizeof(grids[0]); i++) {
        struct sheet sheet = sheet_new("grid", grids[i].name);
        strict_on = true;
        grids[i].put(&sheet);
        strict_on = false;
        golden_add(&golden, &sheet);
    }
    golden_end(&golden);
}

/* ---- hints --------------------------------------------------------------------------------------------------------- */

Test(grid, hints_of_names_and_owners)
{
    static const struct {
        const char *function, *file;
        enum gp_use_hint hint;
    } names[] = {{"step", "/x/torch/optim/adam.py", GP_HINT_OPTIMIZER},
                 {"torch/optim/", "a.py", GP_HINT_NONE},
                 {"update", "/keras/optimizers/adam.py", GP_HINT_OPTIMIZER},
                 {"/optimizers/", "a.py", GP_HINT_NONE},
                 {"__enter__", "/x/torch/cuda/graphs.py", GP_HINT_GRAPHS},
                 {"my_capture_graph_2", "a.py", GP_HINT_GRAPHS},
                 {"f", "capture_graph.py", GP_HINT_NONE},
                 {"capture_model", "", GP_HINT_GRAPHS},
                 {"f", "capture_model", GP_HINT_NONE},
                 {"init_KV_cache", "", GP_HINT_KV_CACHE},
                 {"KVCache.grow", "", GP_HINT_KV_CACHE},
                 {"f", "kvcache.py", GP_HINT_NONE},
                 {"f", "/m/kv_cache.py", GP_HINT_KV_CACHE},
                 {"f", "/transformers/cache_utils.py", GP_HINT_KV_CACHE},
                 {"cache_utils.py", "", GP_HINT_NONE},
                 {"get_workspace", "", GP_HINT_WORKSPACE},
                 {"f", "workspace.py", GP_HINT_NONE},
                 {"load_weights", "", GP_HINT_WEIGHTS},
                 {"f", "load_weights", GP_HINT_NONE},
                 {"load_state_dict", "", GP_HINT_WEIGHTS},
                 {"from_pretrained", "", GP_HINT_WEIGHTS},
                 {"f", "from_pretrained load_state_dict", GP_HINT_NONE},
                 {"from_pretraine", "", GP_HINT_NONE},
                 {"", "", GP_HINT_NONE},
                 {"forward", "model.py", GP_HINT_NONE}};
    static const struct {
        const char *owner;
        enum gp_use_hint hint;
    } owners[] = {{"nccl", GP_HINT_COMMUNICATION}, {"nvshmem", GP_HINT_COMMUNICATION},
                  {"cublas", GP_HINT_LIBRARY},     {"cudnn", GP_HINT_LIBRARY},
                  {"cufft", GP_HINT_LIBRARY},      {"cusparse", GP_HINT_LIBRARY},
                  {"cusolver", GP_HINT_LIBRARY},   {"cutensor", GP_HINT_LIBRARY},
                  {"curand", GP_HINT_LIBRARY},     {"npp", GP_HINT_LIBRARY},
                  {"pytorch", GP_HINT_NONE},       {"", GP_HINT_NONE},
                  {"cublasx", GP_HINT_NONE},       {"nccl2", GP_HINT_NONE}};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        cr_expect_eq(gp_use_hint_of_name(names[i].function, names[i].file), names[i].hint, "%s in %s",
                     names[i].function, names[i].file);
    for (unsigned i = 0; i < sizeof(owners) / sizeof(owners[0]); i++)
        cr_expect_eq(gp_use_hint_of_owner(owners[i].owner), owners[i].hint, "%s", owners[i].owner);
    static const char *const uses[] = {"weights", "gradients", "optimizer",     "activations", "kv_cache",
                                       "graphs",  "workspace", "communication", "temporary",   "unknown"};
    for (unsigned use = 0; use < GP_USES; use++)
        cr_expect_str_eq(gp_use_name(use), uses[use]);
}
