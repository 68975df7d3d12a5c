/* SPDX-License-Identifier: MIT
 *
 * option.h: the description of one command: its options, operands, texts and functions.  Each
 * command defines one struct gp_command_spec; the parser (option.c), the help (help.c), the man
 * page (help.c) and the shell completions (completion.c) read it, so an option is written down
 * once.  commands.c has the table of all commands.
 */
#ifndef GP_CMD_OPTION_H
#define GP_CMD_OPTION_H

#include <base/compiler.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What an argument is, and the type of the member of the command's struct that it fills. */
enum gp_argument {
    GP_ARG_FLAG,       /* bool; the option takes no argument */
    GP_ARG_TEXT,       /* const char *; "" if an optional argument is missing */
    GP_ARG_FILE,       /* as TEXT; shells complete file names */
    GP_ARG_RECORDING,  /* as TEXT; shells complete names that end in .gpuprof */
    GP_ARG_NUMBER,     /* int64_t or uint32_t, from low to high (0: no limit) */
    GP_ARG_SIZE,       /* the same, in bytes, with a unit */
    GP_ARG_CHOICE,     /* const char *: the chosen word as the table spells it */
    GP_ARG_INDEX,      /* int: the number of the chosen word */
    GP_ARG_LIST,       /* uint32_t: a bit for each chosen word; commas separate them */
    GP_ARG_PIDS,       /* struct gp_target */
    GP_ARG_PID,        /* the same, one process at most */
    GP_ARG_DEVICE,     /* struct gp_target */
    GP_ARG_RECORDINGS, /* char **: the other operands, until NULL; completed as RECORDING; operands only, the last one */
    GP_ARG_PROGRAM,    /* char **: the rest of the command line; operands only */
};

struct gp_command_option {
    const char *name;     /* long option; of an operand its name in the usage line, in capitals.  NULL ends a table */
    const char *argument; /* how the argument is called; NULL for a flag */
    const char *help;     /* no period at the end.  NULL: accepted, but not shown */
    const char *const *words;               /* the choices, NULL after the last ... */
    const char *(*choice)(unsigned number); /* ... or a function that names them, NULL after the last */
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

/* ---- help.c, completion.c: tables of commands end with NULL ------------------------------------------------------ */

extern const char *const gp_group_titles[GP_GROUPS];

/* "-p, --pid=PID" without the spaces that align it; for an operand its name. */
void gp_option_label(char *label, size_t label_bytes, const struct gp_command_option *option);

/* `gpuprof help`, `gpuprof COMMAND --help`: wrapped to the width of the terminal, at most 100
 * columns. */
void gp_help_overview(FILE *out, const struct gp_command_spec *const *commands);
void gp_help_command(FILE *out, const struct gp_command_spec *spec);
/* `gpuprof help --man`: the whole page as roff. */
void gp_manpage_write(FILE *out, const struct gp_command_spec *const *commands);
/* `gpuprof completion SHELL`. */
extern const char *const gp_completion_shells[];
void gp_completion_write(FILE *out, int shell, const struct gp_command_spec *const *commands);

#endif
