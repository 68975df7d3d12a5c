/* SPDX-License-Identifier: MIT
 *
 * frame.h: what a thread keeps between the begin and the end of a driver call (account.c).
 */
#ifndef GP_ACCOUNT_FRAME_H
#define GP_ACCOUNT_FRAME_H

#include "account/feed/feed.h"
#include "base/compiler.h"
#include "base/map.h"
#include "base/thread.h"
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
} __attribute__((aligned(64)));

/* Tokens fit 12 bits (vmm.c). One frame is needed per call inside the driver, so per thread; no
 * real process has 4095 threads in cuMemFree at once. */
#define GP_FRAMES 4095u
/* The first ones have an owner, the thread of that number, which no other living thread has (base/thread.c): its
 * frame needs no locked instruction. Any thread may take one of the others. */
#define GP_FRAMES_OWN 2048u
extern struct gp_frame gp_frames[GP_FRAMES] GP_HIDDEN;
uint32_t gp_account_frame_search(struct gp_frame **out); /* of the others; for gp_account_frame_get */

/* Takes a free frame and returns its token, or 0 if all are in use (counted). */
static inline uint32_t gp_account_frame_get(struct gp_frame **out)
{
    const uint32_t own = gp_thread.number - 1;
    if (GP_UNLIKELY(own >= GP_FRAMES_OWN || __atomic_load_n(&gp_frames[own].x_busy, __ATOMIC_RELAXED)))
        return gp_account_frame_search(out);
    __atomic_store_n(&gp_frames[own].x_busy, 1, __ATOMIC_RELAXED);
    *out = &gp_frames[own];
    return own + 1;
}

/* The frame of a token that a begin returned. NULL if the token is not valid, as at the end of a
 * call whose begin was not seen. */
static inline struct gp_frame *gp_account_frame_of(uint32_t token, uint32_t what)
{
    if (token == 0 || token > GP_FRAMES)
        return NULL;
    struct gp_frame *frame = &gp_frames[token - 1];
    if (__atomic_load_n(&frame->x_busy, __ATOMIC_RELAXED) == 0 || frame->what != what)
        return NULL;
    return frame;
}

static inline void gp_account_frame_put(uint32_t token)
{
    /* [frame.R] release: pairs with [frame.A]. */
    __atomic_store_n(&gp_frames[token - 1].x_busy, 0, __ATOMIC_RELEASE);
}

/* The token of the thread's own frame, if a call of the thread holds it, and what it is about; else 0. */
uint32_t gp_account_frame_own(enum gp_space *what);

#endif
