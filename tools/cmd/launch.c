/* SPDX-License-Identifier: MIT
 * launch.c: prepares the environment in which a program is profiled; see cmd.h.  It checks
 * everything before the program starts, and creates no files. */
#define _GNU_SOURCE /* asprintf */
#include <cmd/cmd.h>
#include <cmd/standin.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GP_INJECTION "CUDA_INJECTION64_PATH"
#define GP_NVTX      "NVTX_INJECTION64_PATH"

/* The prefix of the installation: "/usr/local" of "/usr/local/bin/gpuprof".  0 or -errno. */
static int launch_prefix(char prefix[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", prefix, PATH_MAX - 1);
    if (n < 0)
        return -errno;
    prefix[n] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(prefix, '/');
        if (!slash)
            return -ENOENT;
        *slash = '\0';
    }
    return 0;
}

static const char *const launch_folders[] = {"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"};

int gp_launch_find(char *path, size_t path_bytes, const char *below)
{
    char prefix[PATH_MAX];
    int rc = launch_prefix(prefix);
    for (size_t i = 0; !rc && i < GP_COUNT(launch_folders); i++) {
        int n = snprintf(path, path_bytes, "%s/%s/%s", prefix, launch_folders[i], below);
        if (n > 0 && (size_t)n < path_bytes && access(path, R_OK) == 0)
            return 0;
    }
    snprintf(path, path_bytes, "%s/lib/%s", rc ? "" : prefix, below);
    return rc ? rc : -ENOENT;
}

void gp_launch_missing(const char *command, const char *below, const char *what)
{
    char prefix[PATH_MAX], places[GP_COUNT(launch_folders) * (PATH_MAX + 32)];
    size_t at = 0;
    if (launch_prefix(prefix) != 0)
        prefix[0] = '\0';
    for (size_t i = 0; i < GP_COUNT(launch_folders); i++)
        at += (size_t)snprintf(places + at, sizeof(places) - at, "%s%s/%s", i ? ", " : "", prefix, launch_folders[i]);
    gp_error(command, "%s is missing: it is in none of %s: %s", below, places, what);
}

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

static int launch_driver(const char *command, char path[PATH_MAX])
{
    if (gp_launch_find(path, PATH_MAX, "gpuprof/sim/libcuda.so.1") == 0)
        return GP_EXIT_OK;
    gp_launch_missing(command, "gpuprof/sim/libcuda.so.1",
                      "install the simulated GPU with gpuprof (in a source tree: make sim)");
    return GP_EXIT_USAGE;
}

int gp_launch_gpus(const char *command)
{
    char path[PATH_MAX];
    int rc = launch_driver(command, path);
    return rc ? rc : gp_simspec_list(command, path);
}

int gp_launch_gpu_table(const char *command, struct gp_sim_gpu **gpus, uint32_t *count)
{
    char path[PATH_MAX];
    int rc = launch_driver(command, path);
    return rc ? rc : gp_simspec_gpus(command, path, gpus, count);
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
    int rc = launch_driver(launch->command, path);
    if (!rc)
        rc = gp_simspec_check(launch->command, launch->sim, path);
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
    return rc ? rc : gp_standin_environment(launch->command, path);
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

int gp_launch_exec(const struct gp_launch *launch)
{
    execvp(launch->argv[0], launch->argv);
    int error = errno;
    gp_error(launch->command, "%s: %s", launch->argv[0], strerror(error));
    return error == ENOENT ? GP_EXIT_NOT_FOUND : GP_EXIT_CANNOT_RUN;
}
