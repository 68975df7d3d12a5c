/* SPDX-License-Identifier: MIT
 * stats.c: see stats.h. */
#include <write/stats.h>

#include <base/compiler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const stat_names[GP_STATS] = {
    [GP_STAT_ALLOCATION] = "allocation",
    [GP_STAT_SEGMENT] = "segment",
    [GP_STAT_ACTIVE] = "active",
    [GP_STAT_INACTIVE_SPLIT] = "inactive_split",
    [GP_STAT_ALLOCATED_BYTES] = "allocated_bytes",
    [GP_STAT_RESERVED_BYTES] = "reserved_bytes",
    [GP_STAT_ACTIVE_BYTES] = "active_bytes",
    [GP_STAT_INACTIVE_SPLIT_BYTES] = "inactive_split_bytes",
    [GP_STAT_REQUESTED_BYTES] = "requested_bytes",
};

static const char *const kind_names[GP_KINDS] = {
    [GP_KIND_NONE] = "none",         [GP_KIND_LINEAR] = "linear",
    [GP_KIND_PITCHED] = "pitched",   [GP_KIND_ARRAY] = "array",
    [GP_KIND_VMM] = "vmm",           [GP_KIND_POOL] = "pool",
    [GP_KIND_GRAPH] = "graph",       [GP_KIND_MANAGED] = "managed",
    [GP_KIND_PINNED] = "pinned",     [GP_KIND_REGISTERED] = "registered",
    [GP_KIND_IMPORTED] = "imported", [GP_KIND_VIRTUAL] = "virtual",
    [GP_KIND_CONTEXT] = "context",   [GP_KIND_MODULE] = "module",
};

static const char *const lost_names[GP_LOSTS] = {
    [GP_LOST_RING] = "ring_full",          [GP_LOST_MAP] = "map_full",
    [GP_LOST_NESTED] = "nested",           [GP_LOST_UNKNOWN_FREE] = "unknown_free",
    [GP_LOST_MISSED_FREE] = "missed_free", [GP_LOST_FRAMES] = "frames_full",
    [GP_LOST_FAILURE] = "failures_full",   [GP_LOST_LEGACY] = "legacy",
    [GP_LOST_DEVICE] = "device_unknown",   [GP_LOST_UNSENT] = "unsent",
    [GP_LOST_ANNOTATION] = "annotation",
};

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

const char *gp_stat_name(unsigned stat)
{
    return GP_NAME(stat_names, stat);
}

const char *gp_kind_name(unsigned kind)
{
    return GP_NAME(kind_names, kind);
}

const char *gp_lost_name(unsigned cause)
{
    return GP_NAME(lost_names, cause);
}

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

bool gp_reset_touches(unsigned what, unsigned stat)
{
    bool reserved = stat == GP_STAT_SEGMENT || stat == GP_STAT_RESERVED_BYTES || stat == GP_STAT_INACTIVE_SPLIT ||
                    stat == GP_STAT_INACTIVE_SPLIT_BYTES;
    switch (what) {
    case GP_RESET_ALLOCATED:
        return !reserved;
    case GP_RESET_RESERVED:
        return reserved;
    default:
        return true;
    }
}

static const struct {
    const char *name;
    size_t offset;
} gp_value_parts[] = {
    {"current", offsetof(struct gp_wire_value, current)},
    {"peak", offsetof(struct gp_wire_value, peak)},
    {"allocated", offsetof(struct gp_wire_value, allocated)},
    {"freed", offsetof(struct gp_wire_value, freed)},
};

static size_t keys_add_value(struct gp_stat_key *keys, size_t n, const char *prefix, size_t offset)
{
    for (size_t i = 0; i < GP_COUNT(gp_value_parts); i++, n++) {
        snprintf(keys[n].name, sizeof(keys[n].name), "%s.%s", prefix, gp_value_parts[i].name);
        keys[n].offset = offset + gp_value_parts[i].offset;
    }
    return n;
}

static int keys_compare(const void *a, const void *b)
{
    return strcmp(((const struct gp_stat_key *)a)->name, ((const struct gp_stat_key *)b)->name);
}

static void keys_build(struct gp_stat_key *keys)
{
    static const char *const pools[GP_POOLS] = {"all", "small_pool", "large_pool"};
    static const struct {
        const char *name;
        size_t offset;
    } counters[] = {
        {"num_alloc_retries", offsetof(struct gp_wire_device, num_alloc_retries)},
        {"num_ooms", offsetof(struct gp_wire_device, num_ooms)},
        {"max_split_size", offsetof(struct gp_wire_device, max_split_size)},
        {"num_sync_all_streams", offsetof(struct gp_wire_device, num_sync_all_streams)},
        {"num_device_alloc", offsetof(struct gp_wire_device, num_device_alloc)},
        {"num_device_free", offsetof(struct gp_wire_device, num_device_free)},
    };
    size_t n = 0;
    char prefix[40];
    for (unsigned stat = 0; stat < GP_STATS; stat++) {
        for (unsigned pool = 0; pool < GP_POOLS; pool++) {
            snprintf(prefix, sizeof(prefix), "%s.%s", stat_names[stat], pools[pool]);
            n = keys_add_value(keys, n, prefix,
                               offsetof(struct gp_wire_device, stats) +
                                   (stat * GP_POOLS + pool) * sizeof(struct gp_wire_value));
        }
    }
    n = keys_add_value(keys, n, "oversize_allocations", offsetof(struct gp_wire_device, oversize_allocations));
    n = keys_add_value(keys, n, "oversize_segments", offsetof(struct gp_wire_device, oversize_segments));
    for (size_t i = 0; i < GP_COUNT(counters); i++, n++) {
        snprintf(keys[n].name, sizeof(keys[n].name), "%s", counters[i].name);
        keys[n].offset = counters[i].offset;
    }
    qsort(keys, n, sizeof(*keys), keys_compare);
}

const struct gp_stat_key *gp_stat_keys(void)
{
    static struct gp_stat_key keys[GP_STAT_KEYS];
    if (!keys[0].name[0])
        keys_build(keys);
    return keys;
}

int64_t gp_stat_get(const struct gp_wire_device *device, const struct gp_stat_key *key)
{
    int64_t value;
    memcpy(&value, (const char *)device + key->offset, sizeof(value));
    return value;
}

bool gp_stat_told(const struct gp_wire_device *device, const struct gp_stat_key *key)
{
    return !(device->flags & GP_DEVICE_FRAMEWORK) ||
           (strncmp(key->name, "requested_bytes.", 16) != 0 && strncmp(key->name, "active", 6) != 0 &&
            strncmp(key->name, "inactive_split", 14) != 0);
}
