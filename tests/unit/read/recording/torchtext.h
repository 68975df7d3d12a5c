/* SPDX-License-Identifier: MIT
 * torchtext.h: snapshots of PyTorch as Python would print them, and what the reader makes of them as text; for
 * test_torch_trace.c and test_torch_gaps.c.
 */
#ifndef GP_TESTS_UNIT_TORCHTEXT_H
#define GP_TESTS_UNIT_TORCHTEXT_H

#include <base/compiler.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <lib/lackmemory.h>
#include <lib/recfile.h>
#include <read/recording/recording.h>
#include <record/format.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- a pickle from what Python prints ---------------------------------------------------------------------------- */

/* Numbers (also 0x...), 'texts', T, F, N, [lists], {key: value} in which a word without quotes is a text. */
static inline const char *pickle_value(struct recfile *out, const char *at);

static inline void pickle_text(struct recfile *out, const char *text, size_t length)
{
    const uint32_t bytes = (uint32_t)length;
    recfile_raw(out, "X", 1);
    recfile_raw(out, &bytes, sizeof(bytes));
    recfile_raw(out, text, length);
}

static inline const char *pickle_number(struct recfile *out, const char *at)
{
    char *end;
    bool negative = *at == '-';
    uint64_t value = strtoull(at + negative, &end, 0);
    value = negative ? -value : value;
    bool above = !negative && value > INT64_MAX;
    cr_assert_neq(end, at + negative, "no number: %.20s", at);
    recfile_raw(out, above ? "\x8a\x09" : "\x8a\x08", 2);
    recfile_raw(out, &value, sizeof(value));
    recfile_raw(out, "", above);
    return end;
}

static inline const char *skip(const char *at)
{
    return at + strspn(at, " \n,:");
}

static inline const char *pickle_items(struct recfile *out, const char *at, char closing)
{
    recfile_raw(out, closing == ']' ? "](" : "}(", 2);
    for (at = skip(at); *at != closing; at = skip(at))
        at = pickle_value(out, at);
    recfile_raw(out, closing == ']' ? "e" : "u", 1);
    return at + 1;
}

static inline const char *pickle_value(struct recfile *out, const char *at)
{
    size_t length;
    switch (*at) {
    case '[':
        return pickle_items(out, at + 1, ']');
    case '{':
        return pickle_items(out, at + 1, '}');
    case '\'':
        length = strcspn(at + 1, "'");
        pickle_text(out, at + 1, length);
        return at + length + 2;
    case 'T':
    case 'F':
    case 'N':
        recfile_raw(out, *at == 'T' ? "\x88" : *at == 'F' ? "\x89" : "N", 1);
        return at + 1;
    default:
        if (*at == '-' || (*at >= '0' && *at <= '9'))
            return pickle_number(out, at);
        length = strspn(at, "abcdefghijklmnopqrstuvwxyz_2");
        cr_assert_gt(length, 0, "%.20s", at);
        pickle_text(out, at, length);
        return at + length;
    }
}

static struct recfile file;
static char why[256];

static inline void pickle(const char *text)
{
    free(file.at);
    recfile_begin(&file);
    recfile_raw(&file, "\x80\2", 2);
    pickle_value(&file, text);
    recfile_raw(&file, ".", 1);
}

__attribute__((format(printf, 2, 3))) static inline int read_text(struct gp_recording **r, const char *format, ...)
{
    static char text[400000];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    cr_assert_lt(length, (int)sizeof(text));
    pickle(text);
    memset(why, 'x', sizeof(why));
    return gp_recording_parse(r, file.at, file.size, why, sizeof(why));
}

/* ---- a recording as text ----------------------------------------------------------------------------------------- */

static const char *const types[GP_EVENT_TYPES] = {"none", "alloc", "free", "segment+", "segment-",
                                                  "map+", "map-",  "oom",  "snap",     "mark"};

static inline const char *site_text(const struct gp_recording *r, uint32_t number)
{
    static char text[256];
    const struct gp_rec_site *site = &r->sites[number];
    int used = snprintf(text, sizeof(text), "%s", site->frame_count ? "" : "-");
    for (uint32_t i = 0; i < site->frame_count && used < 200; i++) {
        const struct gp_rec_frame *frame = &r->frames[site->first_frame + i];
        used += snprintf(text + used, sizeof(text) - (size_t)used, "%s%.20s/%.20s:%u", i ? "<" : "",
                         r->strings + frame->function, r->strings + frame->file, frame->line);
    }
    return text;
}

static inline void add_event(char *to, size_t room, const struct gp_recording *r, const struct gp_rec_event *e,
                             bool baseline)
{
    size_t used = strlen(to);
    char peer[16] = "";
    if (!baseline && r->peer[e - r->events] != GP_REC_NONE)
        snprintf(peer, sizeof(peer), " >%u", r->peer[e - r->events]);
    if (e->type == GP_EVENT_MARK)
        snprintf(to + used, room - used, "%llu mark %s%s\n", (unsigned long long)e->time_ns, r->strings + e->bytes,
                 e->device == GP_REC_NO_DEVICE && e->kind == GP_KIND_NONE ? "" : " ?");
    else
        snprintf(to + used, room - used, "%s%llu %s%s gpu%u %llx %llu-%u stream%llx %s%s\n", baseline ? "before " : "",
                 (unsigned long long)e->time_ns, types[e->type],
                 e->kind == GP_KIND_LINEAR ? ""
                 : e->kind                 ? " ?"
                                           : " none",
                 r->devices[e->device].index, (unsigned long long)e->address, (unsigned long long)e->bytes, e->unused,
                 (unsigned long long)r->streams[e->stream], site_text(r, e->site), peer);
}

static inline const char *shown(const struct gp_recording *r)
{
    static char text[8192];
    text[0] = '\0';
    for (size_t i = 0; i < r->baseline_count; i++)
        add_event(text, sizeof(text), r, &r->baseline[i], true);
    for (size_t i = 0; i < r->event_count; i++)
        add_event(text, sizeof(text), r, &r->events[i], false);
    size_t used = strlen(text);
    snprintf(text + used, sizeof(text) - used, "from %llu to %llu, before %llu in %llu, unknown %llu\n",
             (unsigned long long)r->begin_ns, (unsigned long long)r->end_ns, (unsigned long long)r->before_bytes,
             (unsigned long long)r->before_blocks, (unsigned long long)r->torch_unknown);
    return text;
}

static inline void expect_shown(const char *snapshot, const char *wanted)
{
    struct gp_recording *r = NULL;
    cr_assert_eq(read_text(&r, "%s", snapshot), 0, "%s: %s", why, snapshot);
    cr_expect_str_eq(shown(r), wanted, "%s\n%s instead of\n%s", snapshot, shown(r), wanted);
    cr_expect(r->from_torch && r->complete && !r->from_start && r->damaged_blocks == 0);
    cr_expect(r->tried == r->event_count && r->delivered == r->event_count && r->dropped == 0);
    cr_expect(r->begin_unix_ns == r->begin_ns && r->stopped_ns == r->end_ns);
    cr_expect_str_eq(r->comm, "PyTorch snapshot");
    gp_recording_free(r);
}

static inline void expect_refused(const char *snapshot, const char *wanted)
{
    struct gp_recording *r = NULL;
    cr_expect_eq(read_text(&r, "%s", snapshot), -EPROTO, "%s", snapshot);
    cr_expect_str_eq(why, wanted);
}

#define FRAMES "frames: [{name: 'f', filename: 'a.py', line: 7}, {name: 'g', filename: 'b.py', line: 8}]"

#endif
