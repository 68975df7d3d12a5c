/* SPDX-License-Identifier: MIT
 *
 * owner.h: which library asked the driver for memory. account/ calls it for every driver
 * allocation, on the application's thread, with no lock held.
 *
 * The owner is the first object on the stack that does more than pass requests on: not the
 * driver, its runtime, CUPTI, the C library, a foreign-function interface or gpuprof itself. A
 * library that is linked with the static runtime owns its memory. The stack is read by the objects'
 * unwind tables, without names, so this costs some 100 ns and is always on.
 */
#ifndef GP_OWNER_OWNER_H
#define GP_OWNER_OWNER_H

#include "base/compiler.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_owner {
    uint8_t row;  /* in the table of owners; GP_OWNER_UNKNOWN: the stack could not be followed */
    bool segment; /* a framework whose blocks are seen took it to cut it up: reserved, not allocated */
};

/* Call it once, at start. 0 or -errno: then every owner is unknown. */
int gp_owner_start(void);

/* The owner of the driver call under way on this thread. */
struct gp_owner gp_owner_here(void);

/* The row of a framework whose blocks are reported without a driver call. */
uint8_t gp_owner_named(const char *owner, const char *library);

/* Copies the table; rows[GP_OWNER_UNKNOWN] is "unknown". Returns the number of rows in use. */
unsigned gp_owner_rows(struct gp_wire_owner rows[GP_WIRE_OWNERS]);

/* Sets a function that gp_owner_here calls, on the application's thread and with no lock held,
 * after it noticed that objects were loaded or unloaded, before it answers to any thread. False:
 * it is called again at the next allocation. */
void gp_owner_on_change(bool (*changed)(void));

/* From now on a driver allocation with a return address in an object whose file name starts with
 * `prefix` is a segment. prefix: constant text; NULL: no longer. */
void gp_owner_segments_of(const char *prefix);

#endif
