/* SPDX-License-Identifier: MIT
 *
 * text.h: formats results as text for a terminal and as JSON.  Nothing here computes a result.
 */
#ifndef GP_SHOW_TEXT_TEXT_H
#define GP_SHOW_TEXT_TEXT_H

#include <analyze/analyze.h>
#include <analyze/ranks.h>
#include <analyze/report.h>
#include <jansson.h>
#include <read/recording/recording.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

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
void gp_text_peak(const struct gp_text_page *page, const struct gp_report *report);
void gp_text_churn(const struct gp_text_page *page, const struct gp_report *report);
void gp_text_fragmentation(const struct gp_text_page *page, const struct gp_report *report);
void gp_text_reconcile(const struct gp_text_page *page, const struct gp_report *report);
/* Notes about an incomplete recording, which belong above any number.  True: at least one was
 * printed. */
bool gp_text_warnings(const struct gp_text_page *page, const struct gp_report *report);
/* Of these, what a trace of PyTorch or a log does not know (tracenotes.c).  note: begins each line. */
void gp_text_before(const struct gp_text_page *page, const struct gp_recording *r, const char *note);

/* The parts of a peak, one line for each, at most `rows` and at most 30. */
void gp_text_parts(const struct gp_text_page *page, const struct gp_report *report, const struct gp_peak *peak,
                   uint32_t rows);

/* reports: of the two recordings.  callers: with the stack of each site. */
void gp_text_diff(const struct gp_text_page *page, const struct gp_diff *diff, const struct gp_report *const reports[2],
                  bool callers);
json_t *gp_diff_json(const struct gp_diff *diff, const struct gp_report *const reports[2]);

/* Formats the phases of a program, as text for a terminal and as JSON. */

/* phases, uses: one for each device of the recording; NULL for a device that was not used.  The host
 * has no uses. */
void gp_text_phases(const struct gp_text_page *page, const struct gp_report *report, struct gp_phases *const *phases,
                    struct gp_use_table *const *uses);
/* gpuprof.phases/1; NULL: out of memory. */
json_t *gp_phases_json(const struct gp_report *report, struct gp_phases *const *phases,
                       struct gp_use_table *const *uses);

/* The ranks of a job as text and as JSON of schema gpuprof.ranks/1, which the HTML page of several
 * ranks shows. */

#define GP_VERDICT_TEXT 640
/* NULL: out of memory. */
json_t *gp_ranks_json(const struct gp_ranks *ranks);
void gp_ranks_text(const struct gp_text_page *page, const struct gp_ranks *ranks);

#endif
