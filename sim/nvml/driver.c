/* SPDX-License-Identifier: MIT
 * The way from the stand-in to the simulated driver, and the list of its devices. */
#define _GNU_SOURCE
#include "nvml.h"
#include "report.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define SIM_NVML_DEVICES 64

static struct {
    int (*devices)(void);
    int (*device)(int, struct sim_machine_device *);
    int (*processes)(int, int *, unsigned long long *, int);
} sim_driver;
static struct nvml_device sim_nvml_devices[SIM_NVML_DEVICES];
static int sim_nvml_device_count;
static int sim_nvml_users; /* inits less shutdowns */
static pthread_mutex_t sim_nvml_lock = PTHREAD_MUTEX_INITIALIZER;

static bool sim_driver_bind(void *library)
{
    if (library) {
        *(void **)&sim_driver.devices = dlsym(library, "sim_machine_devices");
        *(void **)&sim_driver.device = dlsym(library, "sim_machine_device");
        *(void **)&sim_driver.processes = dlsym(library, "sim_share_processes");
    }
    return library && sim_driver.devices && sim_driver.device && sim_driver.processes;
}

/* The driver that the process has, if it is the simulated one; else the one beside this library.
 * NVIDIA's own lacks the names above, so it is never asked. */
static bool sim_driver_find(void)
{
    char path[4096];
    Dl_info own;
    if (sim_driver.processes)
        return true;
    if (sim_driver_bind(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)))
        return true;
    if (dladdr((void *)sim_driver_find, &own) && own.dli_fname) {
        const char *slash = strrchr(own.dli_fname, '/');
        int length = slash ? (int)(slash - own.dli_fname) : 1;
        snprintf(path, sizeof path, "%.*s/libcuda.so.1", length, slash ? own.dli_fname : ".");
        if (sim_driver_bind(dlopen(path, RTLD_NOW | RTLD_LOCAL)))
            return true;
    }
    return sim_driver_bind(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL));
}

static enum nvml_return sim_nvml_list(void)
{
    int count = sim_driver_find() ? sim_driver.devices() : -1;
    if (count < 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (count > SIM_NVML_DEVICES)
        return NVML_ERROR_UNKNOWN;
    for (int i = 0; i < count; i++) {
        struct nvml_device *device = &sim_nvml_devices[i];
        *device = (struct nvml_device){.physical = i, .is.size = sizeof device->is};
        if (sim_driver.device(i, &device->is) != 0)
            return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    sim_nvml_device_count = count;
    return NVML_SUCCESS;
}

enum nvml_return sim_nvml_begin(void)
{
    pthread_mutex_lock(&sim_nvml_lock);
    enum nvml_return result = sim_nvml_users ? NVML_SUCCESS : sim_nvml_list();
    if (result == NVML_SUCCESS)
        __atomic_add_fetch(&sim_nvml_users, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&sim_nvml_lock);
    if (result == NVML_SUCCESS)
        sim_report(SIM_NVML_LIBRARY, "loaded", "NVML of the simulated GPU");
    return result;
}

enum nvml_return sim_nvml_end(void)
{
    enum nvml_return result = NVML_ERROR_UNINITIALIZED;
    pthread_mutex_lock(&sim_nvml_lock);
    if (sim_nvml_users) {
        __atomic_sub_fetch(&sim_nvml_users, 1, __ATOMIC_SEQ_CST);
        result = NVML_SUCCESS;
    }
    pthread_mutex_unlock(&sim_nvml_lock);
    return result;
}

bool sim_nvml_begun(void)
{
    return __atomic_load_n(&sim_nvml_users, __ATOMIC_SEQ_CST) > 0;
}

int sim_nvml_count(void)
{
    return sim_nvml_device_count;
}

struct nvml_device *sim_nvml_device(int physical)
{
    return physical >= 0 && physical < sim_nvml_device_count ? &sim_nvml_devices[physical] : NULL;
}

enum nvml_return sim_nvml_check(const struct nvml_device *device)
{
    if (!sim_nvml_begun())
        return NVML_ERROR_UNINITIALIZED;
    for (int i = 0; i < sim_nvml_device_count; i++)
        if (device == &sim_nvml_devices[i])
            return NVML_SUCCESS;
    return NVML_ERROR_INVALID_ARGUMENT;
}

int sim_nvml_processes(const struct nvml_device *device, int *pids, unsigned long long *bytes, int most)
{
    return sim_driver.processes(device->physical, pids, bytes, most);
}

enum nvml_return sim_nvml_absent(const char *function)
{
    if (!sim_nvml_begun())
        return NVML_ERROR_UNINITIALIZED;
    sim_report(SIM_NVML_LIBRARY, "unsupported", "%s", function);
    return NVML_ERROR_NOT_SUPPORTED;
}
