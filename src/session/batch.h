/* SPDX-License-Identifier: MIT
 *
 * batch.h: what the process tells the kernel (gpuprof/batch.h): numbers of every device and the events since, through
 * the USDT probe gpuprof:batch, while somebody listens.  Nobody listens: nothing here costs a thread of the program
 * more than a look at the probe's semaphore.  How and why: docs/batches.md.
 */
#ifndef GP_SESSION_BATCH_H
#define GP_SESSION_BATCH_H

#include "session/session.h"
#include <stdbool.h>
#include <stdint.h>

/* The semaphore: how many listen.  The kernel writes it, so it is loaded anew each time (relaxed: it publishes
 * nothing). */
extern uint16_t gpuprof_batch_semaphore __attribute__((visibility("hidden")));

/* Somebody listens, and an event is about to go into the ring; is in it (feed.h).  Any thread; one system call where a
 * burst begins. */
void gp_batch_coming(uint64_t time_ns);
void gp_batch_heard(void);

/* Before the drain thread runs.  Somebody who listens already misses no peak. */
void gp_batch_start(struct gp_session *session);

/* ---- the drain thread ------------------------------------------------------------------------------------------- */

/* What is to be done now; how long the thread may sleep then, unless the doorbell rings: UINT64_MAX for ever. */
uint64_t gp_batch_work(void);
/* Numbers and events as of now, if somebody listens. */
void gp_batch_tell(void);

/* ---- the exit path ---------------------------------------------------------------------------------------------- */

/* The last batch; afterwards there is none. */
void gp_batch_last(void);

#endif
