/* SPDX-License-Identifier: MIT
 *
 * recmake.h: builds recordings for tests of analyses, exports and the report. Functions abort when memory is
 * exhausted; they have no other errors.
 */
#ifndef GP_TEST_LIB_RECMAKE_H
#define GP_TEST_LIB_RECMAKE_H

#include <read/recording/recording.h>

struct recmake;

/* A recording with one device (index 0, "Test GPU", total_bytes) and nothing else. */
struct recmake *recmake_new(int64_t total_bytes);
uint32_t recmake_string(struct recmake *make, const char *text);
uint32_t recmake_device(struct recmake *make, uint8_t index, int64_t total_bytes); /* its index in devices */
/* A site with one Python frame per (function, file, line), innermost first; ends with function NULL. */
struct recmake_frame {
    const char *function, *file;
    uint32_t line;
};
uint32_t recmake_site(struct recmake *make, uint8_t kind, const struct recmake_frame *frames);
/* A site with one native frame in each of these modules ("" a frame that no module has), innermost first; ends with
 * NULL. */
uint32_t recmake_native_site(struct recmake *make, uint8_t kind, const char *const *modules);
/* Sets the time of the next events, which starts at 1 s. */
void recmake_at(struct recmake *make, uint64_t time_ns);
void recmake_alloc(struct recmake *make, uint32_t device, uint8_t kind, uint64_t address, uint64_t bytes,
                   uint32_t site);
void recmake_free(struct recmake *make, uint32_t device, uint8_t kind, uint64_t address);
void recmake_mark(struct recmake *make, const char *name);
/* Adds an event as it is. */
void recmake_event(struct recmake *make, const struct gp_rec_event *event);
void recmake_sample(struct recmake *make, const struct gp_rec_sample *sample);
/* Ends the recording 1 ms after the last event, matches frees and sums up the sites. The caller frees it with
 * gp_recording_free. */
struct gp_recording *recmake_done(struct recmake *make);

#endif
