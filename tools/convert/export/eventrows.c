/* SPDX-License-Identifier: MIT
 * eventrows.c: Walks the numbered events of a recording, the baseline first; see formats.h.  Called
 * by the formats that write one line per event.  Its parts: rows, CSV, JSON Lines. */
#include <analyze/flow.h>
#include <convert/export/formats.h>
#include <convert/export/out.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <show/text/stats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <symbol/symbol.h>

/* ---- rows -------------------------------------------------------------------------------------------------------- */

int gp_export_rows_begin(struct gp_export_rows *rows, const struct gp_export *export)
{
    const struct gp_recording *recording = export->recording;
    memset(rows, 0, sizeof(*rows));
    rows->export = export;
    rows->next = -(int64_t)recording->baseline_count;
    rows->flow = gp_flow_new(recording);
    rows->labels = calloc(recording->site_count + 1, sizeof(rows->labels[0]));
    if (!rows->flow || !rows->labels) {
        gp_export_rows_end(rows);
        return -ENOMEM;
    }
    return 0;
}

static bool rows_has_address(unsigned type)
{
    return type == GP_EVENT_ALLOC || type == GP_EVENT_FREE ||
           (type >= GP_EVENT_SEGMENT_ALLOC && type <= GP_EVENT_SEGMENT_UNMAP);
}

static int64_t rows_number(const struct gp_recording *recording, uint32_t index)
{
    if (index < recording->event_count)
        return index;
    return (int64_t)(index - recording->event_count) - (int64_t)recording->baseline_count;
}

static void rows_peer(const struct gp_export_rows *rows, struct gp_export_row *row)
{
    const struct gp_recording *recording = rows->export->recording;
    size_t before = row->number < 0 ? (size_t)(row->number + (int64_t)recording->baseline_count) : 0;
    uint8_t what = row->number < 0 ? rows->flow->baseline_what[before] : rows->flow->what[row->number];
    uint32_t peer = row->number < 0 ? rows->flow->baseline_end[before] : recording->peer[row->number];
    row->is_counted = (what & (GP_FLOW_OPEN | GP_FLOW_SUMMED)) == (GP_FLOW_OPEN | GP_FLOW_SUMMED);
    row->has_peer = peer != GP_REC_NONE;
    row->peer = row->has_peer ? rows_number(recording, peer) : 0;
}

static void rows_progress(struct gp_export_rows *rows)
{
    const struct gp_export *export = rows->export;
    size_t all = export->recording->event_count + export->recording->baseline_count;
    size_t done = (size_t)(rows->next + (int64_t) export->recording->baseline_count);
    unsigned parts = (unsigned)(done * 1000 / (all ? all : 1));
    if (export->progress && parts != rows->shown)
        export->progress(export->progress_arg, rows->shown = parts);
}

bool gp_export_rows_next(struct gp_export_rows *rows, struct gp_export_row *row)
{
    const struct gp_recording *recording = rows->export->recording;
    if (rows->next >= (int64_t)recording->event_count)
        return false;
    row->number = rows->next++;
    row->event = row->number < 0 ? &recording->baseline[row->number + (int64_t)recording->baseline_count]
                                 : &recording->events[row->number];
    unsigned type = row->event->type;
    row->type = gp_event_name(type) ? gp_event_name(type) : "unknown";
    row->kind = row->event->kind != GP_KIND_NONE ? gp_kind_name(row->event->kind) : NULL;
    row->name = type == GP_EVENT_MARK ? recording->strings + row->event->bytes : NULL;
    row->has_address = rows_has_address(type);
    row->has_bytes = row->has_address || type == GP_EVENT_OOM || type == GP_EVENT_CONTEXT_DESTROYED;
    rows_peer(rows, row);
    if ((rows->next & 1023) == 0)
        rows_progress(rows);
    return true;
}

const char *gp_export_rows_label(struct gp_export_rows *rows, uint32_t site)
{
    char *label = rows->labels[site];
    if (!*label && site)
        gp_frame_label(gp_symbols_name(rows->export->symbols, site), label, sizeof(rows->labels[0]));
    return label;
}

void gp_export_rows_end(struct gp_export_rows *rows)
{
    gp_flow_free(rows->flow);
    free(rows->labels);
    rows->flow = NULL;
    rows->labels = NULL;
}

/* CLOCK_MONOTONIC of the recorded machine -> nanoseconds since 1970. */
static int64_t export_unix_ns(const struct gp_recording *recording, uint64_t time_ns)
{
    return (int64_t)(recording->begin_unix_ns + (time_ns - recording->begin_ns));
}

const char *gp_export_device(const struct gp_recording *recording, uint32_t index, char text[16])
{
    const struct gp_rec_device *device = index < recording->device_count ? &recording->devices[index] : NULL;
    if (!device)
        return "";
    if (device->index == GP_WIRE_HOST)
        return "host";
    snprintf(text, 16, "%d", device->ordinal);
    return text;
}

/* ---- CSV --------------------------------------------------------------------------------------------------------- */
/* One record per event as in RFC 4180: a header, CRLF, quotes where needed.  An unknown value is an
 * empty field. Called through the table in formats.c. */

#define GP_CSV_HEAD                                                                                                    \
    "event,time_ns,unix_ns,type,kind,device,address,size_bytes,requested_bytes,stream,tid,thread,site,site_name,peer," \
    "name\r\n"

static void csv_thread(struct gp_out *out, const struct gp_recording *recording, uint32_t index)
{
    const struct gp_rec_thread *thread = index < recording->thread_count ? &recording->threads[index] : NULL;
    if (thread && thread->tid) /* unknown for the baseline */
        gp_out_u64(out, thread->tid);
    gp_out_char(out, ',');
    if (thread)
        gp_out_csv(out, recording->strings + thread->name);
}

static void csv_place(struct gp_out *out, const struct gp_recording *recording, const struct gp_export_row *row)
{
    char device[16];
    gp_out_text(out, row->kind ? row->kind : "");
    gp_out_char(out, ',');
    gp_out_text(out, gp_export_device(recording, row->event->device, device));
    gp_out_char(out, ',');
    if (row->has_address)
        gp_out_hex(out, row->event->address);
    gp_out_char(out, ',');
    if (row->has_bytes)
        gp_out_u64(out, row->event->bytes);
    gp_out_char(out, ',');
    if (row->has_bytes)
        gp_out_u64(out, gp_rec_requested(row->event));
    gp_out_char(out, ',');
    if (row->event->stream < recording->stream_count)
        gp_out_hex(out, recording->streams[row->event->stream]);
}

static void csv_row(struct gp_out *out, struct gp_export_rows *rows, const struct gp_export_row *row)
{
    const struct gp_recording *recording = rows->export->recording;
    gp_out_i64(out, row->number);
    gp_out_char(out, ',');
    gp_out_u64(out, row->event->time_ns);
    gp_out_char(out, ',');
    gp_out_i64(out, export_unix_ns(recording, row->event->time_ns));
    gp_out_char(out, ',');
    gp_out_text(out, row->type);
    gp_out_char(out, ',');
    csv_place(out, recording, row);
    gp_out_char(out, ',');
    csv_thread(out, recording, row->event->thread);
    gp_out_char(out, ',');
    if (row->event->site)
        gp_out_u64(out, row->event->site);
    gp_out_char(out, ',');
    gp_out_csv(out, gp_export_rows_label(rows, row->event->site));
    gp_out_char(out, ',');
    if (row->has_peer)
        gp_out_i64(out, row->peer);
    gp_out_char(out, ',');
    gp_out_csv(out, row->name ? row->name : "");
    gp_out_bytes(out, "\r\n", 2);
}

int gp_export_csv(struct gp_export *export, struct gp_out *out)
{
    struct gp_export_rows rows;
    struct gp_export_row row;
    int rc = gp_export_rows_begin(&rows, export);
    if (rc)
        return rc;
    gp_out_text(out, GP_CSV_HEAD);
    while (!out->error && gp_export_rows_next(&rows, &row))
        csv_row(out, &rows, &row);
    gp_export_rows_end(&rows);
    return out->error;
}

/* ---- JSON Lines -------------------------------------------------------------------------------------------------- */
/* One line with one JSON object per event, with the fields of `gpuprof trace --json` and those that
 * only a recording has.  Unknown is null.  Called through the table in formats.c. */

static void jsonl_key(struct gp_out *out, const char *key)
{
    gp_out_text(out, ",\"");
    gp_out_text(out, key);
    gp_out_text(out, "\":");
}

/* For words of our own, which need no escaping: names of kinds, types, devices. */
static void jsonl_word(struct gp_out *out, const char *key, const char *word)
{
    jsonl_key(out, key);
    if (word)
        gp_out_json(out, word);
    else
        gp_out_text(out, "null");
}

static void jsonl_number(struct gp_out *out, const char *key, bool known, int64_t number)
{
    jsonl_key(out, key);
    if (known)
        gp_out_i64(out, number);
    else
        gp_out_text(out, "null");
}

static void jsonl_hex(struct gp_out *out, const char *key, bool known, uint64_t number)
{
    jsonl_key(out, key);
    if (!known) {
        gp_out_text(out, "null");
        return;
    }
    gp_out_char(out, '"');
    gp_out_hex(out, number);
    gp_out_char(out, '"');
}

static void jsonl_thread(struct gp_out *out, const struct gp_recording *recording, uint32_t index)
{
    const struct gp_rec_thread *thread = index < recording->thread_count ? &recording->threads[index] : NULL;
    jsonl_number(out, "tid", thread && thread->tid, thread ? thread->tid : 0);
    jsonl_word(out, "thread", thread && recording->strings[thread->name] ? recording->strings + thread->name : NULL);
}

static void jsonl_row(struct gp_out *out, struct gp_export_rows *rows, const struct gp_export_row *row)
{
    const struct gp_recording *recording = rows->export->recording;
    const struct gp_rec_event *event = row->event;
    bool stream = event->stream < recording->stream_count && event->type != GP_EVENT_MARK;
    char device[16];
    gp_out_text(out, "{\"schema\":\"gpuprof.event/1\",\"seq\":");
    gp_out_i64(out, row->number);
    jsonl_number(out, "pid", true, recording->pid);
    jsonl_number(out, "time_ns", true, (int64_t)event->time_ns);
    jsonl_number(out, "unix_ns", true, export_unix_ns(recording, event->time_ns));
    jsonl_thread(out, recording, event->thread);
    jsonl_word(out, "event", row->type);
    jsonl_word(out, "kind", row->kind);
    jsonl_word(out, "device",
               event->device < recording->device_count ? gp_export_device(recording, event->device, device) : NULL);
    jsonl_hex(out, "address", row->has_address, event->address);
    jsonl_number(out, "size_bytes", row->has_bytes, (int64_t)event->bytes);
    jsonl_number(out, "requested_bytes", row->has_bytes, (int64_t)gp_rec_requested(event));
    jsonl_hex(out, "stream", stream, stream ? recording->streams[event->stream] : 0);
    jsonl_number(out, "site", event->site, event->site);
    jsonl_word(out, "site_name", event->site ? gp_export_rows_label(rows, event->site) : NULL);
    jsonl_number(out, "peer", row->has_peer, row->peer);
    jsonl_word(out, "name", row->name);
    gp_out_text(out, "}\n");
}

int gp_export_jsonl(struct gp_export *export, struct gp_out *out)
{
    struct gp_export_rows rows;
    struct gp_export_row row;
    int rc = gp_export_rows_begin(&rows, export);
    if (rc)
        return rc;
    while (!out->error && gp_export_rows_next(&rows, &row))
        jsonl_row(out, &rows, &row);
    gp_export_rows_end(&rows);
    return out->error;
}
