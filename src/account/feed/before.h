/* SPDX-License-Identifier: MIT
 *
 * before.h: memory from before the attach. Only our own thread, which asks the driver.
 */
#ifndef GP_ACCOUNT_FEED_BEFORE_H
#define GP_ACCOUNT_FEED_BEFORE_H

#include <stdbool.h>
#include <stdint.h>

void gp_feed_before_start(void);     /* before the source */
void gp_feed_before_stop(void);      /* with gp_feed_end */
uint64_t gp_feed_before_begin(void); /* before the driver is asked for an address */
/* The answer. False: the memory may have been freed since: ask again. */
bool gp_feed_before(uint64_t begun, uint64_t address, uint64_t bytes, int device, uint32_t ctx);
/* The driver has unmapped addresses, where such memory may have been. Any thread. */
void gp_feed_before_unmapped(uint64_t address, uint64_t bytes);
/* Whether the driver's memory at this address, where it begins, is in the accounts. */
bool gp_feed_is_known(uint64_t address);
/* complete: every address was asked for. */
void gp_feed_before_end(bool complete);

#endif
