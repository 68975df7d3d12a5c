/* SPDX-License-Identifier: MIT
 * eventtext.c: one event of the ring, as a line in the style of strace and as JSON; see write.h. */
#include <base/text.h>
#include <show/text/stats.h>
#include <show/text/write.h>

#include <inttypes.h>
#include <string.h>

static void event_name_clean(const struct gp_wire_event *event, char name[64])
{
    gp_text_clean(name, 64, event->name, sizeof(event->name));
}

static bool event_has_address(const struct gp_wire_event *event)
{
    switch (event->type) {
    case GP_EVENT_ALLOC:
    case GP_EVENT_FREE:
    case GP_EVENT_SEGMENT_ALLOC:
    case GP_EVENT_SEGMENT_FREE:
    case GP_EVENT_SEGMENT_MAP:
    case GP_EVENT_SEGMENT_UNMAP:
        return true;
    default:
        return false;
    }
}

static bool event_has_bytes(const struct gp_wire_event *event)
{
    return event_has_address(event) || event->type == GP_EVENT_OOM || event->type == GP_EVENT_CONTEXT_DESTROYED;
}

static const char *device_word(uint8_t device, char text[16])
{
    if (device == GP_WIRE_HOST)
        return "host";
    snprintf(text, 16, "dev %u", device);
    return text;
}

json_t *gp_event_json(const struct gp_trace_place *place, const struct gp_wire_event *event)
{
    const char *type = gp_event_name(event->type), *kind = gp_kind_name(event->kind);
    bool bytes = event_has_bytes(event), mark = event->type == GP_EVENT_MARK;
    char name[64] = "";
    if (mark)
        event_name_clean(event, name);
    /* The size of an event that carries none is unknown (null), not 0. */
    return json_pack("{s:s,s:i,s:I,s:I,s:I,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "schema", "gpuprof.trace/1",
                     "pid", (int)place->pid, "seq", (json_int_t)(event->seq & INT64_MAX), "time_ns",
                     (json_int_t)(event->time_ns & INT64_MAX), "tid", (json_int_t)event->tid, "event",
                     type ? type : "unknown", "kind", event->kind != GP_KIND_NONE ? gp_json_text(kind) : json_null(),
                     "device", event->device == 255 ? json_null() : json_integer(event->device), "address",
                     event_has_address(event) ? gp_json_address(event->address) : json_null(), "size_bytes",
                     bytes ? json_integer((json_int_t)(event->bytes & INT64_MAX)) : json_null(), "requested_bytes",
                     bytes ? json_integer((json_int_t)(event->requested_bytes & INT64_MAX)) : json_null(), "stream",
                     mark ? json_null() : gp_json_address(event->stream), "site",
                     event->site ? json_integer(event->site) : json_null(), "error",
                     event->error ? json_integer(event->error) : json_null(), "name", gp_json_text(name));
}

void gp_event_line(FILE *out, const struct gp_trace_place *place, const struct gp_wire_event *event)
{
    const char *type = gp_event_name(event->type), *kind = gp_kind_name(event->kind);
    int64_t since = (int64_t)(event->time_ns - place->start_ns);
    char device[16], size[GP_SIZE_TEXT], name[64];
    fprintf(out, "%4" PRId64 ".%06" PRId64 " [tid %u] %s", since / 1000000000,
            (since < 0 ? -since : since) % 1000000000 / 1000, event->tid, type ? type : "unknown");
    if (event->type == GP_EVENT_MARK) {
        event_name_clean(event, name);
        fprintf(out, "(\"%s\")\n", name);
        return;
    }
    fputc('(', out);
    const char *comma = "";
    if (event->kind != GP_KIND_NONE && kind) {
        fprintf(out, "%s", kind);
        comma = ", ";
    }
    if (event->device != 255) {
        fprintf(out, "%s%s", comma, device_word(event->device, device));
        comma = ", ";
    }
    if (event_has_bytes(event)) {
        fprintf(out, "%s%" PRIu64, comma, event->bytes);
        if (event->bytes >= 1024)
            fprintf(out, " /* %s */", gp_size_text(size, (int64_t)(event->bytes & INT64_MAX)));
        if (event->requested_bytes != event->bytes)
            fprintf(out, ", requested %" PRIu64, event->requested_bytes);
    }
    if (event->stream)
        fprintf(out, ", stream 0x%" PRIx64, event->stream);
    fputc(')', out);
    if (event_has_address(event))
        fprintf(out, " = 0x%" PRIx64, event->address);
    if (event->error)
        fprintf(out, " = error %u", event->error);
    fputc('\n', out);
}
