/* SPDX-License-Identifier: MIT
 *
 * reportformat.h: formats the results of the analyses of a recording, as JSON and as text for a
 * terminal.  The caller has run the analyses (gp_report_run); each function names the parts that it
 * reads.  Nothing here computes a result. JSON functions return new references, and NULL when
 * memory is out.
 */
#ifndef GP_WRITE_REPORTFORMAT_H
#define GP_WRITE_REPORTFORMAT_H

#include <analyze/report.h>
#include <jansson.h>
#include <stdio.h>
#include <symbol/symbol.h>

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
#define GP_RHYTHM_TEXT 96
const char *gp_report_rhythm(const struct gp_report *report, char text[GP_RHYTHM_TEXT]);
/* What speaks for a suspect: "grows for 9.8 s at 3.1 MiB/s; nothing of it was freed". */
#define GP_EVIDENCE_TEXT 128
const char *gp_report_evidence(const struct gp_leak *leak, char text[GP_EVIDENCE_TEXT]);
/* What the finding of the suspects lacks; NULL if nothing. */
const char *gp_report_missing(const struct gp_report *report);
json_t *gp_report_suspects(const struct gp_report *report);
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
bool gp_report_add_forecast(const struct gp_report *report, uint32_t device, json_t *object);

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
void gp_text_peak(const struct gp_text_page *page, const struct gp_report *report);
void gp_text_churn(const struct gp_text_page *page, const struct gp_report *report);
void gp_text_fragmentation(const struct gp_text_page *page, const struct gp_report *report);
void gp_text_reconcile(const struct gp_text_page *page, const struct gp_report *report);
/* A line about memory of other processes, if there was any on the device. */
void gp_text_imported(const struct gp_text_page *page, const struct gp_report *report, uint32_t device);
/* Notes about an incomplete recording, which belong above any number.  True: at least one was
 * printed. */
bool gp_text_warnings(const struct gp_text_page *page, const struct gp_report *report);

/* The parts of a peak, one line for each, at most `rows` and at most 30. */
void gp_text_parts(const struct gp_text_page *page, const struct gp_report *report, const struct gp_peak *peak,
                   uint32_t rows);

/* reports: of the two recordings.  callers: with the stack of each site. */
void gp_text_diff(const struct gp_text_page *page, const struct gp_diff *diff, const struct gp_report *const reports[2],
                  bool callers);
json_t *gp_diff_json(const struct gp_diff *diff, const struct gp_report *const reports[2]);

#endif
