/* SPDX-License-Identifier: MIT
 *
 * nvml.c: a stand-in for NVIDIA's management library.  The folder $GP_FAKE_NVML is the state of the
 * machine: a file `total` with the bytes of each device, and a folder `used` with a file for each
 * process, named after its pid, with the number of a device and bytes.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct info {
    unsigned pid;
    unsigned long long used;
    unsigned a, b;
};

int nvmlInit_v2(void);
int nvmlDeviceGetCount_v2(unsigned *n);
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **handle);
int nvmlDeviceGetUUID(void *handle, char *text, unsigned n);
int nvmlDeviceGetName(void *handle, char *text, unsigned n);
int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *memory);
int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *n, struct info *list);

static unsigned totals(unsigned long long total[16])
{
    char path[512];
    unsigned n = 0;
    snprintf(path, sizeof(path), "%s/total", getenv("GP_FAKE_NVML"));
    FILE *file = fopen(path, "r");
    while (file && n < 16 && fscanf(file, "%llu", &total[n]) == 1)
        n++;
    if (file)
        fclose(file);
    return n;
}

static unsigned processes(unsigned device, struct info *list, unsigned room, unsigned long long *sum)
{
    char path[1024];
    unsigned count = 0;
    *sum = 0;
    snprintf(path, sizeof(path), "%s/used", getenv("GP_FAKE_NVML"));
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        unsigned on;
        unsigned long long bytes;
        snprintf(path, sizeof(path), "%s/used/%s", getenv("GP_FAKE_NVML"), entry->d_name);
        FILE *file = atoi(entry->d_name) > 0 ? fopen(path, "r") : NULL;
        if (file && fscanf(file, "%u %llu", &on, &bytes) == 2 && on == device) {
            *sum += bytes;
            if (count < room)
                list[count] = (struct info){(unsigned)atoi(entry->d_name), bytes, 0, 0};
            count++;
        }
        if (file)
            fclose(file);
    }
    if (folder)
        closedir(folder);
    return count;
}

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    unsigned long long total[16];
    *n = totals(total);
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **handle)
{
    *handle = (void *)(unsigned long)(i + 1);
    return 0;
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned n)
{
    snprintf(text, n, "GPU-00000000-0000-0000-0000-%012lu", (unsigned long)handle);
    return 0;
}

int nvmlDeviceGetName(void *handle, char *text, unsigned n)
{
    (void)handle;
    snprintf(text, n, "NVIDIA Fake");
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *memory)
{
    unsigned long long total[16], used;
    unsigned device = (unsigned)(unsigned long)handle - 1;
    if (device >= totals(total))
        return 2;
    processes(device, NULL, 0, &used);
    memory[0] = total[device];
    memory[1] = total[device] > used ? total[device] - used : 0;
    memory[2] = used;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *n, struct info *list)
{
    unsigned long long used;
    unsigned count = processes((unsigned)(unsigned long)handle - 1, list, *n, &used);
    int rc = count > *n ? 7 : 0;
    *n = count;
    return rc;
}
