/* SPDX-License-Identifier: MIT
 *
 * cuptiname.h: binds the rows of hooks.def to the callback ids of the CUPTI at hand, by name.
 * Called by cupti.c.
 */
#ifndef GP_SOURCE_CUPTINAME_H
#define GP_SOURCE_CUPTINAME_H

#include <stdbool.h>
#include <stdint.h>

struct gp_wire_cupti;

typedef int (*gp_cupti_name_fn)(int domain, uint32_t id, const char **name);

/* Before any callback is enabled.  Counts and lists in *out the names that look like memory and are
 * newer than this build.  Returns the id of cuDeviceGetCount, or 0.  If no name is known (get_name
 * is NULL, or answers none), the ids of CUDA 13.0 stay. */
uint32_t gp_cupti_name_rows(gp_cupti_name_fn get_name, struct gp_wire_cupti *out);

#endif
