/* SPDX-License-Identifier: MIT
 *
 * cuptiread.h: checks what a session says about the copies of CUPTI. Called by peerread.c.
 */
#ifndef GP_COLLECT_CUPTIREAD_H
#define GP_COLLECT_CUPTIREAD_H

#include <read/collect/collect.h>

/* Stores a private copy in process->cupti, with its strings cleaned and its counts bounded. */
void gp_cupti_take(const struct gp_wire_cupti *cupti, struct gp_process *process);

#endif
