/* SPDX-License-Identifier: MIT
 * NVML's start and end, errors, versions and processes' names. */
#define _GNU_SOURCE
#include "nvml.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The simulated driver is that of CUDA 13.4, whose branch is R615.  No driver has the release 0. */
#define NVML_CUDA_VERSION   13040
#define NVML_DRIVER_VERSION "615.00"

NVML_API nvmlInit(void);
NVML_API nvmlInit_v2(void);
NVML_API nvmlInitWithFlags(unsigned flags);
NVML_API nvmlShutdown(void);
NVML_API nvmlSystemGetDriverVersion(char *version, unsigned length);
NVML_API nvmlSystemGetNVMLVersion(char *version, unsigned length);
NVML_API nvmlSystemGetCudaDriverVersion(int *version);
NVML_API nvmlSystemGetCudaDriverVersion_v2(int *version);
NVML_API nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length);
__attribute__((visibility("default"))) const char *nvmlErrorString(enum nvml_return result);

NVML_API nvmlInit(void)
{
    return sim_nvml_begin();
}

NVML_API nvmlInit_v2(void)
{
    return sim_nvml_begin();
}

/* Flags allow a machine without GPUs and leave out their start: there is neither here. */
NVML_API nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return sim_nvml_begin();
}

NVML_API nvmlShutdown(void)
{
    return sim_nvml_end();
}

const char *nvmlErrorString(enum nvml_return result)
{
    static const char *const texts[] = {
        [NVML_SUCCESS] = "Success",
        [NVML_ERROR_UNINITIALIZED] = "Uninitialized",
        [NVML_ERROR_INVALID_ARGUMENT] = "Invalid Argument",
        [NVML_ERROR_NOT_SUPPORTED] = "Not Supported",
        [NVML_ERROR_NO_PERMISSION] = "Insufficient Permissions",
        [NVML_ERROR_ALREADY_INITIALIZED] = "Already Initialized",
        [NVML_ERROR_NOT_FOUND] = "Not Found",
        [NVML_ERROR_INSUFFICIENT_SIZE] = "Insufficient Size",
        [NVML_ERROR_INSUFFICIENT_POWER] = "Insufficient External Power",
        [NVML_ERROR_DRIVER_NOT_LOADED] = "Driver Not Loaded",
        [NVML_ERROR_TIMEOUT] = "Timeout",
        [NVML_ERROR_IRQ_ISSUE] = "Interrupt Request Issue",
        [NVML_ERROR_LIBRARY_NOT_FOUND] = "NVML Shared Library Not Found",
        [NVML_ERROR_FUNCTION_NOT_FOUND] = "Function Not Found",
        [NVML_ERROR_CORRUPTED_INFOROM] = "Corrupted infoROM",
        [NVML_ERROR_GPU_IS_LOST] = "GPU is lost",
        [NVML_ERROR_RESET_REQUIRED] = "GPU requires restart",
        [NVML_ERROR_OPERATING_SYSTEM] = "The operating system has blocked the request.",
        [NVML_ERROR_LIB_RM_VERSION_MISMATCH] = "Driver/library version mismatch",
        [NVML_ERROR_IN_USE] = "In use by another client",
        [NVML_ERROR_MEMORY] = "Insufficient Memory",
        [NVML_ERROR_NO_DATA] = "No data",
        [NVML_ERROR_VGPU_ECC_NOT_SUPPORTED] = "Not supported on vGPU while ECC is enabled",
        [NVML_ERROR_INSUFFICIENT_RESOURCES] = "Insufficient Resources",
        [NVML_ERROR_FREQ_NOT_SUPPORTED] = "Frequency not supported",
        [NVML_ERROR_ARGUMENT_VERSION_MISMATCH] = "Argument version mismatch",
        [NVML_ERROR_DEPRECATED] = "Deprecated",
        [NVML_ERROR_NOT_READY] = "Not ready",
        [NVML_ERROR_GPU_NOT_FOUND] = "No GPUs found",
        [NVML_ERROR_INVALID_STATE] = "Invalid state",
    };
    return (unsigned)result < sizeof texts / sizeof *texts ? texts[result] : "Unknown Error";
}

static enum nvml_return sim_nvml_text(char *to, unsigned length, const char *text)
{
    if (!sim_nvml_begun())
        return NVML_ERROR_UNINITIALIZED;
    if (!to)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (length <= strlen(text))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, text);
    return NVML_SUCCESS;
}

NVML_API nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    return sim_nvml_text(version, length, NVML_DRIVER_VERSION);
}

NVML_API nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    return sim_nvml_text(version, length, "13." NVML_DRIVER_VERSION);
}

/* The CUDA version may be asked before the start. */
NVML_API nvmlSystemGetCudaDriverVersion(int *version)
{
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = NVML_CUDA_VERSION;
    return NVML_SUCCESS;
}

NVML_API nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}

/* The first word of the command line, cut to the room that there is, as the real one does. */
NVML_API nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    char path[64];
    if (!sim_nvml_begun())
        return NVML_ERROR_UNINITIALIZED;
    if (!name || !length)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NVML_ERROR_NOT_FOUND;
    ssize_t got = read(fd, name, length - 1);
    close(fd);
    if (got <= 0)
        return NVML_ERROR_NOT_FOUND;
    name[got] = '\0';
    return NVML_SUCCESS;
}
