/* SPDX-License-Identifier: MIT
 *
 * paths.c: see paths.h.  Called by every integration test; never touches the working directory.
 */
#include "lib/paths.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES (PATH_MAX + 64) /* the longest path, plus the longest name that is appended here */

static char path_test[PATH_MAX];

/* Before a test makes a mount namespace: in a chroot, the link then names the path outside of it. */
__attribute__((constructor)) static void path_remember(void)
{
    ssize_t len = readlink("/proc/self/exe", path_test, sizeof(path_test) - 1);
    path_test[len > 0 ? len : 0] = '\0';
}

/* The folder `levels` above the test binary. */
static const char *path_above(char *buffer, int levels)
{
    strcpy(buffer, path_test);
    for (; levels > 0; levels--) {
        char *slash = strrchr(buffer, '/');
        if (slash == NULL)
            break;
        *slash = '\0';
    }
    return buffer;
}

static const char *path_product(char *buffer, const char *relative)
{
    char top[PATH_BYTES];
    const char *build = getenv("GPUPROF_BUILD");
    if (build != NULL && realpath(build, top) != NULL)
        snprintf(buffer, PATH_BYTES + 64, "%s/%s", top, relative);
    else
        snprintf(buffer, PATH_BYTES + 64, "%s/build/%s", path_above(top, 4), relative);
    return buffer;
}

const char *path_command(void)
{
    static char buffer[PATH_BYTES + 64];
    return path_product(buffer, "bin/gpuprof");
}

const char *path_library(void)
{
    static char buffer[PATH_BYTES + 64];
    return path_product(buffer, "lib/libgpuprof.so");
}

const char *path_sim(void)
{
    static char buffer[PATH_BYTES + 64];
    return path_product(buffer, "lib/gpuprof/sim");
}

/* Programs are never sanitized, but each build tree has its own copies. Use those of the test's own tree, which
 * make has built. */
const char *path_program(const char *name)
{
    static char buffer[PATH_BYTES + 64];
    char folder[PATH_BYTES];
    snprintf(buffer, sizeof(buffer), "%s/programs/%s", path_above(folder, 2), name);
    return buffer;
}

const char *path_source(const char *relative)
{
    static char buffer[PATH_BYTES + 64];
    char folder[PATH_BYTES];
    snprintf(buffer, sizeof(buffer), "%s/%s", path_above(folder, 4), relative);
    return buffer;
}
