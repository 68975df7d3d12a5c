/* SPDX-License-Identifier: MIT
 *
 * test_attach_hostile.c: attaches to programs in which a thread must not be borrowed, at all or at this
 * moment (tests/programs/hostile.h). Each attach succeeds or is refused, and the program does not notice.
 */
#include "attachcase.h"
#include <lib/full.h>
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

Test(attach_hostile, ends_no_program_in_a_sandbox, .timeout = 120)
{
    refuses("attach_target", "kill_map", "for the system call mmap,");
    refuses("attach_target", "kill_file", "for the system call memfd_create,");
    refuses("attach_target", "kill_thread", "for the system call clone");
    cycles("kill_rest", 2, true);
}

/* ---- again and again --------------------------------------------------------------------------------------------- */

/* GPUPROF_ATTACHES=N makes N attaches, over all kinds.  Each ends in one of these, and each program goes on:
 *
 *      GPUPROF_ATTACHES=1000 build/tests/integration/test_attach_hostile --filter attach_hostile/survives_all_kinds */
struct endings {
    int attached, refused, ended;
};

enum place { HERE, MOUNT, NAMESPACE }; /* of the command: a mount of /proc of its own; or of the target */

struct kind {
    const char *program, *what;
    enum place place;
};

static void count_outcome(struct endings *endings, const char *what, int status, const char *text)
{
    bool is_refused = status == 75 || (status == 1 && strstr(text, "cannot attach: "));
    endings->attached += status == 0;
    endings->refused += is_refused;
    endings->ended += status == 3;
    cr_expect(status == 0 || is_refused || status == 3, "%s: %d: %s", what, status, text);
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

static bool makes_mounts(void)
{
    return getuid() == 0 && system("unshare --mount --pid --fork --mount-proc true 2>/dev/null") == 0;
}

static void kind_start(struct target *target, const struct kind *kind)
{
    const char *argv[] = {"/usr/bin/unshare",          "--mount",  "--pid",        "--fork", "--mount-proc",
                          path_program(kind->program), kind->what, target->folder, NULL};
    const struct spawn_options options = {.argv = argv};
    char path[96];
    if (kind->place != NAMESPACE) {
        target_start_program(target, kind->program, kind->what);
        return;
    }
    strcpy(target->folder, "/tmp/gpuprof-test-XXXXXX");
    cr_assert(mkdtemp(target->folder));
    cr_assert_eq(spawn_start(&target->spawn, &options), 0);
    target_file(path, sizeof(path), target, "ready");
    for (int i = 0; access(path, F_OK) != 0; i++) {
        cr_assert_lt(i, 3000, "%s does not start", kind->what);
        usleep(10000);
    }
}

static int kind_attach(const struct kind *kind, pid_t pid, char *text, size_t bytes)
{
    char line[4096];
    struct spawn_result result;
    const char *argv[] = {"/usr/bin/unshare", "--mount", "sh", "-c", line, NULL};
    const struct spawn_options options = {.argv = argv};
    if (kind->place != MOUNT)
        return command("attach", pid, text, bytes);
    snprintf(line, sizeof(line), "mount -t proc proc /proc && exec %s attach %d", path_command(), (int)pid);
    cr_assert_eq(spawn_run(&options, &result), 0);
    int status = result.is_timed_out ? -1 : WEXITSTATUS(result.status);
    snprintf(text, bytes, "%s%s", result.out, result.err);
    spawn_result_free(&result);
    return status;
}

/* Up to `rounds` attaches to one target, which the harness lets live for a minute.  How many. */
static int strain(const struct kind *kind, int rounds, struct endings *endings)
{
    struct target target = {0};
    char text[1024];
    bool has_child = strncmp(kind->what, "vfork", 5) == 0;
    time_t until = time(NULL) + 20;
    int done = 0;
    kind_start(&target, kind);
    pid_t pid = kind->place == NAMESPACE ? child_of(target.spawn.pid) : target.spawn.pid;
    for (; done < rounds && (done == 0 || time(NULL) < until); done++) {
        pid_t child = has_child ? child_of(pid) : 0;
        bool to_child = child && done % 2;
        int status = kind_attach(kind, to_child ? child : pid, text, sizeof(text));
        count_outcome(endings, kind->what, status, text);
        cr_expect(to_child || status != 3, "%s: %s", kind->what, text);
        if (status == 0)
            cr_expect_eq(command("detach", to_child ? child : pid, text, sizeof(text)), 0, "%s: %s", kind->what, text);
    }
    target_end(&target, kind->what);
    return done;
}

Test(attach_hostile, survives_all_kinds, .timeout = 14400)
{
    static const struct kind kinds[] = {
        {"attach_target", "setxid", HERE},      {"attach_target", "setxid_often", HERE},
        {"attach_target", "vfork", HERE},       {"attach_target", "vfork_often", HERE},
        {"attach_target", "fibre", HERE},       {"attach_target", "fibres", HERE},
        {"attach_target", "advised", HERE},     {"attach_target", "below", HERE},
        {"attach_target", "kill_map", HERE},    {"attach_target", "kill_file", HERE},
        {"attach_target", "kill_thread", HERE}, {"attach_target", "kill_rest", HERE},
        {"attach_target", "trap_map", HERE},    {"attach_target", "trap_file", HERE},
        {"attach_tsan", "poll", HERE},          {"attach_tsan_static", "poll", HERE},
        {"attach_target", "poll", MOUNT},       {"attach_target", "threads", MOUNT},
        {"attach_target", "poll", NAMESPACE},
    };
    const int count = sizeof(kinds) / sizeof(kinds[0]), at_once = 10;
    const char *asked = getenv("GPUPROF_ATTACHES");
    int all = asked ? atoi(asked) : test_is_full() ? 20 * count : 2 * count, done = 0;
    bool mounts = makes_mounts();
    struct endings sums = {0};
    for (int i = 0; i < count; i++) {
        struct endings endings = {0};
        int rounds = all * (i + 1) / count - all * i / count;
        for (int left = rounds; left > 0 && (mounts || kinds[i].place == HERE);)
            left -= strain(&kinds[i], left < at_once ? left : at_once, &endings);
        done += endings.attached + endings.refused + endings.ended;
        sums.attached += endings.attached, sums.refused += endings.refused, sums.ended += endings.ended;
        fprintf(stderr, "%s %s%s: %d attached, %d refused, %d had ended\n", kinds[i].program, kinds[i].what,
                kinds[i].place == MOUNT       ? " from another mount of /proc"
                : kinds[i].place == NAMESPACE ? " in a namespace of its own"
                                              : "",
                endings.attached, endings.refused, endings.ended);
    }
    fprintf(stderr, "%d attaches: %d attached, %d refused, %d had ended\n", done, sums.attached, sums.refused,
            sums.ended);
}
