/* SPDX-License-Identifier: MIT
 *
 * oomfacts.h: between the two halves of the out-of-memory report: the facts (oomfacts.c) and who holds the memory (holders.c).
 */
#ifndef GP_ACCOUNT_OOMFACTS_H
#define GP_ACCOUNT_OOMFACTS_H

#include <gpuprof/wire.h>
#include <stdbool.h>

/* Fills holders and rest of a report whose device is set.  False: not now (no device, another thread is at it, or the
 * last walk was too costly to be repeated so soon); the report is unchanged then.  Takes map shards' locks and what the
 * cache's walker takes. */
bool gp_oom_holders(struct gp_wire_oom *report);

#endif
