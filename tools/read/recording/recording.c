/* SPDX-License-Identifier: MIT
 * recording.c: frees a recording in memory, and looks up memory from before an attach; see
 * recording.h. */
#include <read/recording/recording.h>
#include <stdlib.h>

void gp_recording_free(struct gp_recording *recording)
{
    if (!recording)
        return;
    void *parts[] = {recording->events,  recording->peer,    recording->baseline, recording->devices,
                     recording->samples, recording->sites,   recording->frames,   recording->modules,
                     recording->threads, recording->streams, recording->strings,  recording->befores,
                     recording->sleeps,  recording->names};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        free(parts[i]);
    free(recording);
}

struct gp_wire_before_device gp_rec_before_at(const struct gp_recording *recording, uint32_t device, uint64_t time_ns)
{
    static const struct gp_wire_before_device none, unknown = {.bytes = -1,
                                                               .at_attach_bytes = -1,
                                                               .count = -1,
                                                               .framework_allocated_bytes = -1,
                                                               .framework_reserved_bytes = -1};
    const struct gp_rec_before *best = NULL;
    bool host = device < recording->device_count && recording->devices[device].index == GP_WIRE_HOST;
    if (recording->attached == GP_REC_ATTACHED_NO || (recording->attached && host))
        return none;
    for (size_t i = 0; i < recording->before_count; i++) {
        const struct gp_rec_before *row = &recording->befores[i];
        if (row->device != device || row->is.source == GP_BEFORE_NONE)
            continue;
        bool early = row->time_ns <= time_ns;
        /* The last one up to that time; without one, the first after it. */
        if (!best || (early ? best->time_ns > time_ns || row->time_ns >= best->time_ns : row->time_ns < best->time_ns))
            best = row;
    }
    return best ? best->is : unknown;
}
