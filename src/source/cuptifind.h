/* SPDX-License-Identifier: MIT
 *
 * cuptifind.h: lists the copies of CUPTI that this process could use, the best first.  It opens and
 * loads none.  Called by cupti.c.
 */
#ifndef GP_SOURCE_CUPTIFIND_H
#define GP_SOURCE_CUPTIFIND_H

#include <stdbool.h>
#include <stdint.h>

#define GP_CUPTI_COPIES  24u
#define GP_CUPTI_FOLDERS 48u
#define GP_CUPTI_PATH    512u /* longer paths are left out */

/* Where a copy was found, in the order of preference: first those that the program would use. */
enum gp_cupti_origin {
    GP_CUPTI_LOADED,    /* in this process already */
    GP_CUPTI_RUNTIME,   /* beside the program's CUDA runtime */
    GP_CUPTI_WHEEL,     /* among the Python packages in use */
    GP_CUPTI_PATH_LIST, /* in LD_LIBRARY_PATH */
    GP_CUPTI_NAMED,     /* in an installation that another variable names */
    GP_CUPTI_SYSTEM,    /* in the loader's cache and folders, and the usual installation */
};

struct gp_cupti_copy {
    char path[GP_CUPTI_PATH];
    enum gp_cupti_origin origin;
    uint32_t major;   /* of CUDA; 0: the file name does not tell */
    bool is_too_new;  /* for this driver: tried last */
    uint32_t ordinal; /* as found */
};

struct gp_cupti_list {
    unsigned count, left_out; /* copies in the table, and those that found no room */
    struct gp_cupti_copy copies[GP_CUPTI_COPIES];
    unsigned folder_count;
    struct {
        char path[GP_CUPTI_PATH];
        enum gp_cupti_origin origin;
    } folders[GP_CUPTI_FOLDERS];
};

/* driver_version: of cuDriverGetVersion; 0 unknown. */
void gp_cupti_list(struct gp_cupti_list *list, uint32_t driver_version);

#endif
