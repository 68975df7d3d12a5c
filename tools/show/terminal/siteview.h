/* SPDX-License-Identifier: MIT
 *
 * siteview.h: the call sites of `gpuprof top`, live.  Each row has the bytes that a site holds, those
 * that it held at the peak of its device, and how fast they change.  siteview.c samples and sums those
 * of one process and keeps the processes of the screen, printsites.c prints.
 */
#ifndef GP_SHOW_TERMINAL_SITEVIEW_H
#define GP_SHOW_TERMINAL_SITEVIEW_H

#include <read/collect/sites.h>
#include <show/terminal/column.h>
#include <symbol/symbol.h>

/* The advice for a process without stacks: one place, for the screen and the messages of the
 * command. */
#define GP_SITE_HINT "'gpuprof stacks all -p PID' switches them on"

struct gp_site_row {
    uint32_t site;
    const struct gp_frame_text *name, *caller, *callee; /* caller, callee: NULL, or what distinguishes equal names */
    const struct gp_operation *operation;
    uint32_t sites; /* how many are this one line of source; of several, peak is a sum, at most */
    int64_t calls_before, live_before;
    int device; /* its number for users; GP_WIRE_HOST; -1 not known yet */
    uint8_t kind;
    int64_t live, count, peak, at_peak, allocated, calls;
    double share;                    /* of the device's peak, 0..1; NaN: the peak is 0 */
    double calls_per_s, delta_per_s; /* since the last sample; NaN unknown */
};

struct gp_site_before { /* a site in the last sample */
    int64_t calls, live;
};

struct gp_site_model {
    pid_t pid;
    uint64_t start_time; /* 0 until the process was seen */
    char comm[GP_COMM_BYTES];
    bool ended;
    struct gp_sites *sites;
    struct gp_symbols *symbols;
    struct gp_site_row *rows;
    uint32_t row_count;
    struct gp_site_before *before; /* of the last sample, by site */
    uint32_t before_count;
    uint64_t before_ns;
    int numbers[GP_WIRE_DEVICES];   /* of devices, for users; -1 unknown */
    int64_t live_bytes, host_bytes; /* over all rows */
    enum gp_column_id sort;
    bool ascending;
};

/* Opens the process and takes the first sample.  Returns as gp_sites_open does, or -ENOMEM. */
int gp_site_model_open(struct gp_site_model *model, pid_t pid, char problem[GP_PROBLEM_BYTES]);
/* Asks the process for its name and devices, waits for that, then takes the next sample.  0,
 * -EPROTO, -errno. */
int gp_site_model_ask(struct gp_site_model *model, char problem[GP_PROBLEM_BYTES]);
/* Makes the rows from the current contents of `sites`; for tests.  0 or -ENOMEM. */
int gp_site_model_count(struct gp_site_model *model);
void gp_site_model_sort(struct gp_site_model *model, enum gp_column_id column, bool ascending);
void gp_site_model_close(struct gp_site_model *model);

/* ---- the processes on the screen ------------------------------------------------------------------------------------------ */

#define GP_SITE_PROCESSES 64 /* whose sites the screen shows; each keeps the symbols of its program open */

struct gp_site_refusal { /* a process whose sites cannot be shown */
    pid_t pid;
    uint64_t start_time;
    unsigned generation; /* of the model, when it was tried: a program may get stacks later */
    int error;           /* -ENOENT: no stacks */
};

struct gp_site_set {
    struct gp_site_model *models[GP_SITE_PROCESSES];
    int count;
    struct gp_site_refusal *refusals;
    int refusal_count, refusal_room;
    unsigned generation;                 /* of the model, at the last update */
    int pending;                         /* processes that are not opened yet */
    int beyond;                          /* processes that are not opened because there are too many */
    char problem[GP_PROBLEM_BYTES + 64]; /* of the last update; "": none */
};

/* Updates the sites of the processes in `scope` (NULL: all) when the model has a new sample, and
 * opens those of one more process; opening looks symbols up, so one per call keeps the screen
 * alive.  Call it again at once while `pending` is not 0.  0 or -ENOMEM. */
int gp_site_set_step(struct gp_site_set *set, const struct gp_model *model, const struct gp_row_id *scope);
void gp_site_set_close(struct gp_site_set *set);
/* The sites of a process, or NULL: they are not open. */
const struct gp_site_model *gp_site_set_find(const struct gp_site_set *set, pid_t pid, uint64_t start_time);
/* Closes what is outside of the scope if more than `most` processes are open. */
void gp_site_set_trim(struct gp_site_set *set, const struct gp_model *model, const struct gp_row_id *scope, int most);
/* The process belongs to the scope: it is its process, or one that uses its GPU, container ... */
bool gp_site_in_scope(const struct gp_model *model, const struct gp_row_id *scope, pid_t pid, uint64_t start_time);
/* How many processes of the scope are open. */
int gp_site_shown(const struct gp_site_set *set, const struct gp_model *model, const struct gp_row_id *scope);
/* How many processes of the scope cannot be shown for this reason. */
int gp_site_refused(const struct gp_site_set *set, const struct gp_model *model, const struct gp_row_id *scope,
                    bool for_stacks);

#endif
