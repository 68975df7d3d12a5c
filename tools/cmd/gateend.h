/* SPDX-License-Identifier: MIT
 *
 * gateend.h: what commands that hold a program's memory do with their findings.
 */
#ifndef GP_CMD_GATEEND_H
#define GP_CMD_GATEEND_H

#include <gate/gate.h>
#include <stdio.h>

/* The exit status of a broken budget, unless --error-exitcode names another one. */
#define GP_GATE_BROKEN 3

/* Prints the findings (out NULL: not), annotations where GitHub runs this, and JUnit's file (NULL: none).
 * Returns GP_EXIT_OK if all is within its limits, else the status for broken ones (exitcode < 0: 3), or
 * GP_EXIT_FAILED after a message. */
int gp_gate_end(const char *command, const struct gp_findings *gate, FILE *out, const char *junit, int exitcode);

#endif
