/* SPDX-License-Identifier: MIT
 *
 * text.h: formats results as text for a terminal and as JSON.  Nothing here computes a result.
 */
#ifndef GP_SHOW_TEXT_TEXT_H
#define GP_SHOW_TEXT_TEXT_H

#include <analyze/analyze.h>
#include <analyze/fit.h>
#include <analyze/forecast.h>
#include <analyze/report.h>
#include <dryrun/model.h>
#include <jansson.h>
#include <show/text/write.h>
#include <stdio.h>
#include <symbol/symbol.h>

/* ==== analyses ==================================================================================================== */
/* Formats the results of the analyses of a recording, as JSON and as text for a terminal.  The
 * caller has run the analyses (gp_report_run); each function names the parts that it reads.  Nothing
 * here computes a result. JSON functions return new references, and NULL when memory is out. */

/* Schema gpuprof.report/1 (docs/schema).  Reads GP_REPORT_DOCUMENT. */
json_t *gp_report_document(const struct gp_report *report);

/* gpuprof.leaks/1, .peak/1, .churn/1, .fragmentation/1 and .reconcile/1.  Each reads the part of
 * its name; fragmentation also reads GP_REPORT_SERIES and GP_REPORT_HOLDERS, and reconcile reads
 * GP_REPORT_BILL and GP_REPORT_HELD. */
json_t *gp_report_leaks_json(const struct gp_report *report);
json_t *gp_report_peak_json(const struct gp_report *report);
json_t *gp_report_churn_json(const struct gp_report *report);
json_t *gp_report_fragmentation_json(const struct gp_report *report);
json_t *gp_report_reconcile_json(const struct gp_report *report);

/* Parts that the documents of single analyses and the whole document share. */
json_t *gp_report_device_name(const struct gp_report *report, uint32_t device); /* 0, or "host"; null: there is none */
json_int_t gp_report_since(const struct gp_report *report, uint64_t time_ns);   /* ns since the recording started */
const char *gp_report_step_source(const struct gp_report *report);              /* "marks" */
/* Which rhythm the steps are: 'marks "step"', "a period of 12 ms found in the allocations". */
#define GP_RHYTHM_TEXT 160
const char *gp_report_rhythm(const struct gp_report *report, char text[GP_RHYTHM_TEXT]);
/* What speaks for a suspect: "grows for 9.8 s at 3.1 MiB/s; nothing of it was freed". */
#define GP_EVIDENCE_TEXT 128
const char *gp_report_evidence(const struct gp_leak *leak, char text[GP_EVIDENCE_TEXT]);
/* Why a candidate is no suspect, and what it means if it is one. */
#define GP_BECAUSE_TEXT 320
const char *gp_report_because(const struct gp_leak *leak, char text[GP_BECAUSE_TEXT]);
/* What the finding of the suspects lacks; NULL if nothing. */
const char *gp_report_missing(const struct gp_report *report);
json_t *gp_report_suspects(const struct gp_report *report);
json_t *gp_report_candidates(const struct gp_report *report);
/* frames: with the whole stack of each site, which the report has in its list of sites. */
json_t *gp_report_churn_part(const struct gp_report *report, bool frames);
/* Fills callers[] (one per site of the recording) with the frame that tells each site from all others
 * of its name.  NULL: out of memory; free() it. */
const struct gp_frame_text **gp_report_callers(const struct gp_report *report);
/* What the memory of a site is for, where the report knows (gp_report.used_for), else its kind: "activations",
 * "linear". */
const char *gp_report_what(const struct gp_report *report, uint32_t site, uint8_t kind);
/* The use as JSON has it; null: not known. */
json_t *gp_report_use(const struct gp_report *report, uint32_t site);
/* A site's stack, innermost frame first. */
json_t *gp_report_frames(const struct gp_report *report, uint32_t site);
/* Adds function, file and line of the place that matters, its index in the site's frames, and the
 * owner. */
void gp_report_add_place(const struct gp_report *report, json_t *object, uint32_t site);
json_t *gp_report_owner(const struct gp_recording *recording, uint32_t site);
/* The parts of a peak with their places. */
json_t *gp_report_parts(const struct gp_report *report, const struct gp_peak *peak);
/* The peak of the device by owner. */
json_t *gp_report_owners(const struct gp_report *report, uint32_t device);
json_t *gp_report_fragmentation_part(const struct gp_report *report, uint32_t device);
/* Points [t, lowest, highest, last]. */
json_t *gp_report_series(const struct gp_report *report, const struct gp_series *series);
json_t *gp_report_bill_part(const struct gp_report *report, uint32_t device);
/* Adds the memory from before an attach, as of the end of the recording, to a device's object. */
void gp_report_add_before(const struct gp_report *report, uint32_t device, json_t *object);
/* Adds "forecast" to a device's object.  False: out of memory. */
bool gp_forecast_report_add(const struct gp_report *report, uint32_t device, json_t *object);

/* ---- text ------------------------------------------------------------------------------------------------------- */

struct gp_text_page {
    FILE *out;
    int width;   /* columns; at least 40 are used */
    bool colour; /* escape sequences are allowed */
    bool utf8;   /* else ASCII alone */
    bool named;  /* notes start with the name of the recording */
    bool whole;  /* not a terminal: lines may be longer than the width, and are where a name would be cut */
};

/* Reads GP_REPORT_SUMMARY. */
void gp_text_summary(const struct gp_text_page *page, const struct gp_report *report);
/* Each reads the part of its name; fragmentation also GP_REPORT_SERIES, reconcile GP_REPORT_BILL. */
void gp_text_leaks(const struct gp_text_page *page, const struct gp_report *report);
/* The line about the steps, then the first suspects (at most `most`) and candidates, each with `frames`
 * frames of its stack. */
void gp_text_growth(const struct gp_text_page *page, const struct gp_report *report, uint32_t most, uint32_t frames);
/* "99 steps of 20 ms: calls of an optimizer's step on the stacks" */
void gp_text_step_line(const struct gp_text_page *page, const struct gp_report *report);
void gp_text_peak(const struct gp_text_page *page, const struct gp_report *report);
void gp_text_churn(const struct gp_text_page *page, const struct gp_report *report);
void gp_text_fragmentation(const struct gp_text_page *page, const struct gp_report *report);
void gp_text_reconcile(const struct gp_text_page *page, const struct gp_report *report);
/* A line about memory of other processes, if there was any on the device. */
void gp_text_imported(const struct gp_text_page *page, const struct gp_report *report, uint32_t device);
/* Notes about an incomplete recording, which belong above any number.  True: at least one was
 * printed. */
bool gp_text_warnings(const struct gp_text_page *page, const struct gp_report *report);
/* Of these, what a trace of PyTorch or a log does not know (tracenotes.c).  note: begins each line. */
void gp_text_before(const struct gp_text_page *page, const struct gp_recording *r, const char *note);

/* "s" for more than one. */
const char *gp_text_plural(uint64_t count);
/* The name of a site, after `used` columns of the line.  The function stands out; the file and the caller
 * and callee that distinguish it from other sites are dim. */
void gp_text_site(const struct gp_text_page *page, const struct gp_report *report, uint32_t site,
                  const struct gp_frame_text *caller, const struct gp_frame_text *callee, int used);
/* Prints a stack, innermost frame first: in bold the one that names the site, the user's own as
 * they are, others dim.  Several of a kind in a row are one line.  At most `rows` lines follow the
 * name. */
void gp_text_stack(const struct gp_text_page *page, const struct gp_report *report, uint32_t site, uint32_t rows);

/* The parts of a peak, one line for each, at most `rows` and at most 30. */
void gp_text_parts(const struct gp_text_page *page, const struct gp_report *report, const struct gp_peak *peak,
                   uint32_t rows);

/* reports: of the two recordings.  callers: with the stack of each site. */
void gp_text_diff(const struct gp_text_page *page, const struct gp_diff *diff, const struct gp_report *const reports[2],
                  bool callers);
json_t *gp_diff_json(const struct gp_diff *diff, const struct gp_report *const reports[2]);

/* ==== pages of text =============================================================================================== */
/* What the pages of reporttext.c are made of: cut names, folded lines, bars. */

#define GP_PAGE_BAR 12u /* columns */

/* At least 40 and at most 200 columns. */
int gp_text_width(const struct gp_text_page *page);
/* The escape sequence, or nothing where colours are off. */
const char *gp_text_on(const struct gp_text_page *page, const char *code);
/* blank: leave an empty line above the heading. */
void gp_text_heading(const struct gp_text_page *page, const char *text, bool blank);
/* Prints at most `columns` characters of text on a terminal; a text that is cut ends with "...". */
void gp_text_cut(const struct gp_text_page *page, const char *text, int columns);
/* Returns the columns that are left for a name after `used` others.  If they are too few, starts a new line. */
int gp_text_room(const struct gp_text_page *page, int used);
/* Prints phrases, which commas or semicolons end, after `used` columns of a line.  On a terminal, a
 * phrase that does not fit begins a line of its own. */
void gp_text_phrases(const struct gp_text_page *page, const char *text, int used);
/* share: 0..1.  The bar is padded to GP_PAGE_BAR columns. */
void gp_text_bar(const struct gp_text_page *page, double share);
/* A curve as one line of bars, in at most `columns` columns. */
void gp_text_spark(const struct gp_text_page *page, const int64_t *values, uint32_t count, unsigned columns);

/* ==== forecasts =================================================================================================== */
/* Formats a forecast (analyze/forecast.h) for reports, `stat` and `top`. */

/* The object `forecast` of gpuprof.stat/1 and gpuprof.report/1: docs/interface.md. */
json_t *gp_forecast_json(const struct gp_forecast_result *result);
/* "steady: the run needs 3.613 GiB, a step 700.0 MiB of it". */
#define GP_FORECAST_TEXT 128
const char *gp_forecast_line(const struct gp_forecast_result *result, const char *step, char text[GP_FORECAST_TEXT]);

/* ==== phases ====================================================================================================== */
/* Formats the phases of a program, as text for a terminal and as JSON. */

/* phases, uses: one for each device of the recording; NULL for a device that was not used.  The host
 * has no uses. */
void gp_text_phases(const struct gp_text_page *page, const struct gp_report *report, struct gp_phases *const *phases,
                    struct gp_use_table *const *uses);
/* gpuprof.phases/1; NULL: out of memory. */
json_t *gp_phases_json(const struct gp_report *report, struct gp_phases *const *phases,
                       struct gp_use_table *const *uses);

/* ==== ranks ======================================================================================================= */
/* The ranks of a job as text and as JSON of schema gpuprof.ranks/1, which the HTML page of several
 * ranks shows. */

#define GP_VERDICT_TEXT 640
/* NULL: out of memory. */
json_t *gp_ranks_json(const struct gp_ranks *ranks);
void gp_ranks_text(const struct gp_text_page *page, const struct gp_ranks *ranks);

/* ==== `gpuprof fit` =============================================================================================== */
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

/* ==== `gpuprof dryrun` ============================================================================================ */
/* The answer of `gpuprof dryrun`, as text for a terminal and as JSON.  Nothing here computes a result. */

void gp_text_dryrun(const struct gp_text_page *page, const struct gp_dryrun_answer *answer);
/* gpuprof.dryrun/1; NULL: out of memory. */
json_t *gp_dryrun_json(const struct gp_dryrun_answer *answer);

#endif
