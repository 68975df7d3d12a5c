/* SPDX-License-Identifier: MIT
 *
 * test_recording.c: a recording is the same after writing and reading; damaged, cut or foreign
 * files are reported as such, and their sound blocks are read.
 */
#define _GNU_SOURCE
#include "lib/recmake.h"
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <lib/recsave.h>
#include <record/file.h>
#include <record/format.h>
#include <record/pack.h>
#include <record/recorder.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct test_bytes {
    unsigned char *at;
    size_t size;
};

static void test_name(char path[64])
{
    strcpy(path, "/tmp/gpuprof-test-recording-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    close(fd);
}

static struct test_bytes test_load(const char *path)
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
    char path[64];
    test_name(path);
    cr_assert_eq(recsave(recording, path), 0);
    struct test_bytes bytes = test_load(path);
    unlink(path);
    return bytes;
}

static struct gp_recording *test_parse(const struct test_bytes *bytes)
{
    struct gp_recording *out = NULL;
    char why[256];
    int rc = gp_recording_parse(&out, bytes->at, bytes->size, why, sizeof(why));
    cr_assert_eq(rc, 0, "%d %s", rc, why);
    return out;
}

/* Builds a recording with every kind of data. */
static struct gp_recording *test_rich(unsigned steps)
{
    struct recmake *make = recmake_new(16ll << 30);
    const struct recmake_frame stack[] = {
        {"forward", "model.py", 12}, {"step", "train.py", 99}, {"<module>", "tr\xc3\xa4in.py", 7}, {NULL, NULL, 0}};
    const struct recmake_frame other[] = {{"load", "data.py", 3}, {NULL, NULL, 0}};
    uint32_t host = recmake_device(make, GP_WIRE_HOST, -1), second = recmake_device(make, 5, 8ll << 30);
    uint32_t site = recmake_site(make, GP_KIND_LINEAR, stack), site2 = recmake_site(make, GP_KIND_PINNED, other);
    uint64_t now = 2000000000ull;
    for (unsigned i = 0; i < steps; i++) {
        char name[32];
        snprintf(name, sizeof(name), "step %u", i);
        recmake_at(make, now += 1000000 + i);
        recmake_mark(make, name);
        for (unsigned k = 0; k < 40; k++) {
            recmake_at(make, now += 700 + k);
            recmake_alloc(make, k % 3 == 0 ? second : 0, GP_KIND_LINEAR, 0x7f0000000000ull + k * 0x200000,
                          (k + 1) * 4096, site);
        }
        recmake_alloc(make, host, GP_KIND_PINNED, 0x560000000000ull + i * 4096, 100, site2);
        for (unsigned k = 40; k-- > (i == 3 ? 1u : 0u);) {
            recmake_at(make, now += 300);
            recmake_free(make, k % 3 == 0 ? second : 0, GP_KIND_LINEAR, 0x7f0000000000ull + k * 0x200000);
        }
        recmake_sample(make, &(struct gp_rec_sample){now, 0, i * 10, i * 20, i * 30, 0, i % 2 ? -1 : 77, -1});
    }
    recmake_event(make, &(struct gp_rec_event){.time_ns = now, .bytes = 1ull << 40, .type = GP_EVENT_OOM, .device = 0});
    recmake_event(make, &(struct gp_rec_event){.time_ns = now,
                                               .address = 99,
                                               .bytes = 1 << 20,
                                               .unused = 12345,
                                               .cost = 200,
                                               .type = GP_EVENT_SEGMENT_ALLOC,
                                               .kind = GP_KIND_VMM,
                                               .device = 0});
    struct gp_recording *r = recmake_done(make);
    r->has_oom = true;
    r->oom = (struct gp_wire_oom){.count = 3,
                                  .api = "cuMemAlloc_v2",
                                  .asked_bytes = 1ull << 40,
                                  .device = 0,
                                  .holder_count = 1,
                                  .holders = {{.block_bytes = 4096, .count = 2, .site = 1, .kind = 1}}};
    r->lost[GP_LOST_RING] = 5;
    r->dropped = 5;
    r->tried += 5;
    r->unwritten = 2;
    r->write_error = ENOSPC;
    r->write_error_ns = now - 5000000;
    r->has_rank = true;
    r->rank = 11;
    r->local_rank = -1;
    r->world_size = 16;
    r->devices[0].has_last = true;
    r->devices[0].last.stats[GP_STAT_ALLOCATED_BYTES][0].peak = 4711;
    r->modules = calloc(2, sizeof(*r->modules));
    r->attached = GP_REC_ATTACHED_YES;
    r->befores = calloc(3, sizeof(*r->befores));
    r->befores[r->before_count++] = (struct gp_rec_before){now - 3000, 0, {90, 100, 9, 1, -1, -1, GP_BEFORE_PART, 0}};
    r->befores[r->before_count++] =
        (struct gp_rec_before){now - 2000, second, {7, -1, -1, 0, 5, 7, GP_BEFORE_FRAMEWORK, 0}};
    r->befores[r->before_count++] = (struct gp_rec_before){now - 1000, 0, {80, 100, 8, 2, 3, 4, GP_BEFORE_DRIVER, 0}};
    return r;
}

static const char *test_text(const struct gp_recording *r, uint32_t offset)
{
    cr_assert_lt(offset, r->string_bytes);
    return r->strings + offset;
}

static void test_same_event(const struct gp_recording *a, const struct gp_recording *b, const struct gp_rec_event *x,
                            const struct gp_rec_event *y)
{
    cr_assert(x->time_ns == y->time_ns && x->address == y->address && x->unused == y->unused && x->site == y->site &&
              x->cost == y->cost);
    cr_assert(x->type == y->type && x->kind == y->kind);
    cr_assert_eq(a->threads[x->thread].tid, b->threads[y->thread].tid);
    cr_assert_eq(a->streams[x->stream], b->streams[y->stream]);
    if (x->type == GP_EVENT_MARK)
        cr_assert_str_eq(test_text(a, (uint32_t)x->bytes), test_text(b, (uint32_t)y->bytes));
    else
        cr_assert_eq(x->bytes, y->bytes);
    cr_assert_eq(x->device == GP_REC_NO_DEVICE, y->device == GP_REC_NO_DEVICE);
    if (x->device != GP_REC_NO_DEVICE)
        cr_assert_eq(a->devices[x->device].index, b->devices[y->device].index);
}

static void test_same_sites(const struct gp_recording *a, const struct gp_recording *b)
{
    cr_assert_eq(a->site_count, b->site_count);
    cr_assert_eq(a->frame_count, b->frame_count);
    for (uint32_t i = 1; i < a->site_count; i++) {
        const struct gp_rec_site *x = &a->sites[i], *y = &b->sites[i];
        cr_assert(x->first_frame == y->first_frame && x->frame_count == y->frame_count && x->kind == y->kind &&
                  x->device == y->device && x->truncated == y->truncated);
        cr_assert(x->live_bytes == y->live_bytes && x->live_count == y->live_count && x->peak_bytes == y->peak_bytes &&
                  x->at_peak_bytes == y->at_peak_bytes && x->allocated_bytes == y->allocated_bytes &&
                  x->calls == y->calls);
    }
    for (uint32_t i = 0; i < a->frame_count; i++) {
        const struct gp_rec_frame *x = &a->frames[i], *y = &b->frames[i];
        cr_assert(x->pc == y->pc && x->line == y->line && x->module == y->module);
        cr_assert_str_eq(test_text(a, x->function), test_text(b, y->function));
        cr_assert_str_eq(test_text(a, x->file), test_text(b, y->file));
    }
}

static void test_same_befores(const struct gp_recording *a, const struct gp_recording *b)
{
    cr_assert(a->attached == b->attached && a->before_count == b->before_count);
    for (size_t i = 0; i < a->before_count; i++) {
        const struct gp_rec_before *x = &a->befores[i], *y = &b->befores[i];
        cr_assert(x->time_ns == y->time_ns && a->devices[x->device].index == b->devices[y->device].index);
        cr_assert_eq(memcmp(&x->is, &y->is, sizeof(x->is)), 0);
    }
}

static void test_same(const struct gp_recording *a, const struct gp_recording *b)
{
    cr_assert(a->pid == b->pid && a->source == b->source && a->driver_version == b->driver_version);
    cr_assert_str_eq(a->comm, b->comm);
    cr_assert_str_eq(a->command_line, b->command_line);
    cr_assert_str_eq(a->host, b->host);
    cr_assert_str_eq(a->allocator, b->allocator);
    cr_assert(a->begin_ns == b->begin_ns && a->end_ns == b->end_ns && a->begin_unix_ns == b->begin_unix_ns);
    cr_assert(a->has_rank == b->has_rank);
    cr_assert(!a->has_rank || (a->rank == b->rank && a->local_rank == b->local_rank && a->world_size == b->world_size));
    cr_assert(a->unwritten == b->unwritten && a->write_error == b->write_error);
    cr_assert(a->write_error_ns == b->write_error_ns && a->ended_early == b->ended_early);
    cr_assert(a->complete == b->complete && a->from_start == b->from_start);
    cr_assert(a->tried == b->tried && a->delivered == b->delivered && a->dropped == b->dropped);
    cr_assert_eq(b->damaged_blocks, 0);
    cr_assert_eq(a->event_count, b->event_count);
    for (size_t i = 0; i < a->event_count; i++) {
        test_same_event(a, b, &a->events[i], &b->events[i]);
        cr_assert_eq(a->peer[i], b->peer[i]);
    }
    cr_assert_eq(a->baseline_count, b->baseline_count);
    for (size_t i = 0; i < a->baseline_count; i++)
        test_same_event(a, b, &a->baseline[i], &b->baseline[i]);
    cr_assert_eq(a->device_count, b->device_count);
    for (uint32_t i = 0; i < a->device_count; i++) {
        const struct gp_rec_device *x = &a->devices[i], *y = &b->devices[i];
        cr_assert(x->index == y->index && x->ordinal == y->ordinal && x->total_bytes == y->total_bytes);
        cr_assert_str_eq(x->uuid, y->uuid);
        cr_assert_str_eq(x->name, y->name);
        cr_assert_eq(x->has_last, y->has_last);
        cr_assert_eq(x->last.stats[GP_STAT_ALLOCATED_BYTES][0].peak, y->last.stats[GP_STAT_ALLOCATED_BYTES][0].peak);
    }
    cr_assert_eq(a->sample_count, b->sample_count);
    for (size_t i = 0; i < a->sample_count; i++) {
        const struct gp_rec_sample *x = &a->samples[i], *y = &b->samples[i];
        cr_assert(x->time_ns == y->time_ns && x->device == y->device && x->allocated_bytes == y->allocated_bytes &&
                  x->reserved_bytes == y->reserved_bytes && x->active_bytes == y->active_bytes &&
                  x->inactive_split_bytes == y->inactive_split_bytes && x->used_bytes == y->used_bytes &&
                  x->process_bytes == y->process_bytes);
    }
    test_same_befores(a, b);
    test_same_sites(a, b);
    cr_assert_eq(memcmp(a->lost, b->lost, sizeof(a->lost)), 0);
    cr_assert_eq(a->has_oom, b->has_oom);
    cr_assert_eq(memcmp(&a->oom, &b->oom, sizeof(a->oom)), 0);
}

Test(recording, written_and_read_it_is_the_same)
{
    for (unsigned steps = 1; steps < 2000; steps *= 12) {
        struct gp_recording *made = test_rich(steps);
        struct test_bytes bytes = test_bytes_of(made);
        struct gp_recording *back = test_parse(&bytes);
        test_same(made, back);
        gp_recording_free(made);
        gp_recording_free(back);
        free(bytes.at);
    }
}

/* ---- cut, damaged, foreign --------------------------------------------------------------------------------------- */

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
        test_text(part, part->frames[i].function);
        test_text(part, part->frames[i].file);
    }
    cr_assert_eq(part->strings[part->string_bytes - 1], '\0');
}

/* Several blocks of events, cut at every length that the file of a killed writer can have. */
Test(recording, cut_at_every_byte, .timeout = 120)
{
    struct gp_recording *made = test_rich(20);
    struct test_bytes bytes = test_bytes_of(made);
    struct gp_recording *whole = test_parse(&bytes);
    size_t most = 0;
    for (size_t cut = 0; cut < bytes.size; cut++) {
        struct gp_recording *part = NULL;
        char why[256] = "";
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
    struct gp_recording *made = test_rich(20);
    struct test_bytes bytes = test_bytes_of(made);
    struct gp_recording *whole = test_parse(&bytes);
    unsigned seen = 0;
    struct gp_format_tail tail;
    memcpy(&tail, bytes.at + bytes.size - sizeof(tail), sizeof(tail));
    const size_t index = tail.index_offset;
    cr_assert_eq(memcmp(tail.magic, GP_FORMAT_END, sizeof(tail.magic)), 0);
    for (size_t at = 0; at < bytes.size; at++) {
        struct gp_recording *part = NULL;
        char why[256];
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

static int test_refused(const void *bytes, size_t size, const char *word)
{
    struct gp_recording *out = NULL;
    char why[256] = "";
    int rc = gp_recording_parse(&out, bytes, size, why, sizeof(why));
    cr_assert_not_null(strstr(why, word), "'%s' does not say '%s'", why, word);
    return rc;
}

Test(recording, foreign_newer_and_empty_files_are_refused_in_words)
{
    struct gp_recording *made = test_rich(1);
    struct test_bytes bytes = test_bytes_of(made);
    struct gp_format_head *head = (struct gp_format_head *)bytes.at;
    char path[64], why[256];
    struct gp_recording *out;
    cr_assert_eq(test_refused("", 0, "empty"), -EPROTO);
    cr_assert_eq(
        test_refused("hello, world, this is a text, not a recording, though it is as long as one .............", 90,
                     "not a recording"),
        -EPROTO);
    cr_assert_eq(test_refused(bytes.at, sizeof(*head), "no readable block"), -EPROTO);
    head->major++;
    head->crc = gp_file_crc32c(0, head, offsetof(struct gp_format_head, crc));
    cr_assert_eq(test_refused(bytes.at, bytes.size, "newer"), -EPROTO);
    cr_assert_eq(gp_recording_open(&out, "/nonexistent/file", why, sizeof(why), NULL, NULL), -ENOENT);
    cr_assert_eq(gp_recording_open(&out, "/", why, sizeof(why), NULL, NULL), -EISDIR);
    cr_assert_eq(gp_recording_open(&out, "/dev/zero", why, sizeof(why), NULL, NULL), -EPROTO);
    test_name(path);
    cr_assert_eq(gp_recording_open(&out, path, why, sizeof(why), NULL, NULL), -EPROTO);
    unlink(path);
    gp_recording_free(made);
    free(bytes.at);
}

/* A minor version adds blocks, columns and fields. */
Test(recording, unknown_blocks_are_passed_over)
{
    struct gp_recording *made = test_rich(2);
    struct test_bytes bytes = test_bytes_of(made);
    struct gp_format_block block = {.mark = "GPb\x1a", .type = 999, .stored_bytes = 5, .bytes = 5, .count = 1};
    unsigned char *longer = malloc(bytes.size + sizeof(block) + 5);
    size_t head = sizeof(struct gp_format_head);
    block.crc = gp_file_crc32c(gp_file_crc32c(0, &block, offsetof(struct gp_format_block, crc)), "later", 5);
    memcpy(longer, bytes.at, head);
    memcpy(longer + head, &block, sizeof(block));
    memcpy(longer + head + sizeof(block), "later", 5);
    memcpy(longer + head + sizeof(block) + 5, bytes.at + head, bytes.size - head);
    struct test_bytes more = {longer, bytes.size + sizeof(block) + 5};
    struct gp_recording *back = test_parse(&more);
    test_same(made, back);
    gp_recording_free(back);
    gp_recording_free(made);
    free(longer);
    free(bytes.at);
}

Test(recording, what_is_there_is_not_overwritten)
{
    char path[64], link[80];
    struct gp_recording *made = test_rich(1);
    test_name(path);
    cr_assert_eq(recsave(made, path), 0, "an empty file may be replaced");
    cr_assert_eq(recsave(made, path), 0, "a recording is replaced");
    int fd = gp_file_open(path, true);
    cr_assert_geq(fd, 0);
    cr_assert_eq(recsave(made, path), -EBUSY);
    cr_assert_eq(write(fd, "somebody's", 10), 10);
    close(fd);
    cr_assert_eq(recsave(made, path), -EEXIST);
    snprintf(link, sizeof(link), "%s.link", path);
    cr_assert_eq(symlink(path, link), 0);
    cr_assert_eq(recsave(made, link), -ELOOP);
    unlink(link);
    unlink(path);
    gp_recording_free(made);
}

/* A late event is placed by its time. */
Test(recording, late_events_are_put_in_order)
{
    struct recmake *make = recmake_new(1 << 30);
    for (unsigned i = 0; i < 100000; i++)
        recmake_event(make, &(struct gp_rec_event){.time_ns = 2000000000ull + i * 10 - (i % 97 == 0 ? 12345 : 0),
                                                   .address = i,
                                                   .bytes = 1,
                                                   .type = GP_EVENT_ALLOC,
                                                   .kind = GP_KIND_LINEAR});
    struct gp_recording *made = recmake_done(make);
    struct test_bytes bytes = test_bytes_of(made);
    struct gp_recording *back = test_parse(&bytes);
    uint64_t sum = 0;
    cr_assert_eq(back->event_count, 100000);
    for (size_t i = 0; i < back->event_count; i++) {
        cr_assert(i == 0 || back->events[i].time_ns >= back->events[i - 1].time_ns);
        sum += back->events[i].address;
    }
    cr_assert_eq(sum, 99999ull * 100000 / 2, "each of them once");
    gp_recording_free(made);
    gp_recording_free(back);
    free(bytes.at);
}

/* Format 1.0 ends these payloads earlier: what is not there is unknown. */
Test(recording, fields_of_later_versions_may_be_missing)
{
    struct gp_file *file;
    struct gp_block_process process = {.pid = 7, .comm = "a", .command_line = "b", .host = "c", .allocator = "caching"};
    struct gp_block_counts counts = {.tried = 4, .dropped = {[GP_DROP_FILE] = 4}, .lost_error = ENOSPC, .time_ns = 9};
    char path[64];
    test_name(path);
    int fd = gp_file_open(path, true);
    cr_assert_eq(gp_file_new(&file, fd, &(struct gp_file_who){.pid = 7}), 0);
    struct gp_pack *pack = gp_file_pack(file);
    gp_block_process(pack, &process);
    pack->at -= 4; /* the ranks, and whether gpuprof was attached */
    cr_assert_eq(gp_file_block(file, GP_BLOCK_PROCESS, 1, false), 0);
    pack = gp_file_pack(file);
    gp_block_counts(pack, &counts);
    pack->at -= 3; /* of the error */
    cr_assert_eq(gp_file_block(file, GP_BLOCK_END, 1, true), 0);
    cr_assert_eq(gp_file_end(file), 0);
    struct test_bytes bytes = test_load(path);
    struct gp_recording *r = test_parse(&bytes);
    cr_assert(r->complete && r->damaged_blocks == 0 && r->tried == 4 && r->unwritten == 4);
    cr_assert_str_eq(r->allocator, "caching");
    cr_assert(!r->has_rank && !r->write_error && !r->ended_early && r->end_ns == 9);
    cr_assert(r->attached == GP_REC_ATTACHED_UNKNOWN && gp_rec_before_at(r, 0, 9).bytes == -1);
    gp_recording_free(r);
    free(bytes.at);
    unlink(path);
}

/* Where the first block of a type begins. */
static size_t test_block_at(const struct test_bytes *bytes, unsigned type)
{
    size_t at = sizeof(struct gp_format_head);
    struct gp_format_block block;
    for (memcpy(&block, bytes->at + at, sizeof(block)); block.type != type;) {
        at += sizeof(block) + block.stored_bytes;
        memcpy(&block, bytes->at + at, sizeof(block));
    }
    return at;
}

/* A reader of format 1.1 has no name for this block. */
Test(recording, memory_from_before_the_attach_is_passed_over_by_older_readers)
{
    struct gp_recording *made = test_rich(2);
    struct test_bytes bytes = test_bytes_of(made);
    size_t at = test_block_at(&bytes, GP_BLOCK_BEFORE);
    struct gp_format_block block;
    memcpy(&block, bytes.at + at, sizeof(block));
    block.type = 999;
    block.crc = gp_file_crc32c(gp_file_crc32c(0, &block, offsetof(struct gp_format_block, crc)),
                               bytes.at + at + sizeof(block), block.stored_bytes);
    memcpy(bytes.at + at, &block, sizeof(block));
    struct gp_recording *back = test_parse(&bytes);
    cr_assert_eq(back->before_count, 0);
    cr_assert_eq(gp_rec_before_at(back, 0, back->end_ns).bytes, -1, "it is unknown, not 0");
    made->before_count = 0;
    test_same(made, back);
    gp_recording_free(back);
    gp_recording_free(made);
    free(bytes.at);
}

Test(recording, memory_from_before_the_attach_is_that_of_the_moment)
{
    struct gp_recording *r = test_rich(1);
    uint64_t end = r->befores[2].time_ns;
    uint32_t host = 0;
    while (r->devices[host].index != GP_WIRE_HOST)
        host++;
    cr_assert_eq(gp_rec_before_at(r, 0, end + 1).bytes, 80);
    cr_assert_eq(gp_rec_before_at(r, 0, end).bytes, 80);
    cr_assert_eq(gp_rec_before_at(r, 0, end - 1).bytes, 90);
    cr_assert_eq(gp_rec_before_at(r, 0, 0).bytes, 90, "the first time at which it is known");
    cr_assert_eq(gp_rec_before_at(r, 0, 0).source, GP_BEFORE_PART);
    cr_assert_eq(gp_rec_before_at(r, host, end).bytes, 0);
    cr_assert_eq(gp_rec_before_at(r, 99, end).bytes, -1);
    r->befores[0].is = (struct gp_wire_before_device){.bytes = -1, .source = GP_BEFORE_NONE};
    cr_assert_eq(gp_rec_before_at(r, 0, end - 1).bytes, 80);
    r->attached = GP_REC_ATTACHED_NO;
    cr_assert_eq(gp_rec_before_at(r, 0, end).bytes, 0);
    gp_recording_free(r);
}

/* A source that is not known, and numbers that cannot be. */
Test(recording, what_cannot_have_been_before_the_attach_is_unknown)
{
    static const struct {
        struct gp_wire_before_device row;
        int64_t bytes;
    } cases[] = {{{5, 5, 5, 5, 5, 5, GP_BEFORE_DRIVER, 0}, 5},
                 {{5, 5, 5, 5, 5, 5, 99, 0}, -1},
                 {{INT64_MAX, 5, 5, 5, 5, 5, GP_BEFORE_DRIVER, 0}, -1},
                 {{INT64_MIN, 5, 5, 5, 5, 5, GP_BEFORE_DRIVER, 0}, -1}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gp_recording *r = test_rich(1);
        r->before_count = 1;
        r->befores[0] = (struct gp_rec_before){1, 0, cases[i].row};
        struct test_bytes bytes = test_bytes_of(r);
        struct gp_recording *back = test_parse(&bytes);
        cr_assert_eq(gp_rec_before_at(back, 0, back->end_ns).bytes, cases[i].bytes, "%zu", i);
        gp_recording_free(back);
        gp_recording_free(r);
        free(bytes.at);
    }
}

/* The numbers of sites come last in a file. Without them the events say what each site holds, however many they are. */
Test(recording, the_sites_of_a_cut_file_have_the_numbers_of_its_events)
{
    static const struct recmake_frame stack[] = {{"f", "a.py", 1}, {NULL, NULL, 0}};
    static const uint8_t kinds[] = {GP_KIND_LINEAR, GP_KIND_VMM};
    const unsigned pairs = 6000;
    struct recmake *make = recmake_new(1 << 30);
    uint32_t site[2];
    for (unsigned i = 0; i < 2; i++) {
        struct gp_rec_event event = {.kind = kinds[i], .site = site[i] = recmake_site(make, kinds[i], stack)};
        const uint8_t begin = i ? GP_EVENT_SEGMENT_ALLOC : GP_EVENT_ALLOC;
        for (unsigned k = 0; k <= 2 * pairs; k++) { /* the last one stays */
            event.time_ns = 1000000000 + k;
            event.address = 0x1000 + i;
            event.bytes = k < 2 * pairs ? 500 : 300;
            event.type = k % 2 ? i ? GP_EVENT_SEGMENT_FREE : GP_EVENT_FREE : begin;
            recmake_event(make, &event);
        }
    }
    struct gp_recording *made = recmake_done(make), *part = NULL;
    struct test_bytes bytes = test_bytes_of(made);
    char why[256];
    cr_assert_eq(gp_recording_parse(&part, bytes.at, test_block_at(&bytes, GP_BLOCK_SITE_NUMBERS), why, sizeof(why)),
                 0);
    cr_assert(!part->complete && part->event_count == made->event_count);
    for (unsigned i = 0; i < 2; i++) {
        const struct gp_rec_site *row = &part->sites[site[i]];
        cr_expect(row->live_bytes == 300 && row->live_count == 1 && row->calls == pairs + 1 && row->peak_bytes == 500 &&
                      row->allocated_bytes == 500ll * pairs + 300,
                  "kind %u: %lld bytes in %lld, peak %lld, %lld calls", kinds[i], (long long)row->live_bytes,
                  (long long)row->live_count, (long long)row->peak_bytes, (long long)row->calls);
    }
    gp_recording_free(part);
    gp_recording_free(made);
    free(bytes.at);
}

/* The index has room for 2^17 blocks: with more there is none, also if a write fails after that. */
Test(recording, an_index_that_lacks_blocks_is_not_written, .timeout = 60)
{
    struct gp_file *file;
    struct rlimit limit = {0, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    char path[64];
    test_name(path);
    signal(SIGXFSZ, SIG_IGN);
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
    struct test_bytes bytes = test_load(path);
    cr_assert_neq(memcmp(bytes.at + bytes.size - 8, GP_FORMAT_END, 8), 0, "an index without some blocks");
    free(bytes.at);
    unlink(path);
}

static int threads_block(struct gp_file *file, uint32_t rows)
{
    struct gp_pack *pack = gp_file_pack(file);
    for (uint32_t i = 0; i < rows; i++)
        gp_block_thread(pack, i, "t");
    return gp_file_block(file, GP_BLOCK_THREADS, rows, false);
}

/* The places in the index are those of the file's blocks, without one that found no room. */
Test(recording, an_index_after_a_full_disk_has_the_blocks_of_the_file)
{
    struct gp_file *file;
    struct rlimit limit = {0, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    struct gp_format_tail tail;
    char path[64];
    test_name(path);
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(gp_file_new(&file, gp_file_open(path, true), &(struct gp_file_who){.pid = 7}), 0);
    cr_assert_eq(threads_block(file, 1), 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    while (threads_block(file, 2) == 0) /* into the space that is kept */
        ;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    cr_assert_eq(threads_block(file, 3), 0);
    cr_assert_eq(gp_file_end(file), 0);
    struct test_bytes bytes = test_load(path);
    memcpy(&tail, bytes.at + bytes.size - sizeof(tail), sizeof(tail));
    size_t at = sizeof(struct gp_format_head), row = tail.index_offset + sizeof(struct gp_format_block);
    for (;; row += sizeof(struct gp_format_place)) {
        struct gp_format_block block;
        struct gp_format_place place;
        memcpy(&block, bytes.at + at, sizeof(block));
        if (block.type == GP_BLOCK_INDEX)
            break;
        memcpy(&place, bytes.at + row, sizeof(place));
        cr_assert(place.offset == at && place.count == block.count && place.type == block.type, "at %zu", at);
        at += sizeof(block) + block.stored_bytes;
    }
    cr_assert_eq(at, tail.index_offset);
    cr_assert_eq(row, bytes.size - sizeof(tail), "a place too many");
    free(bytes.at);
    unlink(path);
}

/* The keys of the map of live blocks are numbers made of address, device and space: 48 bits are enough for an
 * address of a GPU, and a file may have others. */
Test(recording, addresses_of_any_size_have_ends_of_their_own)
{
    static const uint64_t addresses[] = {0x7f0000000000, 0x7f0000000000 | 1ull << 56, 0x7f0000000000 | 1ull << 48};
    struct recmake *make = recmake_new(1 << 30);
    uint32_t second = recmake_device(make, 1, 1 << 30);
    for (unsigned i = 0; i < 2 * GP_COUNT(addresses); i++)
        recmake_alloc(make, i % 2 ? second : 0, GP_KIND_LINEAR, addresses[i / 2], 100 + i, 0);
    for (unsigned i = 0; i < 2 * GP_COUNT(addresses); i++)
        recmake_free(make, i % 2 ? second : 0, GP_KIND_LINEAR, addresses[i / 2]);
    struct gp_recording *r = recmake_done(make);
    for (uint32_t i = 0; i < 2 * GP_COUNT(addresses); i++) {
        cr_expect_eq(r->peer[i], i + 2 * GP_COUNT(addresses), "%u", i);
        cr_expect_eq(r->peer[i + 2 * GP_COUNT(addresses)], i);
    }
    gp_recording_free(r);
}
