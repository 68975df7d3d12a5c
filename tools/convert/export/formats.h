/* SPDX-License-Identifier: MIT
 *
 * formats.h: writes a recording in the formats of other tools (docs/export.md).  A format is a row
 * of the table in formats.c and a file of its own.  It reads a checked recording and writes its
 * output in one pass.  Memory does not grow with the number of events, unless the file of the format
 * states it.
 */
#ifndef GP_CONVERT_EXPORT_FORMATS_H
#define GP_CONVERT_EXPORT_FORMATS_H

#include <analyze/analyze.h>
#include <analyze/flow.h>
#include <convert/export/out.h>
#include <read/recording/recording.h>
#include <stdbool.h>
#include <stdint.h>
#include <symbol/symbol.h>

/* The weight of a stack. */
enum gp_export_weight { GP_EXPORT_LIVE, GP_EXPORT_PEAK, GP_EXPORT_ALLOCATED, GP_EXPORT_LEAKED, GP_EXPORT_WEIGHTS };

struct gp_arrow_job;

struct gp_export {
    const struct gp_recording *recording;
    struct gp_symbols *symbols;
    enum gp_export_weight weight;
    const struct gp_steps *steps;   /* of weight leaked; NULL: those that gp_steps_find finds */
    bool full_stacks;               /* pprof: also the frames inside the one that names the site */
    unsigned table;                 /* arrow: the one that is written */
    const struct gp_arrow_job *job; /* arrow: not NULL */
    uint32_t block_limit;           /* chrome: number of lifetimes to draw, the largest blocks first */
    gp_rec_progress_fn *progress;   /* may be NULL; parts of 1000 */
    void *progress_arg;
    char why[128]; /* the reason, if errno does not tell it */
};

#define GP_EXPORT_BLOCKS 20000u /* default block_limit: about the number at which Perfetto still scrolls smoothly */

struct gp_export_format {
    const char *name, *opens; /* opens: "in" or "with" what */
    bool binary;              /* never to a terminal */
    bool weighed;
    /* One of the two.  0 or -errno; -EPROTO with export->why. */
    int (*write)(struct gp_export *export, struct gp_out *out);
    int (*create)(struct gp_export *export, const char *path); /* a file that does not exist yet */
};

/* NULL past the last one. */
const struct gp_export_format *gp_export_format_at(unsigned index);
const struct gp_export_format *gp_export_format_find(const char *name);
/* "live", "peak", "allocated", "leaked"; NULL out of range. */
const char *gp_export_weight_name(unsigned weight);

int gp_export_csv(struct gp_export *export, struct gp_out *out);
int gp_export_jsonl(struct gp_export *export, struct gp_out *out);
int gp_export_chrome(struct gp_export *export, struct gp_out *out);
int gp_export_collapsed(struct gp_export *export, struct gp_out *out);
int gp_export_pprof(struct gp_export *export, struct gp_out *out);
int gp_export_arrow(struct gp_export *export, struct gp_out *out);
int gp_export_sqlite(struct gp_export *export, const char *path);

/* Every event in order, the baseline first.  Events have the numbers 0, 1, ... of
 * recording->events; entry i of a baseline of n has the number i - n, so numbers follow time and
 * the baseline is negative. */
struct gp_export_row {
    int64_t number;
    bool has_peer;
    int64_t peer; /* number of the event that ended it, or of the event that this one ended */
    const struct gp_rec_event *event;
    const char *type, *kind; /* kind: NULL none */
    const char *name;        /* of a mark; else NULL */
    bool has_address, has_bytes;
    bool is_counted; /* it adds to the allocated bytes */
};
struct gp_export_rows {
    const struct gp_export *export;
    struct gp_flow *flow;
    int64_t next;
    bool borrowed;       /* the flow is not ours to free */
    char (*labels)[160]; /* of sites, made at their first use; "": not yet */
    unsigned shown;
};
/* 0 or -ENOMEM. */
int gp_export_rows_begin(struct gp_export_rows *rows, const struct gp_export *export);
/* The same with a flow of the recording, which must outlive the rows. */
int gp_export_rows_begin_flow(struct gp_export_rows *rows, const struct gp_export *export, struct gp_flow *flow);
bool gp_export_rows_next(struct gp_export_rows *rows, struct gp_export_row *row);
/* "function (file:line)" of the site's own frame; valid until rows end. */
const char *gp_export_rows_label(struct gp_export_rows *rows, uint32_t site);
void gp_export_rows_end(struct gp_export_rows *rows);
/* CLOCK_MONOTONIC of the recorded machine -> nanoseconds since 1970. */
int64_t gp_export_unix_ns(const struct gp_recording *recording, uint64_t time_ns);

/* "0", "1", ... the driver's ordinal; "host"; index: in devices. */
const char *gp_export_device(const struct gp_recording *recording, uint32_t index, char text[16]);

struct gp_export_sum {     /* of one site, device and kind */
    uint32_t site, device; /* device: index in devices */
    uint8_t kind;
    uint32_t next; /* of the same site; 0 none */
    int64_t allocated_count, allocated_bytes, live_count, live_bytes, peak_bytes, leaked_bytes;
};
struct gp_export_sums {
    struct gp_export_sum *rows;
    uint32_t count, room;
};
/* 0 or -ENOMEM.  Free rows with free(). */
int gp_export_weigh(const struct gp_export *export, struct gp_export_sums *sums);
int64_t gp_export_weight_of(const struct gp_export_sum *sum, enum gp_export_weight weight);

/* The moment of a device's highest allocated bytes: after this change of the flow and after this
 * event. */
struct gp_export_peak {
    uint64_t change; /* counted from 1; 0: the device never had an allocation */
    int64_t event;   /* number as in rows; -1: the start of the recording */
    uint64_t time_ns;
    int64_t bytes;
};
/* peaks: one for each device.  0 or -ENOMEM. */
int gp_export_peaks(const struct gp_flow *flow, struct gp_export_peak *peaks);

#endif
