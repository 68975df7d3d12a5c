/* SPDX-License-Identifier: MIT
 * exportfolder.h: the recordings of a job as folders of tables; shared by export.c and exportfolder.c. */
#ifndef GP_CMD_EXPORTFOLDER_H
#define GP_CMD_EXPORTFOLDER_H

#include <common/loaded.h>
#include <convert/export/arrow.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_export_folder {
    char *const *files;
    uint32_t count;
    bool listed;        /* a folder lists them: gp_recording_open_as */
    const char *folder; /* to write into */
    const char *job;
    const char *symfs; /* NULL */
    struct gp_load_part part;
    bool force; /* also files that are there and newer than their recordings, and into any folder */
};

/* Writes the tables of each recording, several recordings at a time, and says how many.  An exit status. */
int gp_export_folder(const struct gp_export_folder *o);

/* The name of a job that is recorded in this file or folder; and the columns of a recording. */
void gp_export_job_name(char *name, size_t bytes, const char *path);
struct gp_arrow_job gp_export_job(const char *job, const char *path, const struct gp_recording *recording);

#endif
