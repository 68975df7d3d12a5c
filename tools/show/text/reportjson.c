/* SPDX-License-Identifier: MIT
 * reportjson.c: all results of a recording as one document of schema gpuprof.report/1, which the
 * HTML page and `gpuprof report --json` show; see text.h and docs/analyses.md.
 */
#include <analyze/analyze.h>
#include <analyze/report.h>
#include <base/numbers.h>
#include <gpuprof/wire.h>
#include <jansson.h>
#include <oom/oom.h>
#include <read/recording/recording.h>
#include <show/text/reportjson.h>
#include <show/text/reportparts.h>
#include <show/text/text.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/symbol.h>

/* ---- the recording ----------------------------------------------------------------------------------------- */

static json_t *report_lost(const struct gp_recording *recording)
{
    json_t *lost = json_object();
    for (unsigned i = 0; i < GP_LOSTS; i++) {
        if (gp_lost_name(i))
            json_object_set_new(lost, gp_lost_name(i), json_integer((json_int_t)recording->lost[i]));
    }
    return lost;
}

/* A file name is any bytes, a JSON string is UTF-8: a name that is not UTF-8 gets '?' for its other
 * bytes. */
static json_t *report_path(const char *path)
{
    json_t *text = json_string(path);
    char *plain = text ? NULL : strdup(path);
    for (char *at = plain; at && *at; at++)
        *at = *at & 0x80 ? '?' : *at;
    text = plain ? json_string(plain) : text;
    free(plain);
    return text;
}

static json_t *report_driver(uint32_t version)
{
    return version ? json_sprintf("%u.%u", version / 1000, version % 1000 / 10) : json_null();
}

/* Null, or why events could not be written.  Times are since the start. */
static json_t *report_write_error(const struct gp_report *report)
{
    const struct gp_recording *r = report->recording;
    if (!r->write_error || !r->unwritten)
        return json_null();
    return json_pack("{s:i,s:s,s:I,s:I,s:I,s:b}", "errno", r->write_error, "reason", strerror(r->write_error),
                     "time_ns", gp_report_since(report, r->ended_early ? r->end_ns : r->write_error_ns), "stopped_ns",
                     gp_report_since(report, r->stopped_ns), "events", (json_int_t)r->unwritten, "ends_recording",
                     r->ended_early);
}

static json_t *report_rank(const struct gp_recording *r, int32_t number)
{
    return r->has_rank && number >= 0 ? json_integer(number) : json_null();
}

/* Null, or where this part of a recording lies in the whole. */
static json_t *report_part(const struct gp_recording *r)
{
    return r->part_of_ns ? json_pack("{s:f,s:f}", "from_seconds", (double)r->part_from_ns / 1e9, "of_seconds",
                                     (double)r->part_of_ns / 1e9)
                         : json_null();
}

static json_t *report_recording(const struct gp_report *report)
{
    static const char *const sources[] = {"none", "cupti", "hooks"};
    const struct gp_recording *r = report->recording;
    uint64_t span = r->end_ns > r->begin_ns ? r->end_ns - r->begin_ns : 0;
    return json_pack(
        "{s:o,s:I,s:s,s:s,s:s,s:s,s:s,s:o,s:I,s:f,s:b,s:b,s:I,s:I,s:I,s:I,s:I,s:o,s:b,s:o,s:o,s:o,s:o,s:s,"
        "s:I,s:I,s:I,s:I,s:o,s:o,s:I}",
        "file", report_path(report->file), "pid", (json_int_t)r->pid, "comm", r->comm, "command_line", r->command_line,
        "host", r->host, "source", sources[r->source <= GP_SOURCE_HOOKS ? r->source : 0], "allocator", r->allocator,
        "driver", report_driver(r->driver_version), "begin_unix_ns", (json_int_t)r->begin_unix_ns, "seconds",
        (double)span / 1e9, "complete", r->complete, "from_start", r->from_start, "tried", (json_int_t)r->tried,
        "delivered", (json_int_t)r->delivered, "dropped", (json_int_t)r->dropped, "events", (json_int_t)r->event_count,
        "damaged_blocks", (json_int_t)r->damaged_blocks, "lost", report_lost(r), "stacks", r->site_count > 1,
        "write_error", report_write_error(report), "rank", report_rank(r, r->rank), "local_rank",
        report_rank(r, r->local_rank), "world_size", report_rank(r, r->world_size), "format",
        gp_rec_format(r->from_torch, r->from_rmm, r->from_pprof), "before_blocks", (json_int_t)r->before_blocks,
        "before_bytes", (json_int_t)r->before_bytes, "unseen_blocks", (json_int_t)r->unseen_blocks, "unfreed_blocks",
        (json_int_t)r->unfreed_blocks, "part", report_part(r), "attached",
        r->attached ? json_boolean(r->attached == GP_REC_ATTACHED_YES) : json_null(), "recorded_events",
        (json_int_t)r->recorded);
}

/* ---- steps and marks --------------------------------------------------------------------------------------- */

static json_t *report_steps(const struct gp_report *report)
{
    const struct gp_steps *steps = report->steps;
    char rhythm[GP_RHYTHM_TEXT];
    json_t *bounds = json_array();
    for (uint32_t i = 0; i <= steps->count && i < GP_MOST_MARKS; i++)
        json_array_append_new(bounds, json_integer(gp_report_since(report, steps->bounds_ns[i])));
    return json_pack("{s:s,s:s,s:s,s:f,s:s,s:I,s:f,s:s,s:o}", "source", gp_report_step_source(report), "found",
                     gp_steps_found(steps), "word", gp_steps_word(steps), "sure", steps->sure, "name", steps->name,
                     "count", (json_int_t)steps->count, "seconds", (double)steps->length_ns / 1e9, "rhythm",
                     gp_report_rhythm(report, rhythm), "bounds_ns", bounds);
}

static json_t *report_marks(const struct gp_report *report)
{
    const struct gp_recording *r = report->recording;
    json_t *list = json_array();
    for (size_t i = 0; i < r->event_count && json_array_size(list) < GP_MOST_MARKS; i++) {
        if (r->events[i].type == GP_EVENT_MARK && r->events[i].bytes < r->string_bytes)
            json_array_append_new(list, json_pack("{s:I,s:s}", "time_ns", gp_report_since(report, r->events[i].time_ns),
                                                  "name", r->strings + r->events[i].bytes));
    }
    return list;
}

/* The place that matters, and its label. */
static void report_place(const struct gp_report *report, json_t *row, uint32_t site)
{
    char label[192];
    gp_symbols_line(report->symbols, site, NULL, NULL, label, sizeof(label));
    json_object_set_new(row, "name", json_string(label));
    gp_report_add_place(report, row, site);
}

static json_t *report_ooms(const struct gp_report *report)
{
    const struct gp_recording *r = report->recording;
    json_t *list = json_array();
    for (size_t i = 0; i < r->event_count && json_array_size(list) < GP_MOST_MARKS; i++) {
        if (r->events[i].type != GP_EVENT_OOM)
            continue;
        json_t *row = json_pack("{s:I,s:o,s:I,s:I}", "time_ns", gp_report_since(report, r->events[i].time_ns), "device",
                                gp_report_device_name(report, r->events[i].device), "requested_bytes",
                                (json_int_t)r->events[i].bytes, "site", (json_int_t)r->events[i].site);
        if (row)
            report_place(report, row, r->events[i].site);
        json_array_append_new(list, row);
    }
    return list;
}

/* Who held the memory when the last request failed. */
static json_t *report_oom_holders(const struct gp_report *report)
{
    const struct gp_wire_oom *oom = &report->recording->oom;
    json_t *list = json_array();
    for (uint32_t i = 0; report->recording->has_oom && i < oom->holder_count; i++) {
        const struct gp_wire_oom_holder *holder = &oom->holders[i];
        json_t *row = json_pack(
            "{s:s,s:I,s:I,s:I}", "kind", gp_kind_name(holder->kind) ? gp_kind_name(holder->kind) : "", "block_bytes",
            (json_int_t)holder->block_bytes, "blocks", (json_int_t)holder->count, "site", (json_int_t)holder->site);
        if (row)
            report_place(report, row, holder->site);
        json_array_append_new(list, row);
    }
    return list;
}

/* A recording has a framework's segments, but not what its allocator held when the request failed.  Without
 * GP_OOM_FRAMEWORK the page then says that its settings are not judged; without any, that none would have helped. */
static const struct gp_wire_oom_framework report_oom_framework = {.flags = GP_OOM_KEPT};

static bool report_oom_is_framework(const struct gp_recording *recording)
{
    for (uint32_t i = 0; i < recording->oom.holder_count; i++) {
        char owner[GP_SITE_OWNER];
        gp_bill_site_owner(recording, recording->oom.holders[i].site, owner);
        if (strcmp(owner, "pytorch") == 0)
            return true;
    }
    return false;
}

static json_t *report_oom_text(const struct gp_report *report)
{
    const struct gp_recording *recording = report->recording;
    const struct gp_wire_oom *oom = &recording->oom;
    char text[GP_OOM_PAGE_BYTES], place[88] = "", labels[GP_OOM_HOLDERS][40] = {""};
    const char *where[GP_OOM_HOLDERS];
    struct gp_oom_facts facts = {.oom = oom,
                                 .pid = recording->pid,
                                 .comm = recording->comm,
                                 .start_ns = recording->begin_ns,
                                 .total_bytes = -1,
                                 .untracked_bytes = -1,
                                 .place = place,
                                 .where = where};
    if (!recording->has_oom)
        return json_null();
    for (uint32_t i = 0; i < recording->device_count; i++) {
        if (recording->devices[i].index != oom->device)
            continue;
        facts.device_name = recording->devices[i].name;
        facts.total_bytes = recording->devices[i].total_bytes;
        if (report->flow->has_segments[i] && report_oom_is_framework(recording))
            facts.framework = &report_oom_framework;
    }
    if (oom->site)
        gp_symbols_line(report->symbols, oom->site, NULL, NULL, place, sizeof(place));
    for (uint32_t i = 0; i < GP_OOM_HOLDERS; i++) {
        where[i] = labels[i];
        if (i < oom->holder_count && oom->holders[i].site)
            gp_symbols_line(report->symbols, oom->holders[i].site, NULL, NULL, labels[i], GP_OOM_WHERE + 1);
    }
    gp_oom_page(text, sizeof(text), &facts);
    return json_string(text);
}

/* The kinds whose bytes are in no total. */
static json_t *report_unsummed(void)
{
    json_t *list = json_array();
    for (unsigned kind = GP_KIND_LINEAR; kind < GP_KINDS; kind++)
        if (!gp_kind_sums(kind))
            json_array_append_new(list, json_string(gp_kind_name(kind)));
    return list;
}

json_t *gp_report_document(const struct gp_report *report)
{
    json_t *devices = json_array(), *object = NULL;
    bool ok = devices;
    for (uint32_t d = 0; ok && d < report->recording->device_count; d++)
        ok = json_array_append_new(devices, gp_report_device_json(report, d)) == 0;
    if (ok)
        object =
            json_pack("{s:s,s:o,s:o,s:O,s:o,s:{s:s,s:o,s:o},s:o,s:o,s:o,s:o,s:o}", "schema", "gpuprof.report/1",
                      "recording", report_recording(report), "unsummed_kinds", report_unsummed(), "devices", devices,
                      "steps", report_steps(report), "leaks", "why", report->leaks->why, "suspects",
                      gp_report_suspects(report), "candidates", gp_report_candidates(report), "churn",
                      gp_report_churn_part(report, false), "marks", report_marks(report), "ooms", report_ooms(report),
                      "oom", report_oom_text(report), "oom_holders", report_oom_holders(report));
    json_decref(devices);
    if (object && gp_report_add_sites(report, object))
        return object;
    json_decref(object);
    return NULL;
}
