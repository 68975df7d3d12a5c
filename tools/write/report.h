/* SPDX-License-Identifier: MIT
 *
 * report.h: what the analyses of a recording look like: as JSON, and as text for a terminal.  The functions analyse by
 * themselves, so that a command is one call.  JSON functions return new references and NULL when memory is out.
 */
#ifndef GP_WRITE_REPORT_H
#define GP_WRITE_REPORT_H

#include <analyze/flow.h>
#include <jansson.h>
#include <stdio.h>
#include <symbol/symbol.h>

struct gp_report { /* a recording with what every part of a report needs */
    const struct gp_recording *recording;
    struct gp_symbols *symbols;
    const char *file; /* as the user calls it */
    struct gp_flow *flow;
    struct gp_steps *steps;
};

/* 0 or -ENOMEM. */
int gp_report_init(struct gp_report *report, const struct gp_recording *recording, struct gp_symbols *symbols,
                   const char *file);
void gp_report_fini(struct gp_report *report);

/* Schema gpuprof.report/1 (docs/analyses.md). */
json_t *gp_report_document(const struct gp_recording *recording, struct gp_symbols *symbols, const char *file);

/* gpuprof.leaks/1, .peak/1, .churn/1, .fragmentation/1, .reconcile/1. */
json_t *gp_report_leaks_json(const struct gp_report *report, const struct gp_leaks *leaks);
json_t *gp_report_peak_json(const struct gp_report *report);
json_t *gp_report_churn_json(const struct gp_report *report);
json_t *gp_report_fragmentation_json(const struct gp_report *report);
json_t *gp_report_reconcile_json(const struct gp_report *report);

/* Parts of the document that its other writer needs. */
json_t *gp_report_device_name(const struct gp_report *report, uint32_t device); /* 0, or "host" */
json_t *gp_report_suspects(const struct gp_report *report, const struct gp_leaks *leaks);
json_t *gp_report_churn_part(const struct gp_report *report);
json_t *gp_report_fragmentation_part(const struct gp_report *report, uint32_t device);
json_t *gp_report_bill_part(const struct gp_report *report, uint32_t device);

/* ---- text ------------------------------------------------------------------------------------------------------- */

struct gp_text_page { /* where text goes */
    FILE *out;
    int width;   /* columns; at least 40 are used */
    bool colour; /* escape sequences */
    bool utf8;   /* else ASCII alone */
    bool named;  /* notes say which recording they are about */
};

void gp_page_summary(const struct gp_text_page *page, const struct gp_report *report, const struct gp_leaks *leaks);
void gp_page_leaks(const struct gp_text_page *page, const struct gp_report *report, const struct gp_leaks *leaks);
/* False: out of memory. */
bool gp_page_peak(const struct gp_text_page *page, const struct gp_report *report);
bool gp_page_churn(const struct gp_text_page *page, const struct gp_report *report);
bool gp_page_fragmentation(const struct gp_text_page *page, const struct gp_report *report);
bool gp_page_reconcile(const struct gp_text_page *page, const struct gp_report *report);
/* What a reader must know before any number: is it whole?  Nothing if it is; true: something. */
bool gp_page_warnings(const struct gp_text_page *page, const struct gp_report *report);

/* names: the label of each site of each recording. */
void gp_page_diff(const struct gp_text_page *page, const struct gp_diff *diff, const char *const *names[2]);
json_t *gp_diff_json(const struct gp_diff *diff, const char *const *names[2]);

#endif
