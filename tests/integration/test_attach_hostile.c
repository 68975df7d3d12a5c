/* SPDX-License-Identifier: MIT
 *
 * test_attach_hostile.c: attaches to programs in which a thread must not be borrowed, at all or at this
 * moment (tests/programs/hostile.h). Each attach succeeds or is refused, and the program does not notice.
 */
#include "attachcase.h"
#include <lib/full.h>
#include <signal.h>
#include <time.h>

static void refuses(const char *program, const char *what, const char *why)
{
    struct target target;
    target_start_program(&target, program, what);
    refused(target.spawn.pid, 1, why);
    target_end(&target, what);
}

/* ---- one of them ------------------------------------------------------------------------------------------------- */

Test(attach_hostile, refuses_while_a_thread_is_in_setuid, .timeout = 120)
{
    refuses("attach_target", "setxid", "a thread is inside setuid() or the like, and waits for thread");
}

Test(attach_hostile, refuses_the_stack_of_a_fibre, .timeout = 120)
{
    refuses("attach_target", "fibre", "it runs on the stack of a fibre");
    cycles("fibres", 1, true);
    cycles("advised", 1, true);
}

Test(attach_hostile, puts_the_bytes_below_a_stack_back, .timeout = 120)
{
    cycles("below", 2, true);
}

/* The pid that the target wrote. */
static pid_t child_in_file(const struct target *target)
{
    char path[96];
    int child = 0;
    target_file(path, sizeof(path), target, "child");
    for (int i = 0; !child && i < 3000; i++) {
        FILE *file = fopen(path, "re");
        if (file && fscanf(file, "%d", &child) != 1)
            child = 0;
        if (file)
            fclose(file);
        usleep(child ? 0 : 10000);
    }
    cr_assert(child);
    return child;
}

Test(attach_hostile, refuses_a_child_of_vfork_and_not_its_parent, .timeout = 120)
{
    struct target target;
    char text[1024];
    target_start(&target, "vfork");
    refused(child_in_file(&target), 1, "it uses the memory of its parent");
    cr_expect_eq(command("attach", target.spawn.pid, text, sizeof(text)), 0, "%s", text);
    cr_expect_eq(command("detach", target.spawn.pid, text, sizeof(text)), 0, "%s", text);
    target_end(&target, "vfork");
}

/* CUDA is not usable there, and CUPTI must not start in it. */
Test(attach_hostile, does_not_start_in_a_child_of_fork, .timeout = 120)
{
    struct target target;
    char text[1024];
    target_start(&target, "forked");
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(command("attach", child_in_file(&target), text, sizeof(text)), 75, "%s", text);
        cr_expect(strstr(text, "it is a child of fork that has not initialised CUDA itself"), "%s", text);
    }
    cr_expect_eq(command("attach", target.spawn.pid, text, sizeof(text)), 0, "%s", text);
    cr_expect_eq(command("detach", target.spawn.pid, text, sizeof(text)), 0, "%s", text);
    target_end(&target, "forked");
}

Test(attach_hostile, cuts_no_read_short, .timeout = 120)
{
    cycles("waitall", 2, true);
    cycles("lowat", 2, true);
    cycles("terminal", 2, true);
}

Test(attach_hostile, refuses_a_program_with_thread_sanitizer, .timeout = 120)
{
    refuses("attach_tsan", "poll", "it is built with -fsanitize=thread");
    refuses("attach_tsan_static", "poll", "it has a pthread_create of its own");
}

/* ---- again and again --------------------------------------------------------------------------------------------- */

static void expect_outcome(const char *what, int status, const char *text)
{
    bool is_right = status == 0 || (status == 1 && strstr(text, "cannot attach: ")) || status == 3;
    cr_expect(is_right, "%s: %d: %s", what, status, text);
}

/* A child of the target's first thread, 0 if it has none. */
static pid_t child_of(pid_t pid)
{
    char path[64];
    int child = 0;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d", &child) != 1)
        child = 0;
    if (file)
        fclose(file);
    return child;
}

static void strain(const char *what, int rounds)
{
    struct target target;
    char text[1024];
    int attached = 0;
    target_start(&target, what);
    for (int i = 0; i < rounds; i++) {
        pid_t child = strcmp(what, "vfork_often") == 0 ? child_of(target.spawn.pid) : 0;
        if (child)
            expect_outcome(what, command("attach", child, text, sizeof(text)), text);
        int status = command("attach", target.spawn.pid, text, sizeof(text));
        expect_outcome(what, status, text);
        attached += status == 0;
        if (status == 0)
            cr_expect_eq(command("detach", target.spawn.pid, text, sizeof(text)), 0, "%s: %s", what, text);
    }
    target_end(&target, what);
    fprintf(stderr, "%s: %d attaches, %d of them attached\n", what, rounds, attached);
}

Test(attach_hostile, survives_setuid_vfork_and_fibres, .timeout = 1200)
{
    static const struct {
        const char *what;
        int rounds; /* a target runs for a minute at most */
    } kinds[] = {{"setxid_often", 20}, {"vfork_often", 60}, {"fibres", 60}, {"below", 60}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        strain(kinds[i].what, test_is_full() ? kinds[i].rounds : 3);
}
