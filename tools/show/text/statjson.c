/* SPDX-License-Identifier: MIT
 * statjson.c: schema gpuprof.stat/1, and the scopes that other schemas share with it; see
 * write.h. */
#include <gpuprof/wire.h>
#include <jansson.h>
#include <read/collect/collect.h>
#include <show/text/forecast.h>
#include <show/text/stats.h>
#include <show/text/write.h>

#include <stdint.h>
#include <string.h>

json_t *gp_scope_json(const char *name, const struct gp_device_view *device, const struct gp_wire_scope_value *peaks)
{
    bool host = device->index == (int)GP_WIRE_HOST;
    return json_pack("{s:s,s:o,s:I,s:I}", "name", name, "device",
                     host ? json_string("host") : json_integer(gp_device_number(device)), "allocated_peak_bytes",
                     (json_int_t)peaks->allocated_peak_bytes, "reserved_peak_bytes",
                     (json_int_t)peaks->reserved_peak_bytes);
}

/* The agent's maps have only these statistics; for a process that only they know, the others are
 * unknown. */
static bool stats_known(const struct gp_device_view *view, const struct gp_stat_key *key)
{
    static const char *const known[] = {"allocated_bytes.all.current", "allocated_bytes.all.peak",
                                        "reserved_bytes.all.current",  "reserved_bytes.all.peak",
                                        "asleep_bytes.current",        "asleep_bytes.peak",
                                        "allocation.all.allocated",    "allocation.all.freed"};
    for (size_t i = 0; view->totals_only && i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(key->name, known[i]) == 0)
            return true;
    }
    return !view->totals_only && (key->told || !(view->wire.flags & GP_DEVICE_FRAMEWORK));
}

static json_t *stats_json(const struct gp_device_view *view)
{
    json_t *object = json_object();
    for (int i = 0; i < GP_STAT_KEYS; i++)
        json_object_set_new(object, gp_stat_keys[i].name,
                            stats_known(view, &gp_stat_keys[i])
                                ? json_integer(gp_stat_get(&view->wire, &gp_stat_keys[i]))
                                : json_null());
    return object;
}

static json_t *kinds_json(const struct gp_wire_device *device)
{
    json_t *object = json_object();
    for (unsigned kind = GP_KIND_LINEAR; kind < GP_KINDS; kind++) {
        const struct gp_wire_kind_value *v = &device->kinds[kind];
        json_t *value = json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "current_bytes", gp_json_known(v->current_bytes),
                                  "peak_bytes", gp_json_known(v->peak_bytes), "allocated_bytes",
                                  gp_json_known(v->allocated_bytes), "freed_bytes", gp_json_known(v->freed_bytes),
                                  "live", gp_json_known(v->live), "calls", gp_json_known(v->calls), "live_peak",
                                  gp_json_known(v->live_peak), "reserved_bytes", gp_json_known(v->reserved_bytes));
        json_object_set_new(object, gp_kind_name(kind), value);
    }
    return object;
}

static json_t *owner_json(const struct gp_device_view *device, const char *owner, const char *library,
                          const struct gp_wire_owner_value *value)
{
    return json_pack("{s:s,s:o,s:I,s:o,s:I,s:o,s:I,s:I}", "owner", owner, "library", gp_json_text(library),
                     "reserved_bytes", (json_int_t)value->reserved_bytes, "reserved_peak_bytes",
                     gp_json_known(value->reserved_peak_bytes), "allocated_bytes", (json_int_t)value->allocated_bytes,
                     "allocated_peak_bytes", gp_json_known(value->allocated_peak_bytes), "live",
                     (json_int_t)value->live, "asleep_bytes", (json_int_t)gp_owner_asleep(device, owner));
}

static json_t *owners_json(const struct gp_process *process, const struct gp_device_view *device)
{
    struct gp_owner_view views[GP_OWNER_VIEWS];
    if (device->totals_only || !process->owner_count)
        return json_null();
    json_t *array = json_array();
    for (int i = 0, count = gp_peer_owners_of(process, device, views); i < count; i++)
        json_array_append_new(array, owner_json(device, views[i].owner, views[i].library, &views[i].value));
    return array;
}

static void framework_json(json_t *array, const struct gp_wire_framework *f, int64_t asleep, int64_t beside)
{
    if (!f->name[0])
        return;
    json_array_append_new(
        array, json_pack("{s:s,s:n,s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "name", f->name, "version",
                         "agrees", gp_framework_agrees(f), "blocks", (json_int_t)f->blocks, "segments",
                         (json_int_t)f->segments, "allocated_bytes", (json_int_t)f->allocated_bytes, "reserved_bytes",
                         (json_int_t)f->reserved_bytes, "events", (json_int_t)f->events, "allocated_differs",
                         (json_int_t)f->allocated_differs, "reserved_differs", (json_int_t)f->reserved_differs,
                         "private_bytes", (json_int_t)f->private_bytes, "retries", (json_int_t)f->retries, "ooms",
                         (json_int_t)f->ooms, "asleep_bytes", (json_int_t)asleep, "beside_bytes", (json_int_t)beside));
}

/* Libraries whose own pools are watched name no totals of their own. */
static void doors_json(json_t *array, const struct gp_process *process, const struct gp_device_view *device)
{
    for (uint32_t i = 0; i < process->doors.row_count; i++) {
        const struct gp_wire_door_row *row = &process->doors.rows[i];
        struct gp_wire_framework like = {.blocks = row->pieces,
                                         .segments = row->pools,
                                         .allocated_bytes = row->allocated_bytes,
                                         .reserved_bytes = row->reserved_bytes,
                                         .events = row->events};
        if (row->device != device->index || row->time_ns)
            continue;
        memcpy(like.name, process->doors.doors[row->door].name, sizeof(like.name));
        framework_json(array, &like, 0, 0);
    }
}

/* What libraries say of their own pools: in no total of ours. */
static json_t *polled_json(const struct gp_process *process, const struct gp_device_view *device)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < process->doors.row_count; i++) {
        const struct gp_wire_door_row *row = &process->doors.rows[i];
        if (row->device != device->index || !row->time_ns)
            continue;
        json_array_append_new(
            array,
            json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:I}", "name", gp_json_text(process->doors.doors[row->door].name),
                      "allocated_bytes", gp_json_known(row->allocated_bytes), "allocated_peak_bytes",
                      gp_json_known(row->allocated_peak_bytes), "reserved_bytes", gp_json_known(row->reserved_bytes),
                      "reserved_peak_bytes", gp_json_known(row->reserved_peak_bytes), "limit_bytes",
                      gp_json_known(row->limit_bytes), "age_ns", (json_int_t)gp_door_age(process, row)));
    }
    return array;
}

static json_t *frameworks_json(const struct gp_process *process, const struct gp_device_view *device)
{
    json_t *array = json_array();
    framework_json(array, &device->framework, device->wire.asleep_bytes.current, device->wire.beside_bytes);
    framework_json(array, &device->heaps, 0, 0);
    doors_json(array, process, device);
    return array;
}

/* A process that is not watched has no forecast. */
static json_t *stat_forecast(const struct gp_device_view *device)
{
    return device->forecast ? gp_forecast_json(device->forecast) : json_null();
}

/* What was there before an attach; 0 where gpuprof was there from the start. */
static void before_json(json_t *object, const struct gp_process *process, const struct gp_device_view *device)
{
    int64_t bytes = device->totals_only ? -1 : process->attached ? device->before.bytes : 0;
    gp_before_json(object, bytes, process->attached ? &device->before : NULL);
    if (!process->attached)
        return;
    json_object_set_new(object, "before_attach_blocks", gp_json_known(device->blocks.count));
    json_object_set_new(object, "before_attach_blocks_bytes", gp_json_known(device->blocks.bytes));
    json_object_set_new(object, "before_attach_blocks_differs",
                        gp_json_known(device->blocks.count < 0 ? -1 : (int64_t)device->blocks.differs));
}

static json_t *device_json(const struct gp_process *process, const struct gp_device_view *device)
{
    json_t *object =
        json_pack("{s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:b,s:b,s:b,s:o,s:o,s:o,s:o}", "device", gp_device_number(device),
                  "uuid", gp_json_text(device->uuid), "name", gp_json_text(device->name), "total_bytes",
                  gp_json_known(device->total_bytes), "stats", stats_json(device), "kinds",
                  device->totals_only ? json_null() : kinds_json(&device->wire), "untracked_bytes",
                  gp_json_known(device->untracked_bytes), "estimated", device->estimated, "polled", device->polled,
                  "sound", !(device->wire.flags & GP_DEVICE_UNSOUND), "linear_rounded_bytes",
                  gp_json_known(device->totals_only ? -1 : device->wire.linear_rounded_bytes), "owners",
                  owners_json(process, device), "frameworks", frameworks_json(process, device), "forecast",
                  stat_forecast(device));
    json_object_set_new(object, "polled_pools", polled_json(process, device));
    json_object_set_new(object, "poll_late", json_boolean(device->wire.flags & GP_DEVICE_LATE));
    json_object_set_new(object, "libraries",
                        device->library_bytes ? gp_libraries_json(device->library_bytes) : json_null());
    before_json(object, process, device);
    return object;
}

/* The scopes of the devices, or those of the host, which scripts must not take for a device
 * number. */
static json_t *scopes_json(const struct gp_process *process, int only, bool host)
{
    json_t *array = json_array();
    for (int i = 0; i < process->scope_count; i++) {
        const struct gp_scope_view *scope = &process->scopes[i];
        for (int d = 0; d < process->device_count; d++) {
            const struct gp_device_view *device = &process->devices[d];
            bool is_host = device->index == (int)GP_WIRE_HOST;
            if (is_host == host && (only < 0 || gp_device_number(device) == only))
                json_array_append_new(array, gp_scope_json(scope->name, device, &device->wire.scopes[scope->slot]));
        }
    }
    return array;
}

static json_t *host_json(const struct gp_process *process)
{
    for (int i = 0; i < process->device_count; i++) {
        const struct gp_device_view *device = &process->devices[i];
        if (device->index == (int)GP_WIRE_HOST)
            return json_pack("{s:o,s:o,s:o,s:o}", "stats", stats_json(device), "kinds", kinds_json(&device->wire),
                             "scopes", scopes_json(process, -1, true), "owners", owners_json(process, device));
    }
    return json_null();
}

static json_t *devices_json(const struct gp_process *process, int only)
{
    json_t *array = json_array();
    for (int i = 0; i < process->device_count; i++) {
        const struct gp_device_view *device = &process->devices[i];
        bool wanted = only < 0 || gp_device_number(device) == only;
        if (wanted && device->index != (int)GP_WIRE_HOST)
            json_array_append_new(array, device_json(process, device));
    }
    return array;
}

static json_t *lost_json(const struct gp_process *process)
{
    json_t *object = json_object();
    for (unsigned i = 0; i < GP_LOSTS; i++) {
        /* A count of 2^63 or more is damaged, and jansson's integers are signed. */
        if (gp_lost_name(i))
            json_object_set_new(object, gp_lost_name(i),
                                process->lost[i] <= INT64_MAX ? json_integer((json_int_t)process->lost[i])
                                                              : json_null());
    }
    return object;
}

static json_t *recording_json(const struct gp_process *process)
{
    static const char *const states[] = {
        [GP_RECORD_OFF] = "off", [GP_RECORD_ON] = "on", [GP_RECORD_DONE] = "done", [GP_RECORD_FAILED] = "failed"};
    return json_pack("{s:s,s:I,s:I,s:I}", "state", states[process->recording.state], "events",
                     (json_int_t)process->recording.events, "lost", (json_int_t)process->recording.lost, "errno",
                     (json_int_t)process->recording.error);
}

static json_t *failures_json(const struct gp_process *process)
{
    json_t *array = json_array();
    for (int i = 0; i < process->failure_count; i++) {
        const struct gp_failure_view *failure = &process->failures[i];
        json_array_append_new(array,
                              json_pack("{s:s,s:I,s:I}", "api", failure->api, "error", (json_int_t)failure->error,
                                        "count", (json_int_t)(failure->count & INT64_MAX)));
    }
    return array;
}

static json_t *driver_json(const struct gp_process *process)
{
    for (int i = 0; i < process->device_count && !process->from_agent; i++) {
        if (process->devices[i].identified)
            return json_string(process->simulated ? "sim" : "nvidia");
    }
    return json_null();
}

static json_t *cupti_json(const struct gp_process *p)
{
    json_t *copies = json_array(), *names = json_array();
    for (uint32_t i = 0; i < p->cupti.copy_count; i++) {
        const struct gp_wire_copy *copy = &p->cupti.copies[i];
        json_array_append_new(copies, json_pack("{s:s,s:o,s:i,s:o}", "path", copy->path, "version",
                                                copy->version ? json_integer(copy->version) : json_null(), "status",
                                                (int)copy->status, "answer", gp_json_text(copy->answer)));
    }
    for (uint32_t i = 0; i < p->cupti.name_count; i++)
        json_array_append_new(names, json_string(p->cupti.names[i]));
    return json_pack("{s:i,s:o,s:b,s:b,s:i,s:o}", "tried", (int)p->cupti.tried, "copies", copies, "shared",
                     p->cupti.shared, "gone", p->gone, "unknown_entry_points", (int)p->cupti.strange, "unknown_names",
                     names);
}

json_t *gp_cgroup_json(const struct gp_process *process)
{
    json_t *array = json_array();
    for (int i = 0; i < process->cgroup_limit_count; i++) {
        const struct gp_cgroup_limit *limit = &process->cgroup_limits[i];
        json_array_append_new(array, json_pack("{s:s,s:s,s:o,s:o,s:o}", "controller", limit->controller, "region",
                                               limit->region, "limit_bytes", gp_json_known(limit->limit_bytes),
                                               "used_bytes", gp_json_known(limit->used_bytes), "guaranteed_bytes",
                                               gp_json_known(limit->guaranteed_bytes)));
    }
    return array;
}

static json_t *process_json(const struct gp_process *p, int only)
{
    static const char *const states[] = {"live", "stale", "unknown", "damaged", "foreign"};
    bool known = p->state != GP_PROCESS_DAMAGED && !p->from_agent;
    json_t *object = json_pack(
        "{s:i,s:s,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "pid", (int)p->pid, "comm", p->comm, "uid", (json_int_t)p->uid,
        "container", gp_json_text(p->container), "source", known ? json_string(gp_source_name(p->source)) : json_null(),
        "driver", driver_json(p), "allocator", gp_json_text(p->allocator), "lost", known ? lost_json(p) : json_null(),
        "devices", devices_json(p, only), "host", only < 0 || only == (int)GP_WIRE_HOST ? host_json(p) : json_null(),
        "scopes", scopes_json(p, only, false));
    json_object_set_new(object, "ray_job", gp_json_text(p->ray_job));
    json_object_set_new(object, "known_from", json_string(p->from_agent ? "agent" : "session"));
    json_object_set_new(object, "cgroup_memory", gp_cgroup_json(p));
    json_object_set_new(object, "recording", known ? recording_json(p) : json_null());
    json_object_set_new(object, "cupti", known ? cupti_json(p) : json_null());
    json_t *more = json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:b,s:b,s:b,s:o,s:o,s:o,s:o,s:o,s:s,s:i,s:o}", "state",
                             states[p->state], "problem", gp_json_text(p->problem), "trouble", gp_json_text(p->trouble),
                             "options_problem", gp_json_text(p->options), "stacks_problem", gp_json_text(p->stacks),
                             "source_detail", gp_json_text(p->source_detail), "closed", p->closed, "disabled",
                             p->disabled, "yielded", p->yielded, "failures", failures_json(p), "events",
                             known && p->publish_ns ? json_integer((json_int_t)(p->events & INT64_MAX)) : json_null(),
                             "age_ns", p->publish_ns ? json_integer((json_int_t)(p->age_ns & INT64_MAX)) : json_null(),
                             "driver_version", p->driver_version ? json_integer(p->driver_version) : json_null(),
                             "cupti_version", p->cupti_version ? json_integer(p->cupti_version) : json_null(), "user",
                             p->user, "ppid", (int)p->ppid, "oom", known ? gp_oom_json(p) : json_null());
    if (!object || !more || json_object_update(object, more) != 0) {
        json_decref(object);
        object = NULL;
    }
    json_decref(more);
    return object;
}

json_t *gp_stat_json(const struct gp_system *system, int device)
{
    json_t *processes = json_array();
    for (int i = 0; i < system->process_count; i++) {
        if (system->processes[i].state == GP_PROCESS_FOREIGN)
            continue;
        json_t *process = process_json(&system->processes[i], device);
        if (!process || json_array_append_new(processes, process) != 0) {
            json_decref(processes);
            return NULL;
        }
    }
    return json_pack("{s:s,s:o}", "schema", "gpuprof.stat/1", "processes", processes);
}
