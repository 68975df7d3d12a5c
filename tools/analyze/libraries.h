/* SPDX-License-Identifier: MIT
 *
 * libraries.h: what libraries do with GPU memory that their users do not expect (libraries.def).
 */
#ifndef GP_ANALYZE_LIBRARIES_H
#define GP_ANALYZE_LIBRARIES_H

#include <analyze/analyze.h>
#include <read/recording/recording.h>
#include <stdbool.h>
#include <stdint.h>

#define GP_LIBRARIES 9u

struct gp_library {
    const char *name, *version; /* the version that was looked at */
    const char *files, *rule, *source;
    bool compiled;
};

/* libraries.c.  index: below GP_LIBRARIES. */
const struct gp_library *gp_library(uint32_t index);
/* How many bytes of the peak were asked for through each library. */
void gp_library_bytes(const struct gp_recording *recording, const struct gp_peak *peak, int64_t bytes[GP_LIBRARIES]);
/* The same of what the sites hold now on a device of the session.  tables: sites, frames, modules and strings, as those of
 * a live process are. */
void gp_library_bytes_live(const struct gp_recording *tables, int device, int64_t bytes[GP_LIBRARIES]);
/* Whether the file is a shared object of the library. */
bool gp_library_is(const struct gp_library *library, const char *path);

#endif
