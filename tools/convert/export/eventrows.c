/* SPDX-License-Identifier: MIT
 * eventrows.c: Walks the numbered events of a recording, the baseline first; see formats.h.  Called
 * by the formats that write one line per event. */
#include <convert/export/formats.h>
#include <errno.h>
#include <show/text/stats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int gp_export_rows_begin_flow(struct gp_export_rows *rows, const struct gp_export *export, struct gp_flow *flow)
{
    const struct gp_recording *recording = export->recording;
    memset(rows, 0, sizeof(*rows));
    rows->export = export;
    rows->next = -(int64_t)recording->baseline_count;
    rows->flow = flow;
    rows->borrowed = true;
    rows->labels = calloc(recording->site_count + 1, sizeof(rows->labels[0]));
    if (!rows->flow || !rows->labels) {
        gp_export_rows_end(rows);
        return -ENOMEM;
    }
    return 0;
}

int gp_export_rows_begin(struct gp_export_rows *rows, const struct gp_export *export)
{
    struct gp_flow *flow = gp_flow_new(export->recording);
    int rc = gp_export_rows_begin_flow(rows, export, flow);
    if (rc)
        gp_flow_free(flow);
    rows->borrowed = false;
    return rc;
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
    if (!rows->borrowed)
        gp_flow_free(rows->flow);
    free(rows->labels);
    rows->flow = NULL;
    rows->labels = NULL;
}

int64_t gp_export_unix_ns(const struct gp_recording *recording, uint64_t time_ns)
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
