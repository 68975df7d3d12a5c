/* SPDX-License-Identifier: MIT
 * Ends a range that was opened by legacy IPC; api/ipc.c opens it. */
#include "cuda/ipc.h"

#include <stdlib.h>

_Static_assert(sizeof(struct sim_ipc_handle) <= sizeof(CUipcMemHandle), "fits the 64 bytes of the ABI");

void sim_ipc_dispose(struct sim_memory *memory)
{
    struct sim_ipc_import *import = memory->owner;
    sim_ledger_kind(memory->device, SIM_IMPORTED, -(int64_t)import->handle.size);
    sim_space_release(memory->base, memory->size);
    free(import);
}
