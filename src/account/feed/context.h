/* SPDX-License-Identifier: MIT
 *
 * context.h: contexts, streams and modules.
 */
#ifndef GP_ACCOUNT_FEED_CONTEXT_H
#define GP_ACCOUNT_FEED_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

/* One that is counted already is not counted again: two sources may tell of it. */
void gp_feed_context_created(uint32_t ctx, int device);
/* Frees, in the accounts, everything that the driver frees with a context: all blocks that carry
 * its number. VMM and pool memory survives (cuda.h: cuCtxDestroy). */
/* device: the context's, or GP_DEVICE_UNKNOWN. announced: true if the driver reported it; false
 * if it is inferred, and so may already be known. */
void gp_feed_context_destroyed(uint32_t ctx, int device, bool announced);
/* The same around a call that may fail: its memory leaves the totals before the call. 0: call the above after it. */
uint32_t gp_feed_context_destroy_begin(uint32_t ctx, int device);
void gp_feed_context_destroy_end(uint32_t token, bool ok, bool announced);
/* A green context has no memory of its own: what carries its number is the primary context's, and stays. */
void gp_feed_green_destroyed(uint32_t ctx, int device);
/* The device of a context that was created before we were loaded: not counted as created. */
void gp_feed_context_learned(uint32_t ctx, int device);
int gp_feed_context_device(uint32_t ctx);
/* Whether no context of another device was ever known. */
bool gp_feed_context_is_only(int device);
void gp_feed_primary_context(int device, uint32_t ctx);
uint32_t gp_feed_primary_of(int device);

void gp_feed_stream_created(uint64_t stream, uint32_t ctx);
void gp_feed_stream_destroyed(uint64_t stream);
int gp_feed_stream_device(uint64_t stream); /* GP_DEVICE_UNKNOWN: not a known stream */

void gp_feed_module_loaded(uint32_t module, uint64_t bytes, uint32_t ctx);
void gp_feed_module_unloaded(uint32_t module);

#endif
