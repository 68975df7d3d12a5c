/* SPDX-License-Identifier: MIT
 *
 * doctor.c: `gpuprof doctor`: reports what works on this machine and what to do about the rest.
 * Called by commands.c; checks.h has the checks that are in files of their own.
 */
#define _GNU_SOURCE /* memfd_create */
#include <agent/maps/maps.h>
#include <cmd/checks.h>
#include <cmd/cmd.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <limits.h>
#include <read/collect/collect.h>
#include <read/collect/procfs.h>
#include <show/text/stats.h>
#include <show/text/write.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

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
        gp_libcheck_library(path, &probe);
        if (probe.ok)
            gp_check(doctor, "library", GP_OK, NULL, "%s", path);
        else
            gp_check(doctor, "library", GP_NO, "build or install it again", "%s: %s", path, probe.text);
    }
    if (gp_launch_find(path, sizeof(path), "gpuprof/sim/libcuda.so.1") != 0) {
        gp_check(doctor, "simulator", GP_NO, "build or install it: make sim", "%s is missing", path);
    } else {
        gp_libcheck_devices(path, &probe);
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
    gp_libcheck_preload(path, &probe);
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
    gp_libcheck_devices("libcuda.so.1", &probe);
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
    gp_cupti_find(&found);
    if (!found.count)
        gp_check(doctor, "cupti", GP_NO, fix,
                 "no libcupti.so found (LD_LIBRARY_PATH, CUDA_HOME, /usr/local/cuda, pip)");
    for (int i = 0; i < found.count; i++) {
        size_t used = strlen(failed);
        const char *before = used ? "; in vain: " : "";
        gp_libcheck_cupti(found.paths[i], &probe);
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
