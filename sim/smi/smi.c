/* SPDX-License-Identifier: MIT
 * nvidia-smi on the simulated GPU: what programs ask it for, from the simulated NVML.  Some programs take a machine
 * without the command for one without a GPU. */
#include "nvml/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct nvml_device;

#define SMI_PROCESSES 512
#define SMI_CALLS                                                                                                      \
    X(nvmlInit_v2, (void))                                                                                             \
    X(nvmlSystemGetDriverVersion, (char *, unsigned))                                                                  \
    X(nvmlSystemGetCudaDriverVersion_v2, (int *))                                                                      \
    X(nvmlDeviceGetCount_v2, (unsigned *))                                                                             \
    X(nvmlDeviceGetHandleByIndex_v2, (unsigned, struct nvml_device **))                                                \
    X(nvmlDeviceGetName, (struct nvml_device *, char *, unsigned))                                                     \
    X(nvmlDeviceGetUUID, (struct nvml_device *, char *, unsigned))                                                     \
    X(nvmlDeviceGetPciInfo_v3, (struct nvml_device *, struct nvml_pci *))                                              \
    X(nvmlDeviceGetCudaComputeCapability, (struct nvml_device *, int *, int *))                                        \
    X(nvmlDeviceGetMemoryInfo, (struct nvml_device *, struct nvml_memory *))                                           \
    X(nvmlDeviceGetUtilizationRates, (struct nvml_device *, struct nvml_utilization *))                                \
    X(nvmlDeviceGetTemperature, (struct nvml_device *, int, unsigned *))                                               \
    X(nvmlDeviceGetPowerUsage, (struct nvml_device *, unsigned *))                                                     \
    X(nvmlDeviceGetEnforcedPowerLimit, (struct nvml_device *, unsigned *))                                             \
    X(nvmlDeviceGetComputeRunningProcesses_v3, (struct nvml_device *, unsigned *, struct nvml_process_v2 *))

static struct {
#define X(_name, _parameters) int(*_name) _parameters;
    SMI_CALLS
#undef X
} smi;

static bool smi_open(void)
{
    void *library = dlopen(SIM_NVML_LIBRARY, RTLD_NOW);
    if (!library)
        return false;
#define X(_name, _parameters)                                                                                          \
    *(void **)&smi._name = dlsym(library, #_name);                                                                     \
    if (!smi._name)                                                                                                    \
        return false;
    SMI_CALLS
#undef X
    return smi.nvmlInit_v2() == NVML_SUCCESS;
}

struct smi_gpu {
    unsigned index, count, temperature, power, limit;
    int major, minor, cuda;
    char name[96], uuid[96], driver[96];
    struct nvml_device *device;
    struct nvml_pci pci;
    struct nvml_memory memory;
    struct nvml_utilization rates;
};

static bool smi_gpu_read(struct smi_gpu *gpu, unsigned index)
{
    *gpu = (struct smi_gpu){.index = index};
    if (smi.nvmlDeviceGetCount_v2(&gpu->count) || smi.nvmlDeviceGetHandleByIndex_v2(index, &gpu->device))
        return false;
    return !(smi.nvmlDeviceGetName(gpu->device, gpu->name, sizeof gpu->name) ||
             smi.nvmlDeviceGetUUID(gpu->device, gpu->uuid, sizeof gpu->uuid) ||
             smi.nvmlSystemGetDriverVersion(gpu->driver, sizeof gpu->driver) ||
             smi.nvmlSystemGetCudaDriverVersion_v2(&gpu->cuda) || smi.nvmlDeviceGetPciInfo_v3(gpu->device, &gpu->pci) ||
             smi.nvmlDeviceGetCudaComputeCapability(gpu->device, &gpu->major, &gpu->minor) ||
             smi.nvmlDeviceGetMemoryInfo(gpu->device, &gpu->memory) ||
             smi.nvmlDeviceGetUtilizationRates(gpu->device, &gpu->rates) ||
             smi.nvmlDeviceGetTemperature(gpu->device, 0, &gpu->temperature) ||
             smi.nvmlDeviceGetPowerUsage(gpu->device, &gpu->power) ||
             smi.nvmlDeviceGetEnforcedPowerLimit(gpu->device, &gpu->limit));
}

static unsigned smi_mib(unsigned long long bytes)
{
    return (unsigned)(bytes >> 20);
}

/* Whether a list of GPUs names this one.  List NULL: all are meant. */
static bool smi_wants(const char *list, const struct smi_gpu *gpu)
{
    char index[16];
    const char *const names[] = {index, gpu->uuid, gpu->pci.bus_id};
    snprintf(index, sizeof index, "%u", gpu->index);
    for (const char *name = list; name; name = strchr(name, ',') ? strchr(name, ',') + 1 : NULL)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strcspn(name, ",") == strlen(names[i]) && !strncasecmp(name, names[i], strlen(names[i])))
                return true;
    return !list;
}

/* Whether each GPU that a list names is there. */
static bool smi_has(const char *list)
{
    unsigned names = list != NULL, found = 0;
    struct smi_gpu gpu;
    for (const char *comma = list ? strchr(list, ',') : NULL; comma; comma = strchr(comma + 1, ','))
        names++;
    for (unsigned i = 0; list && smi_gpu_read(&gpu, i); i++)
        found += smi_wants(list, &gpu);
    return !list || (found && found >= names);
}

/* ---- queries ----------------------------------------------------------------------------------------------------- */

struct smi_query {
    const char *fields;
    bool apps, header, units;
    const char *only; /* GPUs by index, UUID or bus id, with commas between; NULL: all */
};

/* The value of a field and its unit; false: no such field. */
static bool smi_value(const struct smi_gpu *gpu, const char *field, char out[128], const char **unit)
{
    const struct {
        const char *field, *unit;
        double number;
        int digits;
        const char *text;
    } values[] = {{"index", "", gpu->index, 0, NULL},
                  {"count", "", gpu->count, 0, NULL},
                  {"name", "", 0, 0, gpu->name},
                  {"gpu_name", "", 0, 0, gpu->name},
                  {"uuid", "", 0, 0, gpu->uuid},
                  {"gpu_uuid", "", 0, 0, gpu->uuid},
                  {"driver_version", "", 0, 0, gpu->driver},
                  {"pci.bus_id", "", 0, 0, gpu->pci.bus_id},
                  {"gpu_bus_id", "", 0, 0, gpu->pci.bus_id},
                  {"compute_cap", "", gpu->major + gpu->minor / 10.0, 1, NULL},
                  {"memory.total", "MiB", smi_mib(gpu->memory.total), 0, NULL},
                  {"memory.used", "MiB", smi_mib(gpu->memory.used), 0, NULL},
                  {"memory.free", "MiB", smi_mib(gpu->memory.free), 0, NULL},
                  {"utilization.gpu", "%", gpu->rates.gpu, 0, NULL},
                  {"utilization.memory", "%", gpu->rates.memory, 0, NULL},
                  {"temperature.gpu", "", gpu->temperature, 0, NULL},
                  {"power.draw", "W", gpu->power / 1000.0, 2, NULL},
                  {"power.limit", "W", gpu->limit / 1000.0, 2, NULL},
                  {"enforced.power.limit", "W", gpu->limit / 1000.0, 2, NULL},
                  {"display_active", "", 0, 0, "Disabled"},
                  {"display_mode", "", 0, 0, "Disabled"},
                  {"serial", "", 0, 0, "[N/A]"}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        if (strcmp(values[i].field, field))
            continue;
        *unit = values[i].unit;
        if (values[i].text)
            snprintf(out, 128, "%s", values[i].text);
        else
            snprintf(out, 128, "%.*f", values[i].digits, values[i].number);
        return true;
    }
    return false;
}

static bool smi_app_value(const struct smi_gpu *gpu, const struct nvml_process_v2 *app, const char *field,
                          char out[128], const char **unit)
{
    char path[64];
    *unit = "";
    if (!strcmp(field, "pid")) {
        snprintf(out, 128, "%u", app->pid);
    } else if (!strcmp(field, "used_memory") || !strcmp(field, "used_gpu_memory")) {
        snprintf(out, 128, "%u", smi_mib(app->used));
        *unit = "MiB";
    } else if (!strcmp(field, "process_name") || !strcmp(field, "name")) {
        snprintf(path, sizeof path, "/proc/%u/exe", app->pid);
        ssize_t length = readlink(path, out, 127);
        out[length > 0 ? length : 0] = '\0';
        if (length <= 0)
            strcpy(out, "[Not Found]");
    } else {
        return smi_value(gpu, field, out, unit);
    }
    return true;
}

/* A row, or with `header` the names of the columns.  False: no such field. */
static bool smi_row(const struct smi_query *query, const struct smi_gpu *gpu, const struct nvml_process_v2 *app,
                    bool header)
{
    char *copy = strdup(query->fields), *rest = copy, *field, value[128];
    const char *unit = "";
    bool ok = copy != NULL, first = true;
    while (ok && (field = strsep(&rest, ","))) {
        field += strspn(field, " ");
        ok = app ? smi_app_value(gpu, app, field, value, &unit) : smi_value(gpu, field, value, &unit);
        if (!ok) {
            printf("Field \"%s\" is not a valid field to query.\n", field);
            break;
        }
        printf("%s%s", first ? "" : ", ", header ? field : value);
        if (*unit && query->units)
            printf(header ? " [%s]" : " %s", unit);
        first = false;
    }
    if (ok)
        putchar('\n');
    free(copy);
    return ok;
}

static int smi_query_run(const struct smi_query *query)
{
    static struct nvml_process_v2 apps[SMI_PROCESSES];
    const struct nvml_process_v2 none = {0};
    struct smi_gpu gpu;
    bool header = query->header;
    for (unsigned i = 0; smi_gpu_read(&gpu, i); i++) {
        unsigned count = SMI_PROCESSES;
        if (header && !smi_row(query, &gpu, query->apps ? &none : NULL, true))
            return 2;
        header = false;
        if (!smi_wants(query->only, &gpu))
            continue;
        if (!query->apps && !smi_row(query, &gpu, NULL, false))
            return 2;
        if (!query->apps || smi.nvmlDeviceGetComputeRunningProcesses_v3(gpu.device, &count, apps))
            continue;
        for (unsigned k = 0; k < count; k++)
            if (!smi_row(query, &gpu, &apps[k], false))
                return 2;
    }
    return 0;
}

/* ---- without a query ----------------------------------------------------------------------------------------------- */

static void smi_list(const char *only)
{
    struct smi_gpu gpu;
    for (unsigned i = 0; smi_gpu_read(&gpu, i); i++)
        if (smi_wants(only, &gpu))
            printf("GPU %u: %s (UUID: %s)\n", i, gpu.name, gpu.uuid);
}

static void smi_table(const char *only)
{
    struct smi_gpu gpu;
    for (unsigned i = 0; smi_gpu_read(&gpu, i); i++) {
        if (!i)
            printf("NVIDIA-SMI on the simulated GPU      Driver Version: %s      CUDA Version: %d.%d\n\n"
                   "GPU  Name                            Temp  Pwr:Usage/Cap         Memory-Usage  GPU-Util\n",
                   gpu.driver, gpu.cuda / 1000, gpu.cuda % 1000 / 10);
        if (!smi_wants(only, &gpu))
            continue;
        printf("%3u  %-30.30s  %3uC  %5uW / %4uW  %7uMiB / %6uMiB  %7u%%\n", i, gpu.name, gpu.temperature,
               gpu.power / 1000, gpu.limit / 1000, smi_mib(gpu.memory.used), smi_mib(gpu.memory.total), gpu.rates.gpu);
    }
}

static void smi_help(void)
{
    puts("nvidia-smi of the simulated GPU (docs/simulator.md)\n\n"
         "    nvidia-smi [-L] [-i GPU,..] [--query-gpu=FIELD,.. | --query-compute-apps=FIELD,..]\n"
         "               [--format=csv[,noheader][,nounits]]");
}

int main(int argc, char **argv)
{
    struct smi_query query = {.header = true, .units = true};
    bool list = false;
    for (int i = 1; i < argc; i++) {
        const char *value = strchr(argv[i], '=');
        size_t length = value ? (size_t)(value - argv[i]) : strlen(argv[i]);
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) {
            smi_help();
            return 0;
        }
        if (!strcmp(argv[i], "-L") || !strcmp(argv[i], "--list-gpus")) {
            list = true;
        } else if (!strcmp(argv[i], "-i") && i + 1 < argc) {
            query.only = argv[++i];
        } else if (value && !strncmp(argv[i], "--id", length)) {
            query.only = value + 1;
        } else if (value && !strncmp(argv[i], "--query-gpu", length)) {
            query.fields = value + 1;
        } else if (value && !strncmp(argv[i], "--query-compute-apps", length)) {
            query.fields = value + 1;
            query.apps = true;
        } else if (value && !strncmp(argv[i], "--format", length)) {
            query.header = !strstr(value, "noheader");
            query.units = !strstr(value, "nounits");
        } else {
            fprintf(stderr, "nvidia-smi: the simulated GPU has no option %s\n", argv[i]);
            return 6;
        }
    }
    if (!smi_open()) {
        fputs("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", stderr);
        return 9;
    }
    if (!smi_has(query.only)) {
        puts("No devices were found");
        return 6;
    }
    if (list)
        smi_list(query.only);
    else if (query.fields)
        return smi_query_run(&query);
    else
        smi_table(query.only);
    return 0;
}
