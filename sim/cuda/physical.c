/* SPDX-License-Identifier: MIT
 * Physical memory behind handles: creation, references, sharing between processes.  Called through
 * the API and by vmm.c and multicast.c when mappings and binds come and go. */
#include "cuda/vmm.h"

#include <stdlib.h>
#include <unistd.h>

/* Handle = (slot + 1) x step; freed slots are used again, the last one first, as drivers do. */
#define SIM_HANDLE_STEP 16u

static struct sim_physical **sim_physicals;
static size_t sim_physical_count;
static size_t *sim_free_slots, sim_free_count;

static size_t sim_slot_of(CUmemGenericAllocationHandle h)
{
    return (size_t)(h / SIM_HANDLE_STEP - 1);
}

struct sim_physical *sim_physical_find(CUmemGenericAllocationHandle h)
{
    struct sim_physical *p;

    if (!h || h % SIM_HANDLE_STEP || sim_slot_of(h) >= sim_physical_count)
        return NULL;
    p = sim_physicals[sim_slot_of(h)];
    return p && p->references ? p : NULL;
}

struct sim_physical *sim_physical_new(size_t size)
{
    struct sim_physical *p = sim_grow(NULL, sizeof *p);
    size_t slot;

    if (sim_free_count) {
        slot = sim_free_slots[--sim_free_count];
    } else {
        slot = sim_physical_count++;
        sim_physicals = sim_grow(sim_physicals, sim_physical_count * sizeof sim_physicals[0]);
        sim_free_slots = sim_grow(sim_free_slots, sim_physical_count * sizeof sim_free_slots[0]);
    }
    sim_physicals[slot] = p;
    *p = (struct sim_physical){
        .handle = (slot + 1) * SIM_HANDLE_STEP, .size = size, .device = SIM_HOST, .fd = -1, .references = 1};
    return p;
}

/* The slot is free again: allocations that never came to be, and the last act of settle. */
void sim_physical_drop(struct sim_physical *p)
{
    const size_t slot = sim_slot_of(p->handle);

    if (p->own_fd)
        close(p->fd);
    sim_physicals[slot] = NULL;
    sim_free_slots[sim_free_count++] = slot;
    free(p);
}

void sim_physical_settle(struct sim_physical *p)
{
    if (p->references || p->mappings || p->binds)
        return;
    if (p->multicast) {
        p->end(p);
    } else if (!p->imported) {
        sim_ledger_kind(p->device, SIM_VMM, -(int64_t)p->size);
        sim_ledger_reserved(p->device, -(int64_t)p->size);
        if (p->device != SIM_HOST)
            sim_device_give(p->device, p->size);
        if (!p->own_fd)
            sim_space_unback(p->offset, p->size);
    }
    sim_physical_drop(p);
}

void sim_physical_mapped(struct sim_physical *p, int64_t size)
{
    uint64_t count;

    p->mapped_bytes += (uint64_t)size;
    if (p->multicast)
        return;
    count = p->mapped_bytes < p->size ? p->mapped_bytes : p->size;
    if (!p->imported) {
        sim_ledger_allocated(p->device, (int64_t)count - (int64_t)p->counted);
    } else if (!p->counted != !count) {
        struct sim_context *c = sim_context_peek();

        if (count)
            p->import_device = c ? c->device : 0;
        sim_ledger_kind(p->import_device, SIM_IMPORTED, count ? (int64_t)p->size : -(int64_t)p->size);
    }
    p->counted = count;
}
