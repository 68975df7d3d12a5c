/* SPDX-License-Identifier: MIT
 *
 * allocator.h: the cache bound to the driver: behind the program's own cuMemAlloc and cuMemFree (serve.c), behind PyTorch's
 * pluggable allocator (torch.c) and behind gpuprof.h (capi.c).  Called by inject/ and by the entry points themselves.
 */
#ifndef GP_ALLOCATOR_ALLOCATOR_H
#define GP_ALLOCATOR_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gp_cache_segment;
struct gp_cache_block;

struct gp_allocator_setup {
    const char *allocator; /* policy; NULL or "": none was asked for: only the explicit entry points use the cache */
    const char *conf;      /* GPUPROF_ALLOC_CONF or NULL */
    uint64_t limit_bytes;  /* GPUPROF_MEMORY_LIMIT; 0 none */
};

/* Checks the settings and, if an allocator was asked for and the hooks are in place, serves the program's own calls
 * from now on.  Once, after the source, before the program's cuInit returns; no CUDA calls.  False with a sentence in
 * why if a setting cannot be used (the default, or no allocator, is then in force). */
bool gp_allocator_start(const struct gp_allocator_setup *setup, char *why, size_t why_bytes);
/* The policy's name if program calls are served, else "off". */
const char *gp_allocator_in_use(void);
/* As gp_cache_walk, over our caches on that device.  Inside gp_thread_enter. */
typedef bool gp_allocator_segment_fn(void *arg, const struct gp_cache_segment *segment);
typedef bool gp_allocator_block_fn(void *arg, const struct gp_cache_block *block);
void gp_allocator_walk(int device, void *arg, gp_allocator_segment_fn *segment, gp_allocator_block_fn *block);
/* As gp_cache_iterate; any thread. */
void gp_allocator_iterate(int device, void *arg, gp_allocator_segment_fn *segment, gp_allocator_block_fn *block,
                          void (*rest)(void *arg));
/* No driver call from here on (the exit path). */
void gp_allocator_stop(void);

#endif
