/* SPDX-License-Identifier: MIT
 * unseen.h: recordings of a `run` whose processes it did not see: they ended between two of its looks,
 * which on a busy machine can be far apart, or their parents ended before them.  Called by run.c. */
#ifndef GP_CMD_UNSEEN_H
#define GP_CMD_UNSEEN_H

#include <read/collect/peer.h>
#include <record/format.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_unseen_file {
    char *path;
    uint32_t pid;
    uint64_t begin_unix_ns;
    int64_t bytes;
    bool is_busy; /* it is being written */
};

#define GP_UNSEEN_MOST 1024

struct gp_unseen {
    int count, left_out; /* found after GP_UNSEEN_MOST */
    struct gp_unseen_file *files;
};

/* pattern: value of GPUPROF_RECORD; run_unix_ns: what the recordings of this run name in their heads; 0:
 * nothing is searched. */
void gp_unseen_find(struct gp_unseen *out, const struct gp_watch *watch, const char *pattern, uint64_t run_unix_ns);
void gp_unseen_free(struct gp_unseen *unseen);

/* recorded.c. Reads the head of a regular file that begins like a recording.  The file's size; -1: it is none. */
int64_t gp_recorded_head(const char *path, struct gp_format_head *head);

#endif
