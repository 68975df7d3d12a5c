/* SPDX-License-Identifier: MIT
 *
 * cli.h: runs the built command, for the tests test_cli*.c; each test program has its own copy.
 * The binary is GPUPROF_BIN, or bin/gpuprof of the build tree of the test.
 */
#ifndef GP_TEST_UNIT_CLI_H
#define GP_TEST_UNIT_CLI_H

#include <gpuprof/wire.h>
#include <lib/session.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUTPUT_BYTES (8 << 20)

struct result {
    int status; /* as a shell gives it */
    char *out, *err;
};

static char binary[4096], self[4096];
static int terminal; /* columns of the terminal that the command's output is; 0: a pipe */

/* Before a test makes a mount namespace of its own: in a chroot, the kernel then names this file from
 * the root of the machine. */
__attribute__((constructor)) static void find_self(void)
{
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
}

static void find_binary(void)
{
    cr_assert(self[0] == '/');
    const char *given = getenv("GPUPROF_BIN");
    snprintf(binary, sizeof(binary), "%s", given ? given : self);
    for (int i = 0; !given && i < 3; i++)
        *strrchr(binary, '/') = '\0';
    if (!given)
        strcat(binary, "/bin/gpuprof");
    cr_assert_eq(access(binary, X_OK), 0, "%s: build it first (make tool)", binary);
    unsetenv("CUDA_INJECTION64_PATH");
    unsetenv("GPUPROF_SIM");
}

static void drain(int ends[2], char *texts[2])
{
    size_t have[2] = {0};
    struct pollfd polls[2] = {{ends[0], POLLIN, 0}, {ends[1], POLLIN, 0}};
    while (polls[0].fd >= 0 || polls[1].fd >= 0) {
        poll(polls, 2, 20000);
        for (int i = 0; i < 2; i++) {
            if (polls[i].fd < 0 || !polls[i].revents)
                continue;
            ssize_t n = read(polls[i].fd, texts[i] + have[i], OUTPUT_BYTES - 1 - have[i]);
            if (n <= 0)
                polls[i].fd = -1;
            else
                have[i] += (size_t)n;
        }
    }
    texts[0][have[0]] = texts[1][have[1]] = '\0';
}

static void make_output(int out[2])
{
    struct winsize size = {.ws_row = 40, .ws_col = (unsigned short)terminal};
    struct termios raw = {0};
    cfmakeraw(&raw);
    if (terminal)
        cr_assert_eq(openpty(&out[0], &out[1], NULL, &raw, &size), 0);
    else
        cr_assert_eq(pipe2(out, O_CLOEXEC), 0);
}

/* Starts the command; words are split at spaces; "@" stands for this test program. */
static pid_t launch(const char *line, uid_t uid, int ends[2])
{
    int out[2], err[2];
    make_output(out);
    cr_assert_eq(pipe2(err, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *words[32] = {binary}, copy[4096], *state = copy, *word;
        int n = 1;
        snprintf(copy, sizeof(copy), "%s", line);
        while (line[0] && (word = strsep(&state, " ")))
            words[n++] = strcmp(word, "@") == 0 ? self : word;
        for (int i = 1; i < n; i++) {
            if (strcmp(words[i], "--library=@") == 0 && asprintf(&words[i], "--library=%s", self) < 0)
                _exit(98);
        }
        dup2(out[1], 1);
        dup2(err[1], 2);
        int image = open(binary, O_PATH | O_CLOEXEC);
        if (uid && setresuid(uid, uid, uid) != 0)
            _exit(98);
        execv(binary, words);
        execveat(image, "", words, environ, AT_EMPTY_PATH); /* in a folder of root's that this user may not enter */
        _exit(98);
    }
    close(out[1]);
    close(err[1]);
    ends[0] = out[0];
    ends[1] = err[0];
    return pid;
}

static struct result finish(pid_t pid, int ends[2])
{
    struct result r = {.out = malloc(OUTPUT_BYTES), .err = malloc(OUTPUT_BYTES)};
    int status;
    drain(ends, (char *[]){r.out, r.err});
    waitpid(pid, &status, 0);
    r.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    close(ends[0]);
    close(ends[1]);
    return r;
}

__attribute__((unused)) static struct result run_as(uid_t uid, const char *line)
{
    int ends[2];
    if (!binary[0])
        find_binary();
    pid_t pid = launch(line, uid, ends);
    return finish(pid, ends);
}

__attribute__((unused)) static struct result run(const char *format, ...)
{
    char line[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    return run_as(0, line);
}

/* Runs the command on a terminal, checks that no line is wider, and returns the output. */
__attribute__((unused)) static char *run_terminal(int columns, const char *line)
{
    setenv("NO_COLOR", "1", 1); /* escapes would count */
    terminal = columns;
    struct result r = run_as(0, line);
    terminal = 0;
    cr_assert_eq(r.status, 0, "%s", r.err);
    for (const char *at = r.out; *at;) {
        int used = 0;
        const char *begin = at;
        for (; *at && *at != '\n'; at++)
            used += ((unsigned char)*at & 0xc0) != 0x80;
        cr_expect_leq(used, columns, "%d columns: %.*s", used, (int)(at - begin), begin);
        at += *at != '\0';
    }
    free(r.err);
    return r.out;
}

/* Checks the exit status, and that each stream contains its text, unless that is NULL. */
__attribute__((unused)) static void expect(struct result r, int status, const char *out, const char *err)
{
    cr_assert_eq(r.status, status, "status %d instead of %d\nstdout: %s\nstderr: %s", r.status, status, r.out, r.err);
    if (out)
        cr_assert(strstr(r.out, out), "no '%s' in stdout: %s", out, r.out);
    if (err)
        cr_assert(strstr(r.err, err), "no '%s' in stderr: %s", err, r.err);
    free(r.out);
    free(r.err);
}

/* `gpuprof ... | head -1` where SIGPIPE is ignored: the status tells, and no message. */
__attribute__((unused)) static void expect_quiet(const char *line)
{
    int to[2], err[2];
    char said[256] = "", words[256], *argv[12] = {binary}, *rest = words;
    if (!binary[0])
        find_binary();
    snprintf(words, sizeof(words), "%s", line);
    for (int i = 1; i < 11 && rest; i++)
        argv[i] = strsep(&rest, " ");
    cr_assert(pipe2(to, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGPIPE, SIG_IGN);
        dup2(to[1], 1);
        dup2(err[1], 2);
        close(to[0]);
        execv(binary, argv);
        _exit(98);
    }
    close(to[0]);
    close(to[1]);
    close(err[1]);
    ssize_t got = read(err[0], said, sizeof(said) - 1);
    int status;
    waitpid(pid, &status, 0);
    close(err[0]);
    cr_expect_eq(WEXITSTATUS(status), 1, "%s", line);
    cr_expect_eq(got, 0, "%s: %s", line, said);
}

__attribute__((unused)) static json_t *expect_json(struct result r, const char *schema)
{
    json_error_t error;
    cr_assert_eq(r.status, 0, "%s", r.err);
    json_t *top = json_loads(r.out, JSON_REJECT_DUPLICATES, &error);
    cr_assert(top, "line %d: %s\n%s", error.line, error.text, r.out);
    cr_assert_str_eq(json_string_value(json_object_get(top, "schema")), schema);
    free(r.out);
    free(r.err);
    return top;
}

__attribute__((unused)) static pid_t start(struct gp_test_process_options options)
{
    pid_t pid = gp_test_process_start(&options);
    cr_assert_gt(pid, 0);
    return pid;
}

#endif
