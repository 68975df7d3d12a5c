/* SPDX-License-Identifier: MIT
 * holders.c: which call sites keep segments of a cache that are partly free; see analyze.h. */
#include <analyze/analyze.h>
#include <analyze/tally.h>
#include <read/common/hash.h>
#include <stdlib.h>
#include <string.h>

static int holder_compare(const void *one, const void *other)
{
    const struct gp_holder *a = one, *b = other;
    if (a->free_bytes != b->free_bytes)
        return GP_ORDER(b->free_bytes, a->free_bytes);
    if (a->live_bytes != b->live_bytes)
        return GP_ORDER(b->live_bytes, a->live_bytes);
    return GP_ORDER(a->site, b->site);
}

/* Adds the blocks of one segment.  A row's `extra` is its last segment + 1, `more` its free bytes. */
static bool holder_add(struct gp_tally *sites, const struct gp_segments *map, uint32_t index)
{
    const struct gp_map_segment *segment = &map->segments[index];
    const struct gp_map_block *blocks = map->blocks + segment->first_block;
    uint64_t idle = 0;
    for (uint32_t i = 0; i < segment->block_count; i++)
        idle += blocks[i].state == GP_BLOCK_IDLE ? blocks[i].bytes : 0;
    for (uint32_t i = 0; i < segment->block_count; i++) {
        if (blocks[i].state != GP_BLOCK_LIVE)
            continue;
        struct gp_tally_row *row = gp_tally_at(sites, blocks[i].site);
        if (!row)
            return false;
        row->bytes = (int64_t)((uint64_t)row->bytes + blocks[i].bytes);
        row->count++;
        row->more += row->extra == index + 1ul ? 0 : idle;
        row->extra = index + 1ul;
    }
    return true;
}

struct gp_holders *gp_holders_find(const struct gp_segments *map)
{
    struct gp_tally sites = {0};
    struct gp_holders *holders = NULL;
    bool ok = true;
    for (uint32_t i = 0; ok && i < map->segment_count; i++)
        ok = !map->segments[i].cached || holder_add(&sites, map, i);
    if (ok)
        holders = calloc(1, sizeof(*holders) + (sites.count + 1) * sizeof(struct gp_holder));
    for (size_t i = 0; holders && i < sites.count; i++) {
        const struct gp_tally_row *row = &sites.rows[i];
        holders->rows[holders->count++] = (struct gp_holder){.site = (uint32_t)row->key,
                                                             .live_bytes = row->bytes,
                                                             .live_count = row->count,
                                                             .free_bytes = (int64_t)row->more};
    }
    if (holders && holders->count)
        qsort(holders->rows, holders->count, sizeof(holders->rows[0]), holder_compare);
    gp_tally_fini(&sites);
    return holders;
}
