/* SPDX-License-Identifier: MIT
 * Multicast objects: a team of devices, and memory of each bound at offsets.  An object is a handle
 * like those of memory but owns no device memory; bound memory stays alive until it is unbound or
 * the object is destroyed. */
#include "cuda/vmm.h"

#include <stdlib.h>

_Static_assert(SIM_MAX_DEVICES <= 64, "a bit per device");

bool sim_multicast_complete(const struct sim_physical *p)
{
    return p->multicast->joined == p->multicast->prop.numDevices;
}

/* ---- binds ------------------------------------------------------------------------------------------------------- */

static void sim_bind_end(struct sim_bind **at)
{
    struct sim_bind *b = *at;

    *at = b->next;
    b->memory->binds--;
    sim_physical_settle(b->memory);
    free(b);
}

CUresult sim_bind_add(struct sim_bind **list, int device, size_t offset, struct sim_physical *memory, size_t at,
                      size_t size)
{
    struct sim_bind *b;

    if (!memory || memory->multicast || !size || (offset | at | size) % SIM_VMM_GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > memory->size || at > memory->size - size || (memory->device != device && memory->device != SIM_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    for (b = *list; b; b = b->next) /* one device's binds do not overlap */
        if (b->device == device && offset < b->offset + b->size && b->offset < offset + size)
            return CUDA_ERROR_INVALID_VALUE;
    b = sim_grow(NULL, sizeof *b);
    *b = (struct sim_bind){*list, memory, device, offset, size};
    *list = b;
    memory->binds++;
    return CUDA_SUCCESS;
}

static struct sim_bind **sim_bind_find(struct sim_bind **list, int device, size_t offset)
{
    while (*list && ((*list)->device != device || (*list)->offset != offset))
        list = &(*list)->next;
    return list;
}

CUresult sim_bind_remove(struct sim_bind **list, int device, size_t offset, size_t size)
{
    struct sim_bind *b;
    size_t covered = 0;

    while (covered < size && (b = *sim_bind_find(list, device, offset + covered)))
        covered += b->size;
    if (!size || covered != size)
        return CUDA_ERROR_INVALID_VALUE;
    while (covered) {
        struct sim_bind **at = sim_bind_find(list, device, offset);

        offset += (*at)->size;
        covered -= (*at)->size;
        sim_bind_end(at);
    }
    return CUDA_SUCCESS;
}

void sim_bind_remove_all(struct sim_bind **list)
{
    while (*list)
        sim_bind_end(list);
}

void sim_multicast_end(struct sim_physical *p)
{
    sim_bind_remove_all(&p->multicast->binds);
    sim_space_unback(p->offset, p->size);
    free(p->multicast);
}
