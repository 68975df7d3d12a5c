/* SPDX-License-Identifier: MIT
 *
 * reportparts.h: parts of reports that several files of text/ and the explanations of gate/ write.
 */
#ifndef GP_SHOW_TEXT_REPORTPARTS_H
#define GP_SHOW_TEXT_REPORTPARTS_H

#include <analyze/analyze.h>
#include <analyze/report.h>
#include <jansson.h>
#include <read/recording/recording.h>
#include <show/text/text.h>
#include <stdbool.h>
#include <stdint.h>
#include <symbol/symbol.h>

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
/* Why a candidate is no suspect, and what it means if it is one.  word: of gp_steps_word.  full: in what time the device
 * would be full; NULL: as the leak says. */
#define GP_BECAUSE_TEXT 400
const char *gp_report_because(const struct gp_leak *leak, const char *word, const char *full,
                              char text[GP_BECAUSE_TEXT]);
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
 * "probably weights", "linear". */
const char *gp_report_what(char text[GP_USE_WORDS], const struct gp_report *report, uint32_t site, uint8_t kind);
/* The use as JSON has it, and its words; null: not known. */
json_t *gp_report_use(const struct gp_report *report, uint32_t site);
json_t *gp_report_use_text(const struct gp_report *report, uint32_t site);
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
/* A line about memory of other processes, if there was any on the device. */
void gp_text_imported(const struct gp_text_page *page, const struct gp_report *report, uint32_t device);
void gp_text_managed(const struct gp_text_page *page, const struct gp_report *report, uint32_t device);

#endif
