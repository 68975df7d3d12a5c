/* SPDX-License-Identifier: MIT
 *
 * ranks.h: the ranks of a job as text and as JSON of schema gpuprof.ranks/1, which the HTML page of
 * several ranks shows.
 */
#ifndef GP_WRITE_RANKS_H
#define GP_WRITE_RANKS_H

#include <analyze/analyze.h>
#include <show/text/reportformat.h>

#define GP_VERDICT_TEXT 640
/* NULL: out of memory. */
json_t *gp_ranks_json(const struct gp_ranks *ranks);
void gp_ranks_text(const struct gp_text_page *page, const struct gp_ranks *ranks);

#endif
