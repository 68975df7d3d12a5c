/* SPDX-License-Identifier: MIT
 *
 * oom.h: telling the accounts that a request to the cache failed, with what the cache knows about it.  Called by
 * serve.c and lend.c, inside our code and with no lock held.
 */
#ifndef GP_SHIM_OOM_H
#define GP_SHIM_OOM_H

#include "allocator/home.h"

/* Once, before the first request.  conf: GPUPROF_ALLOC_CONF or NULL, and stays. */
void gp_oom_setup(const char *conf);
void gp_oom_tell(struct gp_home *home, const char *api, uint32_t error, uint64_t bytes, uint64_t stream);

#endif
