/* SPDX-License-Identifier: MIT
 *
 * reusepid.h: chooses the pid of the next process, so that it is one of an ended process. For programs of Criterion: one that
 * includes this file runs its cases one at a time, whatever its options say.
 */
#ifndef GP_TEST_LIB_REUSEPID_H
#define GP_TEST_LIB_REUSEPID_H

#include <criterion/criterion.h>
#include <criterion/hooks.h>
#include <criterion/options.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/* The next process of this pid namespace gets this pid, or the first free one after it. False: not allowed here. Another
 * process may start before the caller's does, so the caller must compare. */
static inline bool reusepid_next(pid_t pid)
{
    FILE *file = fopen("/proc/sys/kernel/ns_last_pid", "w");
    if (!file)
        return false;
    bool is_written = fprintf(file, "%d", pid - 1) > 0;
    return fclose(file) == 0 && is_written;
}

/* Criterion keeps the processes of its cases by pid, and removes one when it handles its end, which is later than the end.
 * A case that runs beside one that reuses pids may get the pid of such a process: Criterion 2.4 then removes the new one, and
 * waits for the result for ever. */
ReportHook(PRE_ALL)(struct criterion_test_set *tests)
{
    (void)tests;
    criterion_options.jobs = 1;
}

#endif
