/* SPDX-License-Identifier: MIT
 *
 * commands.c: the table of all commands, and the one function that parses and runs a command.
 * Called by main.c.  `help` and `completion` are here because they need the table.
 */
#include <cmd/cmd.h>

#include <base/compiler.h>
#include <cmd/help.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct gp_command_spec help_spec, completion_spec;

/* clang-format off */
const struct gp_command_spec *const gp_commands[] = {
    &gp_command_run,
    &gp_command_attach,
    &gp_command_detach,
    &gp_command_yield,
    &gp_command_top,
    &gp_command_stat,
    &gp_command_reset,
    &gp_command_scope,
    &gp_command_mark,
    &gp_command_stacks,
    &gp_command_trace,
    &gp_command_record,
    &gp_command_snapshot,
    &gp_command_report,
    &gp_command_leaks,
    &gp_command_peak,
    &gp_command_churn,
    &gp_command_fragmentation,
    &gp_command_reconcile,
    &gp_command_phases,
    &gp_command_fit,
    &gp_command_diff,
    &gp_command_check,
    &gp_command_explain,
    &gp_command_export,
    &gp_command_replay,
    &gp_command_generate,
    &gp_command_wait,
    &gp_command_dryrun,
    &gp_command_agent,
    &gp_command_doctor,
    &gp_command_cdi,
    &help_spec,
    &completion_spec,
    NULL,
};
/* clang-format on */

static const char *command_name(unsigned i)
{
    return i < GP_COUNT(gp_commands) - 1 ? gp_commands[i]->name : NULL;
}

/* Words that people try, and what they mean by them; NULL: none of these. */
static const char *command_meant(const char *name)
{
    static const char *const words[][2] = {{"ps", "gpuprof top --once"},        {"ls", "gpuprof top --once"},
                                           {"list", "gpuprof top --once"},      {"status", "gpuprof top --once"},
                                           {"version", "gpuprof --version"},    {"profile", "gpuprof run -- PROGRAM"},
                                           {"start", "gpuprof run -- PROGRAM"}, {"exec", "gpuprof run -- PROGRAM"}};
    for (size_t i = 0; i < GP_COUNT(words); i++)
        if (strcmp(name, words[i][0]) == 0)
            return words[i][1];
    return NULL;
}

static bool command_is_recording(const char *name)
{
    size_t length = strlen(name);
    return length > 8 && strcmp(name + length - 8, ".gpuprof") == 0 && access(name, F_OK) == 0;
}

const struct gp_command_spec *gp_command_find(const char *name)
{
    const char *names[GP_COUNT(gp_commands)];
    size_t count = 0;
    for (; gp_commands[count]; count++) {
        if (strcmp(gp_commands[count]->name, name) == 0)
            return gp_commands[count];
        names[count] = gp_commands[count]->name;
    }
    const char *meant = command_meant(name), *nearest = meant ? NULL : gp_nearest(name, names, count);
    if (!meant && command_is_recording(name))
        gp_usage_error(NULL, "%s: no such command: to read the recording: gpuprof report %s", name, name);
    else if (!meant && !nearest && gp_launch_is_program(name))
        gp_usage_error(NULL, "%s: no such command: to profile the program: gpuprof run -- %s ..", name, name);
    else if (meant)
        gp_usage_error(NULL, "%s: no such command: did you mean '%s'?", name, meant);
    else
        gp_usage_error(NULL, "%s: no such command%s%s%s", name, nearest ? ": did you mean '" : "",
                       nearest ? nearest : "", nearest ? "'?" : "");
    return NULL;
}

int gp_command_main(const struct gp_command_spec *spec, int argc, char **argv)
{
    void *options = calloc(1, spec->bytes);
    bool help = false;
    if (!options) {
        gp_error(spec->name, "out of memory");
        return GP_EXIT_FAILED;
    }
    int rc = gp_command_parse(spec, argc, argv, options, &help);
    if (!rc && help)
        gp_help_command(stdout, spec);
    else if (!rc)
        rc = spec->run(options);
    gp_options_free(spec, options);
    free(options);
    return rc;
}

/* ---- help -------------------------------------------------------------------------------------------------------- */

struct gp_help_options {
    const char *command;
    bool man;
};

static int help_run(void *options)
{
    const struct gp_help_options *o = options;
    const struct gp_command_spec *spec = o->command ? gp_command_find(o->command) : NULL;
    if (o->command && !spec)
        return GP_EXIT_USAGE;
    if (spec)
        gp_help_command(stdout, spec);
    else if (o->man)
        gp_manpage_write(stdout, gp_commands);
    else
        gp_help_overview(stdout, gp_commands);
    return GP_EXIT_OK;
}

/* TEXT, not CHOICE: the message about an unknown command is the same as without `help`. */
static const struct gp_command_option help_operands[] = {GP_OPERAND(struct gp_help_options, command, "COMMAND",
                                                                    GP_ARG_TEXT, "the command to describe",
                                                                    .choice = command_name),
                                                         {0}};

static const struct gp_command_option help_options[] = {
    GP_FLAG(struct gp_help_options, man, 0, "man", "print the manual page of all commands as roff source"), {0}};

static const struct gp_command_spec help_spec = {
    .name = "help",
    .summary = "describe a command",
    .group = GP_GROUP_MACHINE,
    .usage = GP_LIST("[COMMAND]", "--man"),
    .about = GP_LIST("Lists the commands, or describes one as 'gpuprof COMMAND --help' does."),
    .options = help_options,
    .operands = help_operands,
    .examples = GP_EXAMPLES({"gpuprof help run", "Describe 'gpuprof run'."},
                            {"gpuprof help --man | man -l -", "Read the manual page."}),
    GP_DEFAULTS(struct gp_help_options, 0),
    .run = help_run,
};

/* ---- completion -------------------------------------------------------------------------------------------------- */

struct gp_completion_options {
    int shell; /* -1: none given */
};

static int completion_check(void *options)
{
    const struct gp_completion_options *o = options;
    return o->shell < 0 ? gp_usage_error("completion", "name a shell: bash, zsh or fish") : GP_EXIT_OK;
}

static int completion_run(void *options)
{
    const struct gp_completion_options *o = options;
    gp_completion_write(stdout, o->shell, gp_commands);
    return GP_EXIT_OK;
}

static const struct gp_command_option completion_operands[] = {
    GP_OPERAND(struct gp_completion_options, shell, "SHELL", GP_ARG_INDEX, "the shell", .words = gp_completion_shells),
    {0}};

static const struct gp_command_spec completion_spec = {
    .name = "completion",
    .summary = "print a completion script for a shell",
    .group = GP_GROUP_MACHINE,
    .usage = GP_LIST("(bash | zsh | fish)"),
    .about = GP_LIST("Prints a script that completes commands, options, their values, recordings and process numbers. "
                     "'make install' installs these scripts where the shells look for them."),
    .operands = completion_operands,
    .examples = GP_EXAMPLES(
        {"source <(gpuprof completion bash)", "Complete gpuprof in this shell."},
        {"gpuprof completion fish > ~/.config/fish/completions/gpuprof.fish", "Install the script for one user."}),
    GP_DEFAULTS(struct gp_completion_options, .shell = -1),
    .check = completion_check,
    .run = completion_run,
};
