/* SPDX-License-Identifier: MIT
 *
 * helps.h: what would help a device (helps.c).
 */
#ifndef GP_SHOW_TEXT_HELPS_H
#define GP_SHOW_TEXT_HELPS_H

#include <analyze/report.h>
#include <jansson.h>

/* What would help the device, each with the most that it could save; empty where the numbers tell nothing.  uses: of the
 * device; NULL: none is known.  Reads GP_REPORT_SUMMARY. */
json_t *gp_report_helps(const struct gp_report *report, uint32_t device, const struct gp_use_table *uses);

#endif
