/* SPDX-License-Identifier: MIT
 *
 * numbers.h: the names of statistics, kinds of memory and causes of loss, and where a device's numbers lie
 * in struct gp_wire_device. Everything comes from numbers.def. For the library and for the tools; pure.
 */
#ifndef GP_BASE_NUMBERS_H
#define GP_BASE_NUMBERS_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>

/* A number under its public name: "allocated_bytes.all.peak" (docs/statistics.md). */
struct gp_stat_key {
    const char *name;
    uint16_t offset; /* of the int64_t in struct gp_wire_device */
    uint8_t told;    /* 0: unknown where a framework's own blocks count */
};

/* As in torch.cuda.memory_stats. The order is part of the interface (numbers.def). */
enum {
#define GP_STAT(...)   +4 * GP_POOLS
#define GP_VALUE(...)  +4
#define GP_NUMBER(...) +1
    GP_STAT_KEYS = 0
#include <gpuprof/numbers.def>
};
extern const struct gp_stat_key gp_stat_keys[GP_STAT_KEYS];

/* The number, or -1 if it is unknown. */
int64_t gp_stat_get(const struct gp_wire_device *device, const struct gp_stat_key *key);

/* These return NULL for a number out of range, and for an id without a row. */
const char *gp_stat_name(unsigned stat);  /* "allocated_bytes" */
const char *gp_kind_name(unsigned kind);  /* "linear" */
const char *gp_lost_name(unsigned cause); /* "ring_full" */

/* The totals that have the bytes of this kind: GP_SUM_*, or 0. */
#define GP_SUM_ALLOCATED 1u
#define GP_SUM_RESERVED  2u
#define GP_SUM_BOTH      (GP_SUM_ALLOCATED | GP_SUM_RESERVED)
static inline unsigned gp_kind_sums(unsigned kind)
{
    switch (kind) {
#define GP_KIND(_id, _tag, _name, _sums, _traits)                                                                      \
    case _id:                                                                                                          \
        return _sums;
#include <gpuprof/numbers.def>
    default:
        return 0;
    }
}

/* What sets memory of this kind apart from a plain block on a device: GP_TRAIT_*, or 0. */
#define GP_TRAIT_APART     1u                    /* its addresses may be those of other memory too */
#define GP_TRAIT_HANDLE    (GP_TRAIT_APART | 2u) /* events have a handle in place of an address */
#define GP_TRAIT_HOST      4u                    /* memory of the host */
#define GP_TRAIT_ESTIMATE  8u                    /* its sizes are estimates */
#define GP_TRAIT_ADDRESSES 16u                   /* its bytes are addresses, with or without memory */
#define GP_TRAIT_SERVED    32u                   /* a caching allocator could have served its requests */
#define GP_TRAIT_CODE      64u                   /* code of kernels: on the device, and in no total */
static inline unsigned gp_kind_traits(unsigned kind)
{
    switch (kind) {
#define GP_KIND(_id, _tag, _name, _sums, _traits)                                                                      \
    case _id:                                                                                                          \
        return _traits;
#include <gpuprof/numbers.def>
    default:
        return 0;
    }
}

/* Whether memory of this kind has the trait; GP_TRAIT_HANDLE has two bits. */
static inline bool gp_kind_is(unsigned kind, unsigned trait)
{
    return (gp_kind_traits(kind) & trait) == trait;
}

/* False: unknown where a framework's blocks count (GP_DEVICE_FRAMEWORK). */
bool gp_stat_told(unsigned stat);

/* True: a reset of this sort (GP_RESET_*) restarts the peak or the totals of this statistic. */
bool gp_reset_touches(unsigned what, unsigned stat);

/* A row of a device's numbers in a recording: `count` neighbouring int64_t of struct gp_wire_device. The id is
 * permanent. */
struct gp_number_row {
    uint16_t id, offset, count;
};
enum {
#define GP_STAT(...)   +GP_POOLS
#define GP_VALUE(...)  +1
#define GP_NUMBER(...) +1
#define GP_KIND(...)   +1
    GP_NUMBER_ROWS = 4 /* the estimate of linear memory, scopes, blocks in memory that counts by itself, polled pools */
#include <gpuprof/numbers.def>
};
extern const struct gp_number_row gp_number_rows[GP_NUMBER_ROWS];
/* NULL: there is no such id. */
const struct gp_number_row *gp_number_row(uint64_t id);

/* The result of a poll of pools and graphs, as SEGMENT_UNMAP and SEGMENT_MAP, which no other memory
 * of these kinds has:
 *      UNMAP, kind POOL    the poll begins
 *      MAP, kind GRAPH     bytes of graphs in use; with address GP_POLL_ROSE a watermark that rose since the poll before
 *      MAP, kind POOL      bytes reserved by pools and graphs; the same; the one without this address is the last
 * The bytes were held at one instant of the poll. Readers that do not know these events leave them
 * out of every sum. */
#define GP_POLL_ROSE 1u
static inline bool gp_wire_is_poll(uint8_t type, uint8_t kind)
{
    return (type == GP_EVENT_SEGMENT_MAP || type == GP_EVENT_SEGMENT_UNMAP) &&
           (kind == GP_KIND_GRAPH || kind == GP_KIND_POOL);
}

#endif
