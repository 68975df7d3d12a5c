/* SPDX-License-Identifier: MIT
 *
 * test_recorder_faults.c: the recorder (core/record/recorder.c) when a copy, a write or a mapping fails, when the session
 * has wrong or changing contents, when the deadline passes, and when it ends the recording of another recorder.
 */
#include "record/recorder.h"
#include "recorder_fixture.h"
#include <dirent.h>

TestSuite(recorder_faults, .timeout = 120);

static unsigned open_files(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* ---- any call fails once ----------------------------------------------------------------------------------------- */

#define ROUNDS 4u

/* Adds a bit of everything. */
static void grow(unsigned round)
{
    char text[32];
    snprintf(text, sizeof(text), "function%.*s", (int)round * 3, "abcdefghijklmnop");
    uint32_t frame = recimage_python(text, "file.py", round);
    recimage_native(0x1000 + round);
    recimage_site(frame, 2);
    recimage_device(round, 100 + round);
    recimage.oom.seq += 2;
    recimage.oom.count++;
    recimage.before.devices[round].bytes = 50;
    for (unsigned i = 0; i < 10; i++)
        recimage_event(test_now, 100 + round, round + 1, (uint8_t)round);
}

static char *dumped; /* the whole file, while several of its lines are looked for */

static char *lines_of(const char *word)
{
    size_t length = strlen(word);
    if (!dumped)
        return recdump_of(test_path, word);
    char *text = calloc(1, strlen(dumped) + 1), *to = text;
    for (const char *line = dumped, *next; *line; line = next) {
        next = strchr(line, '\n') + 1;
        if (strncmp(line, word, length) == 0 && line[length] == ' ')
            to = mempcpy(to, line, (size_t)(next - line));
    }
    return text;
}

/* The rows of blocks with a first row, one after the other without a gap; row 0 may be written again. */
static uint64_t rows_of(const char *word)
{
    uint64_t rows = 0;
    char *text = lines_of(word);
    for (char *line = text; *line; line = strchr(line, '\n') + 1) {
        unsigned long count = strtoul(line + strlen(word) + 2, &line, 10), first = strtoul(line, &line, 10);
        if (first == 0 && count == 1 && rows > 1)
            continue;
        cr_expect_eq(first, rows, "%s", text);
        rows += count;
    }
    free(text);
    return rows;
}

/* How many blocks there are. */
static unsigned blocks_of(const char *word)
{
    unsigned count = 0;
    char *text = lines_of(word);
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        count++;
    free(text);
    return count;
}

/* tried, delivered, and the sum of the events dropped, at the end. */
static void counts_of(uint64_t counts[3])
{
    unsigned long long v[7] = {0};
    char *text = lines_of("END");
    cr_assert_eq(sscanf(text, "END x1 | %*u %*u %*u %llu %llu [ %llu %llu %llu %llu %llu ]", &v[0], &v[1], &v[2], &v[3],
                        &v[4], &v[5], &v[6]),
                 7, "%s", text);
    free(text);
    counts[0] = v[0];
    counts[1] = v[1];
    counts[2] = v[2] + v[3] + v[4] + v[5] + v[6];
}

static void prepare(struct gp_recorder_setup *setup, bool from_start)
{
    recimage_new();
    recimage.header.chunk_count = 4;
    recimage.header.before_offset = offsetof(struct recimage, before);
    recimage.header.before_bytes = sizeof(recimage.before);
    recimage.before.attached = 1;
    *setup = recimage_setup();
    setup->from_start = from_start;
    test_now = 8 * SECOND;
}

struct outcome {
    int begun, ended;    /* errors */
    unsigned before_end; /* copies or writes up to the end */
    struct gp_recorder_stats stats;
};

static void run(struct outcome *out, bool from_start, const unsigned *calls)
{
    struct gp_recorder_setup setup;
    struct gp_recorder *r = NULL;
    unsigned fail = recimage_fail;
    memset(out, 0, sizeof(*out));
    prepare(&setup, from_start);
    recimage_fail = fail;
    test_writes = 0;
    if ((out->begun = gp_recorder_new(&r, test_file(), &setup)) != 0)
        return;
    for (unsigned i = 0; i < ROUNDS; i++, test_now += 2 * SECOND) {
        if (i + 1 < ROUNDS) /* the last round makes up for what failed */
            grow(i);
        ssize_t got = gp_recorder_poll(r);
        cr_expect(got >= 0 || got == -EIO || got == -ENOMEM, "%zd", got);
    }
    out->before_end = *calls;
    out->ended = gp_recorder_end(r, GP_END_PROCESS, &out->stats);
}

/* Everything of the rounds is in the file. */
static void expect_whole(const char *what, unsigned n)
{
    const struct gp_wire_sites *sites = &recimage.sites.head;
    dumped = recdump(test_path);
    cr_expect_eq(rows_of("STRINGS"), sites->strings, "%s %u", what, n);
    cr_expect_eq(rows_of("FRAMES"), sites->frames, "%s %u", what, n);
    cr_expect_eq(rows_of("SITES"), sites->rows, "%s %u", what, n);
    cr_expect_eq(rows_of("SITE_NUMBERS"), sites->rows, "%s %u", what, n);
    char *threads = lines_of("THREADS"), *oom = lines_of("OOM"), word[32];
    for (unsigned tid = 100; tid < 100 + ROUNDS - 1; tid++) {
        snprintf(word, sizeof(word), "| %u ", tid);
        char *first = strstr(threads, word);
        cr_expect(first && !strstr(first + 1, word), "%s %u: %s", what, n, threads);
    }
    cr_expect_not_null(strstr(oom, "[ 1: 3 "), "%s %u: %s", what, n, oom);
    cr_expect_geq(blocks_of("PROCESS"), 1, "%s %u", what, n);
    cr_expect_geq(blocks_of("DEVICES"), ROUNDS - 1);
    cr_expect_geq(blocks_of("BEFORE"), 1, "%s %u", what, n);
    free(threads);
    free(oom);
    free(dumped);
    dumped = NULL;
}

/* A copy fails: nothing is lost, as long as it is not one of the last ones. */
Test(recorder_faults, a_copy_that_fails_is_made_up_for)
{
    for (int from_start = 0; from_start < 2; from_start++) {
        unsigned total = 0;
        for (unsigned n = 0; n <= total; n++) {
            struct outcome out;
            uint64_t counts[3];
            unsigned files = open_files();
            mappings.bytes = 0;
            recimage_fail = n;
            run(&out, from_start, &recimage_copies);
            cr_expect_eq(mappings.bytes, 0, "copy %u", n);
            cr_expect_eq(open_files(), files, "copy %u", n);
            total = n ? total : recimage_copies;
            if (out.begun) {
                cr_expect(out.begun == -EIO && n, "copy %u", n);
            } else {
                cr_expect_eq(out.ended, 0, "copy %u", n);
                counts_of(counts);
                cr_expect_eq(counts[0], counts[1] + counts[2], "copy %u", n);
            }
            if (!out.begun && (!n || n <= out.before_end)) {
                expect_whole("copy", n);
                cr_expect(counts[1] == 30 && counts[2] == 0 && out.stats.recorded == 30, "copy %u", n);
            }
            recimage_fail = 0;
            unlink(test_path);
            recimage_end();
        }
        cr_expect_gt(total, 100);
    }
    test_now = 0;
}

/* A full disk loses the events of one block; everything else comes later. Another error ends the recording. */
Test(recorder_faults, a_write_that_fails_is_made_up_for)
{
    static const int errors[] = {ENOSPC, EIO};
    for (unsigned e = 0; e < 2; e++) {
        unsigned total = 0;
        for (unsigned n = 0; n <= total; n++) {
            struct outcome out;
            uint64_t counts[3];
            unsigned files = open_files();
            mappings.bytes = 0;
            test_write_fails = n;
            test_write_error = errors[e];
            run(&out, true, &test_writes);
            total = n ? total : test_writes;
            test_write_fails = 0;
            cr_expect_eq(mappings.bytes, 0, "write %u", n);
            cr_expect_eq(open_files(), files, "write %u", n);
            cr_expect_eq(out.begun, n == 1 ? -errors[e] : 0, "write %u", n);
            cr_expect_eq(out.stats.dead, e && n > 1 && n < total, "write %u", n);
            if (n != 1 && (!n || !e)) {
                if (!n || n <= out.before_end) {
                    cr_expect_eq(out.ended, 0, "write %u", n);
                    expect_whole("write", n);
                    counts_of(counts);
                    cr_expect_eq(counts[0], 30);
                    cr_expect_eq(counts[1] + counts[2], 30);
                    cr_expect(counts[2] == 0 || counts[2] == 10, "write %u", n);
                    cr_expect_eq(out.stats.lost_error, counts[2] ? ENOSPC : 0);
                    cr_expect(out.stats.lost == counts[2] && out.stats.recorded == counts[1]);
                    char *text = recdump(test_path);
                    cr_expect_null(strstr(text, "bad"), "write %u: %s", n, text);
                    free(text);
                }
            } else if (n > 1 && n <= total) {
                cr_expect_eq(out.ended, -EIO, "write %u", n);
                cr_expect_eq(blocks_of("END"), n == total, "write %u", n);
            }
            unlink(test_path);
            recimage_end();
        }
        cr_expect_gt(total, 20);
    }
    test_now = 0;
}

Test(recorder_faults, a_mapping_that_fails_is_made_up_for)
{
    for (int from_start = 0; from_start < 2; from_start++)
        for (unsigned n = 1; n <= 9; n++) {
            struct outcome out;
            unsigned files = open_files();
            mappings.bytes = 0;
            mappings.fail = n;
            run(&out, from_start, &test_writes);
            cr_expect_eq(open_files(), files, "mapping %u", n);
            cr_expect_eq(mappings.bytes, 0, "mapping %u", n);
            cr_expect(mappings.fail || out.begun == (n <= 3 ? -ENOMEM : 0), "mapping %u", n);
            if (!out.begun) {
                uint64_t counts[3];
                counts_of(counts);
                expect_whole("mapping", n);
                cr_expect(counts[1] == 30 && counts[2] == 0, "mapping %u", n);
            }
            mappings.fail = 0;
            unlink(test_path);
            recimage_end();
        }
    test_now = 0;
}

Test(recorder_faults, a_ring_that_cannot_be_is_refused)
{
    static const uint32_t counts[] = {0, 3, (1u << 18) + 1, 1u << 19};
    for (unsigned i = 0; i < 4; i++) {
        struct gp_recorder *r = NULL;
        unsigned files = open_files();
        recimage_new();
        struct gp_recorder_setup setup = recimage_setup();
        setup.header.chunk_count = counts[i];
        mappings.bytes = 0;
        cr_expect_eq(gp_recorder_new(&r, test_file(), &setup), -EINVAL);
        cr_expect_eq(open_files(), files);
        cr_expect_eq(mappings.bytes, 0);
        cr_expect_null(r);
        unlink(test_path);
        recimage_end();
    }
}

/* ---- call sites -------------------------------------------------------------------------------------------------- */

/* Poll with one event, so that there is a round. */
static void round_of(struct gp_recorder *r)
{
    recimage_event(test_now, 1, 0, 0);
    cr_assert_geq(gp_recorder_poll(r), 0);
    test_now += 2 * SECOND;
}

static char *texts_of(uint32_t *bytes)
{
    char *text = recdump_of(test_path, "STRINGS"), *out = calloc(1, RECIMAGE_STRINGS + 1);
    *bytes = 0;
    for (char *at = text; (at = strchr(at, '"')); at++)
        for (at++; *at != '"'; at++) {
            bool zero = at[0] == '\\' && at[1] == '0';
            out[(*bytes)++] = zero ? '\0' : *at;
            at += zero;
        }
    free(text);
    return out;
}

/* The tables grow by any number of bytes and rows between two rounds. */
Test(recorder_faults, tables_that_grow)
{
    uint32_t bytes;
    unsigned long state = 12345;
    struct gp_recorder_setup setup;
    recimage_new();
    setup = recimage_setup();
    test_now = 8 * SECOND;
    struct gp_recorder *r = test_begin(&setup);
    for (unsigned round = 0; round < 12; round++) {
        for (unsigned i = round == 3 ? 1100 : (unsigned)(state >> 20) % 40; i; i--) {
            char text[200];
            state = state * 6364136223846793005ul + 1442695040888963407ul;
            memset(text, 'a' + (int)(i % 26), sizeof(text));
            text[(state >> 33) % (round == 3 ? 150 : 20)] = '\0';
            recimage_site(recimage_python(text, "", (uint32_t)i), 1);
        }
        if (round == 5) /* of exactly the size of the buffer */
            for (uint32_t left = (64u << 10); left; left -= 64)
                recimage_string("123456789012345678901234567890123456789012345678901234567890123");
        round_of(r);
    }
    test_end(r, GP_END_PROCESS);
    char *texts = texts_of(&bytes);
    cr_expect_eq(bytes, recimage.sites.head.strings);
    cr_expect_eq(memcmp(texts, recimage.sites.strings, bytes), 0);
    free(texts);
    cr_expect_eq(rows_of("STRINGS"), bytes);
    cr_expect_eq(rows_of("FRAMES"), recimage.sites.head.frames);
    cr_expect_eq(rows_of("SITES"), recimage.sites.head.rows);
    cr_expect_eq(rows_of("SITE_NUMBERS"), recimage.sites.head.rows);
    cr_expect_gt(recimage.sites.head.rows, 1100);
    test_done();
}

enum { SOUND, WRONG };

static void tables_with(void *word, uint64_t value, size_t word_bytes, int how)
{
    struct gp_recorder *r = test_started();
    memcpy(word, &value, word_bytes);
    round_of(r);
    test_end(r, GP_END_PROCESS);
    cr_expect_eq(blocks_of("SITES") + blocks_of("STRINGS") + blocks_of("FRAMES"), how == SOUND ? 3 : 0, "%lu", value);
    cr_expect_eq(blocks_of("SITE_NUMBERS"), how == SOUND);
    test_done();
}

#define TABLES(_field, _value, _how)                                                                                   \
    do {                                                                                                               \
        recimage_new();                                                                                                \
        recimage_site(recimage_python("f", "g", 1), 1);                                                                \
        tables_with(&(_field), (_value), sizeof(_field), _how);                                                        \
    } while (0)

Test(recorder_faults, tables_that_are_wrong_are_not_read)
{
    struct gp_wire_sites *sites = &recimage.sites.head;
    const uint64_t bytes = sizeof(recimage.sites), row = sizeof(struct gp_wire_site),
                   frame = sizeof(struct gp_wire_frame);
    TABLES(sites->row_bytes, row, SOUND);
    TABLES(sites->row_bytes, row + 8, WRONG);
    TABLES(sites->frame_bytes, frame - 8, WRONG);
    TABLES(sites->rows_offset, bytes - 2 * row, SOUND);
    TABLES(sites->rows_offset, bytes - 2 * row + 8, WRONG);
    TABLES(sites->rows_offset, bytes + 8, WRONG);
    TABLES(sites->rows_offset, bytes - 2 * row - 4, WRONG);
    TABLES(sites->frames_offset, bytes - frame, SOUND);
    TABLES(sites->frames_offset, bytes - frame + 8, WRONG);
    TABLES(sites->frames_offset, UINT64_MAX - 7, WRONG);
    TABLES(sites->strings_offset, bytes - 8, SOUND);
    TABLES(sites->strings_offset, bytes, WRONG);
    TABLES(sites->strings_offset, bytes - 9, WRONG);
    TABLES(sites->rows, UINT32_MAX, WRONG);
    TABLES(sites->frames, UINT32_MAX, WRONG);
    TABLES(sites->strings, UINT32_MAX, WRONG);
}

/* Tables that come while the process runs, behind the last byte of the session or in front of it. */
Test(recorder_faults, tables_that_come_later)
{
    const uint64_t at = offsetof(struct recimage, sites), total = sizeof(recimage);
    static const int hows[] = {SOUND, WRONG, SOUND, WRONG, WRONG, WRONG, WRONG};
    const uint64_t tries[][2] = {{at, sizeof(recimage.sites)},
                                 {at + 4, sizeof(recimage.sites)},
                                 {at, total - at},
                                 {at, total - at + 8},
                                 {total + 8, 0},
                                 {at, sizeof(struct gp_wire_sites) - 8},
                                 {0, sizeof(recimage.sites)}};
    for (unsigned i = 0; i < sizeof(hows) / sizeof(hows[0]); i++) {
        recimage_new();
        recimage_site(recimage_python("f", "g", 1), 1);
        recimage.header.sites_offset = recimage.header.sites_bytes = 0;
        struct gp_recorder *r = test_started();
        round_of(r);
        recimage.header.sites_offset = tries[i][0];
        recimage.header.sites_bytes = tries[i][1];
        round_of(r);
        recimage.header.sites_offset = 8; /* once known, they stay */
        round_of(r);
        test_end(r, GP_END_PROCESS);
        cr_expect_eq(blocks_of("SITES"), hows[i] == SOUND, "try %u", i);
        cr_expect_eq(blocks_of("SITE_NUMBERS"), hows[i] == SOUND, "try %u", i);
        test_done();
    }
}

/* Row 0 gets a frame later, and is then written again, once. */
Test(recorder_faults, the_unknown_site_gets_a_name)
{
    recimage_new();
    struct gp_recorder *r = test_started();
    round_of(r);
    recimage.sites.rows[0].frame_count = 1; /* of a frame that is not there yet */
    round_of(r);
    recimage_python("before", "", 0);
    round_of(r);
    recimage_site(0, 1);
    round_of(r);
    test_end(r, GP_END_PROCESS);
    char *text = recdump_of(test_path, "SITES");
    cr_expect_str_eq(text, "SITES x1 0 | 0 0 0 0 0\nSITES x1 0 | 0 1 0 0 0\nSITES x1 1 | 0 1 1 0 1\n");
    free(text);
    test_done();
}

/* More events than a quarter of a block: the sites that they name are written before them. */
Test(recorder_faults, sites_come_before_the_events_that_name_them)
{
    for (unsigned more = 0; more < 3; more++) {
        recimage_new();
        struct gp_recorder *r = test_started();
        round_of(r);
        recimage_event(test_now, 1, 0, 0);
        gp_recorder_poll(r); /* a round, so the next poll is none */
        test_now++;
        uint32_t site = recimage_site(recimage_python("f", "g", 1), 1);
        for (unsigned i = 0; i < (1u << 13) + (more != 0); i++)
            recimage_event(test_now, 1, i == 5 && more < 2 ? site : 0, 0);
        gp_recorder_poll(r);
        cr_expect_eq(blocks_of("SITES"), more == 1 ? 2 : 1, "%u", more);
        test_end(r, GP_END_PROCESS);
        cr_expect_eq(blocks_of("SITES"), 2, "%u", more);
        test_done();
    }
}

/* ---- contents that change ---------------------------------------------------------------------------------------- */

static unsigned changes;

static void change_numbers(uint64_t offset)
{
    static unsigned looks;
    if (offset == offsetof(struct gp_wire_header, publish_seq) && changes && ++looks % 2 == 0)
        changes--;
    recimage.header.publish_seq = changes ? recimage.header.publish_seq + 1 : 8;
}

/* Numbers are copied up to 16 times until they stand still. */
Test(recorder_faults, numbers_are_copied_until_they_stand_still)
{
    for (unsigned tries = 13; tries < 19; tries++) {
        recimage_new();
        recimage_device(0, 100);
        struct gp_recorder *r = test_started();
        recimage.header.publish_seq = 1;
        changes = tries;
        recimage_copied = change_numbers;
        round_of(r);
        cr_expect_eq(blocks_of("DEVICES"), tries < 16, "%u", tries);
        changes = 0;
        test_end(r, GP_END_PROCESS);
        test_done();
    }
}

/* An odd number means that they are being written, even if it stands still. */
Test(recorder_faults, numbers_that_are_being_written_are_not_used)
{
    recimage_new();
    recimage_device(0, 100);
    struct gp_recorder *r = test_started();
    recimage.header.publish_seq = 3;
    round_of(r);
    cr_expect_eq(blocks_of("DEVICES") + blocks_of("SAMPLES"), 0);
    recimage.header.publish_seq = 4;
    round_of(r);
    cr_expect_eq(blocks_of("DEVICES") + blocks_of("SAMPLES"), 2);
    recimage.devices[0].flags = GP_DEVICE_IDENTIFIED; /* gone */
    round_of(r);
    cr_expect_eq(blocks_of("DEVICES") + blocks_of("SAMPLES"), 2);
    test_end(r, GP_END_PROCESS);
    test_done();
}

static void change_oom(uint64_t offset)
{
    recimage.oom.seq += offset == offsetof(struct recimage, oom) ? 2 : 0;
}

Test(recorder_faults, a_report_of_lack_of_memory_is_written_once)
{
    recimage_new();
    struct gp_recorder *r = test_started();
    static const struct {
        uint64_t seq, count;
        unsigned blocks;
    } rounds[] = {{0, 0, 0}, {2, 0, 0}, {3, 1, 0}, {4, 1, 1}, {4, 1, 1}, {5, 2, 1}, {6, 2, 2}};
    for (unsigned i = 0; i < sizeof(rounds) / sizeof(rounds[0]); i++) {
        recimage.oom.seq = rounds[i].seq;
        recimage.oom.count = rounds[i].count;
        round_of(r);
        cr_expect_eq(blocks_of("OOM"), rounds[i].blocks, "%u", i);
    }
    recimage_copied = change_oom;
    round_of(r);
    cr_expect_eq(blocks_of("OOM"), 2, "it changes between two copies");
    recimage_copied = NULL;
    test_end(r, GP_END_PROCESS);
    cr_expect_eq(blocks_of("OOM"), 3);
    test_done();
}

Test(recorder_faults, a_library_without_reports_of_lack_of_memory)
{
    for (unsigned way = 0; way < 3; way++) {
        recimage_new();
        recimage.oom.seq = recimage.oom.count = 2;
        recimage.header.oom_offset = way == 1 ? 0 : recimage.header.oom_offset;
        recimage.header.oom_bytes -= way == 2;
        struct gp_recorder *r = test_started();
        round_of(r);
        test_end(r, GP_END_PROCESS);
        cr_expect_eq(blocks_of("OOM"), way == 0);
        test_done();
    }
}
