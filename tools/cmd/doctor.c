/* SPDX-License-Identifier: MIT
 *
 * doctor.c: `gpuprof doctor`: reports what works on this machine and what to do about the rest.
 * Called by commands.c; checks.c has the checks of the agent and of other profilers.
 * Its parts: where CUPTI is, the command.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create, pipe2 */
#endif
#include <agent/maps/maps.h>
#include <base/compiler.h>
#include <cmd/checks.h>
#include <cmd/cmd.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <limits.h>
#include <read/collect/collect.h>
#include <read/collect/procfs.h>
#include <show/text/stats.h>
#include <show/text/write.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

/* ==== libraries =================================================================================================== */
/* Tries libraries in child processes. */

/* cuInit on a machine with eight GPUs and no persistence daemon takes some seconds. */
#define GP_PROBE_SECONDS 20

typedef void (*gp_probe_fn)(const char *path, struct gp_probe *probe);
typedef int (*gp_cuda_init_fn)(unsigned);
typedef int (*gp_cuda_number_fn)(int *);
typedef int (*gp_cupti_version_fn)(uint32_t *);
typedef int (*gp_cupti_subscribe_fn)(void **, void (*)(void *, int, uint32_t, const void *), void *);
typedef int (*gp_cupti_text_fn)(int, const char **);

static void *probe_open(const char *path, struct gp_probe *probe)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(probe->text, sizeof(probe->text), "%s", dlerror());
    return library;
}

static void *probe_symbol(void *library, const char *name, struct gp_probe *probe)
{
    void *symbol = library ? dlsym(library, name) : NULL;
    if (library && !symbol)
        snprintf(probe->text, sizeof(probe->text), "it has no %s", name);
    return symbol;
}

static void probe_result(struct gp_probe *probe, const char *call, int rc, long long number)
{
    probe->ok = rc == 0;
    probe->number = number;
    if (rc)
        snprintf(probe->text, sizeof(probe->text), "%s failed with error %d", call, rc);
}

static void try_library(const char *path, struct gp_probe *probe)
{
    void *library = probe_open(path, probe);
    probe->ok = probe_symbol(library, "InitializeInjection", probe) != NULL;
}

static void no_callback(void *user, int domain, uint32_t id, const void *data)
{
    (void)user;
    (void)domain;
    (void)id;
    (void)data;
}

/* Without a device each copy refuses, whatever its version. */
static void try_subscribe(void *library, struct gp_probe *probe)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *handle = NULL;
    gp_cuda_init_fn init = driver ? (gp_cuda_init_fn)dlsym(driver, "cuInit") : NULL;
    gp_cupti_subscribe_fn subscribe = (gp_cupti_subscribe_fn)probe_symbol(library, "cuptiSubscribe", probe);
    gp_cupti_text_fn text = (gp_cupti_text_fn)dlsym(library, "cuptiGetResultString");
    const char *name = NULL;
    probe->ok = subscribe != NULL;
    if (!subscribe || !init || init(0) != 0)
        return;
    int rc = subscribe(&handle, no_callback, NULL);
    probe->ok = rc == 0;
    if (rc && (!text || text(rc, &name) != 0 || !name))
        name = "error";
    if (rc)
        snprintf(probe->text, sizeof(probe->text), "cuptiSubscribe answers %s (%d)", name, rc);
}

static void try_cupti(const char *path, struct gp_probe *probe)
{
    uint32_t version = 0;
    void *library = probe_open(path, probe);
    gp_cupti_version_fn get = (gp_cupti_version_fn)probe_symbol(library, "cuptiGetVersion", probe);
    if (get) {
        int rc = get(&version);
        probe_result(probe, "cuptiGetVersion", rc, version);
    }
    if (probe->ok)
        try_subscribe(library, probe);
}

static void try_driver(const char *path, struct gp_probe *probe)
{
    int version = 0;
    void *library = probe_open(path, probe);
    gp_cuda_number_fn get = (gp_cuda_number_fn)probe_symbol(library, "cuDriverGetVersion", probe);
    if (get) {
        int rc = get(&version);
        probe_result(probe, "cuDriverGetVersion", rc, version);
    }
}

static void try_devices(const char *path, struct gp_probe *probe)
{
    int count = 0;
    void *library = probe_open(path, probe);
    gp_cuda_init_fn init = (gp_cuda_init_fn)probe_symbol(library, "cuInit", probe);
    gp_cuda_number_fn get = (gp_cuda_number_fn)probe_symbol(library, "cuDeviceGetCount", probe);
    if (!init || !get)
        return;
    int rc = init(0);
    probe_result(probe, "cuInit", rc, 0);
    if (rc)
        return;
    rc = get(&count);
    probe_result(probe, "cuDeviceGetCount", rc, count);
}

/* The loader reports on standard error that it cannot preload a library, and starts the program
 * anyway. */
static void try_preload(const char *path, struct gp_probe *probe)
{
    int ends[2], status = 0;
    pid_t pid = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    if (pid == 0) {
        char *argv[] = {"gpuprof", "help", NULL};
        dup2(ends[1], STDERR_FILENO);
        setenv("LD_PRELOAD", path, 1);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    if (pid < 0) {
        snprintf(probe->text, sizeof(probe->text), "%s", strerror(errno));
        return;
    }
    close(ends[1]);
    ssize_t n = read(ends[0], probe->text, sizeof(probe->text) - 1);
    probe->text[n > 0 ? n : 0] = '\0';
    probe->text[strcspn(probe->text, "\n")] = '\0';
    waitpid(pid, &status, 0);
    probe->ok = n == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void probe_child(gp_probe_fn try, const char *path, int out)
{
    struct gp_probe probe;
    memset(&probe, 0, sizeof(probe));
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) { /* the output of the library must not mix with that of doctor */
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
    }
    unsetenv("CUDA_INJECTION64_PATH");
    signal(SIGALRM, SIG_DFL);
    alarm(GP_PROBE_SECONDS);
    try(path, &probe);
    ssize_t n = write(out, &probe, sizeof(probe));
    _exit(n == (ssize_t)sizeof(probe) ? 0 : 1);
}

static void probe_run(gp_probe_fn try, const char *path, struct gp_probe *probe)
{
    int ends[2], status = 0;
    memset(probe, 0, sizeof(*probe));
    fflush(NULL);
    pid_t pid = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
    if (pid == 0)
        probe_child(try, path, ends[1]);
    if (pid < 0) {
        snprintf(probe->text, sizeof(probe->text), "cannot be tested: %s", strerror(errno));
        return;
    }
    close(ends[1]);
    ssize_t n;
    do
        n = read(ends[0], probe, sizeof(*probe));
    while (n < 0 && errno == EINTR);
    close(ends[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    probe->text[sizeof(probe->text) - 1] = '\0';
    if (n == (ssize_t)sizeof(*probe))
        return;
    memset(probe, 0, sizeof(*probe));
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(probe->text, sizeof(probe->text), "it hangs (no answer in %d s)", GP_PROBE_SECONDS);
    else
        snprintf(probe->text, sizeof(probe->text), "it crashes when it is used");
}

/* Whether the library loads and has InitializeInjection. */
static void libcheck_library(const char *path, struct gp_probe *probe)
{
    probe_run(try_library, path, probe);
}

/* Whether the dynamic loader preloads it, tried with this command. */
static void libcheck_preload(const char *path, struct gp_probe *probe)
{
    probe_run(try_preload, path, probe);
}

/* number: cuptiGetVersion.  Where the driver works, whether a tool can subscribe too. */
static void libcheck_cupti(const char *path, struct gp_probe *probe)
{
    probe_run(try_cupti, path, probe);
}

void gp_libcheck_driver(struct gp_probe *probe)
{
    probe_run(try_driver, "libcuda.so.1", probe);
}

/* number: count of devices, from cuInit and cuDeviceGetCount of this driver. */
static void libcheck_devices(const char *path, struct gp_probe *probe)
{
    probe_run(try_devices, path, probe);
}

/* ==== the command ================================================================================================= */

/* ---- where CUPTI is ---------------------------------------------------------------------------------------------- */
/* Finds the CUPTI libraries that a program could use.  Searches for CUPTI
 * libraries. */

#define GP_CUPTI_FOUND 16

struct gp_cupti_found {
    int count;
    char paths[GP_CUPTI_FOUND][512];
};

/* Newest first: a current program is linked with the highest version in a folder. */
static const char *const cupti_names[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.[0-9]", "libcupti.so"};

static void cupti_keep(struct gp_cupti_found *found, const char *path)
{
    char mine[PATH_MAX], other[PATH_MAX];
    if (found->count == GP_CUPTI_FOUND || strlen(path) >= sizeof(found->paths[0]) || !realpath(path, mine))
        return;
    for (int i = 0; i < found->count; i++)
        if (realpath(found->paths[i], other) && strcmp(mine, other) == 0)
            return;
    memcpy(found->paths[found->count++], path, strlen(path) + 1);
}

static void cupti_folder(struct gp_cupti_found *found, const char *folder)
{
    for (size_t i = 0; i < GP_COUNT(cupti_names); i++) {
        char pattern[PATH_MAX];
        glob_t files;
        if (snprintf(pattern, sizeof(pattern), "%s/%s", folder, cupti_names[i]) >= (int)sizeof(pattern))
            continue;
        if (glob(pattern, 0, NULL, &files) == 0)
            for (size_t k = 0; k < files.gl_pathc; k++)
                cupti_keep(found, files.gl_pathv[k]);
        globfree(&files);
    }
}

/* Searches the folders of a colon-separated list. */
static void cupti_list(struct gp_cupti_found *found, const char *list)
{
    char *copy = list ? strdup(list) : NULL, *state = copy, *folder;
    while (copy && (folder = strsep(&state, ":")))
        if (folder[0])
            cupti_folder(found, folder);
    free(copy);
}

static void cupti_below(struct gp_cupti_found *found, const char *root, const char *below)
{
    char folder[PATH_MAX];
    if (root && root[0] && snprintf(folder, sizeof(folder), "%s/%s", root, below) < (int)sizeof(folder))
        cupti_folder(found, folder);
}

static void cupti_toolkit(struct gp_cupti_found *found, const char *root)
{
    static const char *const folders[] = {"lib64", "extras/CUPTI/lib64", "targets/x86_64-linux/lib",
                                          "targets/sbsa-linux/lib"};
    for (size_t i = 0; i < GP_COUNT(folders); i++)
        cupti_below(found, root, folders[i]);
}

/* Searches for pip's nvidia-cuda-cupti wheels, first in the active virtual environment. */
static void cupti_pip(struct gp_cupti_found *found)
{
    const char *home = getenv("HOME");
    char user[PATH_MAX] = "";
    if (home && snprintf(user, sizeof(user), "%s/.local", home) >= (int)sizeof(user))
        user[0] = '\0';
    const char *const roots[] = {getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX"), user, "/usr/local", "/usr"};
    for (size_t i = 0; i < GP_COUNT(roots); i++) {
        cupti_below(found, roots[i], "lib/python3*/site-packages/nvidia/cu*/lib");
        cupti_below(found, roots[i], "lib/python3*/dist-packages/nvidia/cu*/lib");
    }
}

/* Finds libcupti.so.13, .12 and .11*: in LD_LIBRARY_PATH, the folders of the loader, CUDA_HOME,
 * /usr/local/cuda and pip's nvidia packages, each file once. */
static void cupti_find(struct gp_cupti_found *found)
{
    found->count = 0;
    cupti_list(found, getenv("LD_LIBRARY_PATH"));
    cupti_list(found, "/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/lib");
    cupti_toolkit(found, getenv("CUDA_HOME"));
    cupti_toolkit(found, "/usr/local/cuda");
    cupti_pip(found);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static void check_kernel(struct gp_doctor *doctor)
{
    struct utsname name;
    if (uname(&name) != 0)
        memset(&name, 0, sizeof(name));
    int fd = memfd_create("gpuprof-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    bool sealed = fd >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
    if (fd >= 0)
        close(fd);
    if (sealed)
        gp_check(doctor, "kernel", GP_OK, NULL, "%s %s: sealed memory files work", name.sysname, name.release);
    else
        gp_check(doctor, "kernel", GP_NO, "use Linux 3.17 or later, and a sandbox that allows memfd_create",
                 "%s %s: sealed memory files do not work, so programs cannot be profiled", name.sysname, name.release);
}

static void check_library(struct gp_doctor *doctor)
{
    char path[PATH_MAX];
    struct gp_probe probe;
    if (gp_launch_find(path, sizeof(path), "libgpuprof.so") != 0) {
        gp_check(doctor, "library", GP_NO, "build or install it: make, or make install PREFIX=...", "%s is missing",
                 path);
    } else {
        libcheck_library(path, &probe);
        if (probe.ok)
            gp_check(doctor, "library", GP_OK, NULL, "%s", path);
        else
            gp_check(doctor, "library", GP_NO, "build or install it again", "%s: %s", path, probe.text);
    }
    if (gp_launch_find(path, sizeof(path), "gpuprof/sim/libcuda.so.1") != 0) {
        gp_check(doctor, "simulator", GP_NO, "build or install it: make sim", "%s is missing", path);
    } else {
        libcheck_devices(path, &probe);
        if (probe.ok)
            gp_check(doctor, "simulator", GP_OK, NULL, "'gpuprof run --sim CMD' works without a GPU");
        else
            gp_check(doctor, "simulator", GP_NO, "build or install it again", "%s: %s", path, probe.text);
    }
    const char *other = getenv("CUDA_INJECTION64_PATH");
    if (other && other[0])
        gp_check(doctor, "injection", GP_UNSURE, "unset it to use 'gpuprof run'", "CUDA_INJECTION64_PATH is set to %s",
                 other);
}

/* The allocator and the driver hooks are loaded by LD_PRELOAD. */
static void check_shim(struct gp_doctor *doctor)
{
    char path[PATH_MAX];
    struct gp_probe probe;
    if (gp_launch_find(path, sizeof(path), "libgpuprof-shim.so") != 0) {
        gp_check(doctor, "shim", GP_NO, "build or install it: make, or make install PREFIX=...",
                 "%s is missing, so --allocator and GPUPROF_SOURCE=hooks do not work", path);
        return;
    }
    if (strpbrk(path, " \t\n:;")) {
        gp_check(doctor, "shim", GP_NO, "install gpuprof somewhere else",
                 "%s: a path with a space or a colon cannot be preloaded", path);
        return;
    }
    libcheck_preload(path, &probe);
    if (probe.ok)
        gp_check(doctor, "shim", GP_OK, NULL,
                 "LD_PRELOAD works, and so do --allocator and GPUPROF_SOURCE=hooks, except for programs that are "
                 "fully statically linked or change their user");
    else
        gp_check(doctor, "shim", GP_NO, "build or install it again; check whether a sandbox forbids LD_PRELOAD",
                 "%s: %s", path, probe.text);
}

static void check_driver(struct gp_doctor *doctor)
{
    struct gp_probe probe;
    gp_libcheck_driver(&probe);
    if (!probe.ok) {
        gp_check(doctor, "driver", GP_NO, "install NVIDIA's driver, or use the simulated GPU: gpuprof run --sim CMD",
                 "%s", probe.text);
        return;
    }
    gp_check(doctor, "driver", GP_OK, NULL, "libcuda.so.1 for CUDA %lld.%lld", probe.number / 1000,
             probe.number % 1000 / 10);
    libcheck_devices("libcuda.so.1", &probe);
    if (probe.ok && probe.number > 0)
        gp_check(doctor, "devices", GP_OK, NULL, "%lld", probe.number);
    else
        gp_check(doctor, "devices", GP_NO, "see nvidia-smi; in a container, give it the GPUs (--gpus all)",
                 "no usable GPU: %s", probe.ok ? "none found" : probe.text);
}

static void check_cupti(struct gp_doctor *doctor)
{
    static const char fix[] =
        "install the CUPTI of the CUDA toolkit (or pip install nvidia-cuda-cupti-cu12); programs that contain "
        "CUPTI, such as PyTorch, do not need it.  Without CUPTI, events come from driver hooks";
    struct gp_cupti_found found;
    struct gp_probe probe;
    char failed[GP_CUPTI_FOUND * 128] = "";
    cupti_find(&found);
    if (!found.count)
        gp_check(doctor, "cupti", GP_NO, fix,
                 "no libcupti.so found (LD_LIBRARY_PATH, CUDA_HOME, /usr/local/cuda, pip)");
    for (int i = 0; i < found.count; i++) {
        size_t used = strlen(failed);
        const char *before = used ? "; in vain: " : "";
        libcheck_cupti(found.paths[i], &probe);
        /* Without a driver the library's version is 0. */
        if (probe.ok && probe.number)
            gp_check(doctor, "cupti", GP_OK, NULL, "%s, API version %lld%s%s", found.paths[i], probe.number, before,
                     failed);
        else if (probe.ok)
            gp_check(doctor, "cupti", GP_OK, NULL, "%s, API version unknown%s%s", found.paths[i], before, failed);
        if (probe.ok)
            return;
        snprintf(failed + used, sizeof(failed) - used, "%s%s: %s", used ? "; " : "", found.paths[i], probe.text);
    }
    if (found.count)
        gp_check(doctor, "cupti", GP_NO, fix, "%s", failed);
}

static void check_nvml(struct gp_doctor *doctor)
{
    struct gp_nvml_gpu *gpus = NULL;
    int count = 0;
    char problem[GP_NVML_PROBLEM_BYTES];
    if (gp_nvml_read(&gpus, &count, problem) != 0)
        gp_check(doctor, "nvml", GP_UNSURE,
                 "install NVIDIA's driver, which contains it (in a container: the capability 'utility')",
                 "%s: totals of GPUs, and processes that are not profiled, are unknown", problem);
    else if (!gp_proc_host_pids())
        gp_check(doctor, "nvml", GP_UNSURE, "run gpuprof on the host, or with --pid=host",
                 "%d GPUs; it reports pids of the host, which are not valid in this container", count);
    else
        gp_check(doctor, "nvml", GP_OK, NULL, "%d GPUs; totals and other processes are known", count);
    gp_nvml_free(gpus, count);
}

/* The copies of CUPTI that the process tried, unless the first one works, and what it does not know
 * of that copy. */
static void check_copies(struct gp_doctor *doctor, const char *name, const struct gp_process *p)
{
    const struct gp_cupti_view *cupti = &p->cupti;
    char text[GP_COPY_TEXT], names[GP_WIRE_STRANGE * 50] = "";
    for (uint32_t i = 0; i < cupti->copy_count && (cupti->tried > 1 || p->source != GP_SOURCE_CUPTI); i++)
        gp_check(doctor, name, cupti->copies[i].status == 0 ? GP_OK : GP_UNSURE, NULL, "tried %s",
                 gp_copy_text(text, &cupti->copies[i]));
    for (uint32_t i = 0; i < cupti->name_count; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "", cupti->names[i]);
    }
    if (cupti->strange)
        gp_check(doctor, name, GP_UNSURE, "use a newer gpuprof",
                 "its CUPTI has %u entry points that look like memory and that this build does not know: %s%s",
                 cupti->strange, names, cupti->strange > cupti->name_count ? " .." : "");
}

/* The libraries in the process whose own pools could be seen into. */
static void check_doors(struct gp_doctor *doctor, const char *name, const struct gp_process *p)
{
    for (uint32_t i = 0; i < p->doors.door_count; i++) {
        const struct gp_wire_door *door = &p->doors.doors[i];
        if (door->state == GP_WIRE_DOOR_EXACT)
            gp_check(doctor, name, GP_OK, NULL, "what %s hands out of its pools is counted", door->name);
        else
            gp_check(doctor, name, GP_UNSURE, NULL, "%s's pools count as allocated as a whole: %s", door->name,
                     door->text);
    }
}

/* A profiled process, and the other profilers in it. */
static const char *subscriber(const struct gp_process *p)
{
    if (p->yielded)
        return " (released on request)";
    if (p->cupti.shared)
        return "; gpuprof shares the CUPTI subscriber";
    return p->source == GP_SOURCE_CUPTI ? "; gpuprof has the CUPTI subscriber" : "";
}

static void check_process(struct gp_doctor *doctor, const struct gp_process *p)
{
    char name[24], others[512];
    snprintf(name, sizeof(name), "pid %d", (int)p->pid);
    gp_checks_tracers_of(p->pid, others, sizeof(others));
    const char *also = others[0] ? "; also in it: " : "";
    if (p->state == GP_PROCESS_DAMAGED)
        gp_check(doctor, name, GP_NO, NULL, "%s: damaged session: %s", p->comm, p->problem);
    else if (p->gone)
        gp_check(doctor, name, GP_NO, "start the program again with GPUPROF_SOURCE=hooks, which does not need CUPTI",
                 "%s: the source is gone: the program ended CUPTI (cuptiFinalize), and later events are missing%s%s",
                 p->comm, also, others);
    else if (p->source == GP_SOURCE_NONE || p->disabled)
        gp_check(doctor, name, GP_NO,
                 "start the program again with 'gpuprof run', which counts with driver hooks if CUPTI cannot be used",
                 "%s: no events: %s%s%s%s%s", p->comm, p->source_detail, p->trouble[0] ? "; " : "", p->trouble, also,
                 others);
    else if (p->trouble[0])
        gp_check(doctor, name, GP_NO, NULL, "%s: source %s: %s%s%s", p->comm, gp_source_name(p->source), p->trouble,
                 also, others);
    else
        gp_check(doctor, name, GP_OK, NULL, "%s: source %s%s%s%s%s%s", p->comm, gp_source_name(p->source),
                 p->source_detail[0] ? ": " : "", p->source_detail, subscriber(p), also, others);
    if (p->state != GP_PROCESS_DAMAGED)
        check_copies(doctor, name, p), check_doors(doctor, name, p);
}

static void check_processes(struct gp_doctor *doctor)
{
    struct gp_collect_options options = {.exact = true}; /* a process looks after its source when it is asked */
    struct gp_system *system;
    if (gp_collect(&options, &system) != 0) {
        doctor->failed = true;
        return;
    }
    if (system->denied_count)
        gp_check(doctor, "others", GP_NO, "run gpuprof as root (or with CAP_SYS_PTRACE) to see them",
                 "%d processes of other users cannot be read", system->denied_count);
    else
        gp_check(doctor, "others", GP_OK, NULL, "every process can be read");
    for (int i = 0; i < system->process_count; i++)
        check_process(doctor, &system->processes[i]);
    gp_checks_tracers(doctor, system);
    if (system->process_count == 0)
        gp_check(doctor, "profiled", GP_UNSURE, "start one: gpuprof run CMD", "no profiled process is running");
    gp_system_free(system);
}

static int doctor_run(void *options)
{
    struct gp_doctor *doctor = options;
    char names[256], needed[256];
    int rc = 0;
    doctor->checks = json_array();
    check_kernel(doctor);
    check_library(doctor);
    check_shim(doctor);
    check_driver(doctor);
    check_cupti(doctor);
    check_nvml(doctor);
    check_processes(doctor);
    gp_checks_system(doctor);
    if (doctor->json && !doctor->failed) {
        json_t *top = json_pack("{s:s,s:s,s:O}", "schema", "gpuprof.doctor/1", "version", GPUPROF_VERSION, "checks",
                                doctor->checks);
        rc = gp_json_print(stdout, top, false);
    }
    json_decref(doctor->checks);
    if (rc)
        return gp_write_error("doctor", NULL, -rc);
    if (doctor->failed) {
        gp_error("doctor", "could not finish: %s", strerror(errno ? errno : ENOMEM));
        return GP_EXIT_FAILED;
    }
    int missing = gp_check_list(doctor->needed & ~gp_check_good(doctor), names, sizeof(names));
    if (!missing)
        return GP_EXIT_OK;
    gp_check_list(doctor->needed, needed, sizeof(needed));
    gp_error("doctor", "--need=%s: %d of these %s: %s", needed, missing,
             missing == 1 ? "does not work here" : "do not work here", names);
    return GP_EXIT_IMPOSSIBLE;
}

static const struct gp_command_option doctor_options[] = {
    GP_FLAG(struct gp_doctor, json, 0, "json", "print JSON, schema gpuprof.doctor/1"),
    GP_OPTION(struct gp_doctor, needed, 0, "need", "CHECK,..", GP_ARG_LIST, "the checks that must be ok",
              .choice = gp_check_name, .blanks = true),
    GP_OPTION_PINS(struct gp_doctor),
    {0}};

const struct gp_command_spec gp_command_doctor = {
    .name = "doctor",
    .summary = "report what works on this machine, and why the rest does not",
    .group = GP_GROUP_MACHINE,
    .usage = GP_LIST("[--json] [--need=CHECK,..] [--pins=DIR]"),
    .about = GP_LIST("Reports what of gpuprof works on this machine and, for the rest, the reason and what to do.",
                     "The exit status is 0 even if checks fail, 77 if a check that '--need' names is not ok, and 1 if "
                     "doctor itself failed."),
    .details = GP_LIST(
        "It examines the library, the driver, CUPTI, NVML, which profiler has the CUPTI subscriber in each "
        "profiled process, and the requirements of the agent: kernel, BTF, BPF file system, settings, lockdown, "
        "rights and the agent itself."),
    .options = doctor_options,
    .examples = GP_EXAMPLES({"gpuprof doctor", "Report all checks."},
                            {"gpuprof doctor --need driver,cupti && gpuprof run ./program",
                             "Run a program only where it can be profiled."}),
    GP_DEFAULTS(struct gp_doctor, .pins = GP_MAPS_PINS),
    .run = doctor_run,
};
