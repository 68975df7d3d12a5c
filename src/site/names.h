/* SPDX-License-Identifier: MIT
 *
 * names.h: the names of Python frames, each kept once.  A name is its offset in the strings; 0 is "".
 */
#ifndef GP_SITE_NAMES_H
#define GP_SITE_NAMES_H

#include "site.h"
#include "stack.h"

int gp_text_start(struct gp_wire_sites *head, char *strings, uint32_t limit); /* 0 or -errno */

/* *full: one of them had no room, and is "". */
void gp_text_frame(const struct gp_python_frame *from, struct gp_wire_frame *to, bool *full);

#endif
