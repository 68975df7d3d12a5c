/* SPDX-License-Identifier: MIT
 *
 * recordthread.c: the recorder's thread inside the program; see inject.h.  It has a
 * descriptor table of its own: the program can neither close the file nor find its number in use,
 * and pipes that the program closes are closed.  A fork copies the descriptors of the forking
 * thread, so no child has the file.
 */
#include "base/clock.h"
#include "base/compiler.h"
#include "base/futex.h"
#include "base/lock.h"
#include "base/ring.h"
#include "base/sandbox.h"
#include "base/vma.h"
#include "base/worker.h"
#include "inject/inject.h"
#include "record/file.h"
#include "record/format.h"
#include "record/modules.h"
#include "record/recorder.h"
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/wire.h>
#include <limits.h>
#include <linux/close_range.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Pauses between reads of a busy, an ordinary and an idle ring.  The ring for recorders holds half
 * a million events: at two million a second, 5 ms are 2 % of it. */
#define GP_RECORD_BUSY_NS         5000000ull
#define GP_RECORD_THREAD_PAUSE_NS 20000000ull
#define GP_RECORD_IDLE_NS         100000000ull
/* Limit for opening the file: a network file system that hangs must not block cuInit. */
#define GP_RECORD_START_NS 2000000000ull
/* The exit waits for one second at most: half for reading, half for the end of the file.  Sixteen
 * processes with 64 threads each that end at once on two CPUs finish in time (test_record.c). */
#define GP_RECORD_READ_NS 500000000ull
#define GP_RECORD_STOP_NS 1000000000ull
/* Interval of reads in the first second until a device is known: only the driver knows the GPU's
 * name, and a program that runs for a few milliseconds must have it in its recording. */
#define GP_RECORD_FIRST_NS 2000000ull
#define GP_RECORD_SECOND   1000000000ull

enum gp_record_stage { GP_STAGE_NONE, GP_STAGE_OPENING, GP_STAGE_RUNNING, GP_STAGE_FAILED, GP_STAGE_ENDED };

static struct gp_record {
    struct gp_record_setup setup;
    char path[PATH_MAX], second[PATH_MAX]; /* the name, and the one to use if another process has it */
    struct gp_rank rank;
    uint32_t x_stage;       /* enum gp_record_stage; written by the thread */
    uint32_t x_stop;        /* request to end: enum gp_format_why; written by the program */
    uint64_t x_deadline_ns; /* of reading; 0 none */
    uint32_t x_appeared;    /* a device is known */
    int error;              /* of the start */
    pid_t pid;
    struct gp_recorder *recorder;
    /* Copies from the start: a process that maps the session may write anything into its header. */
    const struct gp_wire_chunk *chunks;
    uint32_t chunk_count;
} gp_record_mine;

static struct gp_sandbox record_sandbox = {.fd = -1}; /* in the thread's table */

/* Decides which side reports the end of the recording: the thread, or the program after its wait
 * timed out. */
static struct gp_lock record_lock = GP_LOCK_INIT(GP_RANK_RECORD);

static void record_stage(enum gp_record_stage stage)
{
    /* [record.R] release: error, and the file; pairs with [record.A]. */
    __atomic_store_n(&gp_record_mine.x_stage, stage, __ATOMIC_RELEASE);
    gp_futex_wake(&gp_record_mine.x_stage);
}

static uint32_t record_wait(enum gp_record_stage leave, uint64_t patience_ns)
{
    uint64_t now = gp_clock_ns(), deadline = now + patience_ns;
    uint32_t stage;
    /* [record.A] acquire: pairs with [record.R]. */
    while ((stage = __atomic_load_n(&gp_record_mine.x_stage, __ATOMIC_ACQUIRE)) == (uint32_t)leave && now < deadline) {
        gp_futex_wait(&gp_record_mine.x_stage, stage, deadline - now);
        now = gp_clock_ns();
    }
    return stage;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* Makes a descriptor table that has only /dev/null at 0, 1 and 2, so output of this thread to these
 * cannot reach the recording. */
static int record_private(void)
{
    if (syscall(SYS_close_range, 0u, ~0u, CLOSE_RANGE_UNSHARE) != 0) {
        struct rlimit limit = {.rlim_cur = 1024};
        if (unshare(CLONE_FILES) != 0) /* before Linux 5.9, or under a filter that does not know the call */
            return -errno;
        getrlimit(RLIMIT_NOFILE, &limit);
        for (rlim_t fd = 0; fd < limit.rlim_cur && fd < 1u << 20; fd++)
            close((int)fd);
    }
    for (int i = 0; i < 3; i++)
        if (open("/dev/null", O_RDWR | O_CLOEXEC) < 0)
            return -errno;
    return 0;
}

/* Files of one name and process number: images, each of which the next one replaced by exec, and, in a
 * container, where each start has the same number, earlier runs. */
#define GP_RECORD_NUMBERS 1000u

/* What exists stays. If another process, or an earlier run, has the name, ours gets the second name; if that
 * is there too, a numbered one: x.1234.2.gpuprof. */
static int record_open(struct gp_record *record)
{
    int fd = gp_file_open(record->path, false);
    if (fd != -EEXIST)
        return fd;
    memcpy(record->path, record->second, sizeof(record->path));
    fd = gp_file_open(record->path, false);
    size_t stem = gp_record_stem(record->second);
    for (unsigned i = 2; fd == -EEXIST && i <= GP_RECORD_NUMBERS; i++) {
        if (snprintf(record->path, sizeof(record->path), "%.*s.%u%s", (int)stem, record->second, i,
                     record->second + stem) >= (int)sizeof(record->path))
            return -ENAMETOOLONG;
        fd = gp_file_open(record->path, false);
    }
    return fd;
}

/* A chunk that no event was in. [ring.F] publishes the events, and the numbers taken before them, to a look after the
 * horizon, and [stop.R] to the last one; an older number is a look some nanoseconds earlier. */
static bool record_is_unused(const char *at)
{
    const struct gp_ring *ring = gp_record_mine.setup.ring;
    if (!ring || at < (const char *)ring->chunks)
        return false;
    uint64_t index = (uint64_t)(at - (const char *)ring->chunks) / sizeof(*ring->chunks);
    return index < ring->chunk_count && index >= gp_ring_used(ring);
}

/* The session is ours; its words (ring, numbers) change while they are read. */
static int record_copy(void *arg, void *into, size_t bytes, uint64_t offset)
{
    const uint64_t *from = (const uint64_t *)(const void *)((const char *)arg + offset);
    uint64_t *to = into;
    if (record_is_unused((const char *)from)) {
        memset(into, 0, bytes);
        return 0;
    }
    /* [ring.A1] [ring.A2] [ring.A3] [site.A] acquire; pairs with the releases of the threads that
     * wrote the words. */
    for (size_t i = 0; i < bytes / sizeof(*to); i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
    return 0;
}

static void record_refresh(void *arg)
{
    (void)arg;
    if (gp_record_mine.setup.publish)
        gp_record_mine.setup.publish();
}

static void record_appeared(void *arg)
{
    (void)arg;
    __atomic_store_n(&gp_record_mine.x_appeared, 1, __ATOMIC_RELAXED);
    if (gp_record_mine.setup.appeared)
        gp_record_mine.setup.appeared();
}

static bool record_late(void *arg)
{
    uint64_t deadline = __atomic_load_n(&gp_record_mine.x_deadline_ns, __ATOMIC_RELAXED);
    (void)arg;
    return deadline && gp_clock_ns() >= deadline;
}

static void record_tell(const struct gp_recorder_stats *stats, enum gp_wire_record state, int error)
{
    struct gp_wire_header *header = gp_record_mine.setup.header;
    gp_lock_take(&record_lock);
    __atomic_store_n(&header->recorded, stats->recorded, __ATOMIC_RELAXED);
    __atomic_store_n(&header->record_lost, stats->lost, __ATOMIC_RELAXED);
    __atomic_store_n(&header->record_errno, error, __ATOMIC_RELAXED);
    /* [state.R] release: the numbers above; pairs with the viewer's copy, which comes through the
     * kernel. */
    __atomic_store_n(&header->record_state, state, __ATOMIC_RELEASE);
    gp_lock_give(&record_lock);
}

static bool record_confined(void *arg)
{
    (void)arg;
    return gp_sandbox_entered(&record_sandbox);
}

static int record_open_module(const char *proc, const struct gp_vma *file)
{
    return record_confined(NULL) ? -1 : gp_modules_open_file(proc, file);
}

static int record_begin(void)
{
    static char memory[40]; /* of this thread: the main thread may end */
    struct gp_record *record = &gp_record_mine;
    int error = record_private();
    snprintf(memory, sizeof(memory), "/proc/self/task/%d", (int)syscall(SYS_gettid));
    gp_sandbox_open(&record_sandbox);
    int fd = error ? error : record_open(record);
    if (fd < 0)
        return fd;
    struct gp_recorder_setup setup = {.copy = record_copy,
                                      .copy_arg = record->setup.header,
                                      .proc = "/proc/self",
                                      .memory = memory,
                                      .from_start = true,
                                      .rank = record->rank,
                                      .run_unix_ns = record->setup.since_unix_ns,
                                      .refresh = record_refresh,
                                      .appeared = record_appeared,
                                      .confined = record_confined,
                                      .open_module = record_open_module,
                                      .late = record_late};
    memcpy(&setup.header, record->setup.header, sizeof(setup.header));
    error = gp_recorder_new(&record->recorder, fd, &setup);
    if (error)
        gp_file_drop(record->path);
    return error;
}

static uint64_t record_pause(ssize_t count, uint64_t before)
{
    const struct gp_wire_header *header = gp_record_mine.setup.header;
    uint64_t room = (uint64_t)header->chunk_count * GP_RING_EVENTS;
    if (!__atomic_load_n(&gp_record_mine.x_appeared, __ATOMIC_RELAXED) &&
        gp_clock_ns() - header->start_ns < GP_RECORD_SECOND)
        return GP_RECORD_FIRST_NS;
    if (count > 0)
        return (uint64_t)count > room / 32 ? GP_RECORD_BUSY_NS : GP_RECORD_THREAD_PAUSE_NS;
    return before * 2 < GP_RECORD_IDLE_NS ? before * 2 : GP_RECORD_IDLE_NS;
}

static void *record_main(void *arg)
{
    struct gp_record *record = &gp_record_mine;
    struct gp_recorder_stats stats = {0};
    uint64_t pause = GP_RECORD_THREAD_PAUSE_NS;
    (void)arg;
    record->error = record_begin();
    if (record->error) {
        record_tell(&stats, GP_RECORD_FAILED, -record->error);
        record_stage(GP_STAGE_FAILED);
        return NULL;
    }
    /* Before the program goes on: it may enter a sandbox, where no file can be opened. */
    gp_recorder_begin(record->recorder);
    record_tell(&stats, GP_RECORD_ON, 0);
    record_stage(GP_STAGE_RUNNING);
    /* [stop.A] acquire: the program's last events; pairs with [stop.R]. */
    while (!__atomic_load_n(&record->x_stop, __ATOMIC_ACQUIRE)) {
        ssize_t count = gp_recorder_poll(record->recorder);
        gp_recorder_stats(record->recorder, &stats);
        record_tell(&stats, stats.dead ? GP_RECORD_FAILED : GP_RECORD_ON, stats.error);
        pause = record_pause(count, pause);
        gp_futex_wait(&record->x_stop, 0, pause);
    }
    enum gp_format_why reason = (enum gp_format_why)__atomic_load_n(&record->x_stop, __ATOMIC_RELAXED);
    int error = gp_recorder_end(record->recorder, reason, &stats);
    record_tell(&stats, error ? GP_RECORD_FAILED : GP_RECORD_DONE, error ? -error : stats.lost_error);
    record_stage(GP_STAGE_ENDED);
    return NULL;
}

/* ---- the program's side ------------------------------------------------------------------------------------------ */

static const char *record_variable(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

/* The names, from the environment as the program has it now. */
static int record_names(struct gp_record *record, const char *pattern)
{
    unsigned pid = (unsigned)record->pid;
    gp_rank_read(&record->rank, record_variable, NULL);
    int error = gp_record_name(record->path, sizeof(record->path), pattern, pid, &record->rank, false);
    return error ? error : gp_record_name(record->second, sizeof(record->second), pattern, pid, &record->rank, true);
}

static const char *record_why(int error)
{
    switch (error) {
    case -EEXIST:
        return "the file exists already";
    case -ELOOP:
        return "the file is a link, which is not followed";
    case -EPERM:
        return getauxval(AT_SECURE) ? "a program with the rights of another user is not recorded" : strerror(EPERM);
    case -ENXIO:
        return "no process reads this pipe";
    default:
        return strerror(-error);
    }
}

int gp_record_start(const struct gp_record_setup *setup, char *why, size_t why_bytes)
{
    struct gp_record *record = &gp_record_mine;
    record->setup = *setup;
    record->chunks = (const void *)((const char *)setup->header + setup->header->ring_offset);
    record->chunk_count = setup->header->chunk_count;
    record->pid = getpid();
    int error = getauxval(AT_SECURE) ? -EPERM : record_names(record, setup->path);
    if (!error) {
        record_stage(GP_STAGE_OPENING);
        error = gp_worker_start(record_main, "gpuprof-record");
    }
    if (!error) {
        switch (record_wait(GP_STAGE_OPENING, GP_RECORD_START_NS)) {
        case GP_STAGE_OPENING: /* the thread continues when the file is open */
            return 0;
        case GP_STAGE_FAILED:
            error = record->error;
            break;
        default:
            return 0;
        }
    }
    setup->header->record_errno = -error;
    __atomic_store_n(&setup->header->record_state, GP_RECORD_FAILED, __ATOMIC_RELEASE); /* [state.R] */
    snprintf(why, why_bytes, "%.64s: %s", record->path, record_why(error));
    return error;
}

/* The disk hangs: events that are not in the file count as missing.  If the thread still finishes,
 * its own numbers replace these. */
static void record_leave(void)
{
    struct gp_wire_header *header = gp_record_mine.setup.header;
    const struct gp_wire_chunk *chunks = gp_record_mine.chunks;
    uint64_t tried = __atomic_load_n(&header->lost[GP_LOST_RING], __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < gp_record_mine.chunk_count; i++)
        tried += __atomic_load_n(&chunks[i].written_before, __ATOMIC_RELAXED) +
                 GP_CHUNK_COUNT(__atomic_load_n(&chunks[i].state, __ATOMIC_RELAXED));
    gp_lock_take(&record_lock);
    if (header->record_state == GP_RECORD_ON || header->record_state == GP_RECORD_OFF) {
        __atomic_store_n(&header->record_lost, tried - header->recorded, __ATOMIC_RELAXED);
        __atomic_store_n(&header->record_errno, ETIMEDOUT, __ATOMIC_RELAXED);
        __atomic_store_n(&header->record_state, GP_RECORD_FAILED, __ATOMIC_RELEASE); /* [state.R] */
    }
    gp_lock_give(&record_lock);
}

void gp_record_stop(bool detached)
{
    struct gp_record *record = &gp_record_mine;
    uint64_t now = gp_clock_ns(), deadline = now + GP_RECORD_STOP_NS;
    /* [record.A] acquire: pairs with [record.R]. */
    uint32_t stage = __atomic_load_n(&record->x_stage, __ATOMIC_ACQUIRE);
    if (record->pid != getpid() || (stage != GP_STAGE_OPENING && stage != GP_STAGE_RUNNING))
        return;
    __atomic_store_n(&record->x_deadline_ns, now + GP_RECORD_READ_NS, __ATOMIC_RELAXED);
    /* [stop.R] release: what the program did; pairs with [stop.A]. */
    __atomic_store_n(&record->x_stop, detached ? GP_END_STOPPED : GP_END_PROCESS, __ATOMIC_RELEASE);
    gp_futex_wake(&record->x_stop);
    for (; now < deadline && (stage == GP_STAGE_OPENING || stage == GP_STAGE_RUNNING); now = gp_clock_ns())
        stage = record_wait(stage, deadline - now);
    if (stage == GP_STAGE_OPENING || stage == GP_STAGE_RUNNING)
        record_leave();
}
