/* SPDX-License-Identifier: MIT
 *
 * load.h: shared by the commands that read recordings: report, leaks, peak, churn, fragmentation,
 * reconcile and diff.  They take a file, most of them also a running process, which is then recorded
 * for some seconds.
 */
#ifndef GP_CMD_LOAD_H
#define GP_CMD_LOAD_H

#include <cmd/cmd.h>
#include <common/loaded.h>
#include <jansson.h>
#include <show/gate/budget.h>
#include <show/text/text.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* ==== a recording ================================================================================================= */

struct gp_load_options { /* the options of all these commands; each takes some of them */
    struct gp_target target;
    const char *files[2];
    char **more;     /* further files of a command that takes several; NULL: none */
    bool listed;     /* set by a command whose files are those of a folder, of which it waits for no pipe */
    int file_count;  /* how many files the command needs */
    bool live;       /* the command takes -p */
    bool sites;      /* its result names call sites */
    int64_t seconds; /* --duration; 0: not given */
    bool json, callers;
    int64_t older_seconds, error_exitcode; /* -1: not given */
    const char *output;
    bool force;       /* replace any output file */
    bool open;        /* show the page */
    json_t *dryrun;   /* set by `gpuprof dryrun`: what the page says of the run beside the recordings (gp_helps_json) */
    bool plain;       /* set by a command that calls gp_report_steps and gp_load_join itself, as far as it needs them */
    bool growth;      /* set by `leaks`: of ranks, what grows is read, and nothing else of their memory */
    bool nameless;    /* set by a command that shows no call sites: none is looked up */
    const char *step; /* --step; NULL: not given */
    const char *symfs;
    struct gp_load_part part;
};

/* What a command reads, for its help. */
#define GP_LOAD_READS                                                                                                  \
    "a recording of 'gpuprof record' or 'gpuprof run --record', a memory snapshot of PyTorch (pickle, JSON, "          \
    "memory_viz's page) or a log of RMM (CSV), each also as .gz; '-' is standard input"

#define GP_LOAD_USAGE_LIVE GP_LIST("(FILE | -p PID [--duration=SECS]) [--json]")
#define GP_LOAD_OPTION_PID                                                                                             \
    GP_OPTION_PID(struct gp_load_options, "record this running process for some seconds; ^C ends that early")
#define GP_LOAD_OPTION_DURATION                                                                                        \
    GP_OPTION(struct gp_load_options, seconds, 0, "duration", "SECS", GP_ARG_NUMBER,                                   \
              "how long to record the process (default 10)", .low = 1, .high = 1000000)
/* The option --step of a command whose struct has the member `step`. */
#define GP_LOAD_OPTION_STEP(_type)                                                                                     \
    GP_OPTION(_type, step, 0, "step", "NAME|TIME", GP_ARG_TEXT,                                                        \
              "what a step is: the name of a mark or of an NVTX range, or a duration such as 350ms")
/* The option --symfs of a command whose struct has the member `symfs`. */
#define GP_LOAD_OPTION_SYMFS(_type)                                                                                    \
    GP_OPTION(_type, symfs, 0, "symfs", "DIR", GP_ARG_FILE,                                                            \
              "look for programs and libraries below DIR first, as a container or another machine had them")
/* The options --from and --to of a command whose struct has the member `part`. */
#define GP_LOAD_OPTION_FROM(_type)                                                                                     \
    GP_OPTION(_type, part.from, 0, "from", "WHEN", GP_ARG_TEXT,                                                        \
              "start there: time since the start of the recording such as 2.5s, or the name of a mark")
#define GP_LOAD_OPTION_TO(_type) GP_OPTION(_type, part.to, 0, "to", "WHEN", GP_ARG_TEXT, "end there: as --from")
/* The rest of the description of a command that takes a file or -p. */
#define GP_LOAD_SPEC(_name, _run, _sites)                                                                              \
    GP_DEFAULTS(struct gp_load_options, .target = GP_TARGET_INIT(_name), .file_count = 1, .live = true,                \
                .sites = _sites, .older_seconds = -1, .error_exitcode = -1),                                           \
        .operands = gp_load_operand, .check = gp_load_check, .run = _run

extern const struct gp_command_option gp_load_operand[];
/* The check of struct gp_command_spec: the files and processes agree.  GP_EXIT_OK, or
 * GP_EXIT_USAGE after a message. */
int gp_load_check(void *options);

/* Reads the i-th file, or records the process.  GP_EXIT_OK, or an exit status after a message. */
int gp_load(struct gp_loaded *loaded, const struct gp_load_options *options, int i);
/* report.c: writes what `gpuprof report` writes: of one file or of the ranks of a job.  An exit status. */
int gp_report_write(const struct gp_load_options *options);

/* The properties of stdout: width and colours of a terminal, 100 columns and no colours of
 * anything else. */
struct gp_text_page gp_load_page(void);
/* Prints the object and releases it.  GP_EXIT_OK, or GP_EXIT_FAILED after a message.  NULL:
 * memory ran out. */
int gp_load_json(const char *command, json_t *object);
/* The whole of most of these commands: loads, runs the analyses `parts` (GP_REPORT_*), then prints
 * JSON or text.  An exit status. */
int gp_load_run(const struct gp_load_options *options, unsigned parts, json_t *json(const struct gp_report *report),
                void text(const struct gp_text_page *page, const struct gp_report *report));

/* ==== ranks ======================================================================================================= */
/* Reads the recordings of several ranks, some at a time, and keeps of each what struct gp_job_rank has. */

struct gp_rank_set {
    struct gp_job_rank *ranks;
    uint32_t count;
    struct gp_rank_left *left; /* files that are not among the ranks, each after a message */
    uint32_t left_count;
    struct gp_ranks *all;
};
/* The recordings in a folder, in the order of their numbers; free with gp_rank_files_free.  NULL: the path is no
 * folder.  GP_EXIT_OK, or an exit status after a message. */
int gp_rank_files(const char *command, const char *path, char ***files);
void gp_rank_files_free(char **files);
/* Reads files[0] and the further files of the options; those that cannot be read are left out.  GP_EXIT_OK, or an
 * exit status after a message; gp_rank_set_free is safe after either. */
int gp_rank_set_read(struct gp_rank_set *set, const struct gp_load_options *options);
/* The same without those of other jobs and runs.  GP_EXIT_FAILED if none is left. */
int gp_rank_set_read_job(struct gp_rank_set *set, const struct gp_load_options *options);
/* The same, and compares the ranks: set->all, and set->ranks in its order. */
int gp_rank_set_load(struct gp_rank_set *set, const struct gp_load_options *options);
void gp_rank_set_free(struct gp_rank_set *set);

/* ==== findings ==================================================================================================== */
/* What commands that hold a program's memory do with their findings. */

/* The exit status of a broken budget, unless --error-exitcode names another one. */
#define GP_GATE_BROKEN 3

struct gp_budget_options {
    struct gp_share most; /* --budget */
    const char *file;     /* --budgets; NULL */
    const char *junit;
};
#define GP_OPTION_BUDGET(_type, _member)                                                                               \
    GP_OPTION(_type, _member.most, 0, "budget", "SIZE|PERCENT", GP_ARG_SHARE,                                          \
              "the most memory that may be allocated on each GPU at once: 20GiB, or 80% of what the GPU has")
#define GP_OPTION_BUDGETS(_type, _member)                                                                              \
    GP_OPTION(_type, _member.file, 0, "budgets", "FILE", GP_ARG_FILE,                                                  \
              "a file of budgets: of lines, phases, ranks, uses and more")
#define GP_OPTION_JUNIT(_type, _member)                                                                                \
    GP_OPTION(_type, _member.junit, 0, "junit", "FILE", GP_ARG_FILE, "write the verdict to FILE as JUnit XML")

/* Reads them.  GP_EXIT_OK, or an exit status after a message; gp_budgets_free in any case. */
int gp_budget_options_read(const char *command, const struct gp_budget_options *o, struct gp_budgets *budgets);
/* Adds the findings of a recording.  GP_EXIT_OK, or an exit status after a message. */
int gp_check_file(const char *command, const char *path, struct gp_budgets *budgets, struct gp_findings *gate);

/* Prints the findings (out NULL: not), annotations where GitHub runs this, and JUnit's file (NULL: none).
 * Returns GP_EXIT_OK if all is within its limits, else the status for broken ones (exitcode < 0: 3), or
 * GP_EXIT_FAILED after a message. */
int gp_gate_end(const char *command, const struct gp_findings *gate, FILE *out, const char *junit, int exitcode);

#endif
