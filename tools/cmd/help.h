/* SPDX-License-Identifier: MIT
 *
 * help.h: the help, the manual page and the shell completions, made from the tables of the commands.
 * Tables of commands end with NULL.  Called by commands.c and main.c.
 */
#ifndef GP_CMD_HELP_H
#define GP_CMD_HELP_H

#include <cmd/cmd.h>
#include <stddef.h>
#include <stdio.h>

/* `gpuprof help`, `gpuprof COMMAND --help`: wrapped to the width of the terminal, at most 100
 * columns. */
void gp_help_overview(FILE *out, const struct gp_command_spec *const *commands);
void gp_help_command(FILE *out, const struct gp_command_spec *spec);
/* `gpuprof help --man`: the whole page as roff. */
void gp_manpage_write(FILE *out, const struct gp_command_spec *const *commands);
/* `gpuprof completion SHELL`. */
extern const char *const gp_completion_shells[];
void gp_completion_write(FILE *out, int shell, const struct gp_command_spec *const *commands);

/* ---- help.c, for the manual page too ----------------------------------------------------------------------------- */

#define GP_HELP_LABEL 64
#define GP_HELP_TEXT  1024

extern const char *const gp_help_groups[GP_GROUPS]; /* their titles */
/* "-p, --pid=PID" without the spaces that align it; for an operand its name. */
void gp_help_label(char *label, size_t label_bytes, const struct gp_command_option *option);
/* The help of the option with its choices. */
void gp_help_option_text(char *text, size_t text_bytes, const struct gp_command_option *option);

#endif
