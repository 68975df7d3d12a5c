/* SPDX-License-Identifier: MIT
 *
 * manpage.c: the manual page of all commands as roff source, made from their tables and from the
 * sections below; see help.h.  Called by commands.c for `gpuprof help --man`; the Makefile writes
 * build/man/gpuprof.1 with it.
 */
#include <cmd/help.h>
#include <ctype.h>
#include <gpuprof/gpuprof.h>
#include <string.h>

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
      {"GPUPROF_SIM_MACHINE", "Any text: simulated GPUs of another text have other UUIDs. 'gpuprof run' sets it unless "
                              "it is set."},
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
        char label[GP_HELP_LABEL], text[GP_HELP_TEXT];
        if (!option->help)
            continue;
        gp_help_label(label, sizeof(label), option);
        gp_help_option_text(text, sizeof(text) - 1, option);
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
        fprintf(out, ".PP\n%s:\n", gp_help_groups[group]);
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
