/* SPDX-License-Identifier: MIT
 * doctor.c: `gpuprof doctor`: what works on this machine, and what to do about the rest.  Called by main.c. */
#define _GNU_SOURCE /* memfd_create */
#include <cmd/checks.h>
#include <cmd/cmd.h>
#include <cmd/cuptifind.h>
#include <cmd/libcheck.h>
#include <collect/nvml.h>
#include <collect/procfs.h>
#include <gpuprof/gpuprof.h>
#include <write/stats.h>
#include <write/write.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <maps/maps.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char doctor_help[] =
    "usage: gpuprof doctor [--json] [--need CHECK,..] [--pins DIR]\n"
    "\n"
    "Says what of gpuprof works on this machine and, for the rest, why not and what to do.\n"
    "The exit status is 0 even if things are missing, 77 if one of those that --need names is; 1 if doctor itself "
    "failed.\n"
    "\n"
    "      --need CHECK,..  what must work: names as in the first column (agent, driver, cupti, btf, ...)\n"
    "      --pins DIR       where 'gpuprof agent' pins its maps (" GP_MAPS_PINS ")\n"
    "      --json           schema gpuprof.doctor/1\n";

/* What --need takes.  silent: only said where something is wrong. */
static const struct gp_check_name {
    const char *name;
    bool silent;
} gp_check_names[] = {
    {"kernel", false},  {"library", false},  {"simulator", false}, {"injection", true}, {"shim", false},
    {"driver", false},  {"devices", false},  {"cupti", false},     {"nvml", false},     {"others", false},
    {"profiled", true}, {"bpf", false},      {"btf", false},       {"bpffs", false},    {"perf", false},
    {"users", false},   {"lockdown", false}, {"rights", false},    {"agent", false},    {"tables", true},
};

/* The bit of a check; 0: a line of which there may be many (pid N). */
static uint32_t check_bit(const char *name, size_t length)
{
    for (size_t i = 0; i < GP_COUNT(gp_check_names); i++) {
        if (strlen(gp_check_names[i].name) == length && strncmp(gp_check_names[i].name, name, length) == 0)
            return 1u << i;
    }
    return 0;
}

static int check_needs(const struct gp_doctor *doctor)
{
    char known[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < GP_COUNT(gp_check_names); i++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "", gp_check_names[i].name);
    for (const char *at = doctor->needed; at && *at; at += strcspn(at, ","), at += *at == ',') {
        if (!check_bit(at, strcspn(at, ",")))
            return gp_usage_error("doctor", "--need %.*s: no such check (they are: %s)", (int)strcspn(at, ","), at,
                                  known);
    }
    return GP_EXIT_OK;
}

/* How many of the needed checks are not ok; their names, with a comma between. */
static int check_missing(const struct gp_doctor *doctor, char *names, size_t names_bytes)
{
    int count = 0;
    names[0] = '\0';
    for (size_t i = 0, used = 0; i < GP_COUNT(gp_check_names); i++) {
        const struct gp_check_name *check = &gp_check_names[i];
        bool ok = !(doctor->bad >> i & 1) && (doctor->made >> i & 1 || check->silent), needed = false;
        for (const char *at = doctor->needed; at && *at; at += strcspn(at, ","), at += *at == ',')
            needed |= check_bit(at, strcspn(at, ",")) == 1u << i;
        if (!ok && needed && used < names_bytes)
            used += (size_t)snprintf(names + used, names_bytes - used, "%s%s", count++ ? ", " : "", check->name);
    }
    return count;
}

void gp_check(struct gp_doctor *doctor, const char *name, enum gp_verdict verdict, const char *fix, const char *format,
              ...)
{
    static const char *const verdicts[] = {"ok", "no", "unknown"};
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    uint32_t bit = check_bit(name, strlen(name));
    doctor->made |= bit;
    doctor->bad |= verdict != GP_OK ? bit : 0;
    if (!doctor->json) {
        printf("%-10s %-8s %s\n", name, verdicts[verdict], text);
        if (fix)
            printf("%-10s %-8s -> %s\n", "", "", fix);
        return;
    }
    json_t *check = json_pack("{s:s,s:s,s:s,s:o}", "check", name, "result", verdicts[verdict], "detail", text, "fix",
                              gp_json_text(fix));
    if (!check || json_array_append_new(doctor->checks, check) != 0)
        doctor->failed = true;
}

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
        gp_check(doctor, "kernel", GP_NO, "a kernel of 3.17 or later, and a sandbox that allows memfd_create",
                 "%s %s: sealed memory files do not work: programs cannot be profiled", name.sysname, name.release);
}

static void check_library(struct gp_doctor *doctor)
{
    char path[PATH_MAX];
    struct gp_probe probe;
    if (gp_launch_find(path, sizeof(path), "libgpuprof.so") != 0) {
        gp_check(doctor, "library", GP_NO, "build or install it: make, or make install PREFIX=...", "%s is missing",
                 path);
    } else {
        gp_probe_library(path, &probe);
        if (probe.ok)
            gp_check(doctor, "library", GP_OK, NULL, "%s", path);
        else
            gp_check(doctor, "library", GP_NO, "build or install it again", "%s: %s", path, probe.text);
    }
    if (gp_launch_find(path, sizeof(path), "gpuprof/sim/libcuda.so.1") != 0) {
        gp_check(doctor, "simulator", GP_NO, "build or install it: make sim", "%s is missing", path);
    } else {
        gp_probe_devices(path, &probe);
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

/* The allocator and the driver hooks come by LD_PRELOAD. */
static void check_shim(struct gp_doctor *doctor)
{
    char path[PATH_MAX];
    struct gp_probe probe;
    if (gp_launch_find(path, sizeof(path), "libgpuprof-shim.so") != 0) {
        gp_check(doctor, "shim", GP_NO, "build or install it: make, or make install PREFIX=...",
                 "%s is missing: no --allocator, no GPUPROF_SOURCE=hooks", path);
        return;
    }
    if (strpbrk(path, " \t\n:;")) {
        gp_check(doctor, "shim", GP_NO, "install gpuprof somewhere else",
                 "%s: a path with a space or a colon cannot be preloaded", path);
        return;
    }
    gp_probe_preload(path, &probe);
    if (probe.ok)
        gp_check(doctor, "shim", GP_OK, NULL,
                 "LD_PRELOAD works: --allocator and GPUPROF_SOURCE=hooks do, but for programs that are linked "
                 "statically as a whole or change their user");
    else
        gp_check(doctor, "shim", GP_NO, "build or install it again; a sandbox may forbid LD_PRELOAD", "%s: %s", path,
                 probe.text);
}

static void check_driver(struct gp_doctor *doctor)
{
    struct gp_probe probe;
    gp_probe_driver(&probe);
    if (!probe.ok) {
        gp_check(doctor, "driver", GP_NO, "install NVIDIA's driver, or use the simulated GPU: gpuprof run --sim CMD",
                 "%s", probe.text);
        return;
    }
    gp_check(doctor, "driver", GP_OK, NULL, "libcuda.so.1 for CUDA %lld.%lld", probe.number / 1000,
             probe.number % 1000 / 10);
    gp_probe_devices("libcuda.so.1", &probe);
    if (probe.ok && probe.number > 0)
        gp_check(doctor, "devices", GP_OK, NULL, "%lld", probe.number);
    else
        gp_check(doctor, "devices", GP_NO, "see nvidia-smi; in a container, give it the GPUs (--gpus all)",
                 "no GPU can be used: %s", probe.ok ? "there is none" : probe.text);
}

static void check_cupti(struct gp_doctor *doctor)
{
    static const char fix[] =
        "install the CUDA toolkit's CUPTI (or pip install nvidia-cuda-cupti-cu12); programs that bring "
        "their own (PyTorch does) need nothing.  Without one, driver hooks are the source";
    char path[PATH_MAX];
    struct gp_probe probe;
    if (gp_cupti_find(path, sizeof(path)) != 0) {
        gp_check(doctor, "cupti", GP_NO, fix,
                 "no libcupti.so found (LD_LIBRARY_PATH, CUDA_HOME, /usr/local/cuda, pip)");
        return;
    }
    gp_probe_cupti(path, &probe);
    /* Without a driver the library answers 0. */
    if (probe.ok && probe.number)
        gp_check(doctor, "cupti", GP_OK, NULL, "%s, API version %lld", path, probe.number);
    else if (probe.ok)
        gp_check(doctor, "cupti", GP_OK, NULL, "%s, API version unknown", path);
    else
        gp_check(doctor, "cupti", GP_NO, fix, "%s: %s", path, probe.text);
}

static void check_nvml(struct gp_doctor *doctor)
{
    struct gp_nvml_gpu *gpus = NULL;
    int count = 0;
    char problem[GP_NVML_PROBLEM_BYTES];
    if (gp_nvml_read(&gpus, &count, problem) != 0)
        gp_check(doctor, "nvml", GP_UNSURE, "it comes with NVIDIA's driver (in a container: the capability 'utility')",
                 "%s: totals of the GPUs and processes that are not profiled stay unknown", problem);
    else if (!gp_proc_host_pids())
        gp_check(doctor, "nvml", GP_UNSURE, "run gpuprof on the host, or with --pid=host",
                 "%d GPUs; its pids are those of the machine and mean nothing in this container", count);
    else
        gp_check(doctor, "nvml", GP_OK, NULL, "%d GPUs, totals and other processes are known", count);
    gp_nvml_free(gpus, count);
}

/* A process that we profile, and who else is in it. */
static void check_process(struct gp_doctor *doctor, const struct gp_process *p)
{
    char name[24], others[512];
    snprintf(name, sizeof(name), "pid %d", (int)p->pid);
    gp_checks_tracers_of(p->pid, others, sizeof(others));
    const char *also = others[0] ? "; also in it: " : "";
    if (p->state == GP_PROCESS_DAMAGED)
        gp_check(doctor, name, GP_NO, NULL, "%s: damaged session: %s", p->comm, p->problem);
    else if (p->source == GP_SOURCE_NONE || p->disabled)
        gp_check(doctor, name, GP_NO, "end the other profiler, or start the program again with GPUPROF_SOURCE=hooks",
                 "%s: no events: %s%s%s%s%s", p->comm, p->source_detail, p->trouble[0] ? "; " : "", p->trouble, also,
                 others);
    else
        gp_check(doctor, name, GP_OK, NULL, "%s: source %s%s%s%s%s%s", p->comm, gp_source_name(p->source),
                 p->source_detail[0] ? ": " : "", p->source_detail,
                 p->yielded                     ? " (given up on request)"
                 : p->source == GP_SOURCE_CUPTI ? "; gpuprof has the CUPTI subscriber"
                                                : "",
                 also, others);
}

static void check_processes(struct gp_doctor *doctor)
{
    struct gp_collect_options options = {.exact = false};
    struct gp_system *system;
    if (gp_collect(&options, &system) != 0) {
        doctor->failed = true;
        return;
    }
    if (system->denied_count)
        gp_check(doctor, "others", GP_NO, "run gpuprof as root (or with CAP_SYS_PTRACE) to see them",
                 "%d processes of other users may not be looked at", system->denied_count);
    else
        gp_check(doctor, "others", GP_OK, NULL, "every process may be looked at");
    for (int i = 0; i < system->process_count; i++)
        check_process(doctor, &system->processes[i]);
    gp_checks_tracers(doctor, system);
    if (system->process_count == 0)
        gp_check(doctor, "profiled", GP_UNSURE, "start one: gpuprof run CMD", "no profiled process runs now");
    gp_system_free(system);
}

static int doctor_parse(int argc, char **argv, struct gp_doctor *doctor, bool *help)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"need", required_argument, NULL, 'n'},
                                            {"pins", required_argument, NULL, 'P'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int c;
    optind = 0;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        if (c == 'j')
            doctor->json = true;
        else if (c == 'n')
            doctor->needed = optarg;
        else if (c == 'P')
            doctor->pins = optarg;
        else if (c == 'h')
            *help = true;
        else
            return gp_option_error("doctor", c, argv, optind, optopt);
    }
    if (optind < argc)
        return gp_usage_error("doctor", "%s: unexpected argument", argv[optind]);
    return check_needs(doctor);
}

int gp_cmd_doctor(int argc, char **argv)
{
    struct gp_doctor doctor = {.pins = GP_MAPS_PINS};
    bool help = false;
    int rc = doctor_parse(argc, argv, &doctor, &help);
    if (rc)
        return rc;
    if (help) {
        fputs(doctor_help, stdout);
        return GP_EXIT_OK;
    }
    doctor.checks = json_array();
    check_kernel(&doctor);
    check_library(&doctor);
    check_shim(&doctor);
    check_driver(&doctor);
    check_cupti(&doctor);
    check_nvml(&doctor);
    check_processes(&doctor);
    gp_checks_system(&doctor);
    if (doctor.json && !doctor.failed) {
        json_t *top = json_pack("{s:s,s:s,s:O}", "schema", "gpuprof.doctor/1", "version", GPUPROF_VERSION, "checks",
                                doctor.checks);
        doctor.failed = gp_json_print(stdout, top, false) != 0;
    }
    json_decref(doctor.checks);
    if (doctor.failed)
        gp_error("doctor", "could not finish: %s", strerror(errno ? errno : ENOMEM));
    char names[256];
    int missing = check_missing(&doctor, names, sizeof(names));
    if (!doctor.failed && missing)
        gp_error("doctor", "--need %s: %d of these %s: %s", doctor.needed, missing,
                 missing == 1 ? "does not work here" : "do not work here", names);
    return doctor.failed ? GP_EXIT_FAILED : missing ? GP_EXIT_IMPOSSIBLE : GP_EXIT_OK;
}
