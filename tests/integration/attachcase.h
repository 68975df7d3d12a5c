/* SPDX-License-Identifier: MIT
 *
 * attachcase.h: fixtures shared by the tests of attach: a target (tests/programs/attach_target.c), which
 * checks each of its system calls itself, and the commands on it.
 */
#ifndef GP_TEST_INTEGRATION_ATTACHCASE_H
#define GP_TEST_INTEGRATION_ATTACHCASE_H

#include <criterion/criterion.h>
#include <fcntl.h>
#include <lib/paths.h>
#include <lib/spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CASE __attribute__((unused))

struct target {
    char folder[64];
    struct spawn spawn;
};

CASE static void target_file(char *path, size_t bytes, const struct target *target, const char *name)
{
    snprintf(path, bytes, "%s/%s", target->folder, name);
}

CASE static void target_start_program(struct target *target, const char *program, const char *what)
{
    const char *argv[] = {path_program(program), what, target->folder, NULL};
    const struct spawn_options options = {.argv = argv};
    char path[96];
    strcpy(target->folder, "/tmp/gpuprof-test-XXXXXX");
    cr_assert(mkdtemp(target->folder));
    cr_assert_eq(spawn_start(&target->spawn, &options), 0);
    target_file(path, sizeof(path), target, "ready");
    for (int i = 0; access(path, F_OK) != 0; i++) {
        cr_assert_lt(i, 3000, "%s does not start", what);
        usleep(10000);
    }
}

CASE static void target_start(struct target *target, const char *what)
{
    target_start_program(target, "attach_target", what);
}

CASE static void target_end(struct target *target, const char *what)
{
    static const char *const names[] = {"ready", "stop", "socket", "child"};
    struct spawn_result result;
    char path[96];
    target_file(path, sizeof(path), target, "stop");
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    spawn_finish(&target->spawn, &result);
    cr_expect(!result.is_timed_out && result.status == 0 && !strstr(result.out, "wrong"), "%s: %s: %s%s", what,
              spawn_status_text(&result), result.out, result.err);
    spawn_result_free(&result);
    for (int i = 0; i < 4; i++) {
        target_file(path, sizeof(path), target, names[i]);
        unlink(path);
    }
    rmdir(target->folder);
}

CASE static int command(const char *verb, pid_t pid, char *text, size_t bytes)
{
    struct spawn_result result;
    char number[16];
    snprintf(number, sizeof(number), "%d", (int)pid);
    spawn_command(&result, verb, number, NULL);
    int status = result.is_timed_out ? -1 : WEXITSTATUS(result.status);
    snprintf(text, bytes, "%s%s", result.out, result.err);
    spawn_result_free(&result);
    return status;
}

/* The descriptors of a process, as one text. */
CASE static void files_of(pid_t pid, char *text, size_t bytes)
{
    char path[64], link[128];
    size_t used = 0;
    text[0] = '\0';
    for (int fd = 0; fd < 300; fd++) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
        ssize_t length = readlink(path, link, sizeof(link) - 1);
        if (length > 0 && used + (size_t)length + 16 < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%d %.*s\n", fd, (int)length, link);
    }
}

CASE static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

CASE static double paused_ms(const char *text)
{
    const char *at = strstr(text, "was stopped for ");
    return at ? atof(at + 16) : -1;
}

CASE static void cycles(const char *what, int count, bool same_files)
{
    struct target target;
    static char before[8192], after[8192];
    char text[1024];
    double *pauses = calloc((size_t)count, sizeof(*pauses));
    target_start(&target, what);
    files_of(target.spawn.pid, before, sizeof(before));
    for (int i = 0; i < count; i++) {
        int status = command("attach", target.spawn.pid, text, sizeof(text));
        /* A program that is in the loader all the time may be refused, as the command says. */
        if (status == 1 && strcmp(what, "dlopen") == 0 && strstr(text, "no thread could be borrowed"))
            continue;
        cr_assert_eq(status, 0, "%s: %s", what, text);
        pauses[i] = paused_ms(text);
        cr_expect(pauses[i] >= 0, "%s", text);
        cr_assert_eq(command("detach", target.spawn.pid, text, sizeof(text)), 0, "%s: %s", what, text);
    }
    files_of(target.spawn.pid, after, sizeof(after));
    if (same_files)
        cr_expect_str_eq(before, after, "%s: before\n%safter\n%s", what, before, after);
    target_end(&target, what);
    qsort(pauses, (size_t)count, sizeof(*pauses), compare_doubles);
    if (count >= 20)
        fprintf(stderr, "%s: %d cycles, pause p50 %.1f ms, p99 %.1f ms\n", what, count, pauses[count / 2],
                pauses[count * 99 / 100]);
    free(pauses);
}

CASE static void refused(pid_t pid, int status, const char *why)
{
    static char before[8192], after[8192];
    char text[1024];
    files_of(pid, before, sizeof(before));
    int got = command("attach", pid, text, sizeof(text));
    cr_expect(got == status && strstr(text, why), "%d, not %d with '%s': %s", got, status, why, text);
    files_of(pid, after, sizeof(after));
    cr_expect_str_eq(before, after, "before\n%safter\n%s", before, after);
}

#endif
