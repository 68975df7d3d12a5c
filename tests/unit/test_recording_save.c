/* SPDX-License-Identifier: MIT
 *
 * test_recording_save.c: what recsave puts into a file (tools/read/recording/save.c) is read back, also where each
 * table needs several blocks; a file that cannot be written whole is reported; sites are joined (join.c); and each
 * allocation of the reader fails in turn.
 */
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <lib/lackmemory.h>
#include <lib/recmake.h>
#include <lib/recsave.h>
#include <read/recording/recording.h>
#include <record/format.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[64], why[256];

static void new_path(void)
{
    strcpy(path, "/tmp/gpuprof-test-save-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
}

static struct gp_recording *back(const struct gp_recording *r)
{
    struct gp_recording *out = NULL;
    new_path();
    cr_assert_eq(recsave(r, path), 0);
    cr_assert_eq(gp_recording_open(&out, path, why, sizeof(why), NULL, NULL), 0, "%s", why);
    unlink(path);
    cr_assert(out->damaged_blocks == 0 && out->complete);
    return out;
}

static const char *text_of(const struct gp_recording *r, uint32_t offset)
{
    cr_assert_lt(offset, r->string_bytes);
    return r->strings + offset;
}

/* ---- files that may not grow ----------------------------------------------------------------------------------------- */

static int lowest(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
}

/* With this many bytes at most. */
static int limited(const struct gp_recording *r, size_t bytes)
{
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY}, limit = {bytes, RLIM_INFINITY};
    int before = lowest();
    new_path();
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int rc = recsave(r, path);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    cr_expect_eq(lowest(), before, "a descriptor is left open");
    return rc;
}

/* ---- tables of several blocks ------------------------------------------------------------------------------------ */

enum {
    TEXTS = 250000,
    FRAMES = 500000,
    SITES = 400000,
    MODULES = 60000,
    THREADS = 250000,
    SAMPLES = 200000,
    BEFORES = 250000
};

/* Every row differs from its neighbours; a block has 2 MiB and one row at most. */
static struct gp_recording *large(void)
{
    struct recmake *make = recmake_new(1 << 30);
    char text[64];
    uint32_t *texts = calloc(TEXTS, sizeof(*texts));
    for (uint32_t i = 0; i < TEXTS; i++) {
        snprintf(text, sizeof(text), "text number %u", i);
        texts[i] = recmake_string(make, text);
    }
    uint32_t id = recmake_string(make, "00ff10"), longest = recmake_string(make, "000102030405060708090a0b0c0d0e0f"
                                                                                 "f0e0d0c0b0a090807060504030201000");
    struct gp_recording *r = recmake_done(make);
    r->frames = calloc(FRAMES, sizeof(*r->frames));
    for (uint32_t i = 0; i < FRAMES; i++)
        r->frames[i] =
            i % 5 ? (struct gp_rec_frame){.function = texts[i % TEXTS],
                                          .file = texts[i / 7],
                                          .line = i,
                                          .module = GP_REC_NONE}
                  : (struct gp_rec_frame){.pc = (1ull << 40) + i, .module = i < 5 * MODULES ? i / 5 : GP_REC_NONE};
    free(r->sites);
    r->sites = calloc(SITES, sizeof(*r->sites));
    for (int64_t i = 1; i < SITES; i++)
        r->sites[i] = (struct gp_rec_site){.first_frame = (uint32_t)i,
                                           .frame_count = i % 9,
                                           .device = 3,
                                           .kind = i % GP_KINDS,
                                           .truncated = i % 2,
                                           .live_bytes = -i,
                                           .live_count = i,
                                           .peak_bytes = i << 40,
                                           .at_peak_bytes = i + 1,
                                           .allocated_bytes = i + 2,
                                           .calls = i + 3};
    r->modules = calloc(MODULES, sizeof(*r->modules));
    for (uint32_t i = 0; i < MODULES; i++)
        r->modules[i] = (struct gp_rec_module){.start = (1ull << 40) + 5 * i,
                                               .end = (1ull << 40) + 5 * i + 5,
                                               .offset = i,
                                               .path = texts[i],
                                               .build_id = i % 3 == 0   ? id
                                                           : i % 3 == 1 ? longest
                                                                        : 0};
    free(r->threads);
    r->threads = calloc(THREADS, sizeof(*r->threads));
    for (uint32_t i = 0; i < THREADS; i++)
        r->threads[i] = (struct gp_rec_thread){.tid = 10 + i, .name = texts[i]};
    r->samples = calloc(SAMPLES, sizeof(*r->samples));
    for (int64_t i = 0; i < SAMPLES; i++)
        r->samples[i] = (struct gp_rec_sample){(uint64_t)(i + 1) << 32, 0, i, i + 1, i + 2, i + 3, i + 4, i + 5};
    r->befores = calloc(BEFORES, sizeof(*r->befores));
    for (int64_t i = 0; i < BEFORES; i++)
        r->befores[i] = (struct gp_rec_before){
            (uint64_t)(i + 1) << 32, 0, {i, i + 1, i + 2, (uint64_t)i + 3, i + 4, i + 5, GP_BEFORE_PART, 0}};
    r->frame_count = FRAMES, r->site_count = SITES, r->module_count = MODULES, r->thread_count = THREADS;
    r->sample_count = SAMPLES, r->before_count = BEFORES;
    free(texts);
    return r;
}

static void expect_tables(const struct gp_recording *a, const struct gp_recording *b)
{
    cr_assert(a->frame_count == b->frame_count && a->site_count == b->site_count && a->module_count == b->module_count);
    cr_assert(a->thread_count == b->thread_count && a->sample_count == b->sample_count &&
              a->before_count == b->before_count);
    for (uint32_t i = 0; i < FRAMES; i++) {
        const struct gp_rec_frame *x = &a->frames[i], *y = &b->frames[i];
        cr_assert(x->pc == y->pc && x->line == y->line && x->module == y->module, "frame %u", i);
        if (i % 1000 < 3) {
            cr_assert_str_eq(text_of(b, y->function), text_of(a, x->function));
            cr_assert_str_eq(text_of(b, y->file), text_of(a, x->file));
        }
    }
    for (uint32_t i = 1; i < SITES; i++)
        cr_assert_eq(memcmp(&a->sites[i], &b->sites[i], sizeof(a->sites[0])), 0, "site %u", i);
    for (uint32_t i = 0; i < MODULES; i++) {
        const struct gp_rec_module *x = &a->modules[i], *y = &b->modules[i];
        cr_assert(x->start == y->start && x->end == y->end && x->offset == y->offset, "module %u", i);
        cr_assert_str_eq(text_of(b, y->path), text_of(a, x->path));
        cr_assert_str_eq(text_of(b, y->build_id), text_of(a, x->build_id));
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        cr_assert_eq(a->threads[i].tid, b->threads[i].tid, "thread %u", i);
        cr_assert(i % 1000 > 3 || strcmp(text_of(a, a->threads[i].name), text_of(b, b->threads[i].name)) == 0);
    }
    cr_assert_arr_eq(a->samples, b->samples, SAMPLES * sizeof(a->samples[0]));
    cr_assert_arr_eq(a->befores, b->befores, BEFORES * sizeof(a->befores[0]));
}

struct seen {
    unsigned blocks[GP_BLOCK_OOM + 1];
    uint64_t rows[GP_BLOCK_OOM + 1];
    uint32_t largest;
};

/* Of the file: how many blocks of each type, and their rows. */
static struct seen blocks_of(void)
{
    struct seen seen = {.largest = 0};
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_eq(fstat(fd, &status), 0);
    const size_t size = (size_t)status.st_size;
    const uint8_t *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    cr_assert_neq(bytes, MAP_FAILED);
    for (size_t at = sizeof(struct gp_format_head); size - at > sizeof(struct gp_format_tail);) {
        struct gp_format_block block;
        memcpy(&block, bytes + at, sizeof(block));
        cr_assert_leq(block.type, GP_BLOCK_OOM);
        seen.blocks[block.type]++;
        seen.rows[block.type] += block.count;
        seen.largest = block.bytes > seen.largest && block.type != GP_BLOCK_INDEX ? block.bytes : seen.largest;
        if (block.type == GP_BLOCK_INDEX)
            break;
        at += sizeof(block) + block.stored_bytes;
    }
    munmap((void *)bytes, size);
    close(fd);
    return seen;
}

Test(recording_save, tables_of_several_blocks, .timeout = 60)
{
    static const struct {
        enum gp_format_type type;
        uint64_t rows;
    } tables[] = {{GP_BLOCK_FRAMES, FRAMES},   {GP_BLOCK_SITES, SITES},     {GP_BLOCK_SITE_NUMBERS, SITES},
                  {GP_BLOCK_MODULES, MODULES}, {GP_BLOCK_THREADS, THREADS}, {GP_BLOCK_SAMPLES, SAMPLES},
                  {GP_BLOCK_BEFORE, BEFORES}};
    struct gp_recording *r = large(), *copy = NULL;
    new_path();
    cr_assert_eq(recsave(r, path), 0);
    cr_assert_eq(gp_recording_open(&copy, path, why, sizeof(why), NULL, NULL), 0, "%s", why);
    struct seen seen = blocks_of();
    unlink(path);
    expect_tables(r, copy);
    cr_expect(seen.largest >= GP_FORMAT_BLOCK_BYTES / 2 && seen.largest <= GP_FORMAT_BLOCK_BYTES / 2 + 9000, "%u",
              seen.largest);
    for (size_t i = 0; i < GP_COUNT(tables); i++) {
        cr_expect_gt(seen.blocks[tables[i].type], 1, "type %u in one block", tables[i].type);
        cr_expect_eq(seen.rows[tables[i].type], tables[i].rows, "type %u", tables[i].type);
    }
    cr_expect_eq(seen.rows[GP_BLOCK_STRINGS], r->string_bytes);
    cr_expect_eq(seen.blocks[GP_BLOCK_STRINGS],
                 (r->string_bytes + GP_FORMAT_BLOCK_BYTES / 2 - 1) / (GP_FORMAT_BLOCK_BYTES / 2));
    cr_expect(seen.blocks[GP_BLOCK_PROCESS] == 1 && seen.blocks[GP_BLOCK_END] == 1 &&
              seen.blocks[GP_BLOCK_COUNTS] == 0);
    cr_expect(seen.blocks[GP_BLOCK_OOM] == 0 && seen.blocks[GP_BLOCK_EVENTS] == 0 && seen.blocks[GP_BLOCK_INDEX] == 1);
    signal(SIGXFSZ, SIG_IGN);
    for (size_t megabytes = 0; megabytes < 3; megabytes += 2) { /* not even the strings fit */
        cr_expect_eq(limited(r, megabytes << 20), -EFBIG, "%zu", megabytes);
        unlink(path);
    }
    gp_recording_free(r);
    gp_recording_free(copy);
}

/* ---- a small one ------------------------------------------------------------------------------------------------- */

static const struct recmake_frame stack[] = {{"f", "a.py", 1}, {"g", "b.py", 2}, {NULL, NULL, 0}};

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

Test(recording_save, streams_and_devices_that_have_no_row)
{
    struct gp_recording *r = small(2);
    r->events[1].stream = 0, r->events[2].stream = GP_REC_OTHERS;
    r->events[1].device = GP_REC_NO_DEVICE, r->events[2].device = 1;
    struct gp_recording *copy = back(r);
    cr_assert_eq(copy->event_count, 3);
    for (unsigned i = 1; i < 3; i++)
        cr_expect(copy->streams[copy->events[i].stream] == 0 && copy->events[i].device == GP_REC_NO_DEVICE);
    cr_expect_eq(copy->baseline[0].unused, 9);
    gp_recording_free(r);
    gp_recording_free(copy);
}

Test(recording_save, what_a_full_disk_lost)
{
    for (unsigned early = 0; early < 2; early++) {
        struct gp_recording *r = small(20);
        r->tried += 9, r->dropped = 9, r->unwritten = 7, r->write_error = ENOSPC, r->write_error_ns = 1000090000;
        r->ended_early = early, r->end_ns = 1000090000, r->stopped_ns = early ? 1009000000 : r->end_ns;
        for (unsigned i = 0; i < GP_LOSTS; i++)
            r->lost[i] = i + 1;
        struct gp_recording *copy = back(r);
        cr_expect(copy->tried == r->tried && copy->dropped == 9 && copy->unwritten == 7 && copy->write_error == ENOSPC);
        cr_expect(copy->write_error_ns == 1000090000 && copy->ended_early == early && copy->end_ns == 1000090000);
        cr_expect_eq(copy->stopped_ns, r->stopped_ns);
        cr_expect_eq(gp_rec_missing(copy), early ? 2 : 9);
        cr_expect_arr_eq(copy->lost, r->lost, sizeof(r->lost));
        gp_recording_free(r);
        gp_recording_free(copy);
    }
}

Test(recording_save, a_cut_recording_stays_one)
{
    struct gp_recording *r = small(20), *copy = NULL;
    r->complete = false;
    new_path();
    cr_assert_eq(recsave(r, path), 0);
    struct seen seen = blocks_of();
    cr_expect(seen.blocks[GP_BLOCK_END] == 0 && seen.blocks[GP_BLOCK_COUNTS] == 1);
    cr_assert_eq(gp_recording_open(&copy, path, why, sizeof(why), NULL, NULL), 0);
    unlink(path);
    cr_expect(!copy->complete && copy->event_count == r->event_count && copy->end_ns == r->end_ns);
    gp_recording_free(r);
    gp_recording_free(copy);
}

/* ---- files that cannot be written whole -------------------------------------------------------------------------- */

/* It says so wherever the disk is full: 0 only if everything is in the file. */
Test(recording_save, a_file_that_is_not_whole_is_an_error, .timeout = 120)
{
    struct stat status;
    signal(SIGXFSZ, SIG_IGN);
    struct gp_recording *r = small(150000);
    cr_assert_eq(limited(r, RLIM_INFINITY), 0);
    cr_assert_eq(stat(path, &status), 0);
    unlink(path);
    const size_t size = (size_t)status.st_size;
    cr_assert_gt(size, 500000);
    for (unsigned part = 0; part < 24; part++) {
        size_t bytes = part < 20 ? size / 20 * part : size - (24 - part) * 13;
        int rc = limited(r, bytes);
        struct gp_recording *copy = NULL;
        int opened = gp_recording_open(&copy, path, why, sizeof(why), NULL, NULL);
        bool whole = !opened && copy->complete && copy->event_count == r->event_count &&
                     copy->site_count == r->site_count && copy->sample_count == 1 && copy->has_oom &&
                     copy->sites[1].calls == r->sites[1].calls;
        cr_expect(rc == 0 ? whole : rc == -EFBIG, "%zu of %zu bytes: %d", bytes, size, rc);
        cr_expect(rc != 0 || bytes + 100 > size, "%zu of %zu bytes", bytes, size);
        if (!opened)
            gp_recording_free(copy);
        unlink(path);
    }
    gp_recording_free(r);
}

/* ---- sites that are joined --------------------------------------------------------------------------------------- */

Test(recording_save, joined_sites_have_the_sums)
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
Test(recording_save, joined_holders_are_in_order)
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
Test(recording_save, each_allocation_of_the_reader_fails)
{
    struct gp_recording *r = small(200);
    if (!MEMORY_IS_COUNTED)
        cr_skip("a sanitizer's allocator");
    new_path();
    cr_assert_eq(recsave(r, path), 0);
    struct memory_tried tried = memory_each(open_once, r);
    unlink(path);
    cr_expect_gt(tried.calls, 25, "%u", tried.calls);
    cr_expect_eq(tried.none, 0, "%u", tried.none);
    cr_expect_eq(tried.wrong, 0, "%u", tried.wrong);
    cr_expect_eq(tried.kept, 0, "%u", tried.kept);
    gp_recording_free(r);
}
