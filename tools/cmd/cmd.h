/* SPDX-License-Identifier: MIT
 *
 * cmd.h: the sub-commands and the functions that they share: exit codes, messages, the choice of
 * processes, the start of programs.  option.h describes a command; commands.c has the table.  A
 * command never calls another one.
 */
#ifndef GP_CMD_CMD_H
#define GP_CMD_CMD_H

#include <base/compiler.h>
#include <cmd/option.h>
#include <limits.h>
#include <read/collect/collect.h>
#include <read/common/parse.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum gp_exit {
    GP_EXIT_OK = 0,
    GP_EXIT_FAILED = 1,       /* failed while running */
    GP_EXIT_USAGE = 2,        /* wrong usage */
    GP_EXIT_NO_PROCESS = 3,   /* no such profiled process */
    GP_EXIT_OVER = 3,         /* more memory than there is, or than a budget allows */
    GP_EXIT_TIMEOUT = 75,     /* as EX_TEMPFAIL: try again later */
    GP_EXIT_IMPOSSIBLE = 77,  /* not possible on this machine */
    GP_EXIT_CANNOT_RUN = 126, /* as env(1): found, but it cannot be run */
    GP_EXIT_NOT_FOUND = 127,  /* as env(1) */
};

extern const struct gp_command_spec gp_command_run, gp_command_top, gp_command_stat, gp_command_reset, gp_command_scope,
    gp_command_mark, gp_command_stacks, gp_command_trace, gp_command_record, gp_command_snapshot, gp_command_report,
    gp_command_leaks, gp_command_peak, gp_command_churn, gp_command_fragmentation, gp_command_reconcile,
    gp_command_phases, gp_command_fit, gp_command_diff, gp_command_check, gp_command_explain, gp_command_export,
    gp_command_replay, gp_command_generate, gp_command_wait, gp_command_dryrun, gp_command_agent, gp_command_doctor,
    gp_command_attach, gp_command_detach, gp_command_yield, gp_command_cdi;

/* ---- commands.c -------------------------------------------------------------------------------------------------- */

/* All commands in the order of the help, NULL after the last. */
extern const struct gp_command_spec *const gp_commands[];
/* NULL after a message: no command has this name. */
const struct gp_command_spec *gp_command_find(const char *name);
/* Parses the command line (argv[0] is the command's name), then prints the help or runs the
 * command.  An exit status. */
int gp_command_main(const struct gp_command_spec *spec, int argc, char **argv);

/* ---- messages.c -------------------------------------------------------------------------------------------------- */

/* "gpuprof: COMMAND: ..." and a newline on stderr. */
void gp_error(const char *command, const char *format, ...) GP_PRINTF(2, 3);
/* The same, then a line that names the help.  Returns GP_EXIT_USAGE, so that callers can return
 * it. */
int gp_usage_error(const char *command, const char *format, ...) GP_PRINTF(2, 3);
/* Says that an output cannot be written; path: NULL or "-" for standard output, whose reader may
 * have enough, as head has: that is no news.  error: an errno.  Returns GP_EXIT_FAILED. */
int gp_write_error(const char *command, const char *path, int error);
/* The nearest of names[count] to `word` (edit distance <= 2), or NULL. */
const char *gp_nearest(const char *word, const char *const *names, size_t count);

/* ---- target.c ---------------------------------------------------------------------------------------------------- */

struct gp_target {
    const char *command; /* for messages */
    pid_t *pids;         /* from -p; NULL none.  Freed by gp_target_free */
    int pid_count;
    bool all;
    bool more;   /* the command has other sources of processes too: it reports itself that it found none */
    bool choice; /* the command takes --all, so a list of candidates mentions it */
    int device;  /* -1 every device */
};

#define GP_TARGET_INIT(_command)                                                                                       \
    {                                                                                                                  \
        .command = (_command), .device = -1                                                                            \
    }

/* Parse the values of -p and --device.  GP_EXIT_OK, or GP_EXIT_USAGE after a message. */
int gp_target_pids(struct gp_target *target, const char *text);
int gp_target_device(struct gp_target *target, const char *text);
void gp_target_free(struct gp_target *target);

/* Collects the processes that the options name: the list of -p, every process with --all, else
 * the only profiled process of the caller.  Leaves out processes that only NVML knows.
 * GP_EXIT_OK, or an exit status after a message, with *system = NULL.  Free with gp_system_free. */
int gp_target_collect(struct gp_target *target, bool exact, bool with_nvml, struct gp_system **system);

/* Report that the caller owns no profiled process; that --all found none. */
void gp_target_none_owned(const struct gp_target *target);
void gp_target_none(const struct gp_target *target, const struct gp_system *system);

/* Index in devices[] of the session for a user's device number; -1 for "every device"; -2 after
 * a message: the process has no such device. */
int gp_target_index(const struct gp_target *target, const struct gp_process *process);

struct gp_refusal { /* what an error number of the process means for one command */
    int error;      /* 0 ends the list */
    const char *text;
};

/* gp_request with a message on failure.  refusals may be NULL.  GP_EXIT_OK or the exit status. */
int gp_ask(const char *command, pid_t pid, struct gp_wire_slot *slot, const struct gp_refusal *refusals);
/* The message and the exit status for a result of gp_request. */
int gp_asked(const char *command, pid_t pid, int rc, const struct gp_refusal *refusals);

/* ---- stacks.c ---------------------------------------------------------------------------------------------------- */

/* If the process takes no stacks: one line on stderr with the command that switches them on. */
void gp_unwind_stacks_offer(const char *command, pid_t pid);

/* ---- holders.c --------------------------------------------------------------------------------------------------- */

/* Fills oom_where, the call sites of the blocks in the process's out-of-memory report, if it has
 * a report and runs with stacks.  sites: call sites that the caller read before the process
 * ended, or NULL if it is alive. */
struct gp_sites;
void gp_holders_name(struct gp_process *process, struct gp_sites *sites);

/* ---- recorded.c -------------------------------------------------------------------------------------------------- */

/* record.c: reads a session's header and checks its layout, for a recorder.  A part with an impossible
 * offset is treated as absent.  0 or -errno. */
struct gp_peer;
struct gp_wire_header;
int gp_record_header(const struct gp_peer *session, struct gp_wire_header *header);

/* record.c: records a running process as `gpuprof record` does, until it ends, `seconds` have passed (0: no
 * end) or INT, TERM or HUP arrives.  An exit status. */
int gp_record_process(pid_t pid, const char *path, int64_t seconds);

/* Removes an older recording; any other file of that name was not written by gpuprof and stays. One that a process
 * is writing, or has just made, stays too: the program then gets the second name.  GP_EXIT_OK, or GP_EXIT_FAILED after
 * a message. */
int gp_recorded_clear(const char *command, const char *path);

/* Ends the recording of a process that was killed: adds the events and call sites that are in its
 * session and not in its file.  False: nothing was done, or the file could not be written. */
struct gp_watched;
bool gp_recorded_end(const char *path, const struct gp_watched *watched, uint64_t *events, uint64_t *lost);

/* Does that for all watched processes that were killed.  pattern: value of GPUPROF_RECORD. */
struct gp_watch;
void gp_recorded_finish(const struct gp_watch *watch, const char *pattern);

/* One line for each watched process that recorded: how many events, to which file, how many were
 * lost, and the command that reads it.  pattern: value of GPUPROF_RECORD. */
/* The path relative to the current directory, if it lies there. */
const char *gp_recorded_short(const char *path);
/* recordnames.c: puts the names of native frames into a recording that has ended.  root: where the files
 * of the program are ("" here).  An exit status, after a message. */
int gp_recorded_names(const char *command, const char *path, const char *root);

/* The file of a watched process; false: it wrote none. */
bool gp_recorded_path(const struct gp_watched *watched, const char *pattern, char path[PATH_MAX]);
struct gp_unseen;
void gp_recorded_print(FILE *out, const struct gp_watch *watch, const char *pattern, const struct gp_unseen *unseen);

/* ---- launch.c ---------------------------------------------------------------------------------------------------- */

struct gp_launch {       /* how `run` and `trace --` start a program */
    const char *command; /* for messages */
    char library[4096];  /* path of libgpuprof.so, set by gp_launch_prepare */
    const char *given;   /* the library that --library names; NULL: the installed one */
    const char *sim;     /* NULL: no simulated GPU; "": the default one */
    char **argv;         /* NULL-terminated; NULL: no program */
    /* The caching allocator; NULL, or a limit of -1 byte, leaves the setting of the environment. */
    const char *allocator, *conf;
    int64_t limit;
};

/* The options that start a program, for the table of a command whose struct has a member
 * `launch`. */
#define GP_OPTION_SIM(_type)                                                                                           \
    GP_OPTION(_type, launch.sim, 0, "sim", "SPEC", GP_ARG_TEXT,                                                        \
              "run on the simulated GPU; SPEC is a list of devices=N, gpu=NAME, memory=SIZE, limit=SIZE, "             \
              "latency=zero|typical, contents=keep|none, fill=zeros|random, shared[=NAME] and faults=FILE, with "      \
              "commas in between; gpu=list "                                                                           \
              "shows the names of GPUs",                                                                               \
              .optional = true)
#define GP_OPTION_LIBRARY(_type)                                                                                       \
    GP_OPTION(_type, launch.given, 0, "library", "FILE", GP_ARG_FILE,                                                  \
              "load this libgpuprof.so instead of the installed one")

/* Finds a file of the installation ("libgpuprof.so", "gpuprof/sim/libcuda.so.1") in the library
 * folders beside this program.  0; -ENOENT, and path is where the file was expected. */
int gp_launch_find(char *path, size_t path_bytes, const char *below);
/* The error of a file that gp_launch_find did not find: the folders in which it looked, and what to do. */
void gp_launch_missing(const char *command, const char *below, const char *what);
/* Finds the library and the simulator, checks the environment, and sets the variables in this
 * process's own environment, from which the program inherits them.  GP_EXIT_OK, or an exit
 * status after a message. */
int gp_launch_prepare(struct gp_launch *launch);
/* Prints the GPUs that --sim=gpu=NAME takes.  An exit status. */
int gp_launch_gpus(const char *command);
struct gp_sim_gpu { /* a GPU that the simulator knows by name */
    char key[32], name[64], capability[8];
    int64_t total_bytes;
};
/* All of them, to be freed.  GP_EXIT_OK, or an exit status after a message. */
int gp_launch_gpu_table(const char *command, struct gp_sim_gpu **gpus, uint32_t *count);
/* The part of gp_launch_prepare that preloads the simulated GPU's libraries from their folder, where it can do no harm, so
 * that a program whose run path names NVIDIA's runtime or CUPTI gets them. */
int gp_preload_sim(const struct gp_launch *launch, const char *folder);
/* The part of gp_launch_prepare that preloads libgpuprof-shim.so: if the options or the
 * environment ask for an allocator or for driver hooks, and where it can do no harm also
 * otherwise, so that the hooks can take over from CUPTI. */
int gp_preload_shim(const struct gp_launch *launch);
/* Whether a library may be preloaded into the program: it is for this processor and C library,
 * and no sanitizer is in it.  program: as for execvp. */
bool gp_preload_fits(const char *program);
/* The names that --allocator takes, in the order of the documentation; NULL after the last. */
const char *gp_allocator_name(unsigned index);
/* Checks settings of an allocator: the library would ignore all of them for one mistake, and the
 * program would run for hours without them.  option: where text comes from.  text may be NULL.
 * GP_EXIT_OK, or GP_EXIT_USAGE after a message. */
int gp_conf_check(const char *command, const char *option, const char *text, const char *allocator);

struct gp_child {
    pid_t pid;
    bool ended;
    int status; /* exit status as a shell gives it; valid once ended */
};

/* Starts the program as a child.  From then on gp_launch_child_wait forwards signals that this process
 * receives.  0 or -errno. */
int gp_launch_child_start(struct gp_child *child, const struct gp_launch *launch);
/* Waits at most timeout_ns for a signal: forwards it to the child, follows its stops and
 * continues, notices its end. */
void gp_launch_child_wait(struct gp_child *child, uint64_t timeout_ns);

#endif
