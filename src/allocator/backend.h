/* SPDX-License-Identifier: MIT
 *
 * backend.h: the driver as the cache of a served context sees it.
 */
#ifndef GP_ALLOCATOR_BACKEND_H
#define GP_ALLOCATOR_BACKEND_H

#include "allocator/served.h"
#include "cache/cache.h"

void gp_backend_fill(struct gp_served_context *served, struct gp_backend *out);
/* Gives growable memory back, which does not die with its context.  Called after the context's end. */
void gp_backend_clear(struct gp_served_context *served);
/* Makes the context's growable memory accessible to `device`. */
void gp_backend_share(struct gp_served_context *served, int device);

#endif
