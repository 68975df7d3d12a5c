/* SPDX-License-Identifier: MIT
 *
 * forecast.h: what the memory of a process comes to, in a report and in the output of stat.
 */
#ifndef GP_SHOW_TEXT_FORECAST_H
#define GP_SHOW_TEXT_FORECAST_H

#include <analyze/forecast.h>
#include <analyze/report.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Adds "forecast" to a device's object.  False: out of memory. */
bool gp_forecast_report_add(const struct gp_report *report, uint32_t device, json_t *object);

/* Formats a forecast (analyze/forecast.h) for reports, `stat` and `top`. */

/* The object `forecast` of gpuprof.stat/1 and gpuprof.report/1: docs/interface.md. */
json_t *gp_forecast_json(const struct gp_forecast_result *result);
/* "steady: the run needs 3.613 GiB, a step 700.0 MiB of it". */
#define GP_FORECAST_TEXT 128
const char *gp_forecast_line(const struct gp_forecast_result *result, const char *step, char text[GP_FORECAST_TEXT]);

#endif
