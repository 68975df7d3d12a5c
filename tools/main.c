/* SPDX-License-Identifier: MIT
 *
 * main.c: the `gpuprof` command: a table of sub-commands and nothing else.
 */
#include <cmd/cmd.h>
#include <gpuprof/gpuprof.h>

#include <locale.h>
#include <stdio.h>
#include <string.h>

struct gp_command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

static const struct gp_command commands[] = {
    {"run", "run a program with the profiler inside", gp_cmd_run},
    {"top", "watch who holds which GPU memory, live", gp_cmd_top},
    {"stat", "print the numbers of profiled processes once", gp_cmd_stat},
    {"reset", "reset peaks or totals of running processes", gp_cmd_reset},
    {"scope", "peaks of your own between a begin and an end", gp_cmd_scope},
    {"trace", "print every memory event as it happens", gp_cmd_trace},
    {"mark", "write a named mark among a process's events", gp_cmd_mark},
    {"snapshot", "write a memory snapshot for PyTorch's viewer, of any program", gp_cmd_snapshot},
    {"replay", "run an allocation trace on the simulated GPU", gp_cmd_replay},
    {"generate", "write an allocation trace of a known kind of program", gp_cmd_generate},
    {"record", "write a running process's events to a file", gp_cmd_record},
    {"report", "a recording on one page: how much, when, who, who grows", gp_cmd_report},
    {"leaks", "call sites that hold more with every step", gp_cmd_leaks},
    {"peak", "who held the memory when it was at its highest", gp_cmd_peak},
    {"churn", "what is allocated and freed again in every step", gp_cmd_churn},
    {"fragmentation", "how much of the reserved memory is of use", gp_cmd_fragmentation},
    {"reconcile", "the itemised bill against what NVML says", gp_cmd_reconcile},
    {"diff", "two recordings of one program, site by site", gp_cmd_diff},
    {"export", "write a recording in the format of another tool", gp_cmd_export},
    {"agent", "add up the whole machine in the kernel, for top --system and Prometheus", gp_cmd_agent},
    {"doctor", "say what works on this machine and why not", gp_cmd_doctor},
};

static void main_help(FILE *out)
{
    fprintf(out, "usage: gpuprof COMMAND [OPTIONS]\n\nExact GPU-memory profiling of CUDA programs.\n\n");
    for (size_t i = 0; i < GP_COUNT(commands); i++)
        fprintf(out, "  %-13s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n'gpuprof help COMMAND' says more.  Begin with 'gpuprof run CMD...' and, beside it, 'gpuprof top'.\n"
                 "To load the profiler by hand: CUDA_INJECTION64_PATH=.../libgpuprof.so CMD...\n");
}

static const struct gp_command *main_find(const char *name)
{
    for (size_t i = 0; i < GP_COUNT(commands); i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static int main_unknown(const char *name)
{
    const char *names[GP_COUNT(commands)];
    for (size_t i = 0; i < GP_COUNT(commands); i++)
        names[i] = commands[i].name;
    const char *nearest = gp_nearest(name, names, GP_COUNT(names));
    if (nearest)
        return gp_usage_error(NULL, "%s: no such command: did you mean '%s'?", name, nearest);
    return gp_usage_error(NULL, "%s: no such command", name);
}

static int main_dispatch(int argc, char **argv)
{
    if (argc < 2) {
        main_help(stdout);
        return GP_EXIT_USAGE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("gpuprof " GPUPROF_VERSION "\n");
        return GP_EXIT_OK;
    }
    bool help = strcmp(word, "help") == 0;
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || (help && argc == 2)) {
        main_help(stdout);
        return GP_EXIT_OK;
    }
    if (!help && word[0] == '-')
        return gp_usage_error(NULL, "%s: unknown option", word);
    const struct gp_command *command = main_find(help ? argv[2] : word);
    if (!command)
        return main_unknown(help ? argv[2] : word);
    if (help) {
        char *asked[] = {argv[2], "--help", NULL};
        return command->run(2, asked);
    }
    return command->run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    setlocale(LC_CTYPE, ""); /* wide characters in top; numbers stay in the C locale for scripts */
    int rc = main_dispatch(argc, argv);
    /* A full disk or a closed pipe found only now must not look like success. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && rc == GP_EXIT_OK) {
        gp_error(NULL, "cannot write to stdout");
        rc = GP_EXIT_FAILED;
    }
    return rc;
}
