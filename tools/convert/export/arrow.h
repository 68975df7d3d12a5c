/* SPDX-License-Identifier: MIT
 *
 * arrow.h: a recording as tables with typed columns in Apache Arrow's format (docs/export.md).  One thread.
 */
#ifndef GP_CONVERT_EXPORT_ARROW_H
#define GP_CONVERT_EXPORT_ARROW_H

#include <convert/export/formats.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_arrow_job { /* the columns that every table begins with, beside the pid */
    const char *name; /* of the job */
    bool has_rank;
    int32_t rank;
    const char *file; /* of the recording */
};

struct gp_arrow;

/* "events", "blocks" ..; NULL past the last one.  The last one is "job". */
const char *gp_arrow_table_name(unsigned table);
/* Prepares the tables of export->recording, which must outlive it, as the job must.  0 or -ENOMEM. */
int gp_arrow_new(struct gp_arrow **out, struct gp_export *export, const struct gp_arrow_job *job);
/* 0 or -errno. */
int gp_arrow_write(struct gp_arrow *arrow, unsigned table, struct gp_out *out);
void gp_arrow_free(struct gp_arrow *arrow);

#endif
