/* SPDX-License-Identifier: MIT
 *
 * name.c: the names and places of the statistics of pinned host memory. The order is part of the interface: sorted, as
 * in PyTorch; later additions go to the end. tests/golden/api records it.
 */
#include "session/api.h"

#define GP_NAMED_FIELD(_name, _field)                                                                                  \
    {                                                                                                                  \
        _name, offsetof(struct gp_wire_device, _field), 1                                                              \
    }
#define GP_VALUES(_name, _stat)                                                                                        \
    GP_NAMED_FIELD(_name ".allocated", stats[_stat][GP_POOL_ALL].allocated),                                           \
        GP_NAMED_FIELD(_name ".current", stats[_stat][GP_POOL_ALL].current),                                           \
        GP_NAMED_FIELD(_name ".freed", stats[_stat][GP_POOL_ALL].freed),                                               \
        GP_NAMED_FIELD(_name ".peak", stats[_stat][GP_POOL_ALL].peak)

/* PyTorch's host allocator calls the memory that it holds pinned `allocated`, and the part that
 * the program uses `active`. On a device these are reserved and allocated. */
const struct gp_stat_key gp_api_host_stats[GP_API_HOST_STATS] = {
    GP_VALUES("active_bytes", GP_STAT_ALLOCATED_BYTES),   GP_VALUES("active_requests", GP_STAT_ALLOCATION),
    GP_VALUES("allocated_bytes", GP_STAT_RESERVED_BYTES), GP_VALUES("allocations", GP_STAT_SEGMENT),
    GP_NAMED_FIELD("num_host_alloc", num_device_alloc),   GP_NAMED_FIELD("num_host_free", num_device_free),
};
