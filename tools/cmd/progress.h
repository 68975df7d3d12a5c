/* SPDX-License-Identifier: MIT
 *
 * progress.h: how far a long piece of work is, on stderr, for people who watch.  Nothing is printed unless stderr is a
 * terminal that can move its cursor and the work has lasted half a second; what was printed is gone at the end.  One
 * piece of work at a time, by one thread.
 */
#ifndef GP_CMD_PROGRESS_H
#define GP_CMD_PROGRESS_H

/* what: "reading trace.gpuprof"; kept until the end.  A begin without an end before it ends what went before. */
void gp_progress_begin(const char *what);
/* parts: 0 to 1000, of the whole. */
void gp_progress_step(unsigned parts);
void gp_progress_end(void);

/* gp_progress_step in the shape of gp_rec_progress_fn. */
void gp_progress_listener(void *arg, unsigned parts);

#endif
