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

#define SAYS(_text)      cr_expect(strstr(said.out, _text), "no '%s' in:\n%s\n%s", _text, said.out, said.err)
#define SAYS_NOT(_text)  cr_expect(!strstr(said.out, _text), "'%s' in:\n%s", _text, said.out)
#define WARNS(_text)     cr_expect(strstr(said.err, _text), "no '%s' in:\n%s\n%s", _text, said.err, said.out)
#define WARNS_NOT(_text) cr_expect(!strstr(said.err, _text), "'%s' in:\n%s", _text, said.err)

/* Of a process that must have exited with this code. */
static inline void said_check(const char *what, int code)
{
    cr_assert(!said.is_timed_out && WIFEXITED(said.status) && WEXITSTATUS(said.status) == code, "%s: %s, not %d\n%s%s",
              what, spawn_status_text(&said), code, said.out, said.err);
}

static inline void run_program(int code, const struct spawn_options *options)
{
    spawn_result_free(&said);
    cr_assert_eq(spawn_run(options, &said), 0);
    said_check(options->argv[0], code);
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

/* Starts a program, and waits until it holds. */
static inline void program_hold(struct spawn *spawn, const struct spawn_options *options)
{
    struct spawn_options held = *options;
    held.want_hold = true;
    cr_assert_eq(spawn_start(spawn, &held), 0);
    cr_assert_eq(spawn_wait_held(spawn, 1), 0, "%s did not reach its hold", options->argv[0]);
}

/* Lets it go on; it must end well. */
static inline void program_end(struct spawn *spawn)
{
    spawn_result_free(&said);
    spawn_finish(spawn, &said);
    said_check("the program", 0);
}

/* Ends it wherever it is. */
static inline void program_kill(struct spawn *spawn)
{
    spawn_kill(spawn, SIGKILL);
    spawn_result_free(&said);
    spawn_finish(spawn, &said);
}

#endif
