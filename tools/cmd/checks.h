/* SPDX-License-Identifier: MIT
 *
 * checks.h: the checks of `gpuprof doctor` and the lines that they print.  verdicts.c
 * prints the lines, checks.c examines the requirements of the agent, tracers.c finds other profilers,
 * libcheck.c and cuptifind.c try libraries.  Called by doctor.c.
 */
#ifndef GP_CMD_CHECKS_H
#define GP_CMD_CHECKS_H

#include <base/compiler.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ==== verdicts ==================================================================================================== */

enum gp_verdict { GP_OK, GP_NO, GP_UNSURE };

struct gp_doctor { /* the options of the command, and the results */
    bool json;
    json_t *checks;
    bool failed;
    /* A bit for each check of gp_check_name: --need names it; it printed a line; it was not ok. */
    uint32_t needed, made, bad;
    const char *pins;
};

/* The names of the checks that --need takes; NULL after the last. */
const char *gp_check_name(unsigned i);
/* Prints one line of the answer.  fix: what to do, or NULL. */
void gp_check(struct gp_doctor *doctor, const char *name, enum gp_verdict verdict, const char *fix, const char *format,
              ...) GP_PRINTF(5, 6);
/* The bits of the checks that were ok. */
uint32_t gp_check_good(const struct gp_doctor *doctor);
/* Writes the names of the checks in `bits`, separated by commas, and returns their count. */
int gp_check_list(uint32_t bits, char *names, size_t names_bytes);

/* ==== the machine and its programs ================================================================================ */

struct gp_system;

/* Checks kernel, BTF, BPF file system, sysctls, lockdown, the capabilities of this process, and
 * the agent. */
void gp_checks_system(struct gp_doctor *doctor);

/* Prints a line for each process that is readable, not in `system`, and contains a profiler that
 * takes or may take the CUPTI subscriber. */
void gp_checks_tracers(struct gp_doctor *doctor, const struct gp_system *system);
/* Writes the names of such profilers in one process; "" if none is known or the process is not
 * readable. */
void gp_checks_tracers_of(pid_t pid, char *text, size_t text_bytes);

/* ==== libraries =================================================================================================== */
/* Tries shared libraries without loading them into this process.  Each probe is a
 * short-lived child, so a library that hangs, crashes or exits does not affect doctor. */

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

#define GP_CUPTI_FOUND 16

struct gp_cupti_found {
    int count;
    char paths[GP_CUPTI_FOUND][512];
};

/* Finds libcupti.so.13, .12 and .11*: in LD_LIBRARY_PATH, the folders of the loader, CUDA_HOME,
 * /usr/local/cuda and pip's nvidia packages, each file once. */
void gp_cupti_find(struct gp_cupti_found *found);

#endif
