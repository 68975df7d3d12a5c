/* SPDX-License-Identifier: MIT
 *
 * test_recording_corpus.c: ten recordings of format 1.2, in which numbers are structs of wire.h as it was then
 * (tests/golden/recordings). Every number that the reader finds stands beside each of them as text. They are never
 * made again: what this version reads of them is what it reads of people's old files. GP_GOLDEN_UPDATE=1 writes the
 * texts, when a new number or a new name comes in.
 */
#include <criterion/criterion.h>

#include <base/numbers.h>
#include <inttypes.h>
#include <lib/golden.h>
#include <lib/paths.h>
#include <read/recording/recording.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(recording_corpus, .timeout = 60);

static void write_kind(FILE *out, const char *name, const struct gp_wire_kind_value *v)
{
    const int64_t values[] = {v->current_bytes, v->peak_bytes, v->allocated_bytes, v->freed_bytes,
                              v->live,          v->live_peak,  v->calls,           v->reserved_bytes};
    const struct gp_wire_kind_value none = {.reserved_bytes = -1}, empty = {0},
                                    unknown = {-1, -1, -1, -1, -1, -1, -1, -1};
    if (!memcmp(v, &none, sizeof(none)) || !memcmp(v, &empty, sizeof(empty)) || !memcmp(v, &unknown, sizeof(unknown)))
        return;
    fprintf(out, "  kind %s:", name);
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        fprintf(out, " %" PRId64, values[i]);
    fputc('\n', out);
}

static void write_device(FILE *out, const struct gp_rec_device *device)
{
    const struct gp_wire_device *last = &device->last;
    fprintf(out, "device %u, ordinal %d, \"%s\", \"%s\", %" PRId64 " B, flags %u%s\n", device->index, device->ordinal,
            device->uuid, device->name, device->total_bytes, last->flags, device->has_last ? ", final" : "");
    for (unsigned i = 0; i < GP_STAT_KEYS; i++) {
        int64_t value;
        memcpy(&value, (const char *)last + gp_stat_keys[i].offset, sizeof(value));
        if (value > 0 || gp_stat_keys[i].offset == offsetof(struct gp_wire_device, max_split_size)) /* -1: no limit */
            fprintf(out, "  %s %" PRId64 "\n", gp_stat_keys[i].name, value);
    }
    /* Numbers that are younger than these recordings are unknown in them, not 0. */
    cr_expect_eq(last->asleep_bytes.current, device->has_last ? -1 : 0);
    for (unsigned kind = 0; kind < GP_KINDS; kind++)
        write_kind(out, gp_kind_name(kind), &last->kinds[kind]);
    for (unsigned i = 0; i < GP_WIRE_SCOPES; i++)
        if (last->scopes[i].allocated_peak_bytes || last->scopes[i].reserved_peak_bytes)
            fprintf(out, "  scope %u: %" PRId64 " %" PRId64 "\n", i, last->scopes[i].allocated_peak_bytes,
                    last->scopes[i].reserved_peak_bytes);
    fprintf(out, "  linear, rounded: %" PRId64 "\n", last->linear_rounded_bytes);
}

static void write_failure(FILE *out, const struct gp_wire_oom *oom)
{
    fprintf(out, "failed: %s, \"%s\" \"%s\", error %u, flags %u, device %d\n", oom->api, oom->policy, oom->conf,
            oom->error, oom->flags, oom->device);
    fprintf(out, "  asked %" PRIu64 ", free %" PRId64 " of %" PRId64 ", reserved %" PRId64 ", allocated %" PRId64 "\n",
            oom->asked_bytes, oom->free_bytes, oom->total_bytes, oom->reserved_bytes, oom->allocated_bytes);
    fprintf(out,
            "  count %" PRIu64 ", limit %" PRId64 ", idle %" PRId64 ", largest %" PRId64 ", site %u, rest %" PRId64
            "\n",
            oom->count, oom->limit_bytes, oom->idle_bytes, oom->largest_idle_bytes, oom->site, oom->rest_bytes);
    for (unsigned kind = 0; kind < GP_KINDS; kind++)
        if (oom->kinds[kind] > 0)
            fprintf(out, "  %s %" PRId64 "\n", gp_kind_name(kind), oom->kinds[kind]);
    for (uint32_t i = 0; i < oom->holder_count; i++)
        fprintf(out, "  holder: %s %" PRIu64 " x %" PRIu64 ", site %u\n", gp_kind_name(oom->holders[i].kind),
                oom->holders[i].count, oom->holders[i].block_bytes, oom->holders[i].site);
}

static void write_recording(FILE *out, const struct gp_recording *r)
{
    fprintf(out, "%s, %zu events of %" PRIu64 ", %u sites, %u frames, %u threads, %zu samples\n",
            r->complete ? "complete" : "cut", r->event_count, r->tried, r->site_count, r->frame_count, r->thread_count,
            r->sample_count);
    for (uint32_t i = 0; i < r->device_count; i++)
        write_device(out, &r->devices[i]);
    if (r->has_oom)
        write_failure(out, &r->oom);
    for (unsigned i = 0; i < GP_LOSTS; i++)
        if (r->lost[i])
            fprintf(out, "lost: %s %" PRIu64 "\n", gp_lost_name(i), r->lost[i]);
}

Test(recording_corpus, old_recordings_keep_their_numbers)
{
    static const char *const names[] = {"arrays", "cached", "devices", "leak",  "linear",
                                        "mixed",  "nvtx",   "oom",     "pools", "scopes"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char path[256], why[256] = "", *found = NULL;
        size_t bytes;
        struct gp_recording *r;
        snprintf(path, sizeof(path), "tests/golden/recordings/%s.gpuprof", names[i]);
        cr_assert_eq(gp_recording_open(&r, path_source(path), why, sizeof(why), NULL, NULL), 0, "%s: %s", names[i],
                     why);
        FILE *out = open_memstream(&found, &bytes);
        write_recording(out, r);
        fclose(out);
        gp_recording_free(r);
        snprintf(path, sizeof(path), "tests/golden/recordings/%s.txt", names[i]);
        golden_expect(path, found, false);
        free(found);
    }
}
