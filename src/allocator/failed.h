/* SPDX-License-Identifier: MIT
 *
 * failed.h: reports a failed request to the accounts, with what the cache knows about it.  serve.c and async.c call it
 * inside the library's code and with no lock held.
 */
#ifndef GP_ALLOCATOR_FAILED_H
#define GP_ALLOCATOR_FAILED_H

#include "allocator/served.h"

/* Once, before the first request.  conf: GPUPROF_ALLOC_CONF or NULL; the string must stay valid. */
void gp_failed_setup(const char *conf);
/* api: the name of the function that the program called.  error: CUresult.  bytes: as the program asked. */
void gp_failed_report(struct gp_served_context *served, const char *api, uint32_t error, uint64_t bytes,
                      uint64_t stream);

#endif
