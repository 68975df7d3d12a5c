/* SPDX-License-Identifier: MIT
 *
 * cmd.h: the sub-commands and the functions that they share: exit codes, messages, the choice of
 * processes, the start of programs.  cmd.h describes a command; commands.c has the table.  A
 * command never calls another one.
 */
#ifndef GP_CMD_CMD_H
#define GP_CMD_CMD_H

#include <base/compiler.h>
#include <common/messages.h>
#include <common/output.h>
#include <common/progress.h>
#include <read/collect/collect.h>
#include <read/common/parse.h>
#include <run/launch.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* ==== the description of a command ================================================================================ */
/* The description of one command: its options, operands, texts and functions.  Each command defines
 * one struct gp_command_spec; the parser (option.c), the help (help.c), the man page (manpage.c)
 * and the shell completions (completion.c) read it, so an option is written down once.  commands.c has
 * the table of all commands. */

/* What an argument is, and the type of the member of the command's struct that it fills. */
enum gp_argument {
    GP_ARG_FLAG,       /* bool; the option takes no argument */
    GP_ARG_TEXT,       /* const char *; "" if an optional argument is missing */
    GP_ARG_FILE,       /* as TEXT; shells complete file names */
    GP_ARG_RECORDING,  /* as TEXT; shells complete names that end in .gpuprof */
    GP_ARG_NUMBER,     /* int64_t or uint32_t, from low to high (0: no limit) */
    GP_ARG_SIZE,       /* the same, in bytes, with a unit */
    GP_ARG_SHARE,      /* struct gp_share: SIZE, or a percentage of a GPU's memory */
    GP_ARG_CHOICE,     /* const char *: the chosen word as the table spells it */
    GP_ARG_INDEX,      /* int: the number of the chosen word */
    GP_ARG_LIST,       /* uint32_t: a bit for each chosen word; commas separate them */
    GP_ARG_PIDS,       /* struct gp_target */
    GP_ARG_PID,        /* the same, one process at most */
    GP_ARG_DEVICE,     /* struct gp_target */
    GP_ARG_RECORDINGS, /* char **: the other operands, until NULL; completed as RECORDING; operands only, the last one */
    GP_ARG_PROGRAM,    /* char **: the rest of the command line; operands only */
};

struct gp_share {
    bool given;
    int64_t bytes;  /* -1: percent is given */
    double percent; /* of what a GPU has; 0: bytes are given */
};

struct gp_command_option {
    const char *name;     /* long option; of an operand its name in the usage line, in capitals.  NULL ends a table */
    const char *argument; /* how the argument is called; NULL for a flag */
    const char *help;     /* no period at the end.  NULL: accepted, but not shown */
    const char *const *words;               /* the choices, NULL after the last ... */
    const char *(*choice)(unsigned number); /* ... or a function that names them, NULL after the last */
    const char *(*meant)(const char *text); /* the choice that people mean by another word; NULL: none */
    /* Takes the argument in place of the parser of its type.  GP_EXIT_OK, or an exit status
     * after a message. */
    int (*parse)(void *options, const struct gp_command_option *option, const char *text);
    int64_t low, high;
    size_t offset, bytes; /* GP_INTO: the member of the command's struct */
    enum gp_argument type;
    char letter;   /* 0: none */
    bool optional; /* --name[=ARGUMENT] */
    bool any_case; /* CHOICE: in capitals or not */
    bool blanks;   /* LIST: empty words are skipped */
    bool small;    /* SIZE: usually small, so a number without a unit is bytes */
};

#define GP_INTO(_type, _member) .offset = offsetof(_type, _member), .bytes = sizeof(((_type *)0)->_member)
#define GP_LIST(...)            ((const char *const[]){__VA_ARGS__, NULL})

/* The usual entries of a table.  _type and _member: the command's struct and the member to fill;
 * letter 0: none.  More members of struct gp_command_option may follow. */
#define GP_OPTION(_type, _member, _letter, _name, _argument, _kind, _help, ...)                                        \
    {                                                                                                                  \
        .name = _name, .letter = _letter, .argument = _argument, .type = _kind, .help = _help,                         \
        GP_INTO(_type, _member), ##__VA_ARGS__                                                                         \
    }
#define GP_FLAG(_type, _member, _letter, _name, _help)                                                                 \
    GP_OPTION(_type, _member, _letter, _name, NULL, GP_ARG_FLAG, _help)
#define GP_OPERAND(_type, _member, _name, _kind, _help, ...)                                                           \
    GP_OPTION(_type, _member, 0, _name, NULL, _kind, _help, ##__VA_ARGS__)

/* Options of several commands, whose structs have these members. */
#define GP_OPTION_JSON(_type, _schema) GP_FLAG(_type, json, 0, "json", "print JSON, schema " _schema)
#define GP_OPTION_PID(_type, _help)    GP_OPTION(_type, target, 'p', "pid", "PID", GP_ARG_PID, _help)
#define GP_OPTION_PIDS(_type)          GP_OPTION(_type, target, 'p', "pid", "PID,..", GP_ARG_PIDS, "only these processes")
#define GP_OPTION_ALL(_type)           GP_FLAG(_type, target.all, 'a', "all", "every profiled process that you may read")
#define GP_OPTION_DEVICE(_type)                                                                                        \
    GP_OPTION(_type, target, 0, "device", "N", GP_ARG_DEVICE, "only this device: its number in the process, or 'host'")
#define GP_OPTION_PINS(_type)                                                                                          \
    GP_OPTION(_type, pins, 0, "pins", "DIR", GP_ARG_FILE,                                                              \
              "directory where 'gpuprof agent' pins its tables (default " GP_MAPS_PINS ")")

#define GP_OUTPUT_FORCE        "replace FILE even if gpuprof did not write it; a recording is never replaced"
#define GP_OPTION_FORCE(_type) GP_FLAG(_type, force, 0, "force", GP_OUTPUT_FORCE)
/* Of a command that records. */
#define GP_OPTION_FORCE_RECORDING(_type)                                                                               \
    GP_FLAG(_type, force, 0, "force", "replace an older recording when the new one is complete")

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

struct gp_command_example {
    const char *line, *what; /* a command line for a shell, and a sentence.  NULL ends a table */
};

#define GP_EXAMPLES(...) ((const struct gp_command_example[]){__VA_ARGS__, {0}})

enum gp_command_group {
    GP_GROUP_WATCH,
    GP_GROUP_ASK,
    GP_GROUP_RECORD,
    GP_GROUP_ANALYSE,
    GP_GROUP_EXPORT,
    GP_GROUP_MACHINE,
    GP_GROUPS
};

struct gp_command_spec {
    const char *name, *summary;
    enum gp_command_group group;
    const char *const *usage;                 /* what follows the command's name; one line for each form */
    const char *const *about;                 /* paragraphs of --help and of the man page */
    const char *const *details;               /* paragraphs of the man page only; may be NULL */
    const struct gp_command_option *options;  /* without --help; may be NULL */
    const struct gp_command_option *operands; /* in their order; may be NULL */
    const struct gp_command_example *examples;
    const void *defaults;  /* the command's struct before the parser fills it */
    size_t bytes;          /* size of that struct */
    const char *surplus;   /* what to tell a user who gives too many operands; may be NULL */
    bool operand_ends;     /* the first operand ends the options */
    int (*check)(void *o); /* whether the options agree; may be NULL.  Must not look at anything but *o */
    int (*run)(void *o);   /* the command.  Both return GP_EXIT_OK, or an exit status after a message */
};

/* The members `defaults` and `bytes`. */
#define GP_DEFAULTS(_type, ...) .defaults = &(const _type){__VA_ARGS__}, .bytes = sizeof(_type)

/* Operands have names in capitals. */
static inline bool gp_option_is_operand(const struct gp_command_option *option)
{
    return option->name[0] >= 'A' && option->name[0] <= 'Z';
}

/* The i-th choice of an option; NULL after the last, or if it has none. */
const char *gp_option_choice(const struct gp_command_option *option, unsigned i);
/* "a, b or c"; "" if the option has no choices. */
void gp_option_choices(char *text, size_t text_bytes, const struct gp_command_option *option);

/* Fills options (spec->bytes) from the command line, whose argv[0] is the command's name, and
 * checks it.  *help: the line asks for the help, and nothing was checked.  Sets nothing else in
 * this process, so it may also be called to try a command line.  GP_EXIT_OK, or an exit status
 * after a message.  Call gp_options_free in both cases.  One thread. */
int gp_command_parse(const struct gp_command_spec *spec, int argc, char **argv, void *options, bool *help);
void gp_options_free(const struct gp_command_spec *spec, void *options);

/* ==== what the commands share ===================================================================================== */

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

/* ---- record.c ---------------------------------------------------------------------------------------------------- */

/* Records a running process as `gpuprof record` does, until it ends, `seconds` have passed (0: no
 * end) or INT, TERM or HUP arrives.  An exit status. */
int gp_record_process(pid_t pid, const char *path, int64_t seconds, bool force);

#endif
