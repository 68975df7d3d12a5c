/* SPDX-License-Identifier: MIT
 * raw.c: see raw.h. */
#include <base/numbers.h>
#include <read/recording/raw.h>

#include <string.h>

#define RAW_STATS   9
#define RAW_POOLS   3
#define RAW_KINDS   14
#define RAW_SCOPES  16
#define RAW_HOLDERS 12

struct raw_device {
    uint32_t flags;
    int32_t ordinal;
    uint8_t uuid[16];
    char name[64];
    int64_t total_bytes;
    int64_t stats[RAW_STATS][RAW_POOLS][4]; /* current, peak, allocated, freed */
    int64_t oversize_allocations[4], oversize_segments[4];
    int64_t num_alloc_retries, num_ooms, max_split_size, num_sync_all_streams, num_device_alloc, num_device_free;
    int64_t kinds[RAW_KINDS][8];
    int64_t scopes[RAW_SCOPES][2];
    int64_t linear_rounded_bytes;
    uint8_t reserved_[64];
};
_Static_assert(sizeof(struct raw_device) == 2296, "format 1.2");

struct raw_holder {
    uint64_t block_bytes, count;
    uint32_t site;
    uint8_t kind, pad_[3];
};

struct raw_oom {
    uint64_t seq, count, time_ns, driver_ns, holders_ns;
    char api[48];
    uint32_t error, flags;
    int32_t device;
    uint32_t tid;
    uint64_t asked_bytes, stream;
    int64_t free_bytes, total_bytes, reserved_bytes, allocated_bytes;
    int64_t pool_reserved_bytes, graph_reserved_bytes, graph_used_bytes;
    int64_t kinds[RAW_KINDS];
    int64_t limit_bytes, idle_bytes, largest_idle_bytes, releasable_bytes, waiting_bytes, idle_pieces, pinning_blocks;
    char policy[16], conf[128];
    uint32_t holder_count, site;
    struct raw_holder holders[RAW_HOLDERS];
    int64_t rest_bytes, rest_count;
};
_Static_assert(sizeof(struct raw_oom) == 800, "format 1.2");

static struct gp_wire_value raw_value(const int64_t from[4])
{
    return (struct gp_wire_value){.current = from[0], .peak = from[1], .allocated = from[2], .freed = from[3]};
}

static struct gp_wire_kind_value raw_kind(const int64_t from[8])
{
    return (struct gp_wire_kind_value){.current_bytes = from[0],
                                       .peak_bytes = from[1],
                                       .allocated_bytes = from[2],
                                       .freed_bytes = from[3],
                                       .live = from[4],
                                       .live_peak = from[5],
                                       .calls = from[6],
                                       .reserved_bytes = from[7]};
}

void gp_raw_unknown(struct gp_wire_device *out)
{
    for (unsigned i = 0; i < GP_NUMBER_ROWS; i++)
        memset((char *)out + gp_number_rows[i].offset, 0xff, gp_number_rows[i].count * sizeof(int64_t));
}

void gp_raw_device(struct gp_wire_device *out, const uint8_t *bytes, size_t count)
{
    struct raw_device raw = {0};
    memcpy(&raw, bytes, count < sizeof(raw) ? count : sizeof(raw));
    memset(out, 0, sizeof(*out));
    gp_raw_unknown(out);
    out->flags = raw.flags;
    out->ordinal = raw.ordinal;
    out->total_bytes = raw.total_bytes;
    out->oversize_allocations = raw_value(raw.oversize_allocations);
    out->oversize_segments = raw_value(raw.oversize_segments);
    out->num_alloc_retries = raw.num_alloc_retries;
    out->num_ooms = raw.num_ooms;
    out->max_split_size = raw.max_split_size;
    out->num_sync_all_streams = raw.num_sync_all_streams;
    out->num_device_alloc = raw.num_device_alloc;
    out->num_device_free = raw.num_device_free;
    out->linear_rounded_bytes = raw.linear_rounded_bytes;
    memcpy(out->uuid, raw.uuid, sizeof(out->uuid));
    memcpy(out->name, raw.name, sizeof(out->name));
    /* Ids of statistics and kinds never change (numbers.def). */
    for (unsigned stat = 0; stat < RAW_STATS; stat++)
        for (unsigned pool = 0; pool < RAW_POOLS; pool++)
            out->stats[stat][pool] = raw_value(raw.stats[stat][pool]);
    for (unsigned kind = 0; kind < RAW_KINDS; kind++)
        out->kinds[kind] = raw_kind(raw.kinds[kind]);
    for (unsigned scope = 0; scope < RAW_SCOPES && scope < GP_WIRE_SCOPES; scope++)
        out->scopes[scope] = (struct gp_wire_scope_value){.allocated_peak_bytes = raw.scopes[scope][0],
                                                          .reserved_peak_bytes = raw.scopes[scope][1]};
}

bool gp_raw_oom(struct gp_wire_oom *out, const uint8_t *bytes, size_t count)
{
    struct raw_oom raw;
    if (count < sizeof(raw))
        return false;
    memcpy(&raw, bytes, sizeof(raw));
    *out = (struct gp_wire_oom){
#define GP_OOM_NUMBER(_id, _field) ._field = raw._field,
#include <record/oom.def>
        .seq = raw.seq,
        .holder_count = raw.holder_count < RAW_HOLDERS ? raw.holder_count : RAW_HOLDERS,
    };
    memcpy(out->api, raw.api, sizeof(out->api));
    memcpy(out->policy, raw.policy, sizeof(out->policy));
    memcpy(out->conf, raw.conf, sizeof(out->conf));
    for (unsigned kind = 0; kind < GP_KINDS; kind++)
        out->kinds[kind] = kind < RAW_KINDS ? raw.kinds[kind] : -1;
    for (unsigned i = 0; i < RAW_HOLDERS && i < GP_OOM_HOLDERS; i++)
        out->holders[i] = (struct gp_wire_oom_holder){.block_bytes = raw.holders[i].block_bytes,
                                                      .count = raw.holders[i].count,
                                                      .site = raw.holders[i].site,
                                                      .kind = raw.holders[i].kind};
    return true;
}
