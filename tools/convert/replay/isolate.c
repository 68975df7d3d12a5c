/* SPDX-License-Identifier: MIT
 * isolate.c: starts the child of a replay, reports its progress and takes its result; see
 * replay.h. */
#include "convert/replay/internal.h"
#include "convert/replay/replay.h"

#include <base/clock.h>
#include <base/futex.h>
#include <read/collect/collect.h>

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Interval of the checks for a dead child and of the progress display: ten updates per second look
 * smooth. */
#define GP_RUN_LOOK_NS 100000000ull
/* A child needs less than this from SEEN to its exit. */
#define GP_RUN_END_NS 1000000ull

static void run_folder(char *folder, size_t bytes)
{
    const char *parent = getenv("TMPDIR");
    snprintf(folder, bytes, "%s/gpuprof-replay-XXXXXX", parent && parent[0] ? parent : "/tmp");
}

static void run_clean(const char *folder)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/ledger", folder);
    unlink(path);
    rmdir(folder);
}

/* The child waits, and its session has statistics that no other source has. */
static void run_ask(pid_t pid, struct gp_replay_result *shared)
{
    struct gp_collect_options options = {.pids = &pid, .pid_count = 1, .exact = true};
    struct gp_system *system;
    shared->retries = shared->syncs = -1;
    if (gp_collect(&options, &system) != 0)
        return;
    for (int i = 0; i < system->process_count; i++) {
        const struct gp_process *process = &system->processes[i];
        bool exact = process->pid == pid && process->state == GP_PROCESS_LIVE;
        for (int d = 0; exact && d < process->device_count; d++) {
            shared->retries = (shared->retries < 0 ? 0 : shared->retries) + process->devices[d].wire.num_alloc_retries;
            shared->syncs = (shared->syncs < 0 ? 0 : shared->syncs) + process->devices[d].wire.num_sync_all_streams;
        }
    }
    gp_system_free(system);
}

static int run_wait(pid_t pid, const struct gp_replay_trace *trace, const struct gp_replay_settings *settings,
                    struct gp_replay_result *shared)
{
    uint64_t begin = gp_clock_ns();
    int status = 0;
    for (;;) {
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid)
            return status;
        if (ended < 0 && errno != EINTR)
            return -1;
        /* [played.A] acquire: pairs with [played.R]: the result is whole */
        uint32_t phase = __atomic_load_n(&shared->phase, __ATOMIC_ACQUIRE);
        if (phase == GP_REPLAY_PLAYED) {
            run_ask(pid, shared);
            /* [seen.R] release: the session was read before the child goes on; pairs with [seen.A] */
            __atomic_store_n(&shared->phase, phase = GP_REPLAY_SEEN, __ATOMIC_RELEASE);
            gp_futex_wake(&shared->phase);
        }
        gp_futex_wait(&shared->phase, phase, phase == GP_REPLAY_PLAYING ? GP_RUN_LOOK_NS : GP_RUN_END_NS);
        if (settings->progress && phase == GP_REPLAY_PLAYING && gp_clock_ns() - begin > 2 * GP_RUN_LOOK_NS)
            settings->progress(settings->listener, __atomic_load_n(&shared->done, __ATOMIC_RELAXED), trace->count);
    }
}

static int run_verdict(struct gp_replay_result *result, int status)
{
    if (result->complete && status == 0)
        return 0;
    result->complete = false;
    if (WIFSIGNALED(status))
        snprintf(result->why, sizeof(result->why), "the replay's process was killed by signal %d (%s) at operation %u",
                 WTERMSIG(status), strsignal(WTERMSIG(status)), result->done);
    else if (!result->why[0])
        snprintf(result->why, sizeof(result->why), "the replay's process ended early, with status %d", status >> 8);
    return -EIO;
}

int gp_replay_run(const struct gp_replay_trace *trace, const struct gp_replay_settings *settings,
                  struct gp_replay_result *result)
{
    char folder[256];
    memset(result, 0, sizeof(*result));
    run_folder(folder, sizeof(folder));
    struct gp_replay_result *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || !mkdtemp(folder)) {
        int error = errno;
        snprintf(result->why, sizeof(result->why), "%s: %s", shared == MAP_FAILED ? "shared memory" : folder,
                 strerror(error));
        if (shared != MAP_FAILED)
            munmap(shared, sizeof(*shared));
        return -error;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        gp_replay_play(trace, settings, folder, shared);
        /* exit, not _exit: the replay also exercises the end of the product. */
        exit(0);
    }
    int status = pid > 0 ? run_wait(pid, trace, settings, shared) : -1;
    *result = *shared;
    munmap(shared, sizeof(*shared));
    run_clean(folder);
    if (pid < 0) {
        snprintf(result->why, sizeof(result->why), "no process: %s", strerror(errno));
        return -EAGAIN;
    }
    return run_verdict(result, status);
}
