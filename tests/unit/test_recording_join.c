/* SPDX-License-Identifier: MIT
 *
 * test_recording_join.c: call sites of a recording are joined (tools/read/recording/recording.c); and each allocation of the
 * reader fails in turn.
 */
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <lib/lackmemory.h>
#include <lib/recmake.h>
#include <lib/recsave.h>
#include <read/recording/recording.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char path[64], why[256];

static const struct recmake_frame stack[] = {{"f", "a.py", 1}, {"g", "b.py", 2}, {NULL, NULL, 0}};

/* With a row in each table. */
static struct gp_recording *small(unsigned events)
{
    struct recmake *make = recmake_new(1 << 30);
    uint32_t site = recmake_site(make, GP_KIND_LINEAR, stack);
    recmake_mark(make, "a mark");
    for (unsigned i = 0; i < events; i++) {
        recmake_at(make, 1000000000 + 1000ull * i * (i % 3));
        recmake_alloc(make, 0, GP_KIND_LINEAR, i * 7919ull * 4096, 1 + i * 31ull, site);
    }
    recmake_sample(make, &(struct gp_rec_sample){1000000000, 0, 1, 2, 3, 4, 5, 6});
    struct gp_recording *r = recmake_done(make);
    r->baseline = calloc(1, sizeof(*r->baseline));
    r->baseline[0] =
        (struct gp_rec_event){.time_ns = 5, .address = 77, .bytes = 99, .unused = 9, .type = GP_EVENT_ALLOC, .kind = 1};
    r->baseline_count = 1;
    r->has_oom = true;
    r->oom = (struct gp_wire_oom){.count = 1, .device = 0, .site = 1};
    r->befores = calloc(1, sizeof(*r->befores));
    r->befores[0] = (struct gp_rec_before){7, 0, {1, 2, 3, 4, 5, 6, GP_BEFORE_PART, 0}};
    r->before_count = 1;
    r->modules = calloc(1, sizeof(*r->modules));
    r->modules[0] = (struct gp_rec_module){.start = 1, .end = 2, .path = 1};
    r->module_count = 1;
    return r;
}

/* ---- sites that are joined --------------------------------------------------------------------------------------- */

Test(recording_join, joined_sites_have_the_sums)
{
    static const uint32_t to[] = {0, 1, 1, 3, 4, 3};
    struct recmake *make = recmake_new(1 << 30);
    for (unsigned i = 1; i < 6; i++)
        recmake_site(make, GP_KIND_LINEAR, stack);
    for (uint32_t i = 0; i < 6; i++)
        recmake_alloc(make, 0, GP_KIND_LINEAR, 4096 * (i + 1), 100, i);
    struct gp_recording *r = recmake_done(make);
    r->baseline = calloc(6, sizeof(*r->baseline));
    r->baseline_count = 6;
    for (uint32_t i = 0; i < 6; i++) {
        r->baseline[i] = (struct gp_rec_event){.address = i, .bytes = 1, .site = 5 - i, .type = GP_EVENT_ALLOC};
        int64_t from = i * i * 10;
        struct gp_rec_site *s = &r->sites[i];
        s->live_bytes = from, s->live_count = from + 1, s->peak_bytes = from + 2, s->at_peak_bytes = from + 3;
        s->allocated_bytes = from + 4, s->calls = from + 5;
    }
    r->sites[2].live_bytes = INT64_MAX; /* only a hostile file has it: the sum wraps */
    r->oom = (struct gp_wire_oom){.site = 5};
    gp_recording_join(r, to);
    static const int64_t live[] = {0, (int64_t)(10ull + INT64_MAX), 0, 90 + 250, 160, 0}, parts[] = {1, 2, 0, 2, 1, 0};
    static const int64_t plain[] = {0, 50, 0, 340, 160, 0};
    for (uint32_t i = 0; i < 6; i++) {
        const struct gp_rec_site *s = &r->sites[i];
        cr_expect_eq(s->live_bytes, live[i], "%u", i);
        cr_expect(s->live_count == plain[i] + parts[i] && s->peak_bytes == plain[i] + 2 * parts[i] &&
                      s->at_peak_bytes == plain[i] + 3 * parts[i] && s->allocated_bytes == plain[i] + 4 * parts[i] &&
                      s->calls == plain[i] + 5 * parts[i],
                  "%u", i);
        cr_expect(r->events[i].site == to[i] && r->baseline[i].site == to[5 - i], "%u", i);
    }
    cr_expect_eq(r->oom.site, 5, "there was no failed request");
    r->has_oom = true;
    gp_recording_join(r, to);
    cr_expect_eq(r->oom.site, 3);
    gp_recording_free(r);
}

/* Rows of one site, kind and size become one; those with the most bytes come first, of equal ones the lowest site. */
Test(recording_join, joined_holders_are_in_order)
{
    static const uint32_t to[] = {0, 1, 1, 3, 4, 3, 6};
    static const struct gp_wire_oom_holder holders[] = {
        {.block_bytes = 10, .count = 3, .site = 4, .kind = 1},
        {.block_bytes = 10, .count = 1, .site = 2, .kind = 1},
        {.block_bytes = 10, .count = 2, .site = 1, .kind = 1},
        {.block_bytes = 10, .count = 5, .site = 1, .kind = 2},
        {.block_bytes = 20, .count = 1, .site = 1, .kind = 1},
        {.block_bytes = 1ull << 40, .count = 1ull << 40, .site = 3, .kind = 1},
        {.block_bytes = 50, .count = 1, .site = 5, .kind = 1},
        {.block_bytes = 1ull << 40, .count = 2, .site = 5, .kind = 1},
        {.block_bytes = 5, .count = 6, .site = 6, .kind = 1}};
    static const struct gp_wire_oom_holder wanted[] = {
        {.block_bytes = 1ull << 40, .count = (1ull << 40) + 2, .site = 3, .kind = 1},
        {.block_bytes = 10, .count = 5, .site = 1, .kind = 2},
        {.block_bytes = 50, .count = 1, .site = 3, .kind = 1},
        {.block_bytes = 10, .count = 3, .site = 1, .kind = 1},
        {.block_bytes = 10, .count = 3, .site = 4, .kind = 1},
        {.block_bytes = 5, .count = 6, .site = 6, .kind = 1},
        {.block_bytes = 20, .count = 1, .site = 1, .kind = 1}};
    struct gp_wire_oom oom = {.site = 2, .holder_count = GP_COUNT(holders)};
    memcpy(oom.holders, holders, sizeof(holders));
    gp_recording_join_oom(&oom, to);
    cr_expect_eq(oom.site, 1);
    cr_assert_eq(oom.holder_count, GP_COUNT(wanted));
    for (size_t i = 0; i < GP_COUNT(wanted); i++)
        cr_expect(oom.holders[i].block_bytes == wanted[i].block_bytes && oom.holders[i].count == wanted[i].count &&
                      oom.holders[i].site == wanted[i].site && oom.holders[i].kind == wanted[i].kind,
                  "%zu: %llu x %llu of site %u", i, (unsigned long long)oom.holders[i].count,
                  (unsigned long long)oom.holders[i].block_bytes, oom.holders[i].site);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int open_once(void *arg)
{
    const struct gp_recording *like = arg;
    struct gp_recording *r = NULL;
    int rc = gp_recording_open(&r, path, why, sizeof(why), NULL, NULL);
    if (!rc && (r->event_count != like->event_count || r->site_count != like->site_count || r->damaged_blocks ||
                r->thread_count != like->thread_count || r->sample_count != like->sample_count))
        rc = -1;
    gp_recording_free(r);
    return rc;
}

/* Late events too: they need an array of their own. */
Test(recording_join, each_allocation_of_the_reader_fails)
{
    struct gp_recording *r = small(200);
    if (!MEMORY_IS_COUNTED)
        cr_skip("a sanitizer's allocator");
    strcpy(path, "/tmp/gpuprof-test-join-XXXXXX");
    close(mkstemp(path));
    cr_assert_eq(recsave(r, path), 0);
    struct memory_tried tried = memory_each(open_once, r);
    unlink(path);
    cr_expect_gt(tried.calls, 25, "%u", tried.calls);
    cr_expect_eq(tried.none, 0, "%u", tried.none);
    cr_expect_eq(tried.wrong, 0, "%u", tried.wrong);
    cr_expect_eq(tried.kept, 0, "%u", tried.kept);
    gp_recording_free(r);
}
