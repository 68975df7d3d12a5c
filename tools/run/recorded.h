/* SPDX-License-Identifier: MIT
 *
 * recorded.h: the recordings of programs that were started, at their end: those of killed processes, and
 * those whose names older recordings have.
 */
#ifndef GP_RUN_RECORDED_H
#define GP_RUN_RECORDED_H

#include <limits.h>
#include <read/collect/collect.h>
#include <record/format.h>
#include <record/recorder.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Recordings of a `run` whose processes it did not see: they ended between two of its looks, which
 * on a busy machine can be far apart, or their parents ended before them.  Called by run.c. */

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

/* Reads the head of a regular file that begins like a recording.  The file's size; -1: it is none. */
int64_t gp_recorded_head(const char *path, struct gp_format_head *head);

/* Reads a session's header and checks its layout, for a recorder.  A part with an impossible
 * offset is treated as absent.  0 or -errno. */
struct gp_peer;
struct gp_wire_header;
int gp_record_header(const struct gp_peer *session, struct gp_wire_header *header);

/* Ends the recording of a process that was killed: adds the events and call sites that are in its
 * session and not in its file.  False: nothing was done, or the file could not be written. */
struct gp_watched;
bool gp_recorded_end(const char *path, const struct gp_watched *watched, uint64_t *events, uint64_t *lost);

/* Does that for all watched processes that were killed: their state is then GP_RECORD_DONE.  pattern: value of
 * GPUPROF_RECORD. */
struct gp_watch;
void gp_recorded_finish(const struct gp_watch *watch, const char *pattern);

/* Puts the names of native frames into a recording that has ended.  root: where the files
 * of the program are ("" here).  An exit status, after a message. */
int gp_recorded_names(const char *command, const char *path, const char *root);

/* The file of a watched process; false: it wrote none. */
bool gp_recorded_path(struct gp_watched *watched, const char *pattern, char path[PATH_MAX]);
/* Does gp_recorded_part_end for the recordings of a run. */
void gp_recorded_replace(const char *command, struct gp_watch *watch, const char *pattern, struct gp_unseen *unseen);
/* One line for each watched process that recorded: how many events, to which file, how many were
 * lost, and the command that reads it.  pattern: value of GPUPROF_RECORD. */
void gp_recorded_print(FILE *out, const struct gp_watch *watch, const char *pattern, const struct gp_unseen *unseen);

/* ---- recordreplace.c --------------------------------------------------------------------------------------------- */
/* Recordings whose names older ones have.  An older one stays until the new one is complete: that is
 * written beside it, and gets its name at the end. */

/* Whether a recording may have this name: *old says that an older one has it.  GP_EXIT_OK; GP_EXIT_USAGE
 * after a message: an older one is there, and force is not given.  option: "--record=" or "-o ". */
int gp_recorded_old(const char *command, const char *option, const char *path, bool force, bool *old);
/* The same for what a program may write that gets `pattern` as GPUPROF_RECORD, also as several ranks;
 * first: the name of its first process.  What is not a recording is refused with GP_EXIT_FAILED. */
struct gp_rank;
int gp_recorded_names_free(const char *command, const char *pattern, const char *first, const struct gp_rank *rank,
                           bool force, bool *old);
/* The name that is written to beside older recordings. */
int gp_recorded_part(char *out, size_t bytes, const char *path);
/* Gives a complete recording its name.  replace: also if an older one has it.  0; -EEXIST: something else has
 * it; -EBUSY: what has it is being written; another -errno. */
int gp_recorded_rename(const char *from, const char *to, bool replace);
/* Gives a recording that was written beside an older one its name, or says why it stays. *path, from malloc,
 * is then its name. */
void gp_recorded_part_end(const char *command, char **path, bool complete);
/* The path relative to the current directory, if it lies there. */
const char *gp_recorded_short(const char *path);

#endif
