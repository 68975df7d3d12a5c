/* SPDX-License-Identifier: MIT
 * phasesformat.h: formats the phases of a program, as text for a terminal and as JSON. */
#ifndef GP_WRITE_PHASESFORMAT_H
#define GP_WRITE_PHASESFORMAT_H

#include <analyze/report.h>
#include <show/text/reportformat.h>

/* phases, uses: one for each device of the recording; NULL for a device that was not used.  The host
 * has no uses. */
void gp_text_phases(const struct gp_text_page *page, const struct gp_report *report, struct gp_phases *const *phases,
                    struct gp_use_table *const *uses);
/* gpuprof.phases/1; NULL: out of memory. */
json_t *gp_phases_json(const struct gp_report *report, struct gp_phases *const *phases,
                       struct gp_use_table *const *uses);

#endif
