/* SPDX-License-Identifier: MIT
 *
 * progress.h: a progress bar on stderr.  It appears only if stderr is a terminal that can move its cursor and
 * the work has taken half a second, and it is erased at the end.  One bar at a time, from one
 * thread.
 */
#ifndef GP_COMMON_PROGRESS_H
#define GP_COMMON_PROGRESS_H

/* Starts a bar; what: "reading trace.gpuprof", which is copied.  Ends the previous bar, if there
 * is one. */
void gp_progress_begin(const char *what);
/* parts: how much is done, 0 to 1000. */
void gp_progress_step(unsigned parts);
void gp_progress_end(void);

/* gp_progress_step in the shape of gp_rec_progress_fn. */
void gp_progress_listener(void *arg, unsigned parts);

#endif
