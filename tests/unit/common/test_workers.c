/* SPDX-License-Identifier: MIT
 * test_workers.c: tests workers.h with workers that are killed at each place where one can end.  Run by the unit tests. */
#include <common/workers.h>

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TASKS 40u

static struct job {
    pid_t caller;
    uint32_t fatal;                                 /* the task at which a worker ends ... */
    enum { NOWHERE, WORKING, SENDING, IDLE } where; /* ... there */
    uint32_t last;                                  /* the task whose `work` says that no further one should begin */
    uint32_t found[TASKS], here, taken[TASKS], lost[TASKS];
    char why[128];
} job;

static void end_at(int where, uint32_t task)
{
    if ((int)job.where == where && task == job.fatal && getpid() != job.caller)
        kill(getpid(), SIGKILL);
}

static bool work(void *arg, uint32_t task)
{
    (void)arg;
    end_at(WORKING, task);
    job.here += getpid() == job.caller;
    job.found[task] = task * task + 1;
    return task != job.last;
}

/* Larger than what a socket holds. */
static bool send_found(void *arg, uint32_t task, int fd)
{
    static char more[1 << 20];
    (void)arg;
    bool ok = gp_workers_write(fd, &job.found[task], sizeof(job.found[task]));
    end_at(SENDING, task);
    ok = ok && gp_workers_write(fd, more, sizeof(more));
    end_at(IDLE, task);
    return ok;
}

static bool take(void *arg, uint32_t task, int fd)
{
    static char more[1 << 20];
    (void)arg;
    if (!gp_workers_read(fd, &job.found[task], sizeof(job.found[task])) || !gp_workers_read(fd, more, sizeof(more)))
        return false;
    job.taken[task]++;
    return true;
}

static void lost(void *arg, uint32_t task, const char *why)
{
    (void)arg;
    job.lost[task]++;
    snprintf(job.why, sizeof(job.why), "%s", why);
}

static void run_all(void)
{
    job.caller = getpid();
    gp_workers_run(&(struct gp_workers){
        .count = TASKS, .doing = "reading", .work = work, .send = send_found, .take = take, .lost = lost});
}

static uint32_t sum(const uint32_t *numbers)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < TASKS; i++)
        all += numbers[i];
    return all;
}

TestSuite(workers, .timeout = 60);

Test(workers, each_task_is_done_once)
{
    job.last = TASKS;
    run_all();
    for (uint32_t i = 0; i < TASKS; i++)
        cr_expect(job.taken[i] == 1 && !job.lost[i] && job.found[i] == i * i + 1, "task %u", i);
    cr_expect_eq(job.here, 0);
}

Test(workers, what_a_killed_one_had_is_named_and_nothing_else_is_lost)
{
    for (int where = WORKING; where <= SENDING; where++) {
        memset(&job, 0, sizeof(job));
        job.where = where;
        job.last = TASKS;
        job.fatal = 7;
        run_all();
        cr_expect(sum(job.taken) == TASKS - 1 && sum(job.lost) == 1 && job.lost[7] == 1, "%d: %u taken, %u lost", where,
                  sum(job.taken), sum(job.lost));
        cr_expect_str_eq(job.why, "the process that read it was ended by signal 9: too little memory?");
        cr_expect_eq(job.here, 0, "another worker takes its place");
    }
}

/* It may have been given a task, which it then did not begin: never is a task neither done nor named. */
Test(workers, one_that_is_killed_between_two_tasks)
{
    job.where = IDLE;
    job.last = TASKS;
    job.fatal = 7;
    run_all();
    for (uint32_t i = 0; i < TASKS; i++)
        cr_expect_eq(job.taken[i] + job.lost[i], 1, "task %u", i);
    cr_expect_leq(sum(job.lost), 1);
    cr_expect_eq(job.taken[7], 1);
}

Test(workers, none_begins_after_one_that_says_so)
{
    job.last = 3;
    run_all();
    cr_expect_eq(job.taken[3], 1);
    cr_expect(sum(job.taken) >= 4 && sum(job.taken) < TASKS && !sum(job.lost), "%u", sum(job.taken));
}
