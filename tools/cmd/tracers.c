/* SPDX-License-Identifier: MIT
 *
 * tracers.c: finds out which profiler has, or may take, the CUPTI subscriber of each process; see
 * checks.h.  The session of a profiled process names the holder.  For other processes the names of
 * the mapped libraries and the injection variable in /proc are all that can be read from outside.
 * Called by doctor.c.
 */
#define _GNU_SOURCE /* strsep, readlinkat */
#include <cmd/checks.h>

#include <base/spared.h>
#include <base/text.h>
#include <read/collect/peer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
