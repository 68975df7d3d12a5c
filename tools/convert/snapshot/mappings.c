/* SPDX-License-Identifier: MIT
 * mappings.c: the program's own virtual memory management as PyTorch's expandable segments
 * (internal.h). */
#include <convert/snapshot/entries.h>
#include <convert/snapshot/internal.h>
#include <gpuprof/gpuprof.h>
#include <stdlib.h>

struct gp_mapping_row {
    uint64_t address, bytes;
    uint32_t device, site;
};

static bool mapping_put(struct gp_snap_mappings *mappings, struct gp_mapping_table *table,
                        const struct gp_mapping_row *row)
{
    if (row->bytes == 0)
        return false;
    if (table->count == table->room) {
        size_t room = table->room ? 2 * table->room : 64;
        struct gp_mapping_row *rows = realloc(table->rows, room * sizeof(*rows));
        if (!rows) {
            mappings->broken = true;
            return false;
        }
        table->rows = rows;
        table->room = room;
    }
    table->rows[table->count++] = *row;
    return true;
}

void gp_mappings_add(struct gp_snap_mappings *mappings, uint64_t address, uint64_t bytes, uint32_t device,
                     uint32_t site)
{
    mapping_put(mappings, &mappings->mapped, &(struct gp_mapping_row){address, bytes, device, site});
}

void gp_mappings_reserve(struct gp_snap_mappings *mappings, uint64_t address, uint64_t bytes)
{
    mapping_put(mappings, &mappings->reserved, &(struct gp_mapping_row){address, bytes, 0, 0});
}

void gp_mappings_free(struct gp_snap_mappings *mappings)
{
    free(mappings->mapped.rows);
    free(mappings->reserved.rows);
    *mappings = (struct gp_snap_mappings){0};
}

static int mapping_compare(const void *left, const void *right)
{
    const struct gp_mapping_row *l = left, *r = right;
    return l->address < r->address ? -1 : l->address > r->address;
}

static void mapping_sort(struct gp_mapping_table *table)
{
    if (table->count)
        qsort(table->rows, table->count, sizeof(*table->rows), mapping_compare);
}

/* The start of the reservation that holds the address; 0: it was made before the library could see it. */
static uint64_t mapping_reservation(const struct gp_mapping_table *reserved, uint64_t address)
{
    size_t low = 0, high = reserved->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (reserved->rows[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    const struct gp_mapping_row *row = low ? &reserved->rows[low - 1] : NULL;
    return row && address - row->address < row->bytes ? row->address : 0;
}

void gp_mappings_write(struct gp_snap *snap, struct gp_snap_mappings *mappings)
{
    uint64_t end = 0, reservation = 0;
    uint32_t device = UINT32_MAX;
    mapping_sort(&mappings->mapped);
    mapping_sort(&mappings->reserved);
    for (size_t i = 0; i < mappings->mapped.count; i++) {
        const struct gp_mapping_row *row = &mappings->mapped.rows[i];
        uint64_t within = mapping_reservation(&mappings->reserved, row->address);
        if (row->address < end)
            continue; /* an unmap was lost, or happened during the walk */
        if (row->address != end || row->device != device || within != reservation) {
            if (device != UINT32_MAX)
                gp_snap_segment_end(snap);
            gp_snap_segment(snap,
                            &(struct gp_snap_segment){
                                .address = row->address, .device = row->device, .site = row->site, .expandable = true});
        }
        gp_snap_block(snap, &(struct gp_snap_block){row->address, row->bytes, row->bytes, row->site, GPUPROF_LIVE});
        end = row->address + row->bytes;
        device = row->device;
        reservation = within;
    }
    if (device != UINT32_MAX)
        gp_snap_segment_end(snap);
}
