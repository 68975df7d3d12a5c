/* SPDX-License-Identifier: MIT
 *
 * cmd.h: the sub-commands and what they share: exit codes, messages, parsers of common option values, choice of
 * processes.  main.c owns the table; a command never calls another one.
 */
#ifndef GP_CMD_CMD_H
#define GP_CMD_CMD_H

#include <base/compiler.h>
#include <collect/collect.h>
#include <common/parse.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum gp_exit {
    GP_EXIT_OK = 0,
    GP_EXIT_FAILED = 1,       /* failed while running */
    GP_EXIT_USAGE = 2,        /* wrong usage */
    GP_EXIT_NO_PROCESS = 3,   /* no such profiled process */
    GP_EXIT_IMPOSSIBLE = 77,  /* not possible on this machine */
    GP_EXIT_CANNOT_RUN = 126, /* as env(1): found, but it cannot be run */
    GP_EXIT_NOT_FOUND = 127,  /* as env(1) */
};

/* argv[0] is the command's name.  Each returns an exit status; each understands -h and --help. */
int gp_cmd_run(int argc, char **argv);
int gp_cmd_top(int argc, char **argv); /* tools/cmd/top.c */
int gp_cmd_stat(int argc, char **argv);
int gp_cmd_reset(int argc, char **argv);
int gp_cmd_scope(int argc, char **argv);
int gp_cmd_trace(int argc, char **argv);
int gp_cmd_mark(int argc, char **argv);
int gp_cmd_record(int argc, char **argv); /* tools/cmd/record.c */
int gp_cmd_doctor(int argc, char **argv);
int gp_cmd_replay(int argc, char **argv);   /* tools/cmd/replay.c */
int gp_cmd_generate(int argc, char **argv); /* tools/cmd/generate.c */
int gp_cmd_snapshot(int argc, char **argv); /* tools/cmd/snapshot.c */
int gp_cmd_report(int argc, char **argv);
int gp_cmd_leaks(int argc, char **argv);
int gp_cmd_peak(int argc, char **argv);
int gp_cmd_churn(int argc, char **argv);
int gp_cmd_fragmentation(int argc, char **argv);
int gp_cmd_reconcile(int argc, char **argv);
int gp_cmd_diff(int argc, char **argv);
int gp_cmd_export(int argc, char **argv); /* tools/cmd/export.c */
int gp_cmd_agent(int argc, char **argv);

/* ---- messages.c ---------------------------------------------------------------------------------------------- */

/* "gpuprof: COMMAND: ..." and a newline on stderr. */
void gp_error(const char *command, const char *format, ...) GP_PRINTF(2, 3);
/* The same, then where the help is.  Returns GP_EXIT_USAGE, so that callers can return it. */
int gp_usage_error(const char *command, const char *format, ...) GP_PRINTF(2, 3);
/* For getopt_long with opterr = 0: says what was wrong with the option just read ('?' or ':'). */
int gp_option_error(const char *command, int code, char **argv, int option_index, int option_char);
/* The nearest of names[count] to `word` (edit distance <= 2), or NULL. */
const char *gp_nearest(const char *word, const char *const *names, size_t count);

/* ---- target.c ------------------------------------------------------------------------------------------------ */

struct gp_target {
    const char *command; /* for messages */
    pid_t *pids;         /* from -p; NULL none.  Freed by gp_target_free */
    int pid_count;
    bool all;
    bool more; /* the command knows processes from elsewhere too: that there is none is its to say (gp_target_nobody..)
                */
    bool choice; /* the command takes --all, so a list of candidates names it */
    int device;  /* -1 every device */
};

#define GP_TARGET_INIT(_command)                                                                                       \
    {                                                                                                                  \
        .command = (_command), .pids = NULL, .pid_count = 0, .all = false, .more = false, .device = -1                 \
    }

/* Takes -p and --device values, printing what is wrong.  GP_EXIT_OK or GP_EXIT_USAGE. */
int gp_target_pids(struct gp_target *target, const char *text);
int gp_target_device(struct gp_target *target, const char *text);
void gp_target_free(struct gp_target *target);

/* Collects the processes that the options name: the list of -p, every process with --all, else the only profiled
 * process of the caller.  Processes that are known from NVML alone are left out.  Prints why not.
 * GP_EXIT_OK, or the exit status with *system = NULL.  Free with gp_system_free. */
int gp_target_collect(struct gp_target *target, bool exact, bool with_nvml, struct gp_system **system);

/* Say that there is nobody: none of the caller's, none with --all. */
void gp_target_nobody_mine(const struct gp_target *target);
void gp_target_nobody(const struct gp_target *target, const struct gp_system *system);

/* Index in devices[] of the session for a user's device number; -1 for "every device"; -2 (with a message): this
 * process has no such device. */
int gp_target_index(const struct gp_target *target, const struct gp_process *process);

struct gp_refusal { /* what an error number of the process means for one command */
    int error;      /* 0 ends the list */
    const char *text;
};

/* gp_request with a message on failure.  refusals may be NULL.  GP_EXIT_OK or the exit status. */
int gp_ask(const char *command, pid_t pid, struct gp_wire_slot *slot, const struct gp_refusal *refusals);

/* ---- holders.c ----------------------------------------------------------------------------------------------- */

/* Says where the holders in the process's report of out of memory were asked for (oom_where), if it has a report and
 * runs with stacks.  sites: as kept since before its end, or NULL: of a process that is alive. */
struct gp_sites;
void gp_holders_name(struct gp_process *process, struct gp_sites *sites);

/* ---- recorded.c -------------------------------------------------------------------------------------------------- */

/* What the watched processes recorded, where, what was lost, and what to do with it.  pattern: GPUPROF_RECORD. */
struct gp_watch;
void gp_recorded_print(FILE *out, const struct gp_watch *watch, const char *pattern);

/* ---- launch.c, child.c ------------------------------------------------------------------------------------------ */

struct gp_launch {       /* how `run` and `trace --` start a program */
    const char *command; /* for messages */
    char library[4096];  /* libgpuprof.so, found by gp_launch_prepare or given */
    const char *sim;     /* NULL: no simulated GPU; "": the default one */
    char **argv;         /* NULL-terminated */
    /* The caching allocator: NULL leaves the environment's own setting. */
    const char *allocator, *limit, *conf;
};

/* "libgpuprof.so", "gpuprof/sim/libcuda.so.1": its place beside this program (../lib, ../lib64, ...).  0; -ENOENT with
 * the place where it was expected. */
int gp_launch_find(char *path, size_t path_bytes, const char *below);
/* Finds the library (unless given) and the simulator, checks the environment, sets the variables in this process's
 * own environment, from which the program inherits them.  GP_EXIT_OK or an exit status, after a message. */
int gp_launch_prepare(struct gp_launch *launch);
/* The part of gp_launch_prepare that puts libgpuprof-shim.so in front of the driver, if an allocator or hooks are asked
 * for. */
int gp_launch_shim(const struct gp_launch *launch);
/* Names that --allocator takes, in the order of the documentation; NULL after the last. */
const char *gp_allocator_name(unsigned index);
/* Replaces this process.  Returns only on failure: 126 or 127, after a message. */
int gp_launch_exec(const struct gp_launch *launch);

struct gp_child {
    pid_t pid;
    bool ended;
    int status; /* exit status as a shell gives it; valid once ended */
};

/* Forks and execs; from here signals for this process are passed on by gp_child_wait.  0 or -errno. */
int gp_child_start(struct gp_child *child, const struct gp_launch *launch);
/* Waits at most timeout_ns for news: passes signals on, follows stops and continues, sees the end. */
void gp_child_wait(struct gp_child *child, uint64_t timeout_ns);

#endif
