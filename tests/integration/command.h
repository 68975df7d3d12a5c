/* SPDX-License-Identifier: MIT
 *
 * command.h: starts the gpuprof command and programs that it looks at, checks how they end, and keeps what the last one
 * said.
 */
#ifndef GP_TEST_INTEGRATION_COMMAND_H
#define GP_TEST_INTEGRATION_COMMAND_H

#include "lib/paths.h"
#include "lib/spawn.h"
#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static struct spawn_result said; /* until the next one ends */
static char said_by[1024];       /* how the last one was started */

#define SAYS(_text)      cr_expect(strstr(said.out, _text), "%sno '%s' in:\n%s\n%s", said_by, _text, said.out, said.err)
#define SAYS_NOT(_text)  cr_expect(!strstr(said.out, _text), "%s'%s' in:\n%s", said_by, _text, said.out)
#define WARNS(_text)     cr_expect(strstr(said.err, _text), "%sno '%s' in:\n%s\n%s", said_by, _text, said.err, said.out)
#define WARNS_NOT(_text) cr_expect(!strstr(said.err, _text), "%s'%s' in:\n%s", said_by, _text, said.err)

static inline void said_begin(const struct spawn_options *options)
{
    FILE *to = fmemopen(said_by, sizeof(said_by) - 1, "w");
    for (const char *const *word = options->env; word && *word; word++)
        fprintf(to, "%s ", *word);
    for (const char *const *word = options->argv; *word; word++)
        fprintf(to, "%s ", *word);
    fprintf(to, "(source %s, simulator %s): ", options->source ? options->source : "-",
            options->sim ? options->sim : "-");
    fclose(to);
}

/* Of a process that must have exited with this code. */
static inline void said_check(const char *what, int code)
{
    cr_assert(!said.is_timed_out && WIFEXITED(said.status) && WEXITSTATUS(said.status) == code, "%s%s%s, not %d\n%s%s",
              what, said_by, spawn_status_text(&said), code, said.out, said.err);
}

static inline void run_program(int code, const struct spawn_options *options)
{
    spawn_result_free(&said);
    said_begin(options);
    cr_assert_eq(spawn_run(options, &said), 0);
    said_check("", code);
}

/* The command with the words up to NULL. */
__attribute__((sentinel)) static inline void command(int code, const char *first, ...)
{
    const char *argv[32] = {path_command(), first};
    va_list list;
    va_start(list, first);
    for (int i = 2; i < 31 && argv[i - 1]; i++)
        argv[i] = va_arg(list, const char *);
    va_end(list);
    run_program(code, &(struct spawn_options){.argv = argv});
}

/* What the last command wrote. */
static inline json_t *said_json(void)
{
    json_error_t error;
    json_t *top = json_loads(said.out, JSON_REJECT_DUPLICATES, &error);
    cr_assert(top, "line %d: %s\n%s%s", error.line, error.text, said.out, said.err);
    return top;
}

static inline const char *pid_text(pid_t pid)
{
    static char text[4][16];
    static unsigned next;
    char *to = text[next++ % 4];
    snprintf(to, sizeof(text[0]), "%d", (int)pid);
    return to;
}

/* Ends it wherever it is. */
static inline void program_kill(struct spawn *spawn)
{
    spawn_kill(spawn, SIGKILL);
    spawn_result_free(&said);
    spawn_finish(spawn, &said);
}

/* Starts a program, and waits until it holds. */
static inline void program_hold(struct spawn *spawn, const struct spawn_options *options)
{
    struct spawn_options held = *options;
    held.want_hold = true;
    said_begin(options);
    cr_assert_eq(spawn_start(spawn, &held), 0);
    if (!spawn_wait_held(spawn, 1))
        return;
    program_kill(spawn);
    cr_assert_fail("%sit did not reach its hold: %s\n%s%s", said_by, spawn_status_text(&said), said.out, said.err);
}

/* Lets it go on; it must end well. */
static inline void program_end(struct spawn *spawn)
{
    spawn_result_free(&said);
    spawn_finish(spawn, &said);
    said_check("the held one; last: ", 0);
}

#endif
