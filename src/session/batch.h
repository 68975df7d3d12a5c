/* SPDX-License-Identifier: MIT
 *
 * batch.h: sends batches (gpuprof/batch.h) to the kernel through the USDT probe gpuprof:batch while
 * there is a listener: the numbers of every device and the events since the last batch.  Without a
 * listener it costs a thread of the program one load of the probe's semaphore.
 * docs/understand/batches.md explains the design.
 */
#ifndef GP_SESSION_BATCH_H
#define GP_SESSION_BATCH_H

#include "session/session.h"
#include <stdbool.h>
#include <stdint.h>

/* The semaphore: the number of listeners.  The kernel writes it, so it is loaded each time
 * (relaxed: it publishes nothing). */
extern uint16_t gpuprof_batch_semaphore __attribute__((visibility("hidden")));

/* Call these while there is a listener: before an event goes into the ring, and after (feed.h).
 * Any thread; the first event of a burst costs one system call. */
void gp_batch_coming(uint64_t time_ns);
void gp_batch_heard(void);

/* Call it before the drain thread runs, so that an early listener misses no peak. */
void gp_batch_start(struct gp_session *session);

/* ---- the drain thread ------------------------------------------------------------------------------------------- */

/* Does the work that is due.  Returns how long the thread may sleep then, unless the doorbell
 * rings; UINT64_MAX: no limit. */
uint64_t gp_batch_work(void);
/* Sends the current numbers and events, if there is a listener. */
void gp_batch_tell(void);

/* ---- the exit path ---------------------------------------------------------------------------------------------- */

/* Sends the last batch; later calls do nothing. */
void gp_batch_last(void);

#endif
