/* SPDX-License-Identifier: MIT
 * ranks.h: ranks of a job in words, for ranks.c, ranksunlike.c, rankleaks.c and `gpuprof diff`. */
#ifndef GP_SHOW_TEXT_RANKS_H
#define GP_SHOW_TEXT_RANKS_H

#include <analyze/rankleaks.h>
#include <analyze/ranks.h>
#include <jansson.h>
#include <show/text/text.h>

#define GP_RANKS_NUMBERS 24u /* columns of the numbers of a row */
#define GP_RANKS_UNLIKE  40u /* groups that are explained */

/* ranksunlike.c.  Numbers of ranks, which it sorts: "0-3,6,8-255"; as far as there is room: "0-3,6,.. 250". */
void gp_rank_numbers(char text[GP_RANKS_NUMBERS + 1], int32_t *numbers, uint32_t count);
/* The same of the ranks of a group. */
void gp_ranks_numbers(char text[GP_RANKS_NUMBERS + 1], const struct gp_ranks *all, uint32_t group);
/* Adds a reason to those in the text, after "; ". */
void gp_ranks_why(char text[GP_VERDICT_TEXT], const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The group that has most ranks, of equal ones the first; count: how many. */
uint32_t gp_ranks_usual(const struct gp_ranks *all, uint32_t *count);
/* Prints each group but the usual one, with what is unlike there; the same as JSON. */
void gp_ranks_unlike(const struct gp_text_page *page, const struct gp_ranks *all);
json_t *gp_ranks_unlike_json(const struct gp_ranks *all);
/* ranks.c.  A line about the ranks of the job that no recording is of, if there are any; their numbers, and the files that
 * were left out, as JSON. */
void gp_ranks_text_missing(const struct gp_text_page *page, const struct gp_ranks *all);
json_t *gp_ranks_missing_json(const struct gp_ranks *all);
json_t *gp_ranks_left_json(const struct gp_ranks *all);

/* rankleaks.c.  What grows in the ranks, as text and as JSON of schema gpuprof.leaks-ranks/1 (NULL: out of memory). */
void gp_rank_leaks_text(const struct gp_text_page *page, const struct gp_rank_leaks *leaks);
json_t *gp_rank_leaks_json(const struct gp_rank_leaks *leaks);

#endif
