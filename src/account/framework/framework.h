/* SPDX-License-Identifier: MIT
 *
 * framework.h: sees the blocks of frameworks' own allocators. Called by inject/ at the start.
 */
#ifndef GP_FRAMEWORK_FRAMEWORK_H
#define GP_FRAMEWORK_FRAMEWORK_H

/* Looks for the frameworks that are loaded, now and whenever objects were loaded, and has their
 * reports of blocks sent to the accounts. Call it once, after gp_owner_start and gp_feed_start. */
void gp_framework_start(void);
/* Puts the frameworks' functions back. After gp_thread_life_leave, on a thread of ours. */
void gp_framework_stop(void);
/* Asks PyTorch for its blocks from before the attach, on Python's main thread (survey.c): 0, and what comes
 * of it is in the session; -ENODATA: not attached late; or another -errno. Our own threads. */
int gp_framework_survey(void);

#endif
