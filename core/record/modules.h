/* SPDX-License-Identifier: MIT
 *
 * modules.h: the modules of a process, from a list of its mappings.
 */
#ifndef GP_RECORD_MODULES_H
#define GP_RECORD_MODULES_H

#include "base/vma.h"
#include <stdbool.h>
#include <stdint.h>

/* The code that a process has mapped, from /proc/PID/maps, and the build IDs of the files, with
 * which symbols are found later and on other machines. Called by the recorder, in the profiled
 * process and in `gpuprof record`, and by live views of sites. The files may contain anything: every
 * number in them is checked. Never calls malloc. */

/* PyTorch maps about 500 objects. */
#define GP_MODULES_MOST 4096u

struct gp_module { /* one executable mapping */
    uint64_t start, end, offset;
    const char *path; /* as in maps; "" if none */
    uint8_t build_id[32];
    uint8_t build_id_bytes; /* 0: none found */
};

struct gp_modules {
    struct gp_module *rows; /* by address */
    uint32_t count;
    bool truncated; /* there were more */
    char *paths;
    uint32_t path_bytes;
};

/* Opens the file of a mapping, to read its build ID. A descriptor, or -errno: the build ID stays
 * unknown. */
typedef int gp_modules_open(const char *proc, const struct gp_vma *file);

/* As for our own process. Takes 20 KiB of the stack. */
int gp_modules_open_file(const char *proc, const struct gp_vma *file);

/* Reads the modules of the process whose directory is `proc` ("/proc/123", "/proc/self"). open: for
 * another process, whose paths may lead anywhere; NULL opens them as for our own. 0 or -errno; on
 * failure there is nothing to free. */
int gp_modules_read(struct gp_modules *modules, const char *proc, gp_modules_open *open);
/* The module that contains the address, or NULL. */
const struct gp_module *gp_modules_find(const struct gp_modules *modules, uint64_t pc);
void gp_modules_free(struct gp_modules *modules);

#endif
