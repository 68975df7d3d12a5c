/* SPDX-License-Identifier: MIT
 *
 * test_sandbox.c: whether a seccomp filter came after the start, by a file that was opened before;
 * and what is answered where that file was closed, or its number reused.
 */
#include "base/sandbox.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

TestSuite(sandbox, .timeout = 60);

/* Allows all but openat. */
static bool enter(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof(rules) / sizeof(rules[0]), rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static bool entered(const struct gp_sandbox *sandbox)
{
    errno = 4711;
    bool is = gp_sandbox_entered(sandbox);
    cr_assert_eq(errno, 4711);
    return is;
}

Test(sandbox, a_filter_that_comes_later_is_seen)
{
    struct gp_sandbox before, after;
    const struct timespec old = {0, 30000000};
    gp_sandbox_open(&before);
    cr_assert_gt(before.fd, 100, "a number that the program does not meet");
    cr_assert_eq(fcntl(before.fd, F_GETFD), FD_CLOEXEC);
    cr_expect_not(gp_sandboxed_now() || gp_sandboxed(), "not started");
    gp_sandbox_start();
    cr_expect_not(entered(&before) || gp_sandboxed_now() || gp_sandboxed());
    gp_sandbox_open(&after);
    cr_assert(enter());
    cr_expect(entered(&before) && gp_sandboxed_now());
    nanosleep(&old, NULL);
    cr_expect(gp_sandboxed());
    gp_sandbox_close(&after);
    gp_sandbox_stop();
    cr_expect_not(gp_sandboxed_now() || gp_sandboxed());
}

/* The file is read in pieces, of which the last to have the lines comes first. */
Test(sandbox, a_filter_is_seen_wherever_its_line_moves)
{
    struct gp_sandbox sandbox;
    gid_t groups[240];
    if (geteuid() != 0)
        cr_skip_test("needs CAP_SETGID");
    for (unsigned i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
        groups[i] = 100000 + i;
    gp_sandbox_open(&sandbox);
    for (unsigned n = 0; n <= sizeof(groups) / sizeof(groups[0]); n++) {
        cr_assert_eq(setgroups(n, groups), 0);
        cr_assert_not(entered(&sandbox), "%u groups", n);
    }
    cr_assert(enter());
    cr_expect(entered(&sandbox));
}

Test(sandbox, a_filter_of_the_start_does_not_count)
{
    struct gp_sandbox first, second;
    gp_sandbox_open(&first);
    second = first; /* openat is forbidden from here on */
    cr_assert(enter());
    cr_assert(entered(&first));
    second.start = first.start + (2ull << 32) + 1; /* as it was read after the first filter */
    cr_expect(!entered(&second) || first.start >> 32 != 0);
}

Test(sandbox, a_descriptor_that_is_not_ours_any_more)
{
    struct gp_sandbox sandbox, none = {.fd = -1};
    gp_sandbox_open(&sandbox);
    bool has_filter = prctl(PR_GET_SECCOMP) != 0;
    int other = open("/proc/self/maps", O_RDONLY);
    cr_assert_eq(dup2(other, sandbox.fd), sandbox.fd);
    cr_expect_eq(entered(&sandbox), has_filter, "without a filter nothing is forbidden");
    gp_sandbox_close(&sandbox);
    cr_expect_eq(sandbox.fd, -1);
    cr_expect_eq(entered(&none), has_filter);
    gp_sandbox_open(&sandbox);
    close(sandbox.fd);
    cr_assert(enter());
    cr_expect(entered(&sandbox), "any doubt is a yes");
}
