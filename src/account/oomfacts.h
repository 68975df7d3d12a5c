/* SPDX-License-Identifier: MIT
 *
 * oomfacts.h: joins the two parts of the out-of-memory report: the facts (oomfacts.c) and the
 * holders of the memory (holders.c).
 */
#ifndef GP_ACCOUNT_OOMFACTS_H
#define GP_ACCOUNT_OOMFACTS_H

#include <gpuprof/wire.h>
#include <stdbool.h>

/* Fills holders and rest of a report whose device is set. False: not possible now (no device,
 * another thread is walking, or the last walk was too costly to repeat so soon); the report is
 * then unchanged. Takes the locks of the map's shards and those of the cache's walker. */
bool gp_oom_holders(struct gp_wire_oom *report);

#endif
