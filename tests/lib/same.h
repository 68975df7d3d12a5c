/* SPDX-License-Identifier: MIT
 *
 * same.h: a program with the library against the same program without it: what it prints on both outputs and how it
 * ends must not differ, not even when functions of the C library fail inside the library.
 */
#ifndef GP_TEST_LIB_SAME_H
#define GP_TEST_LIB_SAME_H

#include <criterion/criterion.h>

#include "lib/ledger.h"
#include "lib/spawn.h"

/* With the library: two settings of spawn_options; env NULL: the plain program's. */
struct same_way {
    const char *source;
    const char *const *env;
};

/* Runs `plain` as it is, then with the library in each of these ways. */
void same_run(struct ledger_diff *diff, const char *title, const struct spawn_options *plain,
              const struct same_way *ways, size_t way_count);

/* A function that fails in the library (see preload/fail.c), and one whose failures lead to its calls, or NULL. */
struct same_row {
    const char *function, *after;
};

struct same_failures {
    const struct same_row *rows;
    size_t row_count;
    const char *const *programs; /* NULL-terminated */
    const char *source;
    const char *const *env; /* more settings for the library; NULL-terminated, or NULL */
    long most;              /* so many calls of one function are tried one by one (in a short run, two at most) */
    long all_from;          /* then all fail from this one on */
};

/* Each call of each row fails once; then all of them do.  A row whose function no
 * program makes the library call, or that fail.c has no wrapper for, is a difference: it tests nothing.  Returns how
 * many calls failed one by one. */
long same_failures(struct ledger_diff *diff, const struct same_failures *failures);

static inline void same_expect(const char *title, const struct spawn_options *plain, const char *source,
                               const char *const *env)
{
    struct ledger_diff diff = {0};

    same_run(&diff, title, plain, &(struct same_way){source, env}, 1);
    cr_expect_eq(diff.count, 0, "%s", diff.text);
}

static inline void same_expect_ways(const char *title, const struct spawn_options *plain, const struct same_way *ways,
                                    size_t way_count)
{
    struct ledger_diff diff = {0};

    same_run(&diff, title, plain, ways, way_count);
    cr_expect_eq(diff.count, 0, "%s", diff.text);
}

static inline void same_expect_failures(const struct same_failures *failures)
{
    struct ledger_diff diff = {0};
    long fired = same_failures(&diff, failures);

    cr_expect_eq(diff.count, 0, "%s", diff.text);
    cr_log_info("%ld calls failed one by one", fired);
}

#endif
