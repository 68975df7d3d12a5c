/* SPDX-License-Identifier: MIT
 *
 * oomread.h: checks the out-of-memory report of a session. Called by peerread.c.
 */
#ifndef GP_COLLECT_OOMREAD_H
#define GP_COLLECT_OOMREAD_H

#include <read/collect/collect.h>

/* Checks a private copy and stores it in process->oom, with its strings cleaned, and process->oom_framework. seq 0: no report.
 * 0, or -EPROTO with process->problem. */
int gp_oom_take(const struct gp_wire_oom *oom, const struct gp_wire_oom_framework *framework,
                struct gp_process *process);

#endif
