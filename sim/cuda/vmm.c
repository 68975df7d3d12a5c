/* SPDX-License-Identifier: MIT
 * Address ranges: reservation, mapping of physical memory into them, access rights, and tile
 * mappings of sparse arrays. A mapping is a memory record of its own, so that copies and pointer
 * queries find it.  The mapped pages are those of the handle's file: two mappings of one handle
 * show the same bytes.  The copy engine checks the device's access through the record, not through
 * page protection. */
#include "cuda/vmm.h"

struct sim_reservation *sim_reservations;

/* ---- reservations ------------------------------------------------------------------------------------------------ */

struct sim_reservation *sim_reservation_of(CUdeviceptr p, size_t size)
{
    for (struct sim_reservation *v = sim_reservations; v; v = v->next)
        if (p >= v->base && size <= v->size && p - v->base <= v->size - size)
            return v;
    return NULL;
}

bool sim_reservation_at(CUdeviceptr address, CUdeviceptr *base, size_t *size)
{
    const struct sim_reservation *v = sim_reservation_of(address, 1);

    *base = v ? v->base : 0;
    *size = v ? v->size : 0;
    return v;
}

/* ---- mappings ---------------------------------------------------------------------------------------------------- */

struct sim_physical *sim_physical_at(CUdeviceptr address, size_t *offset)
{
    struct sim_memory *m = sim_memory_find(address);
    struct sim_mapping *map;

    if (!m || m->type != SIM_MEMORY_VMM)
        return NULL;
    map = m->owner;
    *offset = map->offset + (address - m->base);
    return map->physical;
}
