/* SPDX-License-Identifier: MIT
 *
 * state.h: what the state of a collected process means for the viewer.  Pure.
 */
#ifndef GP_VIEW_STATE_H
#define GP_VIEW_STATE_H

#include <collect/collect.h>

/* The statistics can be trusted: our library published them and they were validated.  NULL is not
 * readable. */
bool gp_process_readable(const struct gp_process *process);
/* The process answers, and it is neither closed nor disabled nor yielded. */
bool gp_process_live(const struct gp_process *process);
/* "live", "stale", ..., or what the process itself reports: "exited", "disabled", "yielded"; "-"
 * for NULL. */
const char *gp_process_word(const struct gp_process *process);

#endif
