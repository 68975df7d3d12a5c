/* SPDX-License-Identifier: MIT
 * forecast.h: formats a forecast (analyze/forecast.h) for reports, `stat` and `top`. */
#ifndef GP_WRITE_FORECAST_H
#define GP_WRITE_FORECAST_H

#include <analyze/forecast.h>
#include <jansson.h>

/* The object `forecast` of gpuprof.stat/1 and gpuprof.report/1: docs/interface.md. */
json_t *gp_forecast_json(const struct gp_forecast_result *result);
/* "steady: the run needs 3.613 GiB, a step 700.0 MiB of it". */
#define GP_FORECAST_TEXT 128
const char *gp_forecast_line(const struct gp_forecast_result *result, char text[GP_FORECAST_TEXT]);

#endif
