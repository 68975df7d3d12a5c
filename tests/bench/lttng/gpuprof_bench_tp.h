/* SPDX-License-Identifier: MIT
 * gpuprof_bench_tp.h: a tracepoint with the payload of struct gp_wire_event, for the comparison. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER gpuprof_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./gpuprof_bench_tp.h"
#if !defined(GPUPROF_BENCH_TP_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define GPUPROF_BENCH_TP_H
#include <lttng/tracepoint.h>
#include <stdint.h>

/* clang-format off */
LTTNG_UST_TRACEPOINT_EVENT(
    gpuprof_bench, event,
    LTTNG_UST_TP_ARGS(uint64_t, address, uint64_t, bytes, uint64_t, requested, uint64_t, stream, uint32_t, tid,
                      uint32_t, site, uint8_t, type, uint8_t, kind, uint8_t, device, uint32_t, error),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(uint64_t, address, address)
        lttng_ust_field_integer(uint64_t, bytes, bytes)
        lttng_ust_field_integer(uint64_t, requested, requested)
        lttng_ust_field_integer(uint64_t, stream, stream)
        lttng_ust_field_integer(uint32_t, tid, tid)
        lttng_ust_field_integer(uint32_t, site, site)
        lttng_ust_field_integer(uint8_t, type, type)
        lttng_ust_field_integer(uint8_t, kind, kind)
        lttng_ust_field_integer(uint8_t, device, device)
        lttng_ust_field_integer(uint32_t, error, error)
    )
)
/* clang-format on */
#endif
#include <lttng/tracepoint-event.h>
