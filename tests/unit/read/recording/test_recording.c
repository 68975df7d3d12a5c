/* SPDX-License-Identifier: MIT
 *
 * test_recording.c: cut and damaged recordings, whose sound blocks are read (tools/read/recording); call sites that are
 * joined; the index of a file with very many blocks; and each allocation of the reader that fails in turn.
 * What the reader makes of each block is in test_recording_parts.c and test_recording_events.c.
 */
#include "record/format.h"
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/wire.h>
#include <lib/lackmemory.h>
#include <lib/recmake.h>
#include <lib/recsave.h>
#include <read/recording/recording.h>
#include <record/blocks.h>
#include <record/file.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[64], why[256];

static void test_name(void)
{
    strcpy(path, "/tmp/gpuprof-test-recording-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
}

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
    test_name();
    cr_assert_eq(recsave(r, path), 0);
    struct memory_tried tried = memory_each(open_once, r);
    unlink(path);
    cr_expect_gt(tried.calls, 25, "%u", tried.calls);
    cr_expect_eq(tried.none, 0, "%u", tried.none);
    cr_expect_eq(tried.wrong, 0, "%u", tried.wrong);
    cr_expect_eq(tried.kept, 0, "%u", tried.kept);
    gp_recording_free(r);
}

struct test_bytes {
    unsigned char *at;
    size_t size;
};

static struct test_bytes test_load(void)
{
    struct test_bytes bytes = {NULL, 0};
    struct stat status;
    int fd = open(path, O_RDONLY);
    cr_assert_eq(fstat(fd, &status), 0);
    bytes.size = (size_t)status.st_size;
    bytes.at = malloc(bytes.size + 1);
    cr_assert_eq(read(fd, bytes.at, bytes.size), (ssize_t)bytes.size);
    close(fd);
    return bytes;
}

static struct test_bytes test_bytes_of(const struct gp_recording *recording)
{
    test_name();
    cr_assert_eq(recsave(recording, path), 0);
    struct test_bytes bytes = test_load();
    unlink(path);
    return bytes;
}

static struct gp_recording *test_parse(const struct test_bytes *bytes)
{
    struct gp_recording *out = NULL;
    int rc = gp_recording_parse(&out, bytes->at, bytes->size, why, sizeof(why));
    cr_assert_eq(rc, 0, "%d %s", rc, why);
    return out;
}

/* ---- cut, damaged ------------------------------------------------------------------------------------------------- */

/* The events of a cut or damaged file are events of the whole file, in the same order. */
static void test_part_of(const struct gp_recording *whole, const struct gp_recording *part)
{
    size_t k = 0;
    cr_assert_leq(part->event_count, whole->event_count);
    for (size_t i = 0; i < part->event_count; i++, k++) {
        while (k < whole->event_count && (whole->events[k].time_ns != part->events[i].time_ns ||
                                          whole->events[k].address != part->events[i].address))
            k++;
        cr_assert_lt(k, whole->event_count, "event %zu is not in the whole file", i);
    }
    for (size_t i = 0; i < part->event_count; i++) {
        cr_assert_lt(part->events[i].site, part->site_count);
        cr_assert_lt(part->events[i].thread, part->thread_count);
        cr_assert(part->events[i].device == GP_REC_NO_DEVICE || part->events[i].device < part->device_count);
    }
    for (uint32_t i = 0; i < part->frame_count; i++) {
        cr_assert_lt(part->frames[i].function, part->string_bytes);
        cr_assert_lt(part->frames[i].file, part->string_bytes);
    }
    cr_assert_eq(part->strings[part->string_bytes - 1], '\0');
}

/* Several blocks of events, cut at every length that the file of a killed writer can have. */
Test(recording, cut_at_every_byte, .timeout = 120)
{
    struct gp_recording *made = small(1600);
    struct test_bytes bytes = test_bytes_of(made);
    struct gp_recording *whole = test_parse(&bytes);
    size_t most = 0;
    for (size_t cut = 0; cut < bytes.size; cut++) {
        struct gp_recording *part = NULL;
        unsigned char *exact = malloc(cut + !cut); /* so that a sanitizer detects a read beyond it */
        memcpy(exact, bytes.at, cut);
        int rc = gp_recording_parse(&part, exact, cut, why, sizeof(why));
        free(exact);
        if (rc) {
            cr_assert_eq(rc, -EPROTO);
            cr_assert_gt(strlen(why), 10);
            continue;
        }
        test_part_of(whole, part);
        cr_assert_geq(part->event_count, most, "a longer file never has less");
        cr_assert_eq(part->damaged_blocks, 0, "cut at %zu", cut);
        most = part->event_count;
        gp_recording_free(part);
    }
    cr_assert_eq(most, whole->event_count);
    gp_recording_free(made);
    gp_recording_free(whole);
    free(bytes.at);
}

Test(recording, each_byte_flipped, .timeout = 120)
{
    struct gp_recording *made = small(1600);
    struct test_bytes bytes = test_bytes_of(made);
    struct gp_recording *whole = test_parse(&bytes);
    unsigned seen = 0;
    struct gp_format_tail tail;
    memcpy(&tail, bytes.at + bytes.size - sizeof(tail), sizeof(tail));
    const size_t index = tail.index_offset;
    cr_assert_eq(memcmp(tail.magic, GP_FORMAT_END, sizeof(tail.magic)), 0);
    for (size_t at = 0; at < bytes.size; at++) {
        struct gp_recording *part = NULL;
        bytes.at[at] ^= (unsigned char)(1u << at % 8);
        int rc = gp_recording_parse(&part, bytes.at, bytes.size, why, sizeof(why));
        bytes.at[at] ^= (unsigned char)(1u << at % 8);
        if (rc) {
            cr_assert(rc == -EPROTO && at < sizeof(struct gp_format_head));
            continue;
        }
        test_part_of(whole, part);
        /* Without the end block a recording counts as cut; without another block, as damaged; the
         * index is not needed. */
        cr_assert(part->damaged_blocks == 1 || !part->complete || at >= index, "byte %zu", at);
        seen += part->damaged_blocks > 0;
        gp_recording_free(part);
    }
    cr_assert_gt(seen, bytes.size / 2);
    gp_recording_free(made);
    gp_recording_free(whole);
    free(bytes.at);
}

/* The index has room for 2^17 blocks: with more there is none, also if a write fails after that. */
Test(recording, an_index_that_lacks_blocks_is_not_written, .timeout = 60)
{
    struct gp_file *file;
    struct rlimit limit = {0, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    test_name();
    signal(SIGXFSZ, SIG_IGN);
    unlink(path);
    int fd = gp_file_open(path, true);
    cr_assert_eq(gp_file_new(&file, fd, &(struct gp_file_who){.pid = 7}), 0);
    for (unsigned i = 0; i < (1u << 17) + 10; i++) {
        gp_block_thread(gp_file_pack(file), i, "t");
        cr_assert_eq(gp_file_block(file, GP_BLOCK_THREADS, 1, false), 0);
    }
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    gp_block_thread(gp_file_pack(file), 1, "t");
    cr_assert_eq(gp_file_block(file, GP_BLOCK_THREADS, 1, false), -EFBIG);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    cr_assert_eq(gp_file_end(file), 0);
    struct test_bytes bytes = test_load();
    cr_assert_neq(memcmp(bytes.at + bytes.size - 8, GP_FORMAT_END, 8), 0, "an index without some blocks");
    free(bytes.at);
    unlink(path);
}
