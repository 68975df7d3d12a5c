/* SPDX-License-Identifier: MIT
 *
 * nvml.c: see collect.h. The ABI below is declared by hand, from the public, documented entry points
 * and record layouts.
 */
#include <read/collect/collect.h>

#include <base/compiler.h>
#include <base/text.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GP_NVML_INSUFFICIENT_SIZE 7
#define GP_NVML_TEXT_BYTES        96 /* the size that NVML requires for names and UUIDs */
/* A driver has at most 64 GPUs and some hundred processes on one; more means a damaged answer. */
#define GP_NVML_MOST_GPUS      64u
#define GP_NVML_MOST_PROCESSES 4096u

struct gp_nvml_memory {
    unsigned long long total, free, used;
};

/* Of driver 510 and later.  What the driver keeps of the device for itself is part of the total, and in the first form
 * of what is used too: 616 MiB of an H200. */
struct gp_nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
#define GP_NVML_MEMORY_V2 (sizeof(struct gp_nvml_memory_v2) | 2u << 24)

/* Record of the _v2 and _v3 process lists. */
struct gp_nvml_info {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
};

typedef int (*gp_nvml_init_fn)(void);
typedef int (*gp_nvml_count_fn)(unsigned *);
typedef int (*gp_nvml_handle_fn)(unsigned, void **);
typedef int (*gp_nvml_text_fn)(void *, char *, unsigned);
typedef int (*gp_nvml_memory_fn)(void *, struct gp_nvml_memory *);
typedef int (*gp_nvml_memory_v2_fn)(void *, struct gp_nvml_memory_v2 *);
typedef int (*gp_nvml_processes_fn)(void *, unsigned *, struct gp_nvml_info *);

static struct {
    bool tried;
    char problem[GP_NVML_PROBLEM_BYTES]; /* "" if usable */
    gp_nvml_count_fn count;
    gp_nvml_handle_fn handle;
    gp_nvml_text_fn uuid, name;
    gp_nvml_memory_fn memory;
    gp_nvml_memory_v2_fn memory_v2;         /* may be NULL */
    gp_nvml_processes_fn compute, graphics; /* may be NULL */
} gp_nvml;

static void *nvml_either(void *library, const char *first, const char *second)
{
    void *symbol = dlsym(library, first);
    return symbol ? symbol : dlsym(library, second);
}

static void nvml_load(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(gp_nvml.problem, sizeof(gp_nvml.problem), "libnvidia-ml.so.1 is not installed");
        return;
    }
    gp_nvml_init_fn init = (gp_nvml_init_fn)dlsym(library, "nvmlInit_v2");
    gp_nvml.count = (gp_nvml_count_fn)dlsym(library, "nvmlDeviceGetCount_v2");
    gp_nvml.handle = (gp_nvml_handle_fn)dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    gp_nvml.uuid = (gp_nvml_text_fn)dlsym(library, "nvmlDeviceGetUUID");
    gp_nvml.name = (gp_nvml_text_fn)dlsym(library, "nvmlDeviceGetName");
    gp_nvml.memory = (gp_nvml_memory_fn)dlsym(library, "nvmlDeviceGetMemoryInfo");
    gp_nvml.memory_v2 = (gp_nvml_memory_v2_fn)dlsym(library, "nvmlDeviceGetMemoryInfo_v2");
    gp_nvml.compute = (gp_nvml_processes_fn)nvml_either(library, "nvmlDeviceGetComputeRunningProcesses_v3",
                                                        "nvmlDeviceGetComputeRunningProcesses_v2");
    gp_nvml.graphics = (gp_nvml_processes_fn)nvml_either(library, "nvmlDeviceGetGraphicsRunningProcesses_v3",
                                                         "nvmlDeviceGetGraphicsRunningProcesses_v2");
    int rc = -1;
    if (!init || !gp_nvml.count || !gp_nvml.handle || !gp_nvml.uuid || !gp_nvml.name || !gp_nvml.memory)
        snprintf(gp_nvml.problem, sizeof(gp_nvml.problem),
                 "libnvidia-ml.so.1 lacks entry points of driver 450 and later");
    else if ((rc = init()) != 0)
        snprintf(gp_nvml.problem, sizeof(gp_nvml.problem), "nvmlInit_v2 failed with error %d", rc);
    if (rc != 0)
        dlclose(library);
}

static int nvml_append(struct gp_nvml_gpu *gpu, const struct gp_nvml_info *infos, unsigned count)
{
    if (!count) /* realloc would free the list of a GPU without processes */
        return 0;
    struct gp_nvml_process *more = realloc(gpu->processes, (size_t)(gpu->process_count + (int)count) * sizeof(*more));
    if (!more)
        return -ENOMEM;
    gpu->processes = more;
    for (unsigned i = 0; i < count; i++) {
        int at = 0;
        while (at < gpu->process_count && more[at].pid != infos[i].pid)
            at++;
        int64_t bytes = infos[i].used > INT64_MAX ? -1 : (int64_t)infos[i].used; /* all ones: not available */
        if (at == gpu->process_count)
            more[gpu->process_count++] = (struct gp_nvml_process){infos[i].pid, bytes};
        else if (bytes > more[at].bytes)
            more[at].bytes = bytes; /* the process is in both lists: the same memory */
    }
    return 0;
}

static int nvml_list(struct gp_nvml_gpu *gpu, void *handle, gp_nvml_processes_fn list)
{
    unsigned count = 64;
    struct gp_nvml_info *infos = NULL;
    int rc = GP_NVML_INSUFFICIENT_SIZE;
    /* The list may grow between two calls; four attempts are enough unless processes start all the
     * time. */
    for (int i = 0; i < 4 && rc == GP_NVML_INSUFFICIENT_SIZE && count <= GP_NVML_MOST_PROCESSES; i++) {
        unsigned room = count + 16;
        struct gp_nvml_info *more = realloc(infos, room * sizeof(*infos));
        if (!more) {
            free(infos);
            return -ENOMEM;
        }
        infos = more;
        count = room;
        rc = list(handle, &count, infos);
        if (rc == 0 && count > room)
            rc = -1;
    }
    int result = rc == 0 ? nvml_append(gpu, infos, count) : -EIO;
    free(infos);
    return result;
}

/* The total that programs can have, which is CUDA's, and what is used of it, as nvidia-smi shows it. */
static void nvml_memory_read(struct gp_nvml_gpu *gpu, void *handle)
{
    struct gp_nvml_memory_v2 second = {.version = GP_NVML_MEMORY_V2};
    struct gp_nvml_memory memory;
    if (gp_nvml.memory_v2 && gp_nvml.memory_v2(handle, &second) == 0 && second.reserved <= second.total)
        memory = (struct gp_nvml_memory){second.total - second.reserved, second.free, second.used};
    else if (gp_nvml.memory(handle, &memory) != 0)
        return;
    if (memory.total > INT64_MAX || memory.used > INT64_MAX)
        return;
    gpu->total_bytes = (int64_t)memory.total;
    gpu->used_bytes = (int64_t)memory.used;
}

static int nvml_gpu_read(struct gp_nvml_gpu *gpu, unsigned index)
{
    char text[GP_NVML_TEXT_BYTES];
    void *handle;
    gpu->total_bytes = gpu->used_bytes = -1;
    gpu->process_count = -1;
    if (gp_nvml.handle(index, &handle) != 0)
        return 0; /* lost, or not accessible: stays unknown */
    if (gp_nvml.uuid(handle, text, sizeof(text)) == 0)
        gp_text_clean(gpu->uuid, sizeof(gpu->uuid), text, sizeof(text));
    if (gp_nvml.name(handle, text, sizeof(text)) == 0)
        gp_text_clean(gpu->name, sizeof(gpu->name), text, sizeof(text));
    nvml_memory_read(gpu, handle);
    gpu->process_count = 0;
    int rc = gp_nvml.compute ? nvml_list(gpu, handle, gp_nvml.compute) : -ENOSYS;
    if (rc == 0 && gp_nvml.graphics && nvml_list(gpu, handle, gp_nvml.graphics) == -ENOMEM)
        rc = -ENOMEM;
    if (rc == -ENOMEM)
        return rc;
    if (rc)
        gpu->process_count = -1;
    return 0;
}

int gp_nvml_read(struct gp_nvml_gpu **gpus, int *count, char problem[GP_NVML_PROBLEM_BYTES])
{
    unsigned n = 0;
    if (!gp_nvml.tried)
        nvml_load();
    gp_nvml.tried = true;
    snprintf(problem, GP_NVML_PROBLEM_BYTES, "%s", gp_nvml.problem);
    if (problem[0])
        return -ENOENT;
    int rc = gp_nvml.count(&n);
    if (rc != 0 || n > GP_NVML_MOST_GPUS) {
        snprintf(problem, GP_NVML_PROBLEM_BYTES, "nvmlDeviceGetCount_v2 failed with error %d", rc);
        return -EIO;
    }
    struct gp_nvml_gpu *list = calloc(n ? n : 1, sizeof(*list));
    rc = list ? 0 : -ENOMEM;
    for (unsigned i = 0; i < n && !rc; i++)
        rc = nvml_gpu_read(&list[i], i);
    if (rc) {
        gp_nvml_free(list, (int)n);
        return rc;
    }
    *gpus = list;
    *count = (int)n;
    return 0;
}

void gp_nvml_free(struct gp_nvml_gpu *gpus, int count)
{
    for (int i = 0; gpus && i < count; i++)
        free(gpus[i].processes);
    free(gpus);
}
