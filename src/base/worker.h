/* SPDX-License-Identifier: MIT
 *
 * worker.h: starts threads of our own inside the program.
 */
#ifndef GP_BASE_WORKER_H
#define GP_BASE_WORKER_H

/* Starts a detached thread that never takes the program's signals, whose driver calls are not
 * the program's (gp_thread.ignored), and that debuggers show as `name` (at most 15 characters).
 * 0 or -errno. */
int gp_worker_start(void *(*main)(void *), const char *name);

#endif
