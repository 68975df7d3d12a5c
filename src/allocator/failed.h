/* SPDX-License-Identifier: MIT
 *
 * failed.h: telling the accounts that a request to the cache failed, with what the cache knows about it.  Called by
 * serve.c and async.c, inside our code and with no lock held.
 */
#ifndef GP_ALLOCATOR_FAILED_H
#define GP_ALLOCATOR_FAILED_H

#include "allocator/served.h"

/* Once, before the first request.  conf: GPUPROF_ALLOC_CONF or NULL, and stays. */
void gp_oom_setup(const char *conf);
void gp_oom_tell(struct gp_served_context *served, const char *api, uint32_t error, uint64_t bytes, uint64_t stream);

#endif
