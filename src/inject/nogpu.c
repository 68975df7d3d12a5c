/* SPDX-License-Identifier: MIT
 * nogpu.c: whether this process can certainly use no GPU (inject.h). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include "base/compiler.h"
#include "base/loader.h"
#include "inject/inject.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint32_t x_refuted;

void gp_nogpu_refute(void)
{
    __atomic_store_n(&x_refuted, 1, __ATOMIC_RELAXED); /* a flag, publishes nothing */
}

static int nogpu_note_driver(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    (void)bytes;
    if (!slash || strncmp(slash, "/libcuda.so", 11) != 0)
        return 0;
    snprintf(arg, PATH_MAX, "%s", info->dlpi_name);
    return 1;
}

/* NVIDIA's file is libcuda.so.VERSION, with at least one dot in the version, and libcuda.so.1 is a
 * link to it.  Another vendor's library of that name is a plain file. */
static bool nogpu_is_nvidia(void)
{
    static char loaded[PATH_MAX],
        file[PATH_MAX]; /* of the one thread that starts the library; its stack may be small */
    *loaded = '\0';
    if (!gp_loader_look(nogpu_note_driver, loaded) || !*loaded || !realpath(loaded, file))
        return false;
    const char *version = strstr(strrchr(file, '/'), "/libcuda.so.");
    if (!version)
        return false;
    version += strlen("/libcuda.so.");
    size_t digits = strspn(version, "0123456789");
    return digits && version[digits] == '.' && version[digits + 1] >= '0' && version[digits + 1] <= '9';
}

/* As root the driver library creates this node itself, so its existence proves nothing. */
static bool nogpu_control_answers(void)
{
    int fd = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0)
        close(fd);
    return fd >= 0 || (errno != ENOENT && errno != ENXIO && errno != ENODEV);
}

bool gp_nogpu_is_certain(void)
{
    /* The kernel module; Windows's and Tegra's devices; and the program with which the driver
     * library loads the module when it is not loaded yet. */
    static const char *const signs[] = {"/proc/driver/nvidia",     "/dev/dxg",   "/dev/nvmap",
                                        "/dev/nvhost-ctrl-gpu",    "/dev/nvgpu", "/dev/nvidia0",
                                        "/usr/bin/nvidia-modprobe"};
    if (__atomic_load_n(&x_refuted, __ATOMIC_RELAXED) || !nogpu_is_nvidia())
        return false;
    for (size_t i = 0; i < GP_COUNT(signs); i++)
        if (access(signs[i], F_OK) == 0)
            return false;
    return !nogpu_control_answers();
}
