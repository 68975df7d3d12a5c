/* SPDX-License-Identifier: MIT
 *
 * rankgpus.h: the GPUs that several ranks of a job use.
 */
#ifndef GP_ANALYZE_RANKGPUS_H
#define GP_ANALYZE_RANKGPUS_H

#include <analyze/analyze.h>
#include <stdbool.h>

/* Finds the GPUs that several of the ranks use, whose times have shift_ns, and lowers the headroom by
 * what the others had reserved there.  False: out of memory. */
bool gp_ranks_shared(struct gp_ranks *all);

#endif
