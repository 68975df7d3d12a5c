/* SPDX-License-Identifier: MIT
 *
 * state.h: the meaning of a collected process's state for the viewer.  Pure.
 */
#ifndef GP_VIEW_STATE_H
#define GP_VIEW_STATE_H

#include <read/collect/collect.h>

/* The statistics can be trusted: our library published them and they were validated.  NULL is not
 * readable. */
bool gp_process_readable(const struct gp_process *process);
/* The process answers, and it is neither closed nor disabled nor yielded. */
bool gp_process_live(const struct gp_process *process);
/* "live", "stale", ..., or the report of the process itself: "exited", "disabled", "yielded"; "-"
 * for NULL. */
const char *gp_process_word(const struct gp_process *process);

#endif
