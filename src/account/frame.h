/* SPDX-License-Identifier: MIT
 *
 * frame.h: what a thread keeps between the begin and the end of a driver call (account.c).
 */
#ifndef GP_ACCOUNT_FRAME_H
#define GP_ACCOUNT_FRAME_H

#include "account/feed/feed.h"
#include "base/map.h"
#include <stdbool.h>
#include <stdint.h>

/* A frame keeps the record that begin removed from the map, until the matching end. Its
 * number + 1 is the token. */
struct gp_frame {
    uint32_t x_busy;
    uint32_t what;    /* enum gp_space: the kind of begin */
    uint64_t address; /* an unmap: its first mapping. A pool's end: the pool */
    uint64_t time_ns; /* when the record's bytes left the totals */
    struct gp_record record;
    bool died;                /* a handle, an import: the record has left the map */
    bool referenced;          /* a handle: it had references before the release */
    struct gp_ending *ending; /* a context, a graph: what ends with it */
};

/* Takes a free frame and returns its token, or 0 if all are in use (counted). */
uint32_t gp_account_frame_get(struct gp_frame **out);
/* The frame of a token that a begin returned. NULL if the token is not valid, as at the end of a
 * call whose begin was not seen. */
struct gp_frame *gp_account_frame_of(uint32_t token, uint32_t what);
void gp_account_frame_put(uint32_t token);
/* The token of the thread's own frame, if a call of the thread holds it, and what it is about; else 0. */
uint32_t gp_account_frame_own(enum gp_space *what);

#endif
