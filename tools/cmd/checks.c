/* SPDX-License-Identifier: MIT
 * checks.c: see checks.h.  Checks the requirements of `gpuprof agent` and `gpuprof top --system`. It
 * changes nothing and loads no BPF program.  Its parts: verdicts, the machine, tracers. */
#define _GNU_SOURCE
#include <cmd/checks.h>

#include <agent/maps/maps.h>
#include <base/compiler.h>
#include <base/spared.h>
#include <base/text.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <read/collect/collect.h>
#include <read/collect/procfs.h>
#include <show/terminal/term.h>
#include <show/text/write.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/utsname.h>
#include <unistd.h>

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */
/* The lines that `gpuprof doctor` prints, and which checks were good. Called by doctor.c, checks.c
 * and checks.c. */

/* The checks that --need takes.  silent: printed only if something is wrong, so a check without
 * a line is good. */
static const struct gp_check_kind {
    const char *name;
    bool silent;
} check_kinds[] = {
    {"kernel", false},  {"library", false},  {"simulator", false}, {"injection", true}, {"shim", false},
    {"driver", false},  {"devices", false},  {"cupti", false},     {"nvml", false},     {"others", false},
    {"profiled", true}, {"bpf", false},      {"btf", false},       {"bpffs", false},    {"perf", false},
    {"users", false},   {"lockdown", false}, {"rights", false},    {"agent", false},    {"tables", true},
};

const char *gp_check_name(unsigned i)
{
    return i < GP_COUNT(check_kinds) ? check_kinds[i].name : NULL;
}

uint32_t gp_check_good(const struct gp_doctor *doctor)
{
    uint32_t silent = 0;
    for (unsigned i = 0; i < GP_COUNT(check_kinds); i++)
        silent |= check_kinds[i].silent ? 1u << i : 0;
    return (doctor->made | silent) & ~doctor->bad;
}

int gp_check_list(uint32_t bits, char *names, size_t names_bytes)
{
    int count = 0;
    names[0] = '\0';
    for (unsigned i = 0; i < GP_COUNT(check_kinds); i++) {
        size_t used = strlen(names);
        if (bits >> i & 1)
            snprintf(names + used, names_bytes - used, "%s%s", count++ ? ", " : "", check_kinds[i].name);
    }
    return count;
}

/* On a terminal, lines are folded between words, below the column where they began. */
static void check_text(const char *text)
{
    const int column = 20;
    int width = gp_term_width(), room = width > column + 20 ? width - column : INT_MAX;
    for (; (int)strlen(text) > room; text += strspn(text, " ")) {
        int at = room;
        while (at > 0 && text[at] != ' ')
            at--;
        at = at > 0 ? at : room;
        printf("%.*s\n%*s", at, text, column, "");
        text += at;
    }
    puts(text);
}

void gp_check(struct gp_doctor *doctor, const char *name, enum gp_verdict verdict, const char *fix, const char *format,
              ...)
{
    static const char *const verdicts[] = {"ok", "no", "unknown"}, *const colours[] = {GP_GREEN, GP_RED, GP_YELLOW};
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    for (unsigned i = 0; i < GP_COUNT(check_kinds); i++) {
        if (strcmp(check_kinds[i].name, name) != 0) /* "pid N" has no kind: there may be many */
            continue;
        doctor->made |= 1u << i;
        doctor->bad |= verdict != GP_OK ? 1u << i : 0;
    }
    if (!doctor->json) {
        printf("%-10s %s%-8s%s ", name, gp_tone(stdout, colours[verdict]), verdicts[verdict], gp_tone(stdout, GP_OFF));
        check_text(text);
        if (fix) {
            snprintf(text, sizeof(text), "-> %s", fix);
            printf("%19s ", "");
            check_text(text);
        }
        return;
    }
    json_t *check = json_pack("{s:s,s:s,s:s,s:o}", "check", name, "result", verdicts[verdict], "detail", text, "fix",
                              gp_json_text(fix));
    if (!check || json_array_append_new(doctor->checks, check) != 0)
        doctor->failed = true;
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */

#define GP_BPF_FS 0xcafe4a11 /* BPF_FS_MAGIC, linux/magic.h */

/* Reads the first line of a small file.  False: the file cannot be read. */
static bool checks_line(const char *path, char *line, int line_bytes)
{
    FILE *file = fopen(path, "re");
    line[0] = '\0';
    if (!file)
        return false;
    bool read = fgets(line, line_bytes, file) != NULL;
    fclose(file);
    line[strcspn(line, "\n")] = '\0';
    return read;
}

/* The BPF programs need 5.15.  From 6.6 on one link serves many processes, without
 * CAP_SYS_ADMIN; returns that. */
static bool checks_kernel(struct gp_doctor *doctor)
{
    struct utsname name = {0};
    int major = 0, minor = 0;
    uname(&name);
    bool known = sscanf(name.release, "%d.%d", &major, &minor) == 2;
    bool many = major > 6 || (major == 6 && minor >= 6), enough = many || major == 6 || (major == 5 && minor >= 15);
    if (!known || !enough)
        gp_check(doctor, "bpf", GP_NO, "use Linux 5.15 or later", "%s is too old for the agent's BPF programs",
                 name.release);
    else
        gp_check(doctor, "bpf", GP_OK, NULL, "%s: the agent's BPF programs can run%s", name.release,
                 many ? ", with only CAP_BPF and CAP_PERFMON" : "; before 6.6 the agent needs CAP_SYS_ADMIN");
    return many;
}

static void checks_btf(struct gp_doctor *doctor)
{
    if (access("/sys/kernel/btf/vmlinux", R_OK) == 0)
        gp_check(doctor, "btf", GP_OK, NULL, "/sys/kernel/btf/vmlinux");
    else
        gp_check(doctor, "btf", GP_NO,
                 "use a kernel with CONFIG_DEBUG_INFO_BTF (the kernels of all large distributions have it)",
                 "/sys/kernel/btf/vmlinux: %s: the agent cannot adapt its BPF programs to this kernel",
                 strerror(errno));
}

static void checks_bpffs(struct gp_doctor *doctor)
{
    struct statfs fs;
    if (statfs("/sys/fs/bpf", &fs) == 0 && (unsigned long)fs.f_type == GP_BPF_FS)
        gp_check(doctor, "bpffs", GP_OK, NULL, "mounted on /sys/fs/bpf");
    else
        gp_check(doctor, "bpffs", GP_NO, "mount -t bpf bpf /sys/fs/bpf (as root; systemd does it at boot)",
                 "no BPF file system on /sys/fs/bpf; the agent mounts one if it has CAP_SYS_ADMIN");
}

static void checks_sysctls(struct gp_doctor *doctor)
{
    char line[128];
    if (checks_line("/proc/sys/kernel/perf_event_paranoid", line, sizeof(line)))
        gp_check(doctor, "perf", GP_OK, NULL, "kernel.perf_event_paranoid is %s: %s", line,
                 "it limits users without privileges, and the agent has them");
    else
        gp_check(doctor, "perf", GP_NO, "use a kernel with CONFIG_PERF_EVENTS",
                 "kernel.perf_event_paranoid cannot be read: there are no probes before kernel 6.6");
    if (!checks_line("/proc/sys/kernel/unprivileged_bpf_disabled", line, sizeof(line)))
        gp_check(doctor, "users", GP_UNSURE, NULL, "kernel.unprivileged_bpf_disabled cannot be read");
    else
        gp_check(doctor, "users", GP_OK, NULL, "kernel.unprivileged_bpf_disabled is %s%s", line,
                 line[0] == '0' ? "" : ": before kernel 5.19, 'top --system' needs CAP_BPF");
}

/* "none [integrity] confidentiality": brackets mark the active mode. */
static void checks_lockdown(struct gp_doctor *doctor)
{
    char line[128];
    if (!checks_line("/sys/kernel/security/lockdown", line, sizeof(line)))
        gp_check(doctor, "lockdown", GP_UNSURE, NULL, "/sys/kernel/security/lockdown cannot be read: %s",
                 strerror(errno));
    else if (strstr(line, "[confidentiality]"))
        gp_check(doctor, "lockdown", GP_NO, "boot with lockdown=integrity, or without lockdown",
                 "confidentiality: BPF programs may not read the memory of processes");
    else
        gp_check(doctor, "lockdown", GP_OK, NULL, "%s", line);
}

static uint64_t checks_capabilities(void)
{
    char line[256];
    unsigned long long mask = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "CapEff: %llx", &mask) == 1)
            break;
    }
    if (file)
        fclose(file);
    return mask;
}

static void checks_rights(struct gp_doctor *doctor, bool many)
{
    static const struct {
        int bit; /* linux/capability.h */
        const char *name, *what;
    } needed[] = {{39, "CAP_BPF", "maps and programs"},
                  {38, "CAP_PERFMON", "probes"},
                  {19, "CAP_SYS_PTRACE", "libraries in containers"},
                  {2, "CAP_DAC_READ_SEARCH", "libraries in containers"}};
    const uint64_t admin = 1ull << 21, mask = checks_capabilities();
    char missing[256] = "";
    for (size_t i = 0; i < GP_COUNT(needed); i++) {
        size_t used = strlen(missing);
        bool covered = i < 2 && (mask & admin);
        if (!covered && !(mask >> needed[i].bit & 1))
            snprintf(missing + used, sizeof(missing) - used, "%s%s (%s)", used ? ", " : "", needed[i].name,
                     needed[i].what);
    }
    if (!many && !(mask & admin)) {
        size_t used = strlen(missing);
        snprintf(missing + used, sizeof(missing) - used, "%sCAP_SYS_ADMIN (probes before 6.6)", used ? ", " : "");
    }
    bool may_open = mask & (admin | 1ull << 40);
    if (missing[0])
        gp_check(doctor, "rights", GP_NO, "run the agent as root, or as its systemd unit does",
                 "this user cannot run the agent, for lack of %s", missing);
    else
        gp_check(doctor, "rights", GP_OK, NULL, "this user may run the agent%s",
                 may_open ? "" : "; without CAP_CHECKPOINT_RESTORE it does not find libraries whose file was deleted");
}

static void checks_agent(struct gp_doctor *doctor)
{
    struct gp_system_view *view;
    char why[GP_SYSTEM_WHY];
    int err = gp_system_view_read(&view, doctor->pins, why, sizeof(why));
    if (err) {
        gp_check(doctor, "agent", err == -EACCES ? GP_UNSURE : GP_NO,
                 "only 'top --system', containers and metrics need it", "%s", why);
        return;
    }
    const struct gp_map_meta *meta = &view->meta;
    if (!view->alive)
        gp_check(doctor, "agent", GP_NO, "start it: gpuprof agent, or systemctl start gpuprof-agent",
                 "no agent is running; its tables in %s are not updated", doctor->pins);
    else
        gp_check(doctor, "agent", GP_OK, NULL, "pid %u: %llu batches, %llu events, %u GPUs, %u containers%s",
                 meta->agent_pid, (unsigned long long)meta->batches, (unsigned long long)meta->events,
                 view->device_count, view->container_count,
                 view->processes_seen ? "" : "; this user may not list the processes of other users");
    if (meta->map_full || meta->refused_batches)
        gp_check(doctor, "tables", GP_NO,
                 "use larger tables (--max-processes, --max-containers), or newer libraries if batches are refused",
                 "%llu updates found their table full, %llu batches were refused", (unsigned long long)meta->map_full,
                 (unsigned long long)meta->refused_batches);
    gp_system_view_free(view);
}

void gp_checks_system(struct gp_doctor *doctor)
{
    bool many = checks_kernel(doctor);
    checks_btf(doctor);
    checks_bpffs(doctor);
    checks_sysctls(doctor);
    checks_lockdown(doctor);
    checks_rights(doctor, many);
    checks_agent(doctor);
}

/* ---- tracers ----------------------------------------------------------------------------------------------------- */
/* Finds out which profiler has, or may take, the CUPTI subscriber of each process.  The session of a
 * profiled process names the holder.  For other processes the names of the mapped libraries and the
 * injection variable in /proc are all that can be read from outside. Called by doctor.c. */

#define GP_MAPS_BYTES (16u << 20) /* a process determines how many it has */

/* Libraries that take the subscriber, when they are loaded or while they record. */
static const struct gp_tracer {
    const char *prefix; /* of the library's file name */
    const char *profiler;
} known_tracers[] = {
    {"libToolsInjection", "Nsight Systems"},
    {"libcuda-injection", "Nsight Compute"},
    {"libcuinj64", "nvprof"},
    {"libhpcrun", "HPCToolkit"},
    {"libTAU", "TAU"},
    {"libscorep_", "Score-P"},
    {"libextrae", "Extrae"},
    {"libpapi.so", "PAPI"},
    {"libkineto", "Kineto"},
    {"libtorch_cpu.so", "PyTorch (while its profiler runs)"},
    {"libtensorflow_framework", "TensorFlow (while its profiler runs)"},
    {"libtensorflow_cc", "TensorFlow (while its profiler runs)"},
    {"xla_extension.so", "JAX (while its profiler runs)"},
};

struct gp_traced {      /* one process */
    const char *spared; /* what it is, if gpuprof does not start in it */
    bool ours;          /* libgpuprof.so is mapped */
    bool cupti;
    uint32_t tracers;   /* bits of known_tracers */
    char injected[256]; /* CUDA_INJECTION64_PATH, if it is another library */
};

static void traced_name(struct gp_traced *traced, const char *path)
{
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    traced->ours |= strncmp(name, "libgpuprof.so", strlen("libgpuprof.so")) == 0;
    traced->cupti |= strncmp(name, "libcupti.so", strlen("libcupti.so")) == 0;
    for (unsigned i = 0; i < GP_COUNT(known_tracers); i++)
        if (strncmp(name, known_tracers[i].prefix, strlen(known_tracers[i].prefix)) == 0)
            traced->tracers |= 1u << i;
}

/* Each line ends with a path; the kernel writes a newline in a path as \012. */
static bool traced_maps(struct gp_traced *traced, const struct gp_proc *proc)
{
    size_t bytes;
    char *text = gp_proc_whole(proc->dir, "maps", GP_MAPS_BYTES, &bytes), *rest = text, *line;
    while (rest && (line = strsep(&rest, "\n"))) {
        const char *path = strchr(line, '/');
        if (path)
            traced_name(traced, path);
    }
    free(text);
    return text != NULL;
}

static void traced_environ(struct gp_traced *traced, const struct gp_proc *proc)
{
    size_t bytes;
    char *text = gp_proc_whole(proc->dir, "environ", GP_ENVIRON_BYTES, &bytes);
    const char *value = gp_proc_variable(text, bytes, "CUDA_INJECTION64_PATH");
    if (value && *value && !strstr(value, "libgpuprof.so"))
        gp_text_clean(traced->injected, sizeof(traced->injected), value, strlen(value));
    free(text);
}

static void traced_profilers(const struct gp_traced *traced, char *text, size_t text_bytes)
{
    text[0] = '\0';
    for (unsigned i = 0; i < GP_COUNT(known_tracers); i++) {
        size_t used = strlen(text);
        if ((traced->tracers >> i & 1) && !strstr(text, known_tracers[i].profiler))
            snprintf(text + used, text_bytes - used, "%s%s", used ? ", " : "", known_tracers[i].profiler);
    }
    if (traced->injected[0]) {
        size_t used = strlen(text);
        snprintf(text + used, text_bytes - used, "%s%s (CUDA_INJECTION64_PATH)", used ? ", " : "", traced->injected);
    }
}

static bool traced_read(struct gp_traced *traced, const struct gp_proc *proc)
{
    *traced = (struct gp_traced){0};
    if (!traced_maps(traced, proc))
        return false;
    traced_environ(traced, proc);
    char program[4096];
    ssize_t got = readlinkat(proc->dir, "exe", program, sizeof(program) - 1);
    program[got > 0 ? got : 0] = '\0';
    traced->spared = gp_spared(program);
    return true;
}

void gp_checks_tracers_of(pid_t pid, char *text, size_t text_bytes)
{
    struct gp_traced traced;
    struct gp_proc proc;
    text[0] = '\0';
    if (gp_proc_open(&proc, pid) != 0)
        return;
    if (traced_read(&traced, &proc))
        traced_profilers(&traced, text, text_bytes);
    gp_proc_close(&proc);
}

struct gp_tracing {
    struct gp_doctor *doctor;
    const struct gp_system *system;
};

static int tracer_visit(pid_t pid, void *context)
{
    const struct gp_tracing *tracing = context;
    struct gp_traced traced;
    struct gp_proc proc;
    char who[512], name[24];
    for (int i = 0; i < tracing->system->process_count; i++)
        if (tracing->system->processes[i].pid == pid)
            return 0; /* doctor.c has printed its line */
    if (gp_proc_open(&proc, pid) != 0)
        return 0;
    bool is_read = traced_read(&traced, &proc);
    snprintf(name, sizeof(name), "pid %d", (int)pid);
    /* A process without CUPTI has no subscriber; Nsight has CUPTI inside its own library. */
    if (is_read && traced.spared && traced.ours) {
        gp_check(tracing->doctor, name, GP_OK, NULL, "%s: not profiled: gpuprof does not start in %s", proc.comm,
                 traced.spared);
    } else if (is_read && (traced.cupti || traced.tracers & 3u || traced.injected[0])) {
        traced_profilers(&traced, who, sizeof(who));
        gp_check(tracing->doctor, name, GP_UNSURE, NULL, "%s: not profiled%s; CUPTI subscriber: %s", proc.comm,
                 traced.ours ? ", although libgpuprof.so is loaded" : "",
                 who[0] ? who : "CUPTI is loaded; its user cannot be determined from outside");
    }
    gp_proc_close(&proc);
    return 0;
}

void gp_checks_tracers(struct gp_doctor *doctor, const struct gp_system *system)
{
    struct gp_tracing tracing = {doctor, system};
    gp_proc_each(tracer_visit, &tracing);
}
