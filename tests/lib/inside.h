/* SPDX-License-Identifier: MIT
 *
 * inside.h: a test's body in a pid and a mount namespace of its own, as its first process: whatever it starts, mounts
 * or opens ends with it, and what looks through /proc there finds the test's own processes alone.
 */
#ifndef GP_TEST_LIB_INSIDE_H
#define GP_TEST_LIB_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#define INSIDE_SKIP 77 /* _exit(INSIDE_SKIP): skips, for what was said */

/* Runs body, then finish (may be NULL).  What body exits with, INSIDE_SKIP also where it is not root; text gets what
 * was said. */
int inside_run(void (*body)(void), void (*finish)(void), char *text, size_t bytes);
/* A folder, inside an empty tmpfs. */
const char *inside_top(void);
void inside_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Commands, run in that folder; the test fails if one does. */
void inside_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* With, or without, the capabilities that open /proc/PID/map_files: CAP_SYS_ADMIN and CAP_CHECKPOINT_RESTORE. */
void inside_admin(bool has);

/* For a Criterion test. */
#define INSIDE(_body, _finish)                                                                                         \
    do {                                                                                                               \
        char _text[4096];                                                                                              \
        int _code = inside_run(_body, _finish, _text, sizeof(_text));                                                  \
        if (_code == INSIDE_SKIP)                                                                                      \
            cr_skip_test("%s", _text);                                                                                 \
        if (*_text)                                                                                                    \
            cr_log_info("%s", _text);                                                                                  \
        cr_assert(_code == 0, "%s", _text);                                                                            \
    } while (0)

#define NEED(_what, ...)                                                                                               \
    do {                                                                                                               \
        if (!(_what)) {                                                                                                \
            inside_say("%s:%d: " #_what, __FILE__, __LINE__);                                                          \
            inside_say(" " __VA_ARGS__);                                                                               \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

#endif
