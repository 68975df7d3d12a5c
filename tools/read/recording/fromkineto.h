/* SPDX-License-Identifier: MIT
 *
 * fromkineto.h: the parts of reading a trace of PyTorch's profiler.
 */
#ifndef GP_READ_RECORDING_FROMKINETO_H
#define GP_READ_RECORDING_FROMKINETO_H

#include <read/recording/fromtorch.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* fromkineto.c takes the events of the file, kinetostacks.c makes call sites of those that lie around an allocation. */

struct gp_kineto_span { /* an operator, a function of Python or an annotation: on a thread, from a time to another */
    uint64_t start_ns, end_ns;
    struct gp_torch_text name, from; /* from: FILE:LINE of the call, where the profiler says it */
    int64_t thread;
    uint32_t order;
    uint32_t line, frame; /* the last frame that was made of it, + 1, and its line */
    bool python, note;
};

struct gp_kineto_memory { /* an allocation or a free; out of memory: bytes that were asked for */
    uint64_t time_ns, address;
    int64_t bytes, total, reserved; /* of the device, behind it; -1: the file does not say */
    int64_t thread;
    uint32_t order, site;
    uint8_t device; /* as PyTorch numbers it */
    bool oom;
};

/* Fills in the sites, and sorts both arrays by thread and time.  False: read->error. */
bool gp_kineto_stacks(struct gp_read *read, struct gp_torch_sites *sites, struct gp_kineto_span *spans,
                      size_t span_count, struct gp_kineto_memory *memory, size_t memory_count);

#endif
