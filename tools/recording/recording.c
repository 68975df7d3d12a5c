/* SPDX-License-Identifier: MIT
 * recording.c: frees a recording in memory; see recording.h. */
#include <recording/recording.h>
#include <stdlib.h>

void gp_recording_free(struct gp_recording *recording)
{
    if (!recording)
        return;
    void *parts[] = {recording->events,  recording->peer,    recording->baseline, recording->devices,
                     recording->samples, recording->sites,   recording->frames,   recording->modules,
                     recording->threads, recording->streams, recording->strings};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        free(parts[i]);
    free(recording);
}
