/* SPDX-License-Identifier: MIT
 *
 * framework.h: the blocks of the framework that reports them: its failed requests
 * (frameworkretry.c), and the history of its requests (frameworkoom.c).
 */
#ifndef GP_ACCOUNT_FRAMEWORK_H
#define GP_ACCOUNT_FRAMEWORK_H

#include "account/feed/failed.h"
#include "account/internal.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

/* The history of a framework on a device: 8 bytes an event, 2 MiB of addresses. Programs that run out of memory while
 * they load a model, or in their first steps, have fewer events. With more, nothing is replayed. */
#define GP_HISTORY_MOST (1u << 18)

/* The framework that reports its blocks; NULL: none does. */
const char *gp_framework_name(void);
/* A driver allocation of that device failed. True: a framework made it for a segment. */
bool gp_framework_failed(int device, enum gp_wire_kind kind);
/* True: the failure was such a one; its context may be asked, for the report if the framework gives up. */
bool gp_framework_failed_in(int device, uint32_t ctx, uint64_t context);
/* A context of the device, and its number; 0: none is known. */
uint32_t gp_framework_context(const struct gp_framework *framework, uint64_t *context);
/* That context is about to be destroyed, and the framework's memory with it. */
void gp_framework_context_gone(uint32_t ctx, int device);

/* Under the framework's lock of the device: */
void gp_framework_history_begin(struct gp_framework *framework);
uint32_t gp_framework_history_alloc(struct gp_framework *framework, uint64_t bytes); /* returns its number; 0: none */
void gp_framework_history_free(struct gp_framework *framework, uint32_t number);
/* It frees a segment. */
void gp_framework_gave_back(struct gp_framework *framework);
/* After that, with the blocks as they were then. */
void gp_framework_look_at_survivors(struct gp_framework *framework, int device);
/* Any thread. failures: the driver allocations for this request that failed; -1: it is not the framework's. */
void gp_framework_oom_facts(struct gp_wire_oom *report, struct gp_wire_oom_framework *out, int failures);
/* False: nothing can be replayed. On the thread whose request failed. */
bool gp_framework_replay_begin(const struct gp_wire_oom *report, const struct gp_wire_oom_framework *part,
                               struct gp_feed_replay *out);
/* The framework's total of reserved bytes is not the sum of its segments. */
static inline bool gp_framework_strange(const struct gp_framework *framework, int64_t reserved_bytes)
{
    return reserved_bytes >= 0 && reserved_bytes != __atomic_load_n(&framework->x_segment_bytes, __ATOMIC_RELAXED) &&
           !gp_accounts.setup.late;
}

#endif
