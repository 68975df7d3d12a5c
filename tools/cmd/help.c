/* SPDX-License-Identifier: MIT
 * help.c: the help texts for a terminal, made from the tables of the commands; see help.h.  Called
 * by commands.c.
 */
#include <cmd/help.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define GP_HELP_WIDTH  100
#define GP_HELP_NARROW 40 /* lines are not made narrower than this */
#define GP_HELP_COLUMN 26 /* where the texts of the options start, at most */

const char *const gp_help_groups[GP_GROUPS] = {
    [GP_GROUP_WATCH] = "Start and watch",     [GP_GROUP_ASK] = "Ask a running process",
    [GP_GROUP_RECORD] = "Recordings",         [GP_GROUP_ANALYSE] = "Analyses",
    [GP_GROUP_EXPORT] = "Formats and traces", [GP_GROUP_MACHINE] = "The machine and this command",
};

void gp_help_label(char *label, size_t label_bytes, const struct gp_command_option *option)
{
    bool operand = gp_option_is_operand(option);
    char letter[8] = "";
    if (option->letter)
        snprintf(letter, sizeof(letter), "-%c, ", option->letter);
    snprintf(label, label_bytes, "%s%s%s%s%s%s%s", letter, operand ? "" : "--", option->name,
             option->optional ? "[" : "", option->argument ? "=" : "", option->argument ? option->argument : "",
             option->optional ? "]" : "");
}

void gp_help_option_text(char *text, size_t text_bytes, const struct gp_command_option *option)
{
    const char *what = option->argument ? option->argument : option->name;
    char choices[512];
    gp_option_choices(choices, sizeof(choices), option);
    snprintf(text, text_bytes, "%s%s%.*s%s%s", option->help, choices[0] ? "; " : "",
             choices[0] ? (int)strcspn(what, ",") : 0, what, choices[0] ? " is " : "", choices);
}

static int help_width(FILE *out)
{
    struct winsize size;
    if (!isatty(fileno(out)) || ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || !size.ws_col ||
        size.ws_col > GP_HELP_WIDTH)
        return GP_HELP_WIDTH;
    return size.ws_col < GP_HELP_NARROW ? GP_HELP_NARROW : size.ws_col;
}

/* Prints words from `column` on, where the cursor is; lines that follow start at `indent`. */
static void help_wrap(FILE *out, const char *text, int column, int indent)
{
    int width = help_width(out);
    bool first = true;
    for (size_t length; *text; text += length) {
        text += strspn(text, " ");
        length = strcspn(text, " ");
        if (!first && column + 1 + (int)length > width) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            fputc(' ', out);
            column++;
        }
        fprintf(out, "%.*s", (int)length, text);
        column += (int)length;
        first = false;
    }
    fputc('\n', out);
}

static void help_option(FILE *out, const struct gp_command_option *option, int column)
{
    char label[GP_HELP_LABEL], text[GP_HELP_TEXT];
    if (!option->help)
        return;
    bool operand = gp_option_is_operand(option);
    gp_help_label(label, sizeof(label), option);
    gp_help_option_text(text, sizeof(text), option);
    int used = fprintf(out, "  %s%s", operand || option->letter ? "" : "    ", label);
    if (used > column - 2)
        fprintf(out, "\n%*s", column, "");
    else
        fprintf(out, "%*s", column - used, "");
    help_wrap(out, text, column, column);
}

/* The column for the longest label that leaves room for the texts. */
static int help_column(const struct gp_command_option *options, int column)
{
    char label[GP_HELP_LABEL];
    for (; options && options->name; options++) {
        gp_help_label(label, sizeof(label), options);
        int end = (int)strlen(label) + (options->letter ? 2 : 6) + 2;
        if (options->help && end > column && end <= GP_HELP_COLUMN)
            column = end;
    }
    return column;
}

void gp_help_command(FILE *out, const struct gp_command_spec *spec)
{
    static const struct gp_command_option help[] = {{.name = "help", .letter = 'h', .help = "print this help"}, {0}};
    int column = help_column(spec->options, help_column(spec->operands, help_column(help, 0)));
    for (int i = 0; spec->usage[i]; i++) {
        int used = fprintf(out, "%s gpuprof %s ", i ? "      " : "usage:", spec->name);
        help_wrap(out, spec->usage[i], used, used);
    }
    for (int i = 0; spec->about[i]; i++) {
        fputc('\n', out);
        help_wrap(out, spec->about[i], 0, 0);
    }
    fputc('\n', out);
    for (const struct gp_command_option *operand = spec->operands; operand && operand->name; operand++)
        help_option(out, operand, column);
    for (const struct gp_command_option *option = spec->options; option && option->name; option++)
        help_option(out, option, column);
    help_option(out, help, column);
    fprintf(out, "\nEXAMPLES\n");
    for (const struct gp_command_example *example = spec->examples; example->line; example++) {
        fprintf(out, "  %s\n      ", example->line);
        help_wrap(out, example->what, 6, 6);
    }
}

void gp_help_overview(FILE *out, const struct gp_command_spec *const *commands)
{
    fprintf(out, "usage: gpuprof COMMAND [OPTIONS]\n\n");
    help_wrap(out, "Profiles the GPU memory of CUDA programs.", 0, 0);
    for (int group = 0; group < GP_GROUPS; group++) {
        fprintf(out, "\n%s:\n", gp_help_groups[group]);
        for (int i = 0; commands[i]; i++) {
            if ((int)commands[i]->group != group)
                continue;
            fprintf(out, "  %-13s ", commands[i]->name);
            help_wrap(out, commands[i]->summary, 16, 16);
        }
    }
    fputc('\n', out);
    help_wrap(out,
              "'gpuprof help COMMAND' describes a command. Start with 'gpuprof run CMD...' and, in a second terminal, "
              "'gpuprof top'. To load the profiler without 'gpuprof run', set CUDA_INJECTION64_PATH to the path of "
              "libgpuprof.so.",
              0, 0);
}
