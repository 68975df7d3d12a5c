/* SPDX-License-Identifier: MIT
 *
 * reportjson.h: the parts of the document of schema gpuprof.report/1; reportjson.c joins them.
 */
#ifndef GP_SHOW_TEXT_REPORTJSON_H
#define GP_SHOW_TEXT_REPORTJSON_H

#include <analyze/report.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Limits of the document, so that a browser can load it.  The document counts the rows that they
 * leave out. */
#define GP_MOST_SEGMENTS 2000u
#define GP_MOST_BLOCKS   20000u
#define GP_MOST_MARKS    10000u
#define GP_MOST_SITES    20000u

/* The object of a device; NULL: out of memory. */
json_t *gp_report_device_json(const struct gp_report *report, uint32_t d);
/* Adds "uses", "lifetimes" and "moments" to a device's object.  False: out of memory. */
bool gp_report_add_history(const struct gp_report *report, uint32_t device, json_t *object);
/* Adds every site that allocated; of very many those with the highest peaks.  Site 0 (blocks
 * without a stack) is always there.  False: out of memory. */
bool gp_report_add_sites(const struct gp_report *report, json_t *object);

#endif
