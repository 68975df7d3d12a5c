/* SPDX-License-Identifier: MIT
 *
 * siteview.h: `gpuprof top --by site`: the call sites of one process, live: what each holds, held at the device's peak,
 * and how fast it moves.  sitemodel.c counts, sitedraw.c draws and prints, sitescreen.c is the loop.
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
    GP_SITE_SITE, /* the rest of the line */
    GP_SITE_COLUMNS
};

struct gp_site_column_text {
    const char *name, *what;
    int width;
    bool right;
};
extern const struct gp_site_column_text gp_site_columns[GP_SITE_COLUMNS];
/* Any case; GP_SITE_COLUMNS: there is none of this name. */
enum gp_site_column gp_site_column_find(const char *name);

struct gp_site_row {
    uint32_t site;
    const struct gp_frame_text *name, *caller; /* caller: NULL, or what tells it from others of that name */
    int device;                                /* as people number them; GP_WIRE_HOST; -1 not known yet */
    uint8_t kind;
    int64_t live, count, peak, at_peak, allocated, calls;
    double share;                    /* of the device's peak; NaN: there was none */
    double calls_per_s, delta_per_s; /* since the last sample; NaN unknown */
};

struct gp_site_before {
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
    int numbers[GP_WIRE_DEVICES];   /* of devices, as people number them; -1 unknown */
    int64_t live_bytes, host_bytes; /* over all rows */
    enum gp_site_column sort;
    bool ascending;
};

/* Opens and takes the first sample.  As gp_sites_open. */
int gp_site_model_open(struct gp_site_model *model, pid_t pid, char problem[GP_PROBLEM_BYTES]);
/* The next one.  After the process's end what was last known stays, and `ended` is set.  0, -EPROTO, -errno. */
int gp_site_model_update(struct gp_site_model *model, char problem[GP_PROBLEM_BYTES]);
/* The part of it that counts: rows out of what is in sites now. */
int gp_site_model_count(struct gp_site_model *model);
void gp_site_model_sort(struct gp_site_model *model, enum gp_site_column column, bool ascending);
void gp_site_model_close(struct gp_site_model *model);

/* ---- sitedraw.c ------------------------------------------------------------------------------------------------ */

struct gp_site_ui {    /* what the person has chosen */
    uint32_t selected; /* site; 0 none: the first line */
    int top, page;
    bool detail, paused;
    int interval_ms;
    char message[200];
};

void gp_site_draw(struct gp_grid *grid, const struct gp_site_model *model, struct gp_site_ui *ui);
/* Index of the selected row; -1 without rows. */
int gp_site_cursor(const struct gp_site_model *model, const struct gp_site_ui *ui);
/* For pipes: no escapes, one line a site. */
void gp_site_print(FILE *out, const struct gp_site_model *model, bool utf8);
/* The array "sites" of gpuprof.top/1. */
json_t *gp_site_json(const struct gp_site_model *model);
/* What could not be counted or named, as sentences: i from 0; false after the last. */
bool gp_site_note(const struct gp_site_model *model, uint32_t i, char *out, size_t out_bytes);

/* ---- sitescreen.c ---------------------------------------------------------------------------------------------- */

/* As gp_screen_run. */
int gp_site_screen(struct gp_site_model *model, int interval_ms, int64_t samples, int *signal_out);

#endif
