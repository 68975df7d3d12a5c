/* SPDX-License-Identifier: MIT
 * analyses.h: one analysis of a recording that is walked for it alone; the product makes all of one walk. */
#ifndef GP_TEST_LIB_ANALYSES_H
#define GP_TEST_LIB_ANALYSES_H

#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <read/recording/recording.h>

/* NULL if memory is out.  The result is freed with free(). */
#define ANALYSIS(_type, _what, _parameters, ...)                                                                       \
    static inline struct _type *analysis_##_what _parameters                                                           \
    {                                                                                                                  \
        struct gp_flow *flow = gp_flow_new(recording);                                                                 \
        struct _type *found = flow ? gp_flow_##_what(flow, __VA_ARGS__) : NULL;                                        \
        gp_flow_free(flow);                                                                                            \
        return found;                                                                                                  \
    }

ANALYSIS(gp_peak, peak, (const struct gp_recording *recording, uint32_t device, uint64_t at_ns), device, at_ns)
ANALYSIS(gp_sizes, sizes, (const struct gp_recording *recording, uint32_t device), device)
ANALYSIS(gp_bill, bill, (const struct gp_recording *recording, uint32_t device), device)
ANALYSIS(gp_churn, churn, (const struct gp_recording *recording, const struct gp_steps *steps), steps)
ANALYSIS(gp_fragmentation, fragmentation, (const struct gp_recording *recording, uint32_t device, uint32_t points),
         device, points)
ANALYSIS(gp_forecast_run, forecast,
         (const struct gp_recording *recording, const struct gp_steps *steps, uint32_t device), steps, device)

#endif
