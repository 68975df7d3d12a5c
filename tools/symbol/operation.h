/* SPDX-License-Identifier: MIT
 *
 * operation.h: names what a framework does; place.c calls it. Only symbol/ and tests include it.
 */
#ifndef GP_SYMBOL_OPERATION_H
#define GP_SYMBOL_OPERATION_H

#include <read/common/hash.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <symbol/internal.h>

enum gp_operation_role {
    GP_OP_OPERATOR,  /* an operator of the framework */
    GP_OP_KERNEL,    /* the same, known by the function of its kernel: where no operator is on the stack */
    GP_OP_PUBLIC,    /* a function that users call */
    GP_OP_MODULE,    /* a layer of the framework, whose name is its operator's */
    GP_OP_LAYER,     /* a layer of a package with models: stands before the operation */
    GP_OP_NODE,      /* of a backward pass */
    GP_OP_ENGINE,    /* runs the backward pass */
    GP_OP_RECOMPUTE, /* runs a forward pass again in the backward pass */
    GP_OP_OPTIMIZER, /* a step of an optimizer */
    GP_OP_WHOLE,     /* says all: what is inside of it does not matter; the outermost */
    GP_OP_WORKSPACE, /* the same for memory that a library keeps: the innermost */
    GP_OP_PART       /* tells only the part */
};

struct gp_operation_rule {
    const char *framework;
    const char *where;    /* parts of a Python file's path, separated by '|'; NULL: a native frame */
    const char *function; /* patterns of fnmatch, separated by '|' */
    enum gp_operation_role role;
    const char *text; /* "{}" is what the pattern's only star stands for, or the whole function */
    enum gp_operation_part part;
};

/* ---- operationrules.c -------------------------------------------------------------------------------------------- */

/* The rule of a frame; NULL: none. The names of functions and files are interned.  known: what was found before. */
const struct gp_operation_rule *gp_operation_rule_of(struct gp_hash *known, const struct gp_frame_text *frame);
/* What stands in the place of "{}". Without the name of its class, which Python has since 3.11,
 * a layer or an optimizer has that of its file. */
void gp_operation_rule_catch(const struct gp_operation_rule *rule, const struct gp_frame_text *frame, char *out,
                             size_t room);
/* Whether the path has one of the parts, which '|' separates. */
bool gp_operation_has_path(const char *file, const char *alternatives);

/* ---- operation.c, optimizerstates.c ------------------------------------------------------------------------------ */

#define GP_OPERATION_TEXT 160 /* longest text of an operation */

/* frames[name] names the site. *operator: the outermost on its stack; NULL: not known. */
struct gp_operation gp_operation_find(struct gp_symbols *symbols, const struct gp_frame_text *frames, uint32_t count,
                                      uint32_t name, const char **operator);
/* Adds which state of the optimizer it is: "optimizer: AdamW.step (exp_avg)". Call it for all
 * sites of a program together. */
void gp_operation_states(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count);

#endif
