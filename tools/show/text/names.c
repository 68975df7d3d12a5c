/* SPDX-License-Identifier: MIT
 *
 * names.c: names, and the objects that several writers print; see stats.h and write.h.
 */
#include <base/compiler.h>
#include <show/text/stats.h>
#include <show/text/write.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
