/* SPDX-License-Identifier: MIT
 * contents=none: device memory without host memory behind it (contents.c).  Used by work.c, which
 * moves the bytes, by launch.c and graphparams.c, and where ranges appear and disappear.  Call
 * everything with the lock held; all of it does nothing with contents=keep. */
#ifndef SIM_CONTENTS_H
#define SIM_CONTENTS_H

#include "sim.h"

/* Does the work where not all of its bytes move; false: the caller moves them and reports that. */
bool sim_contents_done(const struct sim_work *work);
void sim_contents_moved(const struct sim_work *work);
/* The range reads as zeros from now on. */
void sim_contents_forget(CUdeviceptr base, size_t size);
/* The range is no longer mapped. */
void sim_contents_unmapped(CUdeviceptr base, size_t size);

/* readback.c: notes that the caller has copied so many bytes of results to the host.  Without the lock. */
void sim_read_back(uint64_t bytes);

/* What a kernel is given, in 8-byte words that may be device pointers.  The first function forgets
 * what the launch's parameters point to.  The second one collects it for launches later on, which
 * the third one runs. */
struct sim_given {
    uint32_t count;
    bool more; /* there were others: a launch forgets everything */
    CUdeviceptr at[32];
};
void sim_contents_launch(struct sim_function *f, void **params, void **extra);
void sim_contents_collect(struct sim_function *f, void **params, void **extra, struct sim_given *given);
void sim_contents_launch_given(const struct sim_given *given);

/* fill.c, with fill=random.  A launch begins (f NULL: of a kernel that is not known), and is given a pointer; then
 * bytes that were read of results, a part of a read of so many bytes, get values; type: enum sim_fill. */
void sim_fill_launch(struct sim_function *f);
void sim_fill_given(CUdeviceptr p);
void sim_fill_bytes(char *to, CUdeviceptr from, size_t size, int type, size_t read);

struct sim_kept_piece {
    CUdeviceptr base, end; /* bytes that may be other than zero */
    CUdeviceptr given;     /* the nearest pointer below that a kernel was given since the write; 0: none */
    uint64_t age;
};

struct sim_kept {
    struct sim_kept_piece *at; /* by address, without overlaps */
    size_t count, capacity;
    uint64_t bytes, writes; /* bytes: of the pages of all pieces, common pages counted for each */
};

/* kept.c */
extern struct sim_kept sim_kept;
size_t sim_piece_find(CUdeviceptr address);
void sim_piece_insert(size_t at, struct sim_kept_piece piece);
void sim_piece_cut(CUdeviceptr base, CUdeviceptr end);
void sim_bytes_clear(CUdeviceptr base, CUdeviceptr end);
bool sim_bytes_fetch(void *to, CUdeviceptr from, size_t size, bool zeros);

#endif
