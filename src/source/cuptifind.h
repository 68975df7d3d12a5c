/* SPDX-License-Identifier: MIT
 *
 * cuptifind.h: the copies of CUPTI on the machine, its callback ids, and its name in the loader.  Called by cupti.c.
 */
#ifndef GP_SOURCE_CUPTIFIND_H
#define GP_SOURCE_CUPTIFIND_H

#include <stdbool.h>
#include <stdint.h>

/* Finds the copies of CUPTI that this process could use, the best first.  It does not open or load
 * them, and searches a place only when all copies of better places were tried: a folder may be on a
 * slow file system.  Called by cupti.c. */

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
    uint32_t major;  /* of CUDA; 0: not in the file name */
    bool is_too_new; /* for this driver, so it is tried last */
    bool is_given;
    uint32_t ordinal; /* as found */
};

struct gp_cupti_list {
    uint32_t driver_version;
    enum gp_cupti_origin looked; /* the places up to this one were searched */
    unsigned count, left_out;    /* copies in the table; copies for which it had no room */
    struct gp_cupti_copy copies[GP_CUPTI_COPIES];
    unsigned folder_count;
    struct {
        char path[GP_CUPTI_PATH];
        enum gp_cupti_origin origin;
    } folders[GP_CUPTI_FOLDERS];
};

/* driver_version: of cuDriverGetVersion; 0 unknown. */
void gp_cupti_find_begin(struct gp_cupti_list *list, uint32_t driver_version);
/* The path of the next copy to try; NULL: there is no other. */
const char *gp_cupti_find_next(struct gp_cupti_list *list);
/* Whether a loaded object that is linked to libcupti imports the function. Takes the loader's lock. */
bool gp_cupti_find_user(const char *function);

/* ==== CUPTI's callback ids ======================================================================================== */
/* Binds the rows of hooks.def to the callback ids of the CUPTI at hand, by name. Called by cupti.c. */

struct gp_wire_cupti;

typedef int (*gp_cupti_name_fn)(int domain, uint32_t id, const char **name);

/* Before any callback is enabled.  Counts and lists in *out the names that look like memory and are
 * newer than this build.  Returns the id of cuDeviceGetCount, or 0.  If no name is known (get_name
 * is NULL, or answers none), the ids of CUDA 13.0 stay. */
uint32_t gp_dispatch_name_rows(gp_cupti_name_fn get_name, struct gp_wire_cupti *out);

/* ==== the name of a library ======================================================================================= */
/* Takes the name of a library that only gpuprof asked for away from the loader.
 *
 * The loader answers dlopen("libcupti.so.12"), and a library that needs libcupti.so.12, with any
 * loaded object of that soname.  A copy of CUPTI that gpuprof loads early would so be given to
 * programs that bring their own copy, which may have symbols that ours lacks. */

/* Shortens the soname of a loaded library by its "lib", in memory: libcupti.so.12 becomes
 * cupti.so.12.  The file, its path in /proc and what it finds by $ORIGIN stay.  A later
 * dlopen of the same file gets this copy, under the name that it asked for.  handle: of dlopen with a
 * path that has a slash, since dlopen remembers a bare name.  False: the name could not be
 * changed. */
bool gp_cupti_hide_soname(void *handle);

#endif
