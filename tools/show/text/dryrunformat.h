/* SPDX-License-Identifier: MIT
 *
 * dryrunformat.h: the result of a dry run, as text and as JSON.
 */
#ifndef GP_SHOW_TEXT_DRYRUNFORMAT_H
#define GP_SHOW_TEXT_DRYRUNFORMAT_H

#include <dryrun/model.h>
#include <jansson.h>
#include <show/text/text.h>

/* Nothing here computes a result. */

void gp_text_dryrun(const struct gp_text_page *page, const struct gp_dryrun_answer *answer);
/* dryruntry.c: what would help: the changes of --try, if it was given, else what the run tells. */
void gp_text_helps(const struct gp_text_page *page, const struct gp_dryrun_answer *answer);
/* The changes; null without --try. */
json_t *gp_changes_json(const struct gp_dryrun_answer *answer);
/* The same as gp_text_helps for the page: "dryrun" of gpuprof.report/1 and gpuprof.ranks/1. */
json_t *gp_helps_json(const struct gp_dryrun_answer *answer);
/* gpuprof.dryrun/1; NULL: out of memory. */
json_t *gp_dryrun_json(const struct gp_dryrun_answer *answer);

#endif
