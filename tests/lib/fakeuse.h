/* SPDX-License-Identifier: MIT
 *
 * fakeuse.h: checks the use of a fakedev's memory. A test reports the blocks that it gets, the work that it
 * submits and the blocks that it frees. These are faults of the fakedev: two live blocks overlap; a stream gets
 * memory while work of the last owner is neither done nor ordered before it; memory is released under
 * unfinished work.
 *
 * The next owner of memory inherits the pending work: it may free the memory unused, and then the first
 * owner's work still counts. Threads: one test thread.
 */
#ifndef GP_TEST_LIB_FAKEUSE_H
#define GP_TEST_LIB_FAKEUSE_H

#include "lib/fakedev.h"

#define FAKEUSE_ANY  FAKEDEV_STREAMS
#define FAKEUSE_MOST 24 /* streams with unfinished work in one place */

struct fakeuse_work {
    unsigned stream;
    bool hard; /* freed with a promise about all streams: the work must be done, order is not enough */
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
    uint64_t judged; /* comparisons of a new owner with work that was still pending */
};

void fakeuse_init(struct fakeuse *use, struct fakedev *dev); /* installs itself as dev's leave hook */
void fakeuse_fini(struct fakeuse *use);
void fakeuse_grant(struct fakeuse *use, uint64_t address, uint64_t bytes, unsigned stream);
void fakeuse_work(struct fakeuse *use, uint64_t address, unsigned stream);
void fakeuse_release(struct fakeuse *use, uint64_t address, bool hard);
void fakeuse_forget(struct fakeuse *use); /* the context is destroyed */

#endif
