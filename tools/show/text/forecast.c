/* SPDX-License-Identifier: MIT
 * forecast.c: a forecast as JSON and as one line; see forecast.h. */
#include <analyze/analyze.h>
#include <analyze/forecast.h>
#include <analyze/report.h>
#include <jansson.h>
#include <show/text/forecast.h>
#include <show/text/write.h>
#include <stdio.h>

static json_t *forecast_real(double value, bool known)
{
    return known ? json_real(value) : json_null();
}

json_t *gp_forecast_json(const struct gp_forecast_result *result)
{
    bool grows = result->verdict == GP_FORECAST_GROWS;
    return json_pack("{s:s,s:i,s:f,s:o,s:o,s:o,s:o,s:o,s:o}", "verdict", gp_forecast_word(result->verdict), "points",
                     (int)result->points, "seen_seconds", (double)result->seen_ns / 1e9, "peak_bytes",
                     gp_json_known(result->peak_bytes), "step_bytes", gp_json_known(result->step_bytes),
                     "headroom_bytes", gp_json_known(result->headroom_bytes), "bytes_per_second",
                     forecast_real(result->bytes_per_second, grows), "confidence",
                     forecast_real(result->confidence, grows), "seconds_to_oom",
                     forecast_real(result->seconds_to_oom, result->seconds_to_oom >= 0));
}

bool gp_forecast_report_add(const struct gp_report *report, uint32_t device, json_t *object)
{
    const struct gp_forecast_run *run = report->devices[device].forecast;
    json_t *forecast = run ? gp_forecast_json(&run->now) : json_null();
    if (forecast && run)
        json_object_set_new(forecast, "after_two_steps", gp_forecast_json(&run->early));
    return forecast && json_object_set_new(object, "forecast", forecast) == 0;
}

const char *gp_forecast_line(const struct gp_forecast_result *result, const char *step, char text[GP_FORECAST_TEXT])
{
    char a[GP_SIZE_TEXT], b[GP_SIZE_TEXT], c[GP_SIZE_TEXT];
    bool room = result->headroom_bytes >= 0, spare = result->spare_bytes >= 0;
    switch (result->verdict) {
    case GP_FORECAST_GROWS:
        if (result->seconds_to_oom >= 0)
            snprintf(text, GP_FORECAST_TEXT, "grows by %s/s: out of memory in about %s (confidence %.2f)",
                     gp_size_text(a, (int64_t)result->bytes_per_second), gp_seconds_text(b, result->seconds_to_oom),
                     result->confidence);
        else
            snprintf(text, GP_FORECAST_TEXT, "grows by %s/s; %s", gp_size_text(a, (int64_t)result->bytes_per_second),
                     room ? "out of memory in more than 30 days" : "how much is left is not known");
        return text;
    case GP_FORECAST_STEADY:
        snprintf(text, GP_FORECAST_TEXT, "steady: the run needs %s, a %s %s of it%s%s%s",
                 gp_size_text(a, result->peak_bytes), step, gp_size_text(b, result->step_bytes), spare ? "; " : "",
                 spare ? gp_size_text(c, result->spare_bytes) : "", spare ? " stay free at its peak" : "");
        return text;
    case GP_FORECAST_APERIODIC:
        snprintf(text, GP_FORECAST_TEXT, "none: what it allocates does not repeat, so it may need any amount");
        return text;
    case GP_FORECAST_IDLE:
        snprintf(text, GP_FORECAST_TEXT, "none: nothing is allocated or freed");
        return text;
    case GP_FORECAST_SHORT:
        break;
    }
    snprintf(text, GP_FORECAST_TEXT,
             "none: too little was seen (it takes two steps, or ten seconds of a running process)");
    return text;
}
