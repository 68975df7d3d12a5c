/* SPDX-License-Identifier: MIT
 *
 * match.h: the text by which a user finds a row: of the filter, and of the search.  Pure.
 */
#ifndef GP_VIEW_MATCH_H
#define GP_VIEW_MATCH_H

#include <show/terminal/model.h>

/* The row's pid, command, user, container or owner contains the text, in any case; of a call site,
 * its function, file, caller, kind of memory or pid. */
bool gp_match_row(const struct gp_row *row, const char *text);

#endif
