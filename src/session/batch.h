/* SPDX-License-Identifier: MIT
 *
 * batch.h: batches of events for the kernel.
 */
#ifndef GP_SESSION_BATCH_H
#define GP_SESSION_BATCH_H

#include "session/session.h"
#include <stdint.h>

/* Call these while there is a listener: before an event goes into the ring, and after (account/feed/start.h).
 * Any thread; the first event of a burst costs one system call. */
void gp_batch_coming(uint64_t time_ns);
void gp_batch_heard(void);

/* Call it before the drain thread runs, so that an early listener misses no peak. */
void gp_batch_start(struct gp_session *session);

/* Does the work that is due.  Returns how long the thread may sleep then, unless the doorbell
 * rings; UINT64_MAX: no limit. */
uint64_t gp_batch_work(void);
/* Sends the current numbers and events, if there is a listener. */
void gp_batch_tell(void);

/* Sends the last batch; later calls do nothing. */
void gp_batch_last(void);

#endif
