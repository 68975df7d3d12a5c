/* SPDX-License-Identifier: MIT
 * oomread.h: the report of out of memory in a session, checked.  Called by checked.c. */
#ifndef GP_COLLECT_OOMREAD_H
#define GP_COLLECT_OOMREAD_H

#include <collect/collect.h>

/* Checks a private copy and takes it into process->oom with its strings cleaned.  seq 0: there is none.  0, or -EPROTO
 * with process->problem. */
int gp_oom_take(const struct gp_wire_oom *oom, struct gp_process *process);

#endif
