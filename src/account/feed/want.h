/* SPDX-License-Identifier: MIT
 *
 * want.h: what must be polled (account.c), and whether anything is.
 */
#ifndef GP_ACCOUNT_FEED_WANT_H
#define GP_ACCOUNT_FEED_WANT_H

#include <stdbool.h>

/* What must be polled, as bits; cleared by reading. A callback that makes the word non-zero
 * calls the waker. */
#define GP_POLL_DEVICES 1u
#define GP_POLL_POOLS   2u
#define GP_POLL_GRAPHS  4u
#define GP_POLL_IMPORTS 8u
#define GP_POLL_OOM     16u /* a report of an out-of-memory failure to complete or to log */
void gp_feed_poll_want(unsigned bits);
unsigned gp_feed_poll_wanted(void);
/* Whether the driver is asked nothing any more. */
bool gp_feed_poll_silent(void);

#endif
