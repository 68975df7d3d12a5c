/* SPDX-License-Identifier: MIT
 *
 * inside.h: runs a test's body as the first process of new pid and mount namespaces. Its processes, mounts
 * and files end with it, and a search through /proc finds only the test's own processes there.
 */
#ifndef GP_TEST_LIB_INSIDE_H
#define GP_TEST_LIB_INSIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#define INSIDE_SKIP 77 /* _exit(INSIDE_SKIP) skips the test; the reason is the body's output */

/* Runs body, then finish (may be NULL). Returns the body's exit status, or INSIDE_SKIP without root; text gets
 * the output. */
int inside_run(void (*body)(void), void (*finish)(void), char *text, size_t bytes);
/* A folder in an empty tmpfs. */
const char *inside_top(void);
void inside_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Runs commands in that folder. The test fails if one fails. */
void inside_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Adds or drops the capabilities for /proc/PID/map_files: CAP_SYS_ADMIN and CAP_CHECKPOINT_RESTORE. */
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

/* A Criterion test whose body, which follows, runs so. */
#define INSIDE_TEST(_suite, _name, _finish)                                                                            \
    static void _suite##_##_name##_inside(void);                                                                       \
    Test(_suite, _name, .timeout = 120)                                                                                \
    {                                                                                                                  \
        INSIDE(_suite##_##_name##_inside, _finish);                                                                    \
    }                                                                                                                  \
    static void _suite##_##_name##_inside(void)

#define NEED(_what, ...)                                                                                               \
    do {                                                                                                               \
        if (!(_what)) {                                                                                                \
            inside_say("%s:%d: " #_what, __FILE__, __LINE__);                                                          \
            inside_say(" " __VA_ARGS__);                                                                               \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

#endif
