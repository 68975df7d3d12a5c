/* SPDX-License-Identifier: MIT
 * cachejudge.h: functions that cachemodel.c and cachejudge.c share. */
#ifndef GP_TEST_LIB_CACHEJUDGE_H
#define GP_TEST_LIB_CACHEJUDGE_H

#include "lib/cachemodel.h"

/* Stores the first error's text. Always returns false. */
bool cachejudge_wrong(struct cachemodel *model, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* grant: checks that the block fits the request, is mapped as a whole, and is known to the cache. oom: checks that
 * there was no room for the request. */
bool cachejudge_grant(struct cachemodel *model, const struct gp_request *request, const struct gp_grant *grant);
bool cachejudge_oom(struct cachemodel *model, const struct gp_request *request);

#endif
