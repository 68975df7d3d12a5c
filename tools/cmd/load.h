/* SPDX-License-Identifier: MIT
 *
 * load.h: what report, leaks, peak, churn, fragmentation, reconcile and diff have in common: which recording they are
 * about, a file or a process that is recorded for a while, and what they print on.
 */
#ifndef GP_CMD_LOAD_H
#define GP_CMD_LOAD_H

#include <cmd/cmd.h>
#include <write/reportformat.h>

struct gp_load_options {
    struct gp_target target; /* target.command: for messages */
    const char *files[2];
    int file_count, file_limit; /* limit: of what the command takes */
    bool live;                  /* takes -p */
    int64_t seconds;            /* --duration */
    bool timed, json, help;
    /* Options of one command alone: -1 not given. */
    int64_t older_seconds, error_exitcode;
    const char *output;
};

#define GP_LOAD_OUTPUT 1u /* -o */
#define GP_LOAD_LEAKS  2u /* --older, --error-exitcode */
#define GP_LOAD_DIFF   4u /* two files, no -p */
/* GP_EXIT_OK or GP_EXIT_USAGE, after a message.  Free with gp_load_end. */
int gp_load_parse(struct gp_load_options *options, const char *command, unsigned takes, int argc, char **argv);

struct gp_loaded {
    const char *command;
    char root[64]; /* the symbols' own */
    struct gp_recording *recording;
    struct gp_symbols *symbols;
    struct gp_report report;
};
/* The recording: of the i-th file, or of the process for as long as was asked.  GP_EXIT_OK or an exit status, after a
 * message. */
int gp_load(struct gp_loaded *loaded, const struct gp_load_options *options, int i);
/* Also says what could not be given its name, and why. */
void gp_load_free(struct gp_loaded *loaded);
void gp_load_end(struct gp_load_options *options);

/* stdout as it is: a terminal's width and colours, or neither. */
struct gp_text_page gp_load_page(void);
/* Says that memory is out: GP_EXIT_FAILED. */
int gp_load_memory(const char *command);
/* Prints it, and takes it.  GP_EXIT_OK, or GP_EXIT_FAILED after a message; NULL: memory was out. */
int gp_load_json(const char *command, json_t *object);
/* The whole of most commands: parses, loads, runs the analyses `parts` (GP_REPORT_*), prints one or the other. */
int gp_load_command(const char *command, const char *help, int argc, char **argv, unsigned parts,
                    json_t *json(const struct gp_report *report),
                    void text(const struct gp_text_page *page, const struct gp_report *report));

/* Says why a file could not be read as a recording (rc and why of gp_recording_open), and what to do:
 * GP_EXIT_FAILED. */
int gp_load_refused(const char *command, const char *path, int rc, const char *why);
/* Recordings cost hours: is one there where output would be written?  Then it says so. */
bool gp_load_overwrites(const char *command, const char *output);

#endif
