/* SPDX-License-Identifier: MIT
 * launch.c: prepares the environment in which a program is profiled; see launch.h.  It checks
 * everything before the program starts, and creates no files.
 */
#include <base/clock.h>
#include <base/compiler.h>
#include <common/messages.h>
#include <errno.h>
#include <limits.h>
#include <record/recorder.h>
#include <run/launch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define GP_INJECTION "CUDA_INJECTION64_PATH"
#define GP_NVTX      "NVTX_INJECTION64_PATH"
#define GP_MACHINE   "GPUPROF_SIM_MACHINE"

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

static const char *launch_variable(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

/* The simulated GPUs of this program and its children: other programs have others.  Ranks of a job that were
 * started one by one have the job's, which is named by what the launcher gives all of them. */
static int launch_machine(void)
{
    static const char *const names[] = {"TORCHELASTIC_RUN_ID", "MASTER_ADDR",   "MASTER_PORT",
                                        "SLURM_JOB_ID",        "SLURM_STEP_ID", "PMIX_NAMESPACE"};
    char text[1024];
    struct gp_rank rank;
    uint64_t random[2] = {(uint64_t)getpid(), gp_clock_ns()};
    const char *spec = getenv("GPUPROF_SIM");
    if (spec && strstr(spec, "shared")) /* these are the GPUs of that name */
        return unsetenv(GP_MACHINE);
    gp_rank_read(&rank, launch_variable, NULL);
    if (rank.rank >= 0 && rank.world > 1) {
        size_t used = (size_t)snprintf(text, sizeof(text), "job %u %d", (unsigned)geteuid(), (int)rank.world);
        for (size_t i = 0; i < GP_COUNT(names); i++) {
            const char *value = getenv(names[i]);
            used += (size_t)snprintf(text + used, sizeof(text) - used, " %.100s", value ? value : "");
        }
    } else {
        ssize_t got = getrandom(random, sizeof(random), GRND_NONBLOCK); /* without it, pid and time do */
        (void)got;
        snprintf(text, sizeof(text), "%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
    }
    return setenv(GP_MACHINE, text, 0);
}

static int launch_sim(const struct gp_launch *launch)
{
    char path[PATH_MAX], python[PATH_MAX + sizeof("/python")], commands[PATH_MAX + sizeof("/bin")];
    int rc = gp_launch_driver(launch->command, path);
    if (!rc)
        rc = gp_launch_sim_check(launch->command, launch->sim, path);
    if (rc)
        return rc;
    *strrchr(path, '/') = '\0';
    snprintf(python, sizeof(python), "%s/python", path);
    snprintf(commands, sizeof(commands), "%s/bin", path);
    rc = launch_prepend("LD_LIBRARY_PATH", path);
    if (!rc && access(python, R_OK) == 0) /* what the simulated GPU has for programs in Python */
        rc = launch_prepend("PYTHONPATH", python);
    if (!rc && getenv("PATH") && access(commands, R_OK) == 0) /* nvidia-smi */
        rc = launch_prepend("PATH", commands);
    /* "--sim" without a value keeps the setting of the environment. */
    if (!rc)
        rc = setenv("GPUPROF_SIM", launch->sim, launch->sim[0] != '\0');
    if (!rc)
        rc = launch_machine();
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
