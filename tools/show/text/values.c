/* SPDX-License-Identifier: MIT
 *
 * values.c: names and single values for all writers; see stats.h and write.h.
 */
#include <base/compiler.h>
#include <errno.h>
#include <inttypes.h>
#include <show/text/stats.h>
#include <show/text/write.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ==== names ======================================================================================================= */

static const char *const event_names[GP_EVENT_TYPES] = {
    [GP_EVENT_NONE] = "none",
    [GP_EVENT_ALLOC] = "alloc",
    [GP_EVENT_FREE] = "free",
    [GP_EVENT_SEGMENT_ALLOC] = "segment_alloc",
    [GP_EVENT_SEGMENT_FREE] = "segment_free",
    [GP_EVENT_SEGMENT_MAP] = "segment_map",
    [GP_EVENT_SEGMENT_UNMAP] = "segment_unmap",
    [GP_EVENT_OOM] = "oom",
    [GP_EVENT_SNAPSHOT] = "snapshot",
    [GP_EVENT_MARK] = "mark",
    [GP_EVENT_RESET] = "reset",
    [GP_EVENT_CONTEXT_DESTROYED] = "context_destroyed",
    [GP_EVENT_PROCESS_START] = "process_start",
    [GP_EVENT_PROCESS_EXIT] = "process_exit",
};

static const char *const source_names[] = {
    [GP_SOURCE_NONE] = "none", [GP_SOURCE_CUPTI] = "cupti", [GP_SOURCE_HOOKS] = "hooks"};

static const char *const reset_names[] = {
    [GP_RESET_ALLOCATED] = "allocated",
    [GP_RESET_RESERVED] = "reserved",
    [GP_RESET_PEAKS] = "peaks",
    [GP_RESET_ACCUMULATED] = "accumulated",
};

#define GP_NAME(_table, _index) ((_index) < GP_COUNT(_table) ? (_table)[_index] : NULL)

const char *gp_event_name(unsigned type)
{
    return GP_NAME(event_names, type);
}

const char *gp_copy_text(char text[GP_COPY_TEXT], const struct gp_wire_copy *copy)
{
    char version[32] = "", status[16] = "";
    if (copy->version)
        snprintf(version, sizeof(version), ", version %u", copy->version);
    if (copy->status > 0)
        snprintf(status, sizeof(status), " (%d)", copy->status);
    snprintf(text, GP_COPY_TEXT, "%s%s: %s%s", copy->path, version,
             copy->status == 0 ? "in use"
             : copy->answer[0] ? copy->answer
                               : "CUPTI error",
             status);
    return text;
}

const char *gp_source_name(unsigned source)
{
    return GP_NAME(source_names, source);
}

const char *gp_reset_name(unsigned what)
{
    return GP_NAME(reset_names, what);
}

/* ==== values ====================================================================================================== */
/* Single values for all writers: a size as text; numbers, addresses and strings as JSON; see
 * write.h. */

const char *gp_size_text(char text[GP_SIZE_TEXT], int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    double value = (double)bytes;
    /* From 1023.95 on, "%.1f" would print "1024.0": use the next unit. */
    while (value >= 1023.95 && unit + 1 < GP_COUNT(units)) {
        value /= 1024;
        unit++;
    }
    if (bytes < 0)
        snprintf(text, GP_SIZE_TEXT, "-");
    else if (unit == 0)
        snprintf(text, GP_SIZE_TEXT, "%" PRId64 " B", bytes);
    else
        snprintf(text, GP_SIZE_TEXT,
                 value < 9.9995   ? "%.3f %s"
                 : value < 99.995 ? "%.2f %s"
                                  : "%.1f %s",
                 value, units[unit]);
    return text;
}

const char *gp_tone(FILE *out, const char *code)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(out)) && !(no_color && no_color[0]) && term && strcmp(term, "dumb") != 0 ? code : "";
}

const char *gp_seconds_text(char text[GP_SIZE_TEXT], double seconds)
{
    static const struct {
        double from, by;
        const char *unit;
    } units[] = {{172800, 86400, "days"}, {7200, 3600, "h"},  {120, 60, "min"}, {1, 1, "s"},
                 {1e-3, 1e-3, "ms"},      {1e-6, 1e-6, "us"}, {0, 1e-9, "ns"}};
    size_t i = 0;
    if (seconds <= 0) {
        snprintf(text, GP_SIZE_TEXT, seconds < 0 ? "-" : "0 s");
        return text;
    }
    while (seconds < units[i].from)
        i++;
    double value = seconds / units[i].by;
    if (value >= 1e7)
        snprintf(text, GP_SIZE_TEXT, "years");
    else
        snprintf(text, GP_SIZE_TEXT, value < 9.95 && i < 6 ? "%.1f %s" : "%.0f %s", value, units[i].unit);
    return text;
}

json_t *gp_json_known(int64_t value)
{
    return value < 0 ? json_null() : json_integer(value);
}

json_t *gp_polled_json(const struct gp_wire_polled *said)
{
    if (!said->pool_bytes)
        return json_null();
    return json_pack("{s:I,s:I,s:o}", "peak_bytes", (json_int_t)said->peak_bytes, "pool_bytes",
                     (json_int_t)said->pool_bytes, "limit_bytes", gp_json_known(said->limit_bytes));
}

void gp_before_json(json_t *object, int64_t bytes, const struct gp_wire_before_device *before)
{
    const char *source = before ? gp_before_source(before) : NULL;
    json_object_set_new(object, "before_attach_bytes", gp_json_known(bytes));
    json_object_set_new(object, "before_attach_source", source ? json_string(source) : json_null());
    if (!before)
        return;
    json_object_set_new(object, "before_attach_first_bytes", gp_json_known(before->at_attach_bytes));
    json_object_set_new(object, "before_attach_live", gp_json_known(before->count));
    json_object_set_new(object, "before_attach_freed", json_integer((json_int_t)before->freed));
    json_object_set_new(object, "before_attach_framework_allocated_bytes",
                        gp_json_known(before->framework_allocated_bytes));
    json_object_set_new(object, "before_attach_framework_reserved_bytes",
                        gp_json_known(before->framework_reserved_bytes));
}

json_t *gp_json_address(uint64_t address)
{
    char text[24];
    snprintf(text, sizeof(text), "0x%" PRIx64, address);
    return json_string(text);
}

json_t *gp_json_text(const char *text)
{
    return text && text[0] ? json_string(text) : json_null();
}

int gp_json_print(FILE *out, json_t *object, bool line)
{
    if (!object)
        return -ENOMEM;
    int rc = json_dumpf(object, out, line ? JSON_COMPACT : JSON_INDENT(1));
    json_decref(object);
    if (rc == 0 && putc('\n', out) != EOF && fflush(out) == 0)
        return 0;
    return -(errno ? errno : EIO);
}
