/* SPDX-License-Identifier: MIT
 * help.c: the help texts for a terminal, made from the tables of the commands; see cmd.h. Called
 * by commands.c.  Its parts: the help, the manual page. */
#include <cmd/cmd.h>
#include <ctype.h>
#include <gpuprof/gpuprof.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ---- the help ---------------------------------------------------------------------------------------------------- */

#define GP_HELP_WIDTH  100
#define GP_HELP_NARROW 40 /* lines are not made narrower than this */
#define GP_HELP_COLUMN 26 /* where the texts of the options start, at most */
#define GP_HELP_LABEL  64
#define GP_HELP_TEXT   1024

static const char *const group_titles[GP_GROUPS] = {
    [GP_GROUP_WATCH] = "Start and watch",     [GP_GROUP_ASK] = "Ask a running process",
    [GP_GROUP_RECORD] = "Recordings",         [GP_GROUP_ANALYSE] = "Analyses",
    [GP_GROUP_EXPORT] = "Formats and traces", [GP_GROUP_MACHINE] = "The machine and this command",
};

/* "-p, --pid=PID" without the spaces that align it; for an operand its name. */
static void help_label(char *label, size_t label_bytes, const struct gp_command_option *option)
{
    bool operand = gp_option_is_operand(option);
    char letter[8] = "";
    if (option->letter)
        snprintf(letter, sizeof(letter), "-%c, ", option->letter);
    snprintf(label, label_bytes, "%s%s%s%s%s%s%s", letter, operand ? "" : "--", option->name,
             option->optional ? "[" : "", option->argument ? "=" : "", option->argument ? option->argument : "",
             option->optional ? "]" : "");
}

/* The help of the option with its choices. */
static void option_help(char *text, size_t text_bytes, const struct gp_command_option *option)
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
    help_label(label, sizeof(label), option);
    option_help(text, sizeof(text), option);
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
        help_label(label, sizeof(label), options);
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
        fprintf(out, "\n%s:\n", group_titles[group]);
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

/* ---- the manual page --------------------------------------------------------------------------------------------- */
/* The manual page of all commands as roff source, made from their tables and from the sections
 * below.  Called by commands.c for `gpuprof help --man`; the Makefile writes build/man/gpuprof.1
 * with it. */

#define GP_MAN_WIDTH 70
#define GP_MAN_DATE  "2026-11-22" /* when the texts last changed */

struct gp_man_section {
    const char *title;
    struct gp_man_item {
        const char *tag, *text; /* tag NULL: a paragraph; both NULL: the end */
    } items[14];
};

static const struct gp_man_section man_before[] = {
    {"DESCRIPTION",
     {{NULL, "gpuprof shows which processes and call sites hold which GPU memory, now and at the peak. The CUDA driver "
             "loads a small library into the program (environment variable CUDA_INJECTION64_PATH), which counts every "
             "allocation exactly. The commands below read its numbers while the program runs. Profiling your own "
             "programs needs no privileges; root sees the programs of all users."},
      {NULL,
       "Reserved memory is held by the process from the driver; allocated memory is the part that was handed to the "
       "program. Unknown numbers are shown as '-', or null in JSON, never as zero."},
      {NULL, "Without '-p' and '--all', commands act on the caller's only profiled process; if there are several, they "
             "list them and end with status 2."}}},
};

static const struct gp_man_section man_after[] = {
    {"OUT OF MEMORY",
     {{NULL,
       "The session keeps the facts of the last request that failed for lack of memory. 'gpuprof stat' prints them "
       "as a report, 'gpuprof stat --json' has them in 'oom' (null if no request failed), 'gpuprof top' marks the "
       "process, and GPUPROF_LOG=info writes the report to the log."},
      {NULL,
       "The report lists the request and the free memory of the driver; the memory of the process, by kind and by "
       "size of block; the idle memory of the allocator, and why it could not serve the request; and the memory of "
       "other processes. A piece of advice appears only if the numbers show that it would have served the request."}}},
    {"VALUES",
     {{NULL,
       "SIZE is a whole number, optionally with one of the units B, KiB, MiB, GiB, TiB or K, M, G, T; all are powers "
       "of two."}}},
    {"JSON",
     {{NULL,
       "The top object has a key 'schema', such as gpuprof.stat/1; 'gpuprof trace' prints one object per line, each "
       "with that key. Within one number of a schema, fields are only added. Bytes are integers in fields whose names "
       "end in _bytes, addresses are strings, and unknown values are null."}}},
    {"ENVIRONMENT",
     {{"CUDA_INJECTION64_PATH", "The path of libgpuprof.so. A program needs nothing else to be profiled."},
      {"GPUPROF_SIM", "The value of '--sim'."},
      {"GPUPROF_RECORD, GPUPROF_STACKS",
       "The values of '--record' and '--stacks'. The file name must be absolute if the "
       "program changes its directory."},
      {"GPUPROF_ALLOCATOR, GPUPROF_MEMORY_LIMIT, GPUPROF_ALLOC_CONF",
       "The values of '--allocator', '--limit' and '--alloc-conf'. Without 'gpuprof run', the program must also be "
       "started "
       "with libgpuprof-shim.so in LD_PRELOAD."},
      {"GPUPROF_SOURCE",
       "The source of events: auto, cupti or hooks. With auto, hooks take over if CUPTI cannot be used. "
       "With cupti, 'gpuprof run' does not preload libgpuprof-shim.so."},
      {"GPUPROF_CUPTI", "How CUPTI is subscribed to: auto, v1, v2 or shared. With auto, V1, as most profilers do, "
                        "unless a library of the "
                        "process is linked to cuptiSubscribe_v2."},
      {"GPUPROF_RING",
       "With always, the blocks of PyTorch's allocator leave events also while no command reads them, "
       "so that 'trace --backlog' has them; they then cost several times as much. The default is auto."},
      {"GPUPROF_LOG", "The log level off, error, warning, info or debug, followed by :FILE if the log does not go to "
                      "standard error."},
      {"DEBUGINFOD_URLS", "Servers for debug information that is not on this machine."},
      {"NO_COLOR", "If set, output has no colours."}}},
    {"EXIT STATUS",
     {{"0", "The command is done."},
      {"1", "The command failed."},
      {"2", "The command line is wrong."},
      {"3", "The process does not exist, or it is not profiled."},
      {"75", "'wait' has waited as long as '--timeout' allows."},
      {"77", "This machine cannot do it."},
      {NULL,
       "'gpuprof run' and 'gpuprof trace -- CMD' return the status of the program: 128 + N if signal N killed it, 126 "
       "if it could not be run, 127 if it was not found."}}},
    {"FILES",
     {{"/sys/fs/bpf/gpuprof", "The tables of the agent, while it runs and after it was killed."},
      {NULL, "A session has no file: it is in memory that the kernel frees when the process ends."}}},
};

/* Prints one word.  Hyphens are written as minus signs, so that options can be copied from the
 * page. */
static int man_word(FILE *out, const char *word, size_t length)
{
    int used = 0;
    for (size_t i = 0; i < length; i++) {
        if (word[i] == '\\')
            used += fprintf(out, "\\e");
        else if (word[i] == '-')
            used += fprintf(out, "\\-");
        else if ((word[i] == '.' || word[i] == '\'') && i == 0)
            used += fprintf(out, "\\&%c", word[i]);
        else
            used += fprintf(out, "%c", word[i]);
    }
    return used;
}

/* Whether a quote at text[i] opens or closes a quotation; the others are apostrophes. */
static bool man_quote(const char *text, size_t i, bool open)
{
    char before = i ? text[i - 1] : ' ', after = text[i + 1];
    if (text[i] != '\'')
        return false;
    return open ? !isalnum((unsigned char)after) : strchr(" (=", before) && after && after != ' ';
}

/* Prints prose: quotations are bold, lines are short, and a sentence starts on a new line. */
static void man_prose(FILE *out, const char *text)
{
    bool open = false;
    int column = 0;
    for (size_t i = 0; text[i];) {
        size_t length = strcspn(text + i, " ");
        char word[256], last;
        size_t used = 0;
        bool starts = column == 0;
        if (!starts && column + (int)length >= GP_MAN_WIDTH) {
            fputc('\n', out);
            column = 0;
        } else if (!starts) {
            fputc(' ', out);
            column++;
        }
        for (size_t k = 0; k <= length; k++) {
            bool quote = k < length && man_quote(text, i + k, open);
            if (!quote && k < length && used < sizeof(word)) {
                word[used++] = text[i + k];
                continue;
            }
            column += man_word(out, word, used);
            used = 0;
            if (quote) {
                open = !open;
                column += fprintf(out, open ? "\\fB" : "\\fR");
            }
        }
        last = text[i + length - 1];
        i += length + strspn(text + i + length, " ");
        if ((last == '.' || last == '?') && text[i]) {
            fputc('\n', out);
            column = 0;
        }
    }
    fputc('\n', out);
}

/* Prints a usage line or the label of an option: options are bold, arguments in capitals italic.
 * Long lines are broken at spaces, which roff fills again. */
static void man_usage(FILE *out, const char *text)
{
    for (int column = 0; *text;) {
        if (*text == ' ' && column >= GP_MAN_WIDTH - 28) {
            fputc('\n', out);
            text++;
            column = 0;
        }
        size_t option = *text == '-' ? strspn(text, "-abcdefghijklmnopqrstuvwxyz0123456789") : 0;
        size_t argument = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        size_t length = option ? option : argument ? argument : strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789.");
        length = length ? length : 1;
        column += fprintf(out, "%s", option ? "\\fB" : argument ? "\\fI" : "") + man_word(out, text, length);
        column += fprintf(out, "%s", option || argument ? "\\fR" : "");
        text += length;
    }
}

static void man_options(FILE *out, const struct gp_command_option *option)
{
    for (; option && option->name; option++) {
        char label[64], text[1024];
        if (!option->help)
            continue;
        help_label(label, sizeof(label), option);
        option_help(text, sizeof(text) - 1, option);
        text[0] = (char)toupper((unsigned char)text[0]);
        strcat(text, ".");
        fprintf(out, ".TP\n");
        man_usage(out, label);
        fputc('\n', out);
        man_prose(out, text);
    }
}

static void man_paragraphs(FILE *out, const char *const *texts)
{
    for (int i = 0; texts && texts[i]; i++) {
        fprintf(out, ".PP\n");
        man_prose(out, texts[i]);
    }
}

static void man_command(FILE *out, const struct gp_command_spec *spec)
{
    fprintf(out, ".SS gpuprof %s\n", spec->name);
    for (int i = 0; spec->usage[i]; i++) {
        fprintf(out, "%s.HP\n\\fBgpuprof %s\\fR ", i ? ".PD 0\n" : "", spec->name);
        man_usage(out, spec->usage[i]);
        fprintf(out, "\n%s", i ? ".PD\n" : "");
    }
    man_paragraphs(out, spec->about);
    man_paragraphs(out, spec->details);
    man_options(out, spec->operands);
    man_options(out, spec->options);
}

static void man_sections(FILE *out, const struct gp_man_section *sections, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fprintf(out, ".SH \"%s\"\n", sections[i].title);
        for (const struct gp_man_item *item = sections[i].items; item->text; item++) {
            if (item->tag)
                fprintf(out, ".TP\n\\fB%s\\fR\n", item->tag);
            else if (item != sections[i].items)
                fprintf(out, ".PP\n");
            man_prose(out, item->text);
        }
    }
}

static void man_examples(FILE *out, const struct gp_command_spec *const *commands)
{
    fprintf(out, ".SH EXAMPLES\n");
    for (int i = 0; commands[i]; i++) {
        for (const struct gp_command_example *example = commands[i]->examples; example->line; example++) {
            fprintf(out, ".TP\n\\fB");
            man_word(out, example->line, strlen(example->line));
            fprintf(out, "\\fR\n");
            man_prose(out, example->what);
        }
    }
}

void gp_manpage_write(FILE *out, const struct gp_command_spec *const *commands)
{
    fprintf(out, ".\\\" SPDX-License-Identifier: MIT\n.\\\" Written by 'gpuprof help --man' from the tables of the "
                 "commands.\n.TH GPUPROF 1 \"" GP_MAN_DATE "\" \"gpuprof " GPUPROF_VERSION "\" \"User Commands\"\n"
                 ".nh\n.ad l\n.SH NAME\ngpuprof \\- GPU memory profiler for CUDA programs\n.SH SYNOPSIS\n"
                 ".HP\n\\fBgpuprof\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.HP\n\\fBgpuprof \\-\\-version\\fR\n");
    man_sections(out, man_before, GP_COUNT(man_before));
    fprintf(out, ".SH COMMANDS\nEvery command has the option \\fB\\-h\\fR, \\fB\\-\\-help\\fR.\n");
    for (int group = 0; group < GP_GROUPS; group++) {
        fprintf(out, ".PP\n%s:\n", group_titles[group]);
        for (int i = 0; commands[i]; i++) {
            if ((int)commands[i]->group == group)
                fprintf(out, ".RS 4\n\\fB%s\\fR \\(em %s\n.RE\n", commands[i]->name, commands[i]->summary);
        }
    }
    for (int i = 0; commands[i]; i++)
        man_command(out, commands[i]);
    man_sections(out, man_after, GP_COUNT(man_after));
    man_examples(out, commands);
    fprintf(out, ".SH \"SEE ALSO\"\n\\fBnvidia\\-smi\\fR(1), \\fBld.so\\fR(8), \\fBbpf\\fR(2)\n");
}
