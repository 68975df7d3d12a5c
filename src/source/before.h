/* SPDX-License-Identifier: MIT
 *
 * before.h: asks the driver which memory the program has.  Called by poll.c.
 */
#ifndef GP_SOURCE_BEFORE_H
#define GP_SOURCE_BEFORE_H

#include <stdbool.h>
#include <stdint.h>

struct gp_before_range {
    uint64_t address, bytes; /* bytes 0: the driver has nothing there */
    int device;
    void *context;
    bool counts; /* device memory that is not managed */
};

/* Goes through the addresses at which a driver may have memory, and reports to the accounts
 * (gp_feed_before) what is there. ask: false when the driver may not be asked (any more). number: of a
 * context; may be NULL. Takes a second at most. Returns whether every address was asked for. */
bool gp_before_look(bool (*ask)(uint64_t address, struct gp_before_range *out), uint32_t (*number)(void *context));

#endif
