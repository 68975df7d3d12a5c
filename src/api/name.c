/* SPDX-License-Identifier: MIT
 *
 * name.c: the names and places of the statistics. The order is part of the interface: sorted, as
 * in PyTorch's dictionaries; later additions go to the end. tests/golden/api records it.
 */
#include "api/api.h"
#include <stddef.h>
#include <string.h>

#define GP_NAMED_FIELD(_name, _field)                                                                                  \
    {                                                                                                                  \
        _name, offsetof(struct gp_wire_device, _field)                                                                 \
    }
#define GP_VALUE(_name, _field)                                                                                        \
    GP_NAMED_FIELD(_name ".allocated", _field.allocated), GP_NAMED_FIELD(_name ".current", _field.current),            \
        GP_NAMED_FIELD(_name ".freed", _field.freed), GP_NAMED_FIELD(_name ".peak", _field.peak)
#define GP_POOLED(_name, _stat)                                                                                        \
    GP_VALUE(_name ".all", stats[_stat][GP_POOL_ALL]), GP_VALUE(_name ".large_pool", stats[_stat][GP_POOL_LARGE]),     \
        GP_VALUE(_name ".small_pool", stats[_stat][GP_POOL_SMALL])

const struct gp_api_stat gp_api_device_stats[GP_API_DEVICE_STATS] = {
    GP_POOLED("active", GP_STAT_ACTIVE),
    GP_POOLED("active_bytes", GP_STAT_ACTIVE_BYTES),
    GP_POOLED("allocated_bytes", GP_STAT_ALLOCATED_BYTES),
    GP_POOLED("allocation", GP_STAT_ALLOCATION),
    GP_POOLED("inactive_split", GP_STAT_INACTIVE_SPLIT),
    GP_POOLED("inactive_split_bytes", GP_STAT_INACTIVE_SPLIT_BYTES),
    GP_NAMED_FIELD("max_split_size", max_split_size),
    GP_NAMED_FIELD("num_alloc_retries", num_alloc_retries),
    GP_NAMED_FIELD("num_device_alloc", num_device_alloc),
    GP_NAMED_FIELD("num_device_free", num_device_free),
    GP_NAMED_FIELD("num_ooms", num_ooms),
    GP_NAMED_FIELD("num_sync_all_streams", num_sync_all_streams),
    GP_VALUE("oversize_allocations", oversize_allocations),
    GP_VALUE("oversize_segments", oversize_segments),
    GP_POOLED("requested_bytes", GP_STAT_REQUESTED_BYTES),
    GP_POOLED("reserved_bytes", GP_STAT_RESERVED_BYTES),
    GP_POOLED("segment", GP_STAT_SEGMENT),
};

/* PyTorch's host allocator calls the memory that it holds pinned `allocated`, and the part that
 * the program uses `active`. On a device these are reserved and allocated. */
const struct gp_api_stat gp_api_host_stats[GP_API_HOST_STATS] = {
    GP_VALUE("active_bytes", stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL]),
    GP_VALUE("active_requests", stats[GP_STAT_ALLOCATION][GP_POOL_ALL]),
    GP_VALUE("allocated_bytes", stats[GP_STAT_RESERVED_BYTES][GP_POOL_ALL]),
    GP_VALUE("allocations", stats[GP_STAT_SEGMENT][GP_POOL_ALL]),
    GP_NAMED_FIELD("num_host_alloc", num_device_alloc),
    GP_NAMED_FIELD("num_host_free", num_device_free),
};

/* A framework reports the rounded sizes of its blocks; not how its idle memory is split, nor which freed
 * blocks still wait for a stream (record_stream), which are active. */
static bool api_told(const struct gp_wire_device *device, const struct gp_api_stat *stat)
{
    size_t at = stat->offset - offsetof(struct gp_wire_device, stats), which = at / sizeof(device->stats[0]);
    bool pools = stat->offset >= offsetof(struct gp_wire_device, stats) && which < GP_STATS;
    return !pools || (which != GP_STAT_REQUESTED_BYTES && which != GP_STAT_ACTIVE && which != GP_STAT_ACTIVE_BYTES &&
                      which != GP_STAT_INACTIVE_SPLIT && which != GP_STAT_INACTIVE_SPLIT_BYTES);
}

int64_t gp_api_value(const struct gp_wire_device *device, const struct gp_api_stat *stat)
{
    int64_t value;
    if (device->flags & GP_DEVICE_FRAMEWORK && !api_told(device, stat))
        return -1;
    memcpy(&value, (const char *)device + stat->offset, sizeof(value));
    return value;
}
