/* SPDX-License-Identifier: MIT
 *
 * fittext.h: the answer of fit, as text and as JSON.
 */
#ifndef GP_SHOW_TEXT_FITTEXT_H
#define GP_SHOW_TEXT_FITTEXT_H

#include <analyze/fit.h>
#include <analyze/report.h>
#include <jansson.h>
#include <show/text/text.h>
#include <stdbool.h>
#include <stdint.h>

/* Formats the answers of `gpuprof fit`, as text for a terminal and as JSON.  Nothing here computes a
 * result. */

struct gp_fit_answer {
    const struct gp_report *report;
    const struct gp_fit_question *question;
    const struct gp_fit_result *results; /* one for each device that was used */
    uint32_t count;
};

/* Every device fits. */
bool gp_fit_answer_fits(const struct gp_fit_answer *answer);
void gp_text_fit(const struct gp_text_page *page, const struct gp_fit_answer *answer);
/* gpuprof.fit/1; NULL: out of memory. */
json_t *gp_fit_json(const struct gp_fit_answer *answer);

#endif
