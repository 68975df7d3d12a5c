/* SPDX-License-Identifier: MIT
 * Shared by context.c, life.c and the entry points of contexts, and the functions that end a dying context's memory.
 * Call everything with the lock held. */
#ifndef SIM_CONTEXT_H
#define SIM_CONTEXT_H

#include "sim.h"

struct sim_context *sim_context_usable(CUcontext handle); /* NULL: gone or going */
bool sim_context_takes(unsigned flags);                   /* known flags, and one schedule at most */
/* A kernel of that function starts: its local memory, for as many threads as the device can hold, is there. */
CUresult sim_context_launches(struct sim_context *context, struct sim_function *function);
CUresult sim_context_stack(struct sim_context *context, size_t stack); /* cuCtxSetLimit's, of each thread */
CUresult sim_context_start(struct sim_context *context, int device, unsigned flags);
void sim_context_end(struct sim_context *context);
uint32_t sim_context_newest(void); /* the highest uid given so far */
CUresult sim_context_push(struct sim_context *context);
void sim_context_set(struct sim_context *context); /* replaces the top of the caller's stack, which is not empty */
CUresult sim_primary_release(CUdevice dev);

void sim_green_end(struct sim_context *primary); /* green contexts end with their primary context */
void sim_modules_end(struct sim_context *context);
void sim_arrays_end(struct sim_context *context);
void sim_textures_end(struct sim_context *context);
void sim_memory_end(struct sim_context *context); /* linear, managed, pinned, registered, imported, external */

/* context.c */
extern struct sim_context *sim_contexts;
extern uint32_t sim_context_uid;

/* life.c */
void sim_primary_end(struct sim_device *device);

#endif
