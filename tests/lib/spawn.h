/* SPDX-License-Identifier: MIT
 *
 * spawn.h: start a test program with a known environment, catch what it prints, hold it at its documented end, and
 * never wait longer than its deadline.
 *
 * Output goes to memory files, not pipes, so nobody has to drain it.  A program that outlives its deadline is killed by
 * its own process group, which holds nothing but it and its children.
 */
#ifndef GP_TEST_LIB_SPAWN_H
#define GP_TEST_LIB_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define SPAWN_SECONDS 60 /* the slowest program takes about one; a loaded two-CPU machine multiplies that */
#define SPAWN_HELD    4  /* processes of one program that can be held at once */

struct spawn_options {
    const char *const *argv; /* argv[0] is the absolute path; NULL-terminated */
    const char *const *env; /* "NAME=VALUE" or "NAME" to remove, after the base environment; NULL-terminated, or NULL */
    bool want_library;      /* CUDA_INJECTION64_PATH, or as `source` says */
    const char *source;     /* GPUPROF_SOURCE; the library comes by LD_PRELOAD of libgpuprof-shim.so alone */
    bool want_hold;         /* the program stops in finish() until spawn_release */
    const char *sim;        /* GPUPROF_SIM; NULL for its default */
    bool want_seccomp_thread; /* pthread_create fails with EPERM */
    bool want_seccomp_memfd;  /* memfd_create fails with EPERM */
};

struct spawn {
    pid_t pid;
    int out_fd, err_fd; /* memory files */
    int hold_fd, go_fd; /* our ends; -1 without hold */
    int pidfd;
    pid_t held[SPAWN_HELD];
    int held_count;
    long long deadline_ms;
};

struct spawn_result {
    int status; /* of waitpid */
    bool is_timed_out;
    char *out, *err; /* NUL-terminated */
    size_t out_len, err_len;
};

/* 0 or -errno. */
int spawn_start(struct spawn *spawn, const struct spawn_options *options);
/* Waits until `count` processes hold (then their pids are in held[]), or all are gone (-ESRCH), or time is up
 * (-ETIMEDOUT). */
int spawn_wait_held(struct spawn *spawn, int count);
void spawn_release(struct spawn *spawn);
/* Lets the one held process run to its next hold.  As spawn_wait_held. */
int spawn_step(struct spawn *spawn);
/* Waits for the end, kills at the deadline, collects the output.  Releases first. */
void spawn_finish(struct spawn *spawn, struct spawn_result *result);
void spawn_kill(struct spawn *spawn, int signal);
void spawn_result_free(struct spawn_result *result);

/* All in one for what does not hold: start, finish. */
int spawn_run(const struct spawn_options *options, struct spawn_result *result);
/* The gpuprof command with these arguments (NULL-terminated). */
int spawn_command(struct spawn_result *result, const char *first, ...) __attribute__((sentinel));
/* "exit 3" or "signal 9" or "timed out": for messages.  Static buffer. */
const char *spawn_status_text(const struct spawn_result *result);

#endif
