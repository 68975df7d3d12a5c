/* SPDX-License-Identifier: MIT
 *
 * entries.h: the entries of a snapshot's history.
 */
#ifndef GP_CONVERT_SNAPSHOT_ENTRIES_H
#define GP_CONVERT_SNAPSHOT_ENTRIES_H

#include <convert/snapshot/internal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For each of the devices; by time.  0 or -ENOMEM. */
int gp_snap_notes(struct gp_snap *snap, const struct gp_snap_note *notes, size_t count, uint32_t devices);

struct gp_mapping_table {
    struct gp_mapping_row *rows;
    size_t count, room;
};
struct gp_snap_mappings {
    struct gp_mapping_table mapped, reserved;
    bool broken; /* memory ran out: rows are missing */
};
void gp_mappings_add(struct gp_snap_mappings *mappings, uint64_t address, uint64_t bytes, uint32_t device,
                     uint32_t site);
/* A reservation of addresses: mappings of two reservations are not joined. */
void gp_mappings_reserve(struct gp_snap_mappings *mappings, uint64_t address, uint64_t bytes);
/* Writes one expandable segment for each run of mappings. */
void gp_mappings_write(struct gp_snap *snap, struct gp_snap_mappings *mappings);
void gp_mappings_free(struct gp_snap_mappings *mappings);

struct gp_snap_event { /* the common part of a live and a recorded event */
    uint64_t time_ns, address, bytes, requested_bytes, stream;
    uint32_t site;
    uint8_t type, kind;
    int64_t device_free; /* oom */
};
/* Whether memory of this kind is shown: the kinds that count as allocated. */
bool gp_snap_shows(uint8_t kind);
/* The same of the host: pinned and registered memory. */
bool gp_snap_pins(uint8_t kind);
/* Computes the cache's memory before an event from the memory after it. */
void gp_snap_undo(struct gp_entry_ranges *cached, const struct gp_snap_event *event);
/* Writes the entries of an event and updates `cached`.  unix_ns: wall clock minus the events'
 * clock. */
void gp_snap_event(struct gp_snap *snap, struct gp_entry_ranges *cached, const struct gp_snap_event *event,
                   int64_t unix_ns);

#endif
