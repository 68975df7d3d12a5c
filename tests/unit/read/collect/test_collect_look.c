/* SPDX-License-Identifier: MIT
 *
 * test_collect_look.c: what a look at the whole machine costs if a user has many processes that share
 * large tables of descriptors, and that it finds every session nevertheless (tools/read/collect/peerfind.c).
 * Run: alone
 */
#include <read/collect/collect.h>
#include <read/collect/peer.h>

#include <criterion/criterion.h>
#include <fcntl.h>
#include <lib/session.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SHARERS 50
#define APART   4181  /* pids between two of them that a look remembers in the same place (find_slot) */
#define TABLE   16000 /* descriptors; the library's are near 800 */
#define FAR     9000

static pid_t sharers[SHARERS], usual, far_away;
static int table; /* what the limit allows */

/* A look's time is the work that it did: each descriptor that it looks at takes this long, whatever the
 * machine does. So the test knows how far a look comes. The other clocks go on. */
#define LINK_NS 2000ull
#define LOOK    (250000000ull / LINK_NS) /* descriptors in the time for one user (FIND_USER_NS) */

static uint64_t links, took; /* all, and of the last look */
static bool looking;

ssize_t readlinkat(int folder, const char *restrict name, char *restrict text, size_t bytes)
{
    links++;
    return syscall(SYS_readlinkat, folder, name, text, bytes);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static uint64_t since;
    int rc = (int)syscall(SYS_clock_gettime, clock, now);
    if (rc || !looking || (clock != CLOCK_THREAD_CPUTIME_ID && clock != CLOCK_MONOTONIC))
        return rc;
    if (!since)
        since = (uint64_t)now->tv_sec * 1000000000ull;
    uint64_t ns = since + links * LINK_NS;
    *now = (struct timespec){.tv_sec = (time_t)(ns / 1000000000ull), .tv_nsec = (long)(ns % 1000000000ull)};
    return 0;
}

/* A process with a session at that number, and with `more` descriptors. */
static pid_t profiled(int number, int more)
{
    int ends[2];
    char byte;
    cr_assert_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct gp_test_session session;
        if (gp_test_session_make(&session, 8, true) != 0)
            _exit(1);
        gp_test_session_device(&session, 0, "GPU", 1 << 20);
        gp_test_session_publish(&session);
        if (dup2(session.fd, number) != number || close(session.fd) != 0)
            _exit(1);
        for (int i = 0; i < more; i++)
            if (dup(0) < 0)
                _exit(1);
        if (write(ends[1], "x", 1) == 1)
            pause();
        _exit(0);
    }
    close(ends[1]);
    cr_assert_eq(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    return pid;
}

/* A process with the caller's descriptors, and with that pid: 0: any; root may choose. */
static pid_t sharer(pid_t pid)
{
    struct clone_args how = {
        .flags = CLONE_FILES, .exit_signal = SIGCHLD, .set_tid = pid ? (uintptr_t)&pid : 0, .set_tid_size = pid != 0};
    pid_t made = (pid_t)syscall(SYS_clone3, &how, sizeof(how));
    while (made == 0)
        pause();
    return made;
}

/* One table of descriptors for all of them. */
static void share(void)
{
    int ends[2];
    char byte;
    cr_assert_eq(pipe(ends), 0);
    sharers[0] = fork();
    if (sharers[0] == 0) {
        setpgid(0, 0);
        for (int i = 0; i < table - 20; i++)
            if (dup(0) < 0)
                _exit(1);
        pid_t pids[SHARERS] = {0};
        for (int i = 1; i < SHARERS; i++) {
            pids[i] = sharer(i < SHARERS / 2 ? 0 : pids[i - SHARERS / 2] + APART);
            if (pids[i] < 0 && (pids[i] = sharer(0)) < 0)
                _exit(1);
        }
        if (write(ends[1], "x", 1) == 1)
            pause();
        _exit(0);
    }
    close(ends[1]);
    cr_assert_eq(read(ends[0], &byte, 1), 1);
    close(ends[0]);
}

static void begin(void)
{
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    table = limit.rlim_max < TABLE ? 0 : TABLE;
    if (!table)
        return;
    share();
    usual = profiled(801, 0);
    far_away = profiled(FAR, table - 20);
}

static void end(void)
{
    if (!table)
        return;
    kill(-sharers[0], SIGKILL);
    waitpid(sharers[0], NULL, 0);
    gp_test_process_stop(usual);
    gp_test_process_stop(far_away);
}

TestSuite(collect_look, .init = begin, .fini = end, .timeout = 120);

/* Whether the process was found; *unsearched: how many were not searched to the end. */
static bool look(pid_t pid, int *unsearched)
{
    struct gp_system *system;
    struct gp_collect_options options = {.exact = false};
    bool found = false;
    uint64_t before = links;
    looking = true;
    cr_assert_eq(gp_collect(&options, &system), 0);
    looking = false;
    took = links - before;
    for (int i = 0; i < system->process_count; i++)
        found |= system->processes[i].pid == pid;
    *unsearched = system->unsearched_count;
    gp_system_free(system);
    return found;
}

Test(collect_look, is_bounded_and_finds_all)
{
    int unsearched;
    if (!table)
        cr_skip_test("the hard limit of open files is below %d", TABLE);
    cr_expect(look(usual, &unsearched), "a session at a usual number is found whatever others do");
    cr_expect_lt(took, 2 * LOOK, "one look took %llu descriptors", (unsigned long long)took);
    cr_expect_gt(unsearched, SHARERS / 4, "it is known that not all was looked at");
    /* Later looks go on where the first ones ended. */
    bool found = false;
    int looks = 0;
    for (; looks < (int)(2 * SHARERS * TABLE / LOOK) && (unsearched || !found); looks++)
        found = look(far_away, &unsearched);
    cr_expect(found, "not found after %d looks", looks);
    cr_expect_eq(unsearched, 0, "after %d looks", looks);
    /* What has no session is believed to have none for some seconds. */
    for (int i = 0; i < 2; i++) {
        cr_expect(look(i ? usual : far_away, &unsearched));
        cr_expect_lt(took, LOOK / 4, "a later look took %llu descriptors", (unsigned long long)took);
    }
    fprintf(stderr, "%d looks; the last one at %llu descriptors\n", looks, (unsigned long long)took);
}

/* A process that is named is searched whole. */
Test(collect_look, a_process_that_is_named)
{
    struct gp_peer peer;
    char problem[GP_PROBLEM_BYTES];
    if (!table)
        cr_skip_test("the hard limit of open files is below %d", TABLE);
    cr_expect_eq(gp_peer_open_pid(&peer, far_away, problem), 0, "%s", problem);
    gp_peer_close(&peer);
}
