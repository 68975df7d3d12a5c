/* SPDX-License-Identifier: MIT
 * oom.h: the report of out of memory in a session, checked.  Called by rows.c. */
#ifndef GP_COLLECT_OOM_H
#define GP_COLLECT_OOM_H

#include <collect/collect.h>

/* Checks a private copy and takes it into process->oom with its strings cleaned.  seq 0: there is none.  0, or -EPROTO
 * with process->problem. */
int gp_oom_take(const struct gp_wire_oom *oom, struct gp_process *process);

#endif
