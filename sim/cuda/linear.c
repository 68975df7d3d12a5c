/* SPDX-License-Identifier: MIT
 * Ends owned memory of every kind, and says which context a call that allocates belongs to. */
#include "cuda/memory.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Also the end of one that dies with its context. */
void sim_low_dispose(struct sim_memory *memory)
{
    sim_memory_remove(memory);
    sim_ledger_owned(memory->device, memory->kind, -(int64_t)memory->size);
    munmap((void *)memory->base, memory->footprint);
    sim_device_give(memory->device, memory->footprint);
    free(memory);
}

CUresult sim_allocation_check(struct sim_context **context)
{
    CUresult result = sim_context_current(context);
    if (result == CUDA_SUCCESS)
        result = sim_capture_check();
    if (result == CUDA_SUCCESS)
        *context = sim_context_owner(*context);
    return result;
}

static void sim_linear_dispose(struct sim_memory *memory)
{
    sim_ledger_owned(memory->device, memory->kind, -(int64_t)memory->size);
    if (memory->block) {
        sim_block_give(memory);
        return;
    }
    sim_clock_pages(SIM_PAGES_FREE, memory->footprint);
    sim_bytes_give(memory, sim_round_up(memory->size, SIM_PAGE));
}

/* The record's type says whose bytes they are. */
void sim_memory_dispose(struct sim_memory *memory)
{
    if (memory->type == SIM_MEMORY_LOW) {
        sim_low_dispose(memory);
        return;
    }
    sim_memory_remove(memory);
    switch (memory->type) {
    case SIM_MEMORY_LINEAR:
        sim_linear_dispose(memory);
        break;
    case SIM_MEMORY_MANAGED:
        free(memory->owner); /* advice */
        sim_ledger_kind(memory->device, SIM_MANAGED, -(int64_t)memory->size);
        sim_clock_pages(SIM_PAGES_FREE, memory->size);
        sim_bytes_give(memory, memory->size);
        break;
    case SIM_MEMORY_PINNED:
        sim_ledger_kind(SIM_HOST, SIM_PINNED, -(int64_t)memory->size);
        sim_bytes_give(memory, memory->size);
        break;
    case SIM_MEMORY_REGISTERED:
        sim_ledger_kind(SIM_HOST, SIM_REGISTERED, -(int64_t)memory->size);
        break;
    case SIM_MEMORY_IPC:
        sim_ipc_dispose(memory);
        break;
    case SIM_MEMORY_EXTERNAL:
        sim_external_dispose(memory);
        break;
    default: /* module variables: the module owns the bytes */
        break;
    }
    free(memory);
}
