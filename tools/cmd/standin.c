/* SPDX-License-Identifier: MIT
 * standin.c: lets programs find the stand-ins for NVIDIA's libraries; see standin.h. */
#define _GNU_SOURCE /* asprintf */
#include <cmd/cmd.h>
#include <cmd/standin.h>

#include <errno.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int gp_standin_environment(const char *command, const char *sim)
{
    const char *off = getenv("GPUPROF_STANDINS");
    const char *before = getenv("LD_AUDIT");
    char path[PATH_MAX], *joined = NULL;
    if (off && strcmp(off, "0") == 0)
        return GP_EXIT_OK;
    int n = snprintf(path, sizeof(path), "%s/standin/libgpuprof-standin.so", sim);
    if (n < 0 || (size_t)n >= sizeof(path) || access(path, R_OK) != 0) {
        gp_error(command,
                 "%s: %s: without it programs load NVIDIA's own libraries, which do not work on the simulated GPU: "
                 "install gpuprof again (in a source tree: make sim), or set GPUPROF_STANDINS=0",
                 path, strerror(errno));
        return GP_EXIT_USAGE;
    }
    /* A run inside of a run names it already; two of them would look twice. */
    if (before && strstr(before, path))
        return GP_EXIT_OK;
    if (strchr(path, ':')) {
        gp_error(command, "%s: the loader takes no path with a colon in LD_AUDIT: NVIDIA's own libraries are used",
                 path);
        return GP_EXIT_OK;
    }
    if (asprintf(&joined, "%s%s%s", path, before && before[0] ? ":" : "", before ? before : "") < 0)
        return GP_EXIT_FAILED;
    int rc = setenv("LD_AUDIT", joined, 1);
    free(joined);
    /* Before glibc 2.35 the stand-ins stay away without it (src/sim/standin/audit.c). */
    int minor = 0;
    if (!rc && sscanf(gnu_get_libc_version(), "2.%d", &minor) == 1 && minor < 35)
        rc = setenv("LD_BIND_NOW", "1", 1);
    return rc ? GP_EXIT_FAILED : GP_EXIT_OK;
}
