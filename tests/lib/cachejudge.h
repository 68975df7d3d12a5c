/* SPDX-License-Identifier: MIT
 * cachejudge.h: what cachemodel.c and cachejudge.c share. */
#ifndef GP_TEST_LIB_CACHEJUDGE_H
#define GP_TEST_LIB_CACHEJUDGE_H

#include "lib/cachemodel.h"

/* Keeps the first complaint.  Always false. */
bool cachejudge_wrong(struct cachemodel *model, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Is this what was asked for, whole, and known to the cache?  Was there really no room? */
bool cachejudge_grant(struct cachemodel *model, const struct gp_request *request, const struct gp_grant *grant);
bool cachejudge_oom(struct cachemodel *model, const struct gp_request *request);

#endif
