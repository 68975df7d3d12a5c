/* SPDX-License-Identifier: MIT
 *
 * same.h: compares a program with the library and without it. Its stdout, its stderr and its exit status must be
 * equal, even when functions of the C library fail inside the library.
 */
#ifndef GP_TEST_LIB_SAME_H
#define GP_TEST_LIB_SAME_H

#include <criterion/criterion.h>

#include "lib/ledger.h"
#include "lib/spawn.h"

/* A run with the library: two settings of spawn_options; env NULL: the plain program's. */
struct same_way {
    const char *source;
    const char *const *env;
};

/* Runs `plain` as it is, then with the library in each of these ways. */
void same_run(struct ledger_diff *diff, const char *title, const struct spawn_options *plain,
              const struct same_way *ways, size_t way_count);

/* A function whose calls by the library fail (see preload/fail.c), and a function whose failure makes the
 * library call it, or NULL. */
struct same_row {
    const char *function, *after;
};

struct same_failures {
    const struct same_row *rows;
    size_t row_count;
    const char *const *programs; /* NULL-terminated */
    const char *source;
    const char *const *env; /* more settings for the library; NULL-terminated, or NULL */
    long most;              /* this many calls of a function fail one by one (in a short run, two at most) */
    long all_from;          /* then all calls from this one on fail */
};

/* Makes each call of each row fail once, then all of them. A row counts as a difference if no program makes the
 * library call its function, or if fail.c has no wrapper for it: such a row tests nothing. Returns the number of
 * calls that failed one by one. */
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
