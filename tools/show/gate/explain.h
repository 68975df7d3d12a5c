/* SPDX-License-Identifier: MIT
 *
 * explain.h: the answer of a recording in at most 2 KB, for a chat or a program: how much, when,
 * who, what grows, what would help, how sure.
 */
#ifndef GP_SHOW_GATE_EXPLAIN_H
#define GP_SHOW_GATE_EXPLAIN_H

#include <analyze/report.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#define GP_EXPLAIN_BYTES 2048u

/* Schema gpuprof.explain/1, at most GP_EXPLAIN_BYTES as it is printed.  Runs the analyses that it needs:
 * the report must not have run.  NULL: out of memory. */
json_t *gp_explain_json(struct gp_report *report);
/* The same as sentences.  False: out of memory. */
bool gp_explain_print(FILE *out, const json_t *explained);

#endif
