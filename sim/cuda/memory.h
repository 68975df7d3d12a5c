/* SPDX-License-Identifier: MIT
 * Shared by the files of owned memory: bytes.c, linear.c, ipc.c, external.c, array.c, module.c, and
 * their entry points. Call everything with the lock held. */
#ifndef SIM_MEMORY_H
#define SIM_MEMORY_H

#include "sim.h"

/* Current context and capture rules of an allocating call; *context is what will own the memory. */
CUresult sim_allocation_check(struct sim_context **context);

/* Addresses and zeroed bytes for a record: reserve, back, map readable and writable.  footprint =
 * physical bytes taken from the device (0: none).  Fills base, offset and footprint;
 * CUDA_ERROR_OUT_OF_MEMORY changes nothing. */
CUresult sim_bytes_take(struct sim_memory *memory, size_t mapped, size_t align, size_t footprint);
void sim_bytes_give(struct sim_memory *memory, size_t mapped);

/* Small linear memory: a piece of a 2 MiB block (block.c). */
CUresult sim_block_take(struct sim_context *context, struct sim_memory *memory);
void sim_block_give(struct sim_memory *memory);
CUdeviceptr sim_block_base(const struct sim_block *block, uint64_t *offset);

/* Ends a record of whatever type, books included; pool and graph records go through their `free`. */
void sim_memory_dispose(struct sim_memory *memory);
void sim_ipc_dispose(struct sim_memory *memory);
void sim_external_dispose(struct sim_memory *memory);
void sim_low_dispose(struct sim_memory *memory); /* removes and frees the record itself */

#endif
