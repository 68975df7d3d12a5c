/* SPDX-License-Identifier: MIT
 *
 * libcheck.h: tries shared libraries for doctor.c without loading them into this process.  Each
 * probe is a short-lived child, so a library that hangs, crashes or exits does not affect doctor.
 */
#ifndef GP_CMD_LIBCHECK_H
#define GP_CMD_LIBCHECK_H

#include <stdbool.h>
#include <stddef.h>

struct gp_probe {
    bool ok;
    long long number; /* the answer of the library; see each probe */
    char text[256];   /* why it failed */
};

/* Whether the library loads and has InitializeInjection. */
void gp_libcheck_library(const char *path, struct gp_probe *probe);
/* Whether the dynamic loader preloads it, tried with this command. */
void gp_libcheck_preload(const char *path, struct gp_probe *probe);
/* number: cuptiGetVersion.  Where the driver works, whether a tool can subscribe too. */
void gp_libcheck_cupti(const char *path, struct gp_probe *probe);
/* number: cuDriverGetVersion. */
void gp_libcheck_driver(struct gp_probe *probe);
/* number: count of devices, from cuInit and cuDeviceGetCount of this driver. */
void gp_libcheck_devices(const char *path, struct gp_probe *probe);

#endif
