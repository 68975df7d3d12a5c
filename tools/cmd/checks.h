/* SPDX-License-Identifier: MIT
 *
 * checks.h: one line of `gpuprof doctor`, and the checks of what the system agent needs.  Called by doctor.c.
 */
#ifndef GP_CMD_CHECKS_H
#define GP_CMD_CHECKS_H

#include <base/compiler.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct gp_system;

enum gp_verdict { GP_OK, GP_NO, GP_UNSURE };

struct gp_doctor {
    bool json;
    json_t *checks;
    bool failed;
    const char *needed; /* names of checks, a comma between them; NULL none */
    uint32_t made, bad; /* a bit for each name that --need takes: a line was printed; one was not ok */
    const char *pins;
};

/* One line of the answer.  fix: what to do, or NULL. */
void gp_check(struct gp_doctor *doctor, const char *name, enum gp_verdict verdict, const char *fix, const char *format,
              ...) GP_PRINTF(5, 6);

/* Kernel, BTF, bpffs, sysctls, lockdown, our capabilities, and the agent itself. */
void gp_checks_system(struct gp_doctor *doctor);

/* A line for each process that is not in the system, may be looked at, and has somebody in it who takes or may take the
 * CUPTI subscriber. */
void gp_checks_tracers(struct gp_doctor *doctor, const struct gp_system *system);
/* The names of those who may in one process; "" none known, or it may not be looked at. */
void gp_checks_tracers_of(pid_t pid, char *text, size_t text_bytes);

#endif
