/* SPDX-License-Identifier: MIT
 *
 * owner.h: finds the library that requested memory from the driver. account/ calls it for every
 * driver allocation, on the application's thread, with no lock held.
 *
 * The owner is the innermost object on the stack that is not a mere intermediary. The driver, its
 * runtime, CUPTI, the C library, foreign-function interfaces and gpuprof itself are intermediaries.
 * A library that is linked with the static runtime owns its memory. The walk uses the objects'
 * unwind tables and looks up no names, so it costs about 100 ns and is always on.
 */
#ifndef GP_STACK_OWNER_H
#define GP_STACK_OWNER_H

#include "base/compiler.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_owner {
    uint8_t row;       /* in the table of owners; GP_OWNER_UNKNOWN: the stack could not be followed */
    bool segment;      /* memory that a framework divides into blocks it reports: reserved, not allocated */
    uint8_t framework; /* its row, where segment is set */
};

/* Call it once, at start. 0 or -errno: then every owner is unknown. */
int gp_owner_start(void);

/* Finds the owner of the driver call that this thread makes now. */
struct gp_owner gp_owner_here(void);

/* The row of a framework whose blocks are reported without a driver call. */
uint8_t gp_owner_named(const char *owner, const char *library);

/* Copies the table; rows[GP_OWNER_UNKNOWN] is "unknown". Returns the number of rows in use. */
unsigned gp_owner_rows(struct gp_wire_owner rows[GP_WIRE_OWNERS]);

/* Sets a function that gp_owner_here calls when it notices that objects were loaded or unloaded. It
 * runs on the application's thread, with no lock held, before gp_owner_here returns to any thread.
 * pcs: the return addresses of that thread. If it returns false, it is called again at the next
 * allocation. */
void gp_owner_on_change(bool (*changed)(const uint64_t *pcs, unsigned count));

/* From now on a driver allocation is a segment if its stack has an object whose file name starts with
 * `prefix`, a constant string. NULL ends this. */
void gp_owner_segments_of(const char *prefix);

#endif
