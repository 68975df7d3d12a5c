/* SPDX-License-Identifier: MIT
 *
 * allocator.h: connects the cache to the driver and to its three kinds of callers: the program's own cuMemAlloc and
 * cuMemFree (serve.c), PyTorch's pluggable allocator (torch.c) and gpuprof.h (capi.c).  inject/ starts and stops it.
 */
#ifndef GP_ALLOCATOR_ALLOCATOR_H
#define GP_ALLOCATOR_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_cache_segment;
struct gp_cache_block;

struct gp_allocator_setup {
    const char
        *allocator;   /* policy; NULL or "": the user named none, and only the explicit entry points use the cache */
    const char *conf; /* GPUPROF_ALLOC_CONF or NULL */
    uint64_t limit_bytes; /* GPUPROF_MEMORY_LIMIT; 0: no limit */
};

/* Checks the settings.  If an allocator was named and the hooks are in place, the cache serves the program's own calls
 * from now on.  Called once, after the source was started and before the program's cuInit returns; makes no CUDA calls.
 * Returns false and writes a sentence into why if a setting cannot be used; the default, or no allocator, is then in
 * force. */
bool gp_allocator_start(const struct gp_allocator_setup *setup, char *why, size_t why_bytes);
/* The policy's name if the program's calls are served, or once it has called the C interface; else "off".  Any
 * thread. */
const char *gp_allocator_in_use(void);
/* Like gp_cache_walk, over all caches of the device.  Inside gp_thread_enter. */
typedef bool gp_allocator_segment_fn(void *arg, const struct gp_cache_segment *segment);
typedef bool gp_allocator_block_fn(void *arg, const struct gp_cache_block *block);
void gp_allocator_walk(int device, void *arg, gp_allocator_segment_fn *segment, gp_allocator_block_fn *block);
/* Like gp_cache_iterate, over all caches of the device.  Any thread. */
void gp_allocator_iterate(int device, void *arg, gp_allocator_segment_fn *segment, gp_allocator_block_fn *block,
                          void (*rest)(void *arg));
/* Whether the program's calls are served, or a cache was made for an explicit entry point. Any thread. */
bool gp_allocator_is_used(void);
/* No new driver call is made from here on.  For the exit path. */
void gp_allocator_stop(void);
/* Looks the driver's functions up, so that gp_allocator_start needs no loader. Any thread. */
void gp_allocator_prepare(void);

#endif
