/* SPDX-License-Identifier: MIT
 *
 * fakeuse.h: who uses which memory of a fakedev, and whether that is in order.  A test says what it was given, what it
 * submitted, what it freed; a fault is noted in the fakedev when two live blocks overlap, when memory is given to a
 * stream although work of its last owner is neither done nor ordered before, and when memory leaves under unfinished
 * work.
 *
 * Work that is still pending is inherited by the next owner of the place (it may free the place unused, and then the
 * first owner's work still counts).  Threads: none, one test thread.
 */
#ifndef GP_TEST_LIB_FAKEUSE_H
#define GP_TEST_LIB_FAKEUSE_H

#include "lib/fakedev.h"

#define FAKEUSE_ANY  FAKEDEV_STREAMS
#define FAKEUSE_MOST 24 /* streams with unfinished work in one place */

struct fakeuse_work {
    unsigned stream;
    bool hard; /* freed with a promise about all streams: must be done, order is not enough */
    uint64_t number;
};

struct fakeuse_extent {
    uint64_t address, bytes;
    bool live;
    unsigned count;
    struct fakeuse_work work[FAKEUSE_MOST];
};

struct fakeuse {
    struct fakedev *dev;
    struct fakeuse_extent *at; /* by address, disjoint */
    size_t count, room;
    uint64_t judged; /* pairs of old work and new owner that were compared while the work was pending */
};

void fakeuse_init(struct fakeuse *use, struct fakedev *dev); /* becomes dev's leave hook */
void fakeuse_fini(struct fakeuse *use);
void fakeuse_grant(struct fakeuse *use, uint64_t address, uint64_t bytes, unsigned stream);
void fakeuse_work(struct fakeuse *use, uint64_t address, unsigned stream);
void fakeuse_release(struct fakeuse *use, uint64_t address, bool hard);
void fakeuse_forget(struct fakeuse *use); /* the context died */

#endif
