/* SPDX-License-Identifier: MIT
 *
 * loaded.h: a recording that was read for analysis: with its symbols and its report.  One thread.
 */
#ifndef GP_COMMON_LOADED_H
#define GP_COMMON_LOADED_H

#include <analyze/report.h>
#include <read/recording/recording.h>
#include <stdbool.h>
#include <stdint.h>
#include <symbol/symbol.h>
#include <sys/types.h>

struct gp_load_part { /* --from, --to; NULL: not given */
    const char *from, *to;
};
/* Reduces a recording to the part.  GP_EXIT_OK, or an exit status after a message. */
int gp_load_cut(const char *command, struct gp_recording *recording, const struct gp_load_part *part);

struct gp_load_view { /* how a recording is looked at; all 0: whole, with names and steps */
    struct gp_load_part part;
    const char *step;  /* --step; NULL: not given */
    const char *symfs; /* --symfs; NULL: not given */
    bool plain;        /* the caller runs gp_report_steps and gp_load_join itself, as far as it needs them */
    bool nameless;     /* no call site is looked up */
    bool listed;       /* a folder lists the file: gp_recording_open_as */
};

struct gp_loaded {
    const char *command;
    char root[64]; /* where the symbols look for the files of the process; "" here */
    struct gp_recording *recording;
    struct gp_symbols *symbols;
    uint8_t *hints; /* of gp_load_uses */
    struct gp_report report;
};
/* Makes the next run of the report find what the memory of each site is for.  False: out of memory. */
bool gp_load_uses(struct gp_loaded *loaded);
/* Reads a file.  GP_EXIT_OK, or an exit status after a message. */
int gp_load_file(struct gp_loaded *loaded, const char *command, const char *path, const struct gp_load_view *view);
/* The same of a recording in memory, which this takes over, also if it fails.  loaded: its command and its root are set.
 * path: its name for the report, "" without one. */
int gp_load_recording(struct gp_loaded *loaded, struct gp_recording *recording, const char *path,
                      const struct gp_load_view *view);
/* Where the files of a process are: "" here, else in its own root. */
void gp_load_root(char *root, size_t bytes, pid_t pid);
/* Makes one site of those that are one line of source.  The steps are found before, in the recording as
 * it is: an iteration that the compiler peeled off a loop shows where a step begins.  False: out of memory. */
bool gp_load_join(struct gp_loaded *loaded);
/* Also reports which names could not be found, and why. */
void gp_load_free(struct gp_loaded *loaded);
/* The same; notes: of several recordings of a job these are the same, so once is enough. */
void gp_load_unload(struct gp_loaded *loaded, bool notes);

/* The steps that --step=NAME|TIME asks for; free() them.  GP_EXIT_OK, or an exit status after a message. */
int gp_load_steps(const char *command, const struct gp_recording *recording, const char *step, struct gp_steps **steps);

/* Reports what is missing in the recording, for commands that have no place for it in their output. */
void gp_load_warn(const char *command, const char *path, const struct gp_recording *recording);
/* Reports why a file could not be read as a recording (rc and why of gp_recording_open), and
 * what to do.  GP_EXIT_FAILED. */
int gp_load_refused(const char *command, const char *path, int rc, const char *why);

#endif
