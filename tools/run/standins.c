/* SPDX-License-Identifier: MIT
 *
 * standins.c: the stand-ins for NVIDIA's mathematics libraries, which the simulated GPU needs: the
 * real ones ask the driver for tables that only NVIDIA's has. Sets the environment in which a
 * program finds them; see launch.h and docs/standins.md.
 */
#include <common/messages.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <run/launch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STANDIN_TUNABLES "GLIBC_TUNABLES"
#define STANDIN_TLS      "glibc.rtld.optional_static_tls"

/* With an auditor the loader lays out thread-local storage before it has seen the program's libraries, and keeps 512 bytes
 * for those that have theirs beside the thread: fewer than jemalloc needs, 2.6 KiB, and ThreadSanitizer, 770 KiB.  Each
 * thread's stack has the room, so it is large only where a sanitizer is known to need it: a thread of 32 KiB still starts
 * with 16 KiB. */
static int standin_storage(const char *program)
{
    const char *before = getenv(STANDIN_TUNABLES);
    char *joined = NULL;
    if (before && strstr(before, STANDIN_TLS))
        return 0;
    if (asprintf(&joined, "%s%s" STANDIN_TLS "=%u", before ? before : "", before && before[0] ? ":" : "",
                 gp_preload_is_sanitized(program) ? 1u << 20 : 16384u) < 0)
        return -1;
    int rc = setenv(STANDIN_TUNABLES, joined, 1);
    free(joined);
    return rc;
}

int gp_launch_standins(const char *command, const char *sim, const char *program)
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
    if (!rc)
        rc = standin_storage(program);
    /* Before glibc 2.35 the stand-ins stay away without it (sim/standin/audit.c). */
    int minor = 0;
    if (!rc && sscanf(gnu_get_libc_version(), "2.%d", &minor) == 1 && minor < 35)
        rc = setenv("LD_BIND_NOW", "1", 1);
    return rc ? GP_EXIT_FAILED : GP_EXIT_OK;
}
