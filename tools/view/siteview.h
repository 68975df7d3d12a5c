/* SPDX-License-Identifier: MIT
 *
 * siteview.h: `gpuprof top --by site`: the call sites of one process, live.  Each row has the bytes
 * that a site holds, those that it held at the peak of its device, and how fast they change.
 * sitemodel.c samples and sums, sitedraw.c draws and prints, sitescreen.c runs the loop.
 */
#ifndef GP_VIEW_SITEVIEW_H
#define GP_VIEW_SITEVIEW_H

#include <collect/sites.h>
#include <jansson.h>
#include <stdio.h>
#include <symbol/symbol.h>
#include <view/grid.h>

enum gp_site_column {
    GP_SITE_DEV,
    GP_SITE_KIND,
    GP_SITE_LIVE,
    GP_SITE_PEAK,
    GP_SITE_AT_PEAK,
    GP_SITE_SHARE,
    GP_SITE_CALLS,
    GP_SITE_DELTA,
    GP_SITE_SITE, /* takes the rest of the line */
    GP_SITE_COLUMNS
};

struct gp_site_column_text {
    const char *name, *what;
    int width;
    bool right;
};
extern const struct gp_site_column_text gp_site_columns[GP_SITE_COLUMNS];
/* Finds a column by its name, in any case.  GP_SITE_COLUMNS: no column has that name. */
enum gp_site_column gp_site_column_find(const char *name);

struct gp_site_row {
    uint32_t site;
    const struct gp_frame_text *name, *caller, *callee; /* caller, callee: NULL, or what distinguishes equal names */
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
    char comm[32];
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
    enum gp_site_column sort;
    bool ascending;
};

/* Opens the process and takes the first sample.  Returns as gp_sites_open does, or -ENOMEM. */
int gp_site_model_open(struct gp_site_model *model, pid_t pid, char problem[GP_PROBLEM_BYTES]);
/* Takes the next sample.  When the process has ended, the last values stay and `ended` is set.  0,
 * -EPROTO, -errno. */
int gp_site_model_update(struct gp_site_model *model, char problem[GP_PROBLEM_BYTES]);
/* Makes the rows from the current contents of `sites`; for tests.  0 or -ENOMEM. */
int gp_site_model_count(struct gp_site_model *model);
void gp_site_model_sort(struct gp_site_model *model, enum gp_site_column column, bool ascending);
void gp_site_model_close(struct gp_site_model *model);

/* ---- sitedraw.c ------------------------------------------------------------------------------------------------ */

struct gp_site_ui {    /* the user's choices */
    uint32_t selected; /* site; 0: the first line */
    int top, page;
    bool detail, paused;
    int interval_ms;
    char message[200];
};

void gp_site_draw(struct gp_grid *grid, const struct gp_site_model *model, struct gp_site_ui *ui);
/* Index of the selected row; -1 without rows. */
int gp_site_cursor(const struct gp_site_model *model, const struct gp_site_ui *ui);
/* Prints a table for pipes: one line per site, no escapes. */
void gp_site_print(FILE *out, const struct gp_site_model *model, bool utf8);
/* The array "sites" of gpuprof.top/1. */
json_t *gp_site_json(const struct gp_site_model *model);
/* Sentence i (from 0) about allocations that could not be counted or named; false after the last
 * one. */
bool gp_site_note(const struct gp_site_model *model, uint32_t i, char *out, size_t out_bytes);

/* ---- sitescreen.c ---------------------------------------------------------------------------------------------- */

/* Runs the loop; arguments and results as gp_screen_run's. */
int gp_site_screen(struct gp_site_model *model, int interval_ms, int64_t samples, int *signal_out);

#endif
