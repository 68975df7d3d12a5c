/* SPDX-License-Identifier: MIT
 *
 * spawn.h: starts a test program in a known environment, collects its output, holds it at its documented end,
 * and never waits longer than its deadline.
 *
 * Output goes to memory files, so the test need not read while the program runs. A program that exceeds its
 * deadline is killed through its process group, which contains only the program and its children.
 */
#ifndef GP_TEST_LIB_SPAWN_H
#define GP_TEST_LIB_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define SPAWN_SECONDS 60 /* the slowest program takes about one; a loaded two-CPU machine needs a multiple */
#define SPAWN_HELD    4  /* processes of one program that can be held at once */

struct spawn_options {
    const char *const *argv; /* argv[0] is the absolute path; NULL-terminated */
    const char *const *env; /* "NAME=VALUE" or "NAME" to remove, after the base environment; NULL-terminated, or NULL */
    bool want_library;      /* CUDA_INJECTION64_PATH, or according to `source` */
    const char *source;     /* GPUPROF_SOURCE; only LD_PRELOAD of libgpuprof-shim.so loads the library */
    bool want_hold;         /* the program stops in finish() until spawn_release */
    const char *sim;        /* GPUPROF_SIM; NULL for its default */
    bool want_seccomp_thread; /* pthread_create fails with EPERM */
    bool want_seccomp_memfd;  /* memfd_create fails with EPERM */
    int seconds;              /* until its deadline; 0: SPAWN_SECONDS */
};

struct spawn {
    pid_t pid;
    int out_fd, err_fd; /* memory files */
    int hold_fd, go_fd; /* our ends of the pipes; -1 without hold */
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
/* Waits until `count` processes are held; their pids are then in held[]. -ESRCH: all processes have ended;
 * -ETIMEDOUT: the deadline has passed. */
int spawn_wait_held(struct spawn *spawn, int count);
void spawn_release(struct spawn *spawn);
/* Lets the only held process run to its next hold. Returns as spawn_wait_held. */
int spawn_step(struct spawn *spawn);
/* Releases held processes, waits for the exit (kills at the deadline), and collects the output. */
void spawn_finish(struct spawn *spawn, struct spawn_result *result);
void spawn_kill(struct spawn *spawn, int signal);
/* Stops a child of the caller with SIGSTOP, and waits until it is stopped: before that its threads may go on, and do go on
 * beside a load. 0 or -errno. */
int spawn_stop(pid_t child);
void spawn_result_free(struct spawn_result *result);

/* Starts and finishes a program that is not held. */
int spawn_run(const struct spawn_options *options, struct spawn_result *result);
/* Runs the gpuprof command with these arguments (NULL-terminated). */
int spawn_command(struct spawn_result *result, const char *first, ...) __attribute__((sentinel));
/* "exit 3" or "signal 9" or "timed out": for messages.  Static buffer. */
const char *spawn_status_text(const struct spawn_result *result);

#endif
