/* SPDX-License-Identifier: MIT
 *
 * door.h: libraries whose own pools are watched.
 */
#ifndef GP_ACCOUNT_DOOR_H
#define GP_ACCOUNT_DOOR_H

#include "account/feed/door.h"
#include <stdint.h>

/* The library that owns the heaps of this owner. */
enum gp_door gp_door_of(uint8_t owner);
/* The last answer of a library that gpuprof asks about the device. Under gp_accounts.lock. */
struct gp_wire_polled gp_door_polled(unsigned device);
void gp_door_own(enum gp_door door, uint8_t owner);

#endif
