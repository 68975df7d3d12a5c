/* SPDX-License-Identifier: MIT
 *
 * event.h: writes the events of the accounts.
 */
#ifndef GP_ACCOUNT_EVENT_H
#define GP_ACCOUNT_EVENT_H

#include "account/internal.h"
#include "base/map.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

/* An out-of-memory error: counted, among the events, and reported. failures: as for gp_framework_oom_facts. */
void gp_event_oom(const char *api, uint64_t requested_bytes, int device, int failures);
/* An allocation has the record's time, everything else the current one. _at: with the time at which
 * the gauges changed; 0: now. */
void gp_event_record(enum gp_wire_event_type type, const struct gp_record *record, uint64_t stream);
void gp_event_record_at(enum gp_wire_event_type type, const struct gp_record *record, uint64_t stream,
                        uint64_t time_ns);
void gp_event_write(struct gp_wire_event *event);
/* For a block of a cache: the call site sums in any case, the ring only while it has a reader. Without
 * a time it had none when the block changed, so a walk has the change; and as the event would be late,
 * another thread's event of the same address could have an earlier time. */
void gp_event_write_if_heard(struct gp_wire_event *event);
/* Whether a reader listens to events.  [listen.A] of a block that has just entered the map or left it, it
 * is called after that: it runs after the [map.A1] of its shard, so if a walk has not seen the change,
 * the walk's [map.R1] was before, and with it the [listen.R] that was before the walk.  So each change
 * is in the walk, or among the events, for every reader that announces itself and then asks for a
 * walk. The same holds for a block of a cache, with the cache's lock, or the gate of its thread's
 * cache, through which every walk goes first (gp_thread_pass), in the place of the shard. */
static inline bool gp_event_heard(void)
{
    return __atomic_load_n(gp_accounts.setup.listened, __ATOMIC_RELAXED) |
           __atomic_load_n(gp_accounts.setup.armed, __ATOMIC_RELAXED);
}
/* gp_event_record_at for a framework's block: the ring only while it has a reader. */
void gp_event_block(enum gp_wire_event_type type, const struct gp_record *record, uint64_t time_ns);
/* The same, with a mark: GP_SLEEP_*; GP_FREE_SEGMENT, which is always written. */
void gp_event_marked(uint32_t mark, const struct gp_record *record, uint64_t time_ns);
/* The site of the call under way; 0 when stacks are off. */
uint32_t gp_event_here(int device, enum gp_wire_kind kind);
/* The same for a record whose owner is known: 0 for a segment, whose blocks have sites. */
uint32_t gp_event_site_of(const struct gp_record *record);

#endif
