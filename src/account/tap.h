/* SPDX-License-Identifier: MIT
 *
 * tap.h: the only door out of the accounts: exact numbers, resets, scopes.  Called by export/ on our own threads (and
 * once at exit).
 */
#ifndef GP_ACCOUNT_TAP_H
#define GP_ACCOUNT_TAP_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

/* One device at one instant.  False: the index was never used. */
bool gp_tap_device(unsigned index, struct gp_wire_device *out);

/* what: GP_RESET_*.  Fills before/after of the `all` pools.  False: the index was never used. */
bool gp_tap_reset(unsigned index, unsigned what, struct gp_wire_before_after *out);

/* Scopes by slot, on every device at once.  begin: 0, -EBUSY.  end: fills the peaks of each device; 0, -ENOENT. */
int gp_tap_scope_begin(unsigned slot);
int gp_tap_scope_end(unsigned slot, struct gp_wire_scope_value out[GP_WIRE_DEVICES]);

/* Events tried so far (written and lost). */
uint64_t gp_tap_events(void);

#endif
