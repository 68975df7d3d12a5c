/* SPDX-License-Identifier: MIT
 * csv.c: one record per event as in RFC 4180: a header, CRLF, quotes where needed.  An unknown
 * value is an empty field.  Called through the table in formats.c. */
#include <convert/export/formats.h>

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
    gp_out_i64(out, gp_export_unix_ns(recording, row->event->time_ns));
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
