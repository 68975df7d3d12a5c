/* SPDX-License-Identifier: MIT
 *
 * tracers.c: who has, or may take, the CUPTI subscriber of each process that may be looked at; see checks.h.  A process
 * that we profile says it (its session names who holds it); of every other one /proc tells which libraries it maps and
 * what CUDA was told to inject.  Nothing but their names is read: what a profiler does with CUPTI its process alone
 * knows.
 */
#define _GNU_SOURCE
#include <cmd/checks.h>

#include <base/text.h>
#include <collect/procfs.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file of /proc may be as long as its process likes. */
#define GP_MAPS_BYTES    (16u << 20)
#define GP_ENVIRON_BYTES (2u << 20)

/* Libraries that take the subscriber, at once or while somebody asks them to record. */
static const struct gp_tracer {
    const char *begin; /* of the library's file name */
    const char *who;
} gp_tracers[] = {
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

struct gp_traced { /* one process */
    bool ours;     /* our library is mapped */
    bool cupti;
    uint32_t tracers;   /* bits of gp_tracers */
    char injected[256]; /* CUDA_INJECTION64_PATH, if it is not our library */
};

static void traced_name(struct gp_traced *traced, const char *path)
{
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    traced->ours |= strncmp(name, "libgpuprof.so", strlen("libgpuprof.so")) == 0;
    traced->cupti |= strncmp(name, "libcupti.so", strlen("libcupti.so")) == 0;
    for (unsigned i = 0; i < GP_COUNT(gp_tracers); i++)
        if (strncmp(name, gp_tracers[i].begin, strlen(gp_tracers[i].begin)) == 0)
            traced->tracers |= 1u << i;
}

/* A file of /proc/PID whose length is not known, up to most bytes and ended by a NUL; NULL: not to be read. */
static char *traced_file(const struct gp_proc *proc, const char *name, size_t most, size_t *bytes)
{
    int fd = openat(proc->dir, name, O_RDONLY | O_CLOEXEC);
    size_t room = 65536, used = 0;
    char *text = fd < 0 ? NULL : malloc(room);
    for (ssize_t got = 1; text && got > 0 && used<most; used += got> 0 ? (size_t)got : 0) {
        if (room - used < 4096) {
            char *more = realloc(text, room * 2);
            if (!more)
                break;
            text = more;
            room *= 2;
        }
        got = read(fd, text + used, room - used - 1);
    }
    if (fd >= 0)
        close(fd);
    if (text)
        text[used] = '\0';
    *bytes = used;
    return text;
}

/* Lines end with the path; a newline in a path is written as \012. */
static bool traced_maps(struct gp_traced *traced, const struct gp_proc *proc)
{
    size_t bytes;
    char *text = traced_file(proc, "maps", GP_MAPS_BYTES, &bytes), *rest = text, *line;
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
    static const char key[] = "CUDA_INJECTION64_PATH=";
    size_t bytes, at = 0;
    char *text = traced_file(proc, "environ", GP_ENVIRON_BYTES, &bytes);
    for (; text && at < bytes; at += strlen(text + at) + 1) {
        const char *value = text + at + strlen(key);
        if (strncmp(text + at, key, strlen(key)) == 0 && *value && !strstr(value, "libgpuprof.so"))
            gp_text_clean(traced->injected, sizeof(traced->injected), value, strlen(value));
    }
    free(text);
}

static void traced_who(const struct gp_traced *traced, char *text, size_t text_bytes)
{
    text[0] = '\0';
    for (unsigned i = 0; i < GP_COUNT(gp_tracers); i++) {
        size_t used = strlen(text);
        if ((traced->tracers >> i & 1) && !strstr(text, gp_tracers[i].who))
            snprintf(text + used, text_bytes - used, "%s%s", used ? ", " : "", gp_tracers[i].who);
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
        traced_who(&traced, text, text_bytes);
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
            return 0; /* it has said so itself */
    if (gp_proc_open(&proc, pid) != 0)
        return 0;
    /* Without CUPTI nobody has a subscriber; Nsight's is within its own library. */
    if (traced_read(&traced, &proc) && (traced.cupti || traced.tracers & 3u || traced.injected[0])) {
        traced_who(&traced, who, sizeof(who));
        snprintf(name, sizeof(name), "pid %d", (int)pid);
        gp_check(tracing->doctor, name, GP_UNSURE, NULL, "%s: not profiled%s; the CUPTI subscriber: %s", proc.comm,
                 traced.ours ? ", though our library is loaded" : "",
                 who[0] ? who : "CUPTI is loaded, by whom cannot be seen from outside");
    }
    gp_proc_close(&proc);
    return 0;
}

void gp_checks_tracers(struct gp_doctor *doctor, const struct gp_system *system)
{
    struct gp_tracing tracing = {doctor, system};
    gp_proc_each(tracer_visit, &tracing);
}
