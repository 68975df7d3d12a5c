/* SPDX-License-Identifier: MIT
 * jsonl.c: one line with one JSON object per event, with the fields of `gpuprof trace --json`
 * and those that only a recording has.  Unknown is null.  Called through the table in
 * formats.c. */
#include <convert/export/formats.h>

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
    jsonl_number(out, "unix_ns", true, gp_export_unix_ns(recording, event->time_ns));
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
