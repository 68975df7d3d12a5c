/* SPDX-License-Identifier: MIT
 *
 * test_torch_file.c: a memory snapshot of PyTorch becomes a recording: its trace, what was there
 * before the trace, and refusals.
 */
#define _GNU_SOURCE
#include <convert/snapshot/internal.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <read/recording/recording.h>
#include <record/format.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB (1ull << 20)

/* ---- writing ----------------------------------------------------------------------------------------------------- */

struct maker { /* a pickle with one trace */
    struct gp_pickled out;
    struct gp_snapshot_pickled_list traces, entries, segments, blocks;
    int fd;
    uint32_t frames; /* memo + 1 */
    const char *function;
};

static void text_at(struct maker *make, const char *key, const char *text)
{
    gp_snapshot_pickled_text(&make->out, key);
    gp_snapshot_pickled_text(&make->out, text);
}

static void int_at(struct maker *make, const char *key, int64_t value)
{
    gp_snapshot_pickled_text(&make->out, key);
    gp_snapshot_pickled_int(&make->out, value);
}

static void frames_at(struct maker *make)
{
    struct gp_snapshot_pickled_list list;
    gp_snapshot_pickled_text(&make->out, "frames");
    if (make->frames) {
        gp_snapshot_pickled_again(&make->out, make->frames - 1);
        return;
    }
    gp_snapshot_pickled_list(&make->out, &list);
    gp_snapshot_pickled_item(&make->out, &list);
    gp_snapshot_pickled_dict(&make->out);
    text_at(make, "name", make->function ? make->function : "forward");
    text_at(make, "filename", "model.py");
    int_at(make, "line", 12);
    gp_snapshot_pickled_dict_end(&make->out);
    gp_snapshot_pickled_list_end(&make->out, &list);
    make->frames = gp_snapshot_pickled_remember(&make->out) + 1;
}

static struct maker *make_new(void)
{
    struct maker *make = calloc(1, sizeof(*make));
    make->fd = memfd_create("gpuprof-test", MFD_CLOEXEC);
    cr_assert_geq(make->fd, 0);
    gp_snapshot_pickled_begin(&make->out, make->fd);
    gp_snapshot_pickled_dict(&make->out);
    gp_snapshot_pickled_text(&make->out, "device_traces");
    gp_snapshot_pickled_list(&make->out, &make->traces);
    gp_snapshot_pickled_item(&make->out, &make->traces);
    gp_snapshot_pickled_list(&make->out, &make->entries);
    return make;
}

static void entry(struct maker *make, const char *action, uint64_t address, int64_t bytes, int64_t time_us)
{
    gp_snapshot_pickled_item(&make->out, &make->entries);
    gp_snapshot_pickled_dict(&make->out);
    text_at(make, "action", action);
    int_at(make, "addr", (int64_t)address);
    int_at(make, "size", bytes);
    int_at(make, "stream", 0);
    int_at(make, "time_us", time_us);
    frames_at(make);
    gp_snapshot_pickled_dict_end(&make->out);
}

static void segments(struct maker *make)
{
    gp_snapshot_pickled_list_end(&make->out, &make->entries);
    gp_snapshot_pickled_list_end(&make->out, &make->traces);
    gp_snapshot_pickled_text(&make->out, "segments");
    gp_snapshot_pickled_list(&make->out, &make->segments);
}

static void segment(struct maker *make, uint64_t address, uint64_t bytes, bool growable)
{
    gp_snapshot_pickled_item(&make->out, &make->segments);
    gp_snapshot_pickled_dict(&make->out);
    int_at(make, "device", 0);
    int_at(make, "address", (int64_t)address);
    int_at(make, "total_size", (int64_t)bytes);
    gp_snapshot_pickled_text(&make->out, "is_expandable");
    gp_snapshot_pickled_bool(&make->out, growable);
    gp_snapshot_pickled_text(&make->out, "blocks");
    gp_snapshot_pickled_list(&make->out, &make->blocks);
}

static void block(struct maker *make, uint64_t bytes, uint64_t asked, const char *state)
{
    gp_snapshot_pickled_item(&make->out, &make->blocks);
    gp_snapshot_pickled_dict(&make->out);
    int_at(make, "size", (int64_t)bytes);
    int_at(make, "requested_size", (int64_t)asked);
    text_at(make, "state", state);
    frames_at(make);
    gp_snapshot_pickled_dict_end(&make->out);
}

static void segment_end(struct maker *make)
{
    gp_snapshot_pickled_list_end(&make->out, &make->blocks);
    gp_snapshot_pickled_dict_end(&make->out);
}

static int made(struct maker *make, struct gp_recording **recording, char why[256])
{
    gp_snapshot_pickled_list_end(&make->out, &make->segments);
    gp_snapshot_pickled_dict_end(&make->out);
    cr_assert_eq(gp_snapshot_pickled_end(&make->out), 0);
    size_t bytes = (size_t)lseek(make->fd, 0, SEEK_END);
    void *data = malloc(bytes);
    cr_assert_eq(pread(make->fd, data, bytes, 0), (ssize_t)bytes);
    close(make->fd);
    free(make);
    int rc = gp_recording_parse(recording, data, bytes, why, 256);
    free(data);
    return rc;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static const struct gp_rec_event *baseline(const struct gp_recording *r, uint8_t type, uint64_t address)
{
    for (size_t i = 0; i < r->baseline_count; i++)
        if (r->baseline[i].type == type && r->baseline[i].address == address)
            return &r->baseline[i];
    return NULL;
}

static const char *function_of(const struct gp_recording *r, const struct gp_rec_event *event)
{
    const struct gp_rec_site *site = &r->sites[event->site];
    return site->frame_count ? r->strings + r->frames[site->first_frame].function : "";
}

Test(torch_file, start_is_found_from_the_end)
{
    struct gp_recording *r = NULL;
    char why[256];
    struct maker *make = make_new();
    entry(make, "free_completed", 0x30000000, 512, 1000);          /* was freed before: not allocated */
    entry(make, "alloc", 0x10000000, 1000, 1001);                  /* lives at the end */
    entry(make, "free_requested", 0x20000000, (int64_t)MIB, 1002); /* was there */
    entry(make, "free_completed", 0x20000000, (int64_t)MIB, 1003);
    entry(make, "segment_free", 0x20000000, 2 * MIB, 1004);
    entry(make, "segment_map", 0x50200000, 2 * MIB, 1005);
    segments(make);
    segment(make, 0x10000000, 2 * MIB, false);
    block(make, 1536, 1000, "active_allocated");
    block(make, 512, 500, "active_allocated"); /* from before the trace */
    block(make, 2 * MIB - 2048, 0, "inactive");
    segment_end(make);
    segment(make, 0x50000000, 4 * MIB, true); /* half of it was mapped before the trace */
    segment_end(make);
    cr_assert_eq(made(make, &r, why), 0, "%s", why);
    cr_assert(r->from_torch && r->complete && !r->from_start);
    cr_assert_eq(r->begin_ns, 1000000);
    cr_assert_eq(r->end_ns, 1005000);

    const struct gp_rec_event *gone = baseline(r, GP_EVENT_ALLOC, 0x20000000);
    cr_assert(gone);
    cr_assert_str_eq(function_of(r, gone), "allocated before the trace");
    cr_assert_eq(r->before_blocks, 1);
    cr_assert_eq(r->before_bytes, MIB);
    const struct gp_rec_event *stayed = baseline(r, GP_EVENT_ALLOC, 0x10000600);
    cr_assert(stayed);
    cr_assert_str_eq(function_of(r, stayed), "forward");
    cr_assert_not(baseline(r, GP_EVENT_ALLOC, 0x30000000));

    const struct gp_rec_event *segment_there = baseline(r, GP_EVENT_SEGMENT_ALLOC, 0x10000000);
    cr_assert(segment_there && segment_there->bytes == 2 * MIB);
    cr_assert(baseline(r, GP_EVENT_SEGMENT_ALLOC, 0x20000000));
    const struct gp_rec_event *mapped = baseline(r, GP_EVENT_SEGMENT_MAP, 0x50000000);
    cr_assert(mapped && mapped->bytes == 2 * MIB);
    cr_assert_not(baseline(r, GP_EVENT_SEGMENT_MAP, 0x50200000));
    cr_assert_eq(r->baseline_count, 5);

    cr_assert_eq(r->events[0].type, GP_EVENT_ALLOC);
    cr_assert_eq(r->events[0].bytes, 1536); /* the block at the end has the granted size */
    cr_assert_eq(gp_rec_requested(&r->events[0]), 1000);
    gp_recording_free(r);
}

Test(torch_file, free_ends_its_block)
{
    struct gp_recording *r = NULL;
    char why[256];
    struct maker *make = make_new();
    entry(make, "alloc", 0x10000000, 1000, 5);
    entry(make, "free_requested", 0x10000000, 1000, 7);
    entry(make, "free_completed", 0x10000000, 1000, 9);
    entry(make, "alloc", 0x10000000, 600, 11);
    entry(make, "something_new", 0, 0, 12);
    segments(make);
    cr_assert_eq(made(make, &r, why), 0, "%s", why);
    cr_assert_eq(r->event_count, 3);
    cr_assert_eq(r->peer[0], 1);
    cr_assert_eq(r->events[1].time_ns, 7000);
    cr_assert_eq(r->events[0].bytes, 1024); /* rounded, as PyTorch does */
    cr_assert_eq(r->peer[2], GP_REC_NONE);
    cr_assert_eq(r->torch_unknown, 1);
    cr_assert_eq(r->site_count, 2); /* the unknown one, and one for all entries */
    gp_recording_free(r);
}

/* A block that leaves too little of its free piece has all of it. */
Test(torch_file, granted_sizes_follow_from_the_addresses)
{
    struct gp_recording *r = NULL;
    char why[256];
    struct maker *make = make_new();
    entry(make, "segment_alloc", 0x10000000, 20 * MIB, 1);
    entry(make, "alloc", 0x10000000, 12 * MIB, 2);                        /* 8 MiB are left: split */
    entry(make, "alloc", 0x10000000 + 12 * MIB, 7 * MIB + 600 * 1024, 3); /* 424 KiB are left: not split */
    entry(make, "free_requested", 0x10000000, 12 * MIB, 4);
    entry(make, "free_completed", 0x10000000, 12 * MIB, 5);
    entry(make, "alloc", 0x10000000, 11 * MIB + 1, 6); /* up to the next block: not split */
    entry(make, "free_requested", 0x10000000, 11 * MIB + 1, 7);
    segments(make);
    segment(make, 0x10000000, 20 * MIB, false);
    block(make, 12 * MIB, 0, "inactive");
    block(make, 8 * MIB, 7 * MIB + 600 * 1024, "active_allocated");
    segment_end(make);
    cr_assert_eq(made(make, &r, why), 0, "%s", why);
    cr_expect_eq(r->events[1].bytes, 12 * MIB);
    cr_expect_eq(r->events[2].bytes, 8 * MIB);
    cr_expect_eq(r->events[4].bytes, 12 * MIB);
    cr_expect_eq(gp_rec_requested(&r->events[4]), 11 * MIB + 1);
    cr_expect_eq(r->events[5].bytes, 12 * MIB);
    cr_expect_eq(r->sites[r->events[1].site].live_bytes, (int64_t)(8 * MIB));
    gp_recording_free(r);
}

/* A name of up to 4095 bytes is kept as it is; of a longer one, this many. */
Test(torch_file, long_names_are_cut)
{
    char name[4200], why[256];
    for (size_t length = 4090; length < 4100; length++) {
        struct gp_recording *r = NULL;
        struct maker *make = make_new();
        memset(name, 'n', sizeof(name));
        name[length] = '\0';
        make->function = name;
        entry(make, "alloc", 0x10000000, 1000, 5);
        segments(make);
        cr_assert_eq(made(make, &r, why), 0, "%s", why);
        cr_expect_eq(strlen(function_of(r, &r->events[0])), length < 4095 ? length : 4095);
        gp_recording_free(r);
    }
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void refused(const void *data, size_t bytes, const char *word)
{
    struct gp_recording *r = NULL;
    char why[256];
    cr_assert_eq(gp_recording_parse(&r, data, bytes, why, sizeof(why)), -EPROTO);
    cr_assert(strstr(why, word), "%s", why);
}

Test(torch_file, refusals)
{
    struct gp_recording *r = NULL;
    char why[256];
    refused("\x80\x02"
            "cos\nsystem\n(X\x02\0\0\0idtR.",
            25, "nothing was executed");
    refused("\x80\x04}.", 4, "no 'device_traces'");
    refused("\x80\x04}", 3, "ends without");
    refused("\x80\x04}(", 4, "ends without");
    struct maker *make = make_new();
    entry(make, "alloc", 0x10000000, -1, 5);
    segments(make);
    cr_assert_eq(made(make, &r, why), -EPROTO);
    cr_assert(strstr(why, "impossible size"), "%s", why);
    make = make_new();
    entry(make, "alloc", 0x10000000, 1, INT64_MAX);
    segments(make);
    cr_assert_eq(made(make, &r, why), -EPROTO);
    cr_assert(strstr(why, "impossible time"), "%s", why);
}

/* A few bytes that name one list in many places must not cost gigabytes. */
Test(torch_file, shared_lists)
{
    char bytes[40000];
    size_t put = 0;
    const char head[] = "\x80\x02}(X\x0d\0\0\0device_traces](]q\x01(";
    memcpy(bytes, head, sizeof(head) - 1);
    put = sizeof(head) - 1;
    for (int i = 0; i < 9000; i++, put += 2)
        memcpy(bytes + put, i ? "h\x02" : "}q\x02", i ? 2 : 3), put += !i;
    bytes[put++] = 'e';
    for (int i = 0; i < 60; i++, put += 2)
        memcpy(bytes + put, "h\x01", 2);
    memcpy(bytes + put, "eu.", 3);
    refused(bytes, put + 3, "many times");
}

static void rises(void *arg, unsigned parts)
{
    unsigned *last = arg;
    cr_expect(parts >= *last && parts <= 1000, "%u after %u", parts, *last);
    *last = parts;
}

/* A file of more than two pieces of what is read at a time, by its path and from memory. */
Test(torch_file, a_long_file_is_read_in_pieces)
{
    struct gp_recording *whole = NULL, *pieces = NULL;
    unsigned last = 0;
    char why[256], path[64];
    struct maker *make = make_new();
    for (unsigned i = 0; lseek(make->fd, 0, SEEK_END) <= (off_t)(2 * GP_FORMAT_BLOCK_BYTES); i++) {
        entry(make, "alloc", 0x10000000 + (uint64_t)(i % 1000) * 4096, 512 + i % 7 * 512, 1000 + 2 * i);
        entry(make, "free_completed", 0x10000000 + (uint64_t)(i % 1000) * 4096, 512 + i % 7 * 512, 1001 + 2 * i);
    }
    segments(make);
    int fd = dup(make->fd);
    cr_assert_eq(made(make, &whole, why), 0, "%s", why);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    cr_assert_eq(gp_recording_open(&pieces, path, why, sizeof(why), rises, &last), 0, "%s", why);
    cr_assert_eq(pieces->event_count, whole->event_count);
    cr_assert_gt(pieces->event_count, 10000);
    cr_expect_arr_eq(pieces->events, whole->events, whole->event_count * sizeof(whole->events[0]));
    gp_recording_free(whole);
    gp_recording_free(pieces);
    close(fd);
}

/* A key is looked for among the first 256 of its dictionary. */
Test(torch_file, keys_are_among_the_first)
{
    for (unsigned before = 254; before < 259; before++) {
        struct gp_recording *r = NULL;
        char bytes[2048] = "\x80\x02}(", why[256] = "";
        size_t put = 4;
        for (unsigned i = 0; i < before; i++, put += 4)
            memcpy(bytes + put, "K\x01K\x01", 4);
        memcpy(bytes + put, "X\x0d\0\0\0device_traces]u.", 21);
        if (gp_recording_parse(&r, bytes, put + 21, why, sizeof(why)) == 0)
            gp_recording_free(r);
        cr_expect_eq(strstr(why, "no 'device_traces'") == NULL, before < 256, "after %u keys: %s", before, why);
    }
}
