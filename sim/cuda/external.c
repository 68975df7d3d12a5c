/* SPDX-License-Identifier: MIT
 * External memory that is mapped: ends a mapping and, with its last user, the descriptor.  api/external.c makes
 * them. */
#include "cuda/external.h"
#include "cuda/array.h"

#include <stdlib.h>
#include <unistd.h>

struct sim_external *sim_externals;

void sim_external_put(struct sim_external *external)
{
    if (--external->users)
        return;
    struct sim_external **at = &sim_externals;
    while (*at != external)
        at = &(*at)->next;
    *at = external->next;
    close(external->fd);
    free(external);
}

void sim_mapping_end(struct sim_external_mapping *mapping)
{
    sim_ledger_kind(mapping->device, SIM_IMPORTED, -(int64_t)mapping->size);
    sim_space_release(mapping->base, mapping->mapped);
    sim_external_put(mapping->external);
    free(mapping);
}

void sim_external_dispose(struct sim_memory *memory)
{
    sim_mapping_end(memory->owner);
}

void sim_array_external_gone(void *external)
{
    sim_mapping_end(external);
}
