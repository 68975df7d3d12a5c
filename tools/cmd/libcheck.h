/* SPDX-License-Identifier: MIT
 *
 * libcheck.h: looks at shared libraries for doctor without loading them into this process: each look is a short-lived
 * child, so a library that hangs, crashes or exits cannot take doctor with it.
 */
#ifndef GP_CMD_LIBCHECK_H
#define GP_CMD_LIBCHECK_H

#include <stdbool.h>
#include <stddef.h>

struct gp_probe {
    bool ok;
    long long number; /* what the library said, by probe */
    char text[256];   /* why not, or more about it */
};

/* Whether the library loads and has InitializeInjection. */
void gp_probe_library(const char *path, struct gp_probe *probe);
/* Whether the dynamic loader preloads it: into this very command. */
void gp_probe_preload(const char *path, struct gp_probe *probe);
/* number: cuptiGetVersion. */
void gp_probe_cupti(const char *path, struct gp_probe *probe);
/* number: cuDriverGetVersion. */
void gp_probe_driver(struct gp_probe *probe);
/* number: devices that cuInit and cuDeviceGetCount of this driver give. */
void gp_probe_devices(const char *path, struct gp_probe *probe);

#endif
