/* SPDX-License-Identifier: MIT
 *
 * names.h: stores the names of Python frames, each once. A name is its offset in the strings; 0 is
 * "". Called by site.c on any thread.
 */
#ifndef GP_STACK_NAMES_H
#define GP_STACK_NAMES_H

#include "site.h"
#include "stack.h"

/* Once, at start. limit: bytes of `strings`, which lie in the session. 0 or -errno. */
int gp_names_start(struct gp_wire_sites *head, char *strings, uint32_t limit);

/* Fills in *to. *full is set if a name had no room; it is "" then. */
void gp_names_frame(const struct gp_python_frame *from, struct gp_wire_frame *to, bool *full);

#endif
