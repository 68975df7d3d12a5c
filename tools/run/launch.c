/* SPDX-License-Identifier: MIT
 * launch.c: prepares the environment in which a program is profiled; see launch.h.  It checks
 * everything before the program starts, and creates no files.
 */
#include <common/messages.h>
#include <errno.h>
#include <limits.h>
#include <run/launch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GP_INJECTION "CUDA_INJECTION64_PATH"
#define GP_NVTX      "NVTX_INJECTION64_PATH"

static int launch_library(struct gp_launch *launch)
{
    struct stat st;
    char whole[PATH_MAX];
    if (launch->given) {
        snprintf(launch->library, sizeof(launch->library), "%s", launch->given);
    } else if (gp_launch_find(launch->library, sizeof(launch->library), "libgpuprof.so") != 0) {
        gp_launch_missing(launch->command, "libgpuprof.so",
                          "install gpuprof again (in a source tree: make lib), or name the library with --library");
        return GP_EXIT_USAGE;
    }
    if (access(launch->library, R_OK) != 0 || stat(launch->library, &st) != 0 || !realpath(launch->library, whole)) {
        gp_error(launch->command, "%s: cannot be loaded: %s", launch->library, strerror(errno));
        return GP_EXIT_USAGE;
    }
    if (!S_ISREG(st.st_mode)) {
        gp_error(launch->command, "%s: cannot be loaded: not a file", launch->library);
        return GP_EXIT_USAGE;
    }
    /* An absolute path, because the program may change its directory before it loads the
     * library. */
    snprintf(launch->library, sizeof(launch->library), "%s", whole);
    const char *other = getenv(GP_INJECTION);
    char other_whole[PATH_MAX];
    if (other && other[0] && !(realpath(other, other_whole) && strcmp(other_whole, whole) == 0)) {
        gp_error(launch->command,
                 GP_INJECTION " is already set to %s: another tool is to be loaded into the program, and CUDA loads "
                              "only one: unset the variable",
                 other);
        return GP_EXIT_USAGE;
    }
    return GP_EXIT_OK;
}

/* In front of a list of folders.  No trailing colon: an empty entry means the current directory. */
static int launch_prepend(const char *variable, const char *folder)
{
    const char *before = getenv(variable);
    char *joined = NULL;
    if (asprintf(&joined, "%s%s%s", folder, before && before[0] ? ":" : "", before ? before : "") < 0)
        return -1;
    int rc = setenv(variable, joined, 1);
    free(joined);
    return rc;
}

static int launch_sim(const struct gp_launch *launch)
{
    char path[PATH_MAX], python[PATH_MAX + sizeof("/python")];
    int rc = gp_launch_driver(launch->command, path);
    if (!rc)
        rc = gp_launch_sim_check(launch->command, launch->sim, path);
    if (rc)
        return rc;
    *strrchr(path, '/') = '\0';
    snprintf(python, sizeof(python), "%s/python", path);
    rc = launch_prepend("LD_LIBRARY_PATH", path);
    if (!rc && access(python, R_OK) == 0) /* what the simulated GPU has for programs in Python */
        rc = launch_prepend("PYTHONPATH", python);
    /* "--sim" without a value keeps the setting of the environment. */
    if (!rc)
        rc = setenv("GPUPROF_SIM", launch->sim, launch->sim[0] != '\0');
    rc = rc ? GP_EXIT_FAILED : gp_preload_sim(launch, path);
    return rc ? rc : gp_launch_standins(launch->command, path, launch->argv[0]);
}

int gp_launch_prepare(struct gp_launch *launch)
{
    if (!launch->argv || !launch->argv[0])
        return gp_usage_error(launch->command, "no program given");
    int rc = launch_library(launch);
    if (!rc && launch->sim)
        rc = launch_sim(launch);
    if (!rc)
        rc = gp_preload_shim(launch);
    if (!rc && setenv(GP_INJECTION, launch->library, 1) != 0)
        rc = GP_EXIT_FAILED;
    /* NVTX ranges become marks, unless the variable names another tool. */
    if (!rc && setenv(GP_NVTX, launch->library, 0) != 0)
        rc = GP_EXIT_FAILED;
    return rc;
}
