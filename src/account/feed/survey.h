/* SPDX-License-Identifier: MIT
 *
 * survey.h: the blocks of a framework from before the attach, out of a snapshot that the framework
 * makes under its locks of the devices. One thread at a time: begin, then the snapshot, then all of
 * it, then end, each between gp_thread_enter and gp_thread_leave, but not the snapshot itself.
 */
#ifndef GP_ACCOUNT_FEED_SURVEY_H
#define GP_ACCOUNT_FEED_SURVEY_H

#include <stdbool.h>
#include <stdint.h>

struct gp_survey_piece {
    int device;
    uint64_t address, bytes, requested_bytes, stream;
    bool growable; /* a segment of single mappings */
};
bool gp_feed_survey_late(void);     /* attached late, so there may be such blocks */
bool gp_feed_survey_reported(void); /* a framework reports its blocks */
/* enum gp_wire_blocks_state. Changes it, unless it is not `from`: false. text stays valid for ever; NULL: none. */
uint32_t gp_feed_survey_state(void);
bool gp_feed_survey_say(uint32_t from, uint32_t state, const char *text);
bool gp_feed_survey_begin(void);                                    /* false: no memory */
void gp_feed_survey_segment(const struct gp_survey_piece *segment); /* memory that it took from the driver */
void gp_feed_survey_block(const struct gp_survey_piece *block);     /* handed out, not taken back */
/* False: not complete, or not all could be noted, so nothing is listed. */
bool gp_feed_survey_end(bool complete, uint64_t took_ns);
void gp_feed_survey_stop(void); /* with gp_feed_end */

#endif
