/* SPDX-License-Identifier: MIT
 *
 * test_record.c: the recorder inside a process: every lost event is counted, an error of the file
 * never reaches the program, and the file of a killed process has what was written until then.
 */
#include "base/clock.h"
#include "base/ring.h"
#include "inject/inject.h"
#include "lib/full.h"
#include "session/session.h"
#include <base/thread.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/wire.h>
#include <inttypes.h>
#include <pthread.h>
#include <read/recording/recording.h>
#include <record/format.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char test_folder[64];

static void test_begin(void)
{
    strcpy(test_folder, "/tmp/gpuprof-test-record-XXXXXX");
    cr_assert_not_null(mkdtemp(test_folder));
}

static void test_end(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", test_folder);
    cr_assert_eq(system(command), 0);
}

/* In a forked child a Criterion assertion would be taken for the parent's. */
static bool test_forked;
#define CHECK(_x)                                                                                                      \
    do {                                                                                                               \
        bool good = (_x);                                                                                              \
        if (!good && test_forked) {                                                                                    \
            fprintf(stderr, "test_record.c:%d: %s\n", __LINE__, #_x);                                                  \
            _exit(3);                                                                                                  \
        }                                                                                                              \
        cr_assert(good, "%s", #_x);                                                                                    \
    } while (0)

static pid_t test_fork(void)
{
    pid_t pid = fork();
    test_forked |= pid == 0;
    return pid;
}

/* ---- a process that records itself ------------------------------------------------------------------------------- */

struct host {
    struct gp_session session;
    struct gp_ring ring;
    uint64_t tried;
};

static void host_event(struct host *host, struct gp_ring_cursor *cursor, uint32_t tid, uint64_t number)
{
    struct gp_wire_event event = {.time_ns = gp_clock_ns(), .type = number % 2 ? GP_EVENT_FREE : GP_EVENT_ALLOC};
    event.kind = GP_KIND_LINEAR;
    event.address = 0x7f0000000000ull + number / 2 % 64 * 0x200000 + ((uint64_t)tid << 32);
    event.bytes = event.requested_bytes = (number / 2 % 64 + 1) * 512;
    gp_ring_write(&host->ring, cursor, &event, tid);
}

struct host_thread {
    struct host *host;
    uint32_t tid, events, pause_every;
};

static void *host_thread(void *arg)
{
    const struct host_thread *thread = arg;
    struct gp_ring_cursor cursor = {0};
    for (uint32_t i = 0; i < thread->events; i++) {
        host_event(thread->host, &cursor, thread->tid, i);
        if (thread->pause_every && i % thread->pause_every == 0)
            usleep(1000);
    }
    return NULL;
}

static int host_start(struct host *host, const char *path, bool wide, char *why)
{
    CHECK(gp_thread_life_start() == 0);
    const struct gp_session_size size = {.wide = wide};
    CHECK(gp_session_open(&host->session, &size) == 0);
    CHECK(gp_ring_init(&host->ring, host->session.chunks, host->session.chunk_count,
                       &host->session.header->lost[GP_LOST_RING]) == 0);
    const struct gp_record_setup setup = {.path = path, .header = host->session.header, .ring = &host->ring};
    return gp_record_start(&setup, why, 160);
}

static void host_run(struct host *host, unsigned threads, uint32_t events, uint32_t pause_every)
{
    pthread_t ids[64];
    struct host_thread args[64];
    for (unsigned i = 0; i < threads; i++) {
        args[i] = (struct host_thread){host, 1000 + i, events, pause_every};
        CHECK(pthread_create(&ids[i], NULL, host_thread, &args[i]) == 0);
    }
    for (unsigned i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    host->tried += (uint64_t)threads * events;
}

static uint64_t host_pages(const struct host *host)
{
    static unsigned char pages[1 << 16];
    uint64_t count = 0;
    CHECK(host->ring.chunk_count <= sizeof(pages));
    CHECK(mincore(host->ring.chunks, host->ring.chunk_count * sizeof(*host->ring.chunks), pages) == 0);
    for (uint32_t i = 0; i < host->ring.chunk_count; i++)
        count += pages[i] & 1;
    return count;
}

static struct gp_recording *test_open(const char *path)
{
    struct gp_recording *recording = NULL;
    char why[256] = "";
    int rc = gp_recording_open(&recording, path, why, sizeof(why), NULL, NULL);
    if (rc)
        fprintf(stderr, "%s: %s\n", path, why);
    CHECK(rc == 0);
    return recording;
}

/* Checks that every thread's events are in the file, in order, each once, except those counted as
 * lost. */
static void test_counts(const struct gp_recording *recording, const struct host *host)
{
    const struct gp_wire_header *header = host->session.header;
    CHECK(recording->complete && recording->from_start);
    CHECK(recording->damaged_blocks == 0);
    CHECK(recording->tried == host->tried);
    CHECK(recording->delivered == recording->event_count);
    CHECK(recording->delivered + recording->dropped == recording->tried);
    CHECK(header->recorded == recording->delivered);
    CHECK(header->record_lost == recording->dropped);
    CHECK(header->record_state == GP_RECORD_DONE);
}

/* On a loaded machine the end may take longer than a second, which is counted and must be rare.
 * Events of an easy pace are never dropped. */
#define TEST_LATE    77
#define TEST_DROPPED 78

/* easy: a slow pace, with the ring size that GPUPROF_RECORD sets. */
static void test_recorder(int i, bool easy)
{
    char path[96], why[160];
    struct host host = {0};
    snprintf(path, sizeof(path), "%s/%%p.gpuprof", test_folder);
    CHECK(host_start(&host, path, i % 2, why) == 0);
    host_run(&host, 64, easy ? 300 : 5000, easy ? 20 : i % 3 ? 0 : 200);
    gp_record_stop(false);
    const struct gp_wire_header *header = host.session.header;
    if (header->record_state == GP_RECORD_FAILED && header->record_errno == ETIMEDOUT) {
        CHECK(header->recorded + header->record_lost == host.tried);
        _exit(TEST_LATE);
    }
    snprintf(path, sizeof(path), "%s/%d.gpuprof", test_folder, (int)getpid());
    struct gp_recording *recording = test_open(path);
    test_counts(recording, &host);
    CHECK(host_pages(&host) <= host.ring.x_next); /* the recorder gives chunks without events no memory */
    bool is_dropped = easy && recording->dropped != 0;
    gp_recording_free(recording);
    _exit(is_dropped ? TEST_DROPPED : 0);
}

/* The easy ones run after the others, each of which loads the machine. */
Test(record, delivered_and_dropped_are_what_was_tried, .init = test_begin, .fini = test_end, .timeout = 120)
{
    int late = 0, dropped = 0;
    for (int easy = 0; easy < 2; easy++) {
        pid_t children[16] = {0};
        for (int i = 0; i < 16; i++)
            if ((i % 6 == 3) == easy && (children[i] = test_fork()) == 0)
                test_recorder(i, easy);
        for (int i = 0; i < 16; i++) {
            int status;
            if (!children[i])
                continue;
            waitpid(children[i], &status, 0);
            int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
            late += code == TEST_LATE;
            dropped += code == TEST_DROPPED;
            cr_assert(code == 0 || code == TEST_LATE || code == TEST_DROPPED, "process %d: status %x", i, status);
        }
    }
    cr_assert_leq(late, 4, "%d recordings have no end", late);
    cr_assert_eq(dropped, 0, "%d of 3 easy recordings dropped events", dropped);
}

Test(record, a_killed_process_leaves_all_but_the_last_second, .init = test_begin, .fini = test_end, .timeout = 120)
{
    char path[96], why[160];
    snprintf(path, sizeof(path), "%s/killed.gpuprof", test_folder);
    for (int round = 0; round < 8; round += test_is_full() ? 1 : 3) {
        uint64_t begin = gp_clock_ns(), patience = 1300000000ull + (unsigned)round * 170000000ull;
        pid_t child = test_fork();
        if (child == 0) {
            struct host host = {0};
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            host_start(&host, path, true, why);
            for (;;)
                host_run(&host, 2, 1000, 10);
        }
        usleep((useconds_t)(patience / 1000));
        uint64_t end = gp_clock_ns();
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        struct gp_recording *recording = test_open(path);
        cr_assert(!recording->complete && recording->damaged_blocks == 0);
        cr_assert_gt(recording->event_count, 100);
        /* A second, with a margin for a loaded machine. */
        cr_assert_lt(end - recording->events[recording->event_count - 1].time_ns, 2000000000ull);
        cr_assert_lt(recording->events[0].time_ns - begin, 1000000000ull);
        cr_assert_eq(recording->tried, recording->delivered + recording->dropped);
        gp_recording_free(recording);
        unlink(path);
    }
}

/* ---- errors of the file ------------------------------------------------------------------------------------------ */

static void test_refused(const char *path, int error, const char *word)
{
    struct host host = {0};
    char why[160] = "";
    pid_t child = test_fork();
    if (child == 0) { /* one recorder per process */
        CHECK(host_start(&host, path, false, why) == error);
        CHECK(strstr(why, word));
        CHECK(host.session.header->record_state == GP_RECORD_FAILED);
        CHECK(host.session.header->record_errno == -error);
        host_run(&host, 2, 1000, 0);
        gp_record_stop(false);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    cr_assert_eq(status, 0, "%s", path);
}

Test(record, a_file_that_cannot_be_had_is_said_once, .init = test_begin, .fini = test_end)
{
    char path[128];
    test_refused("/nonexistent/folder/x", -ENOENT, "No such");
    test_refused("", -EINVAL, "Invalid argument");
    test_refused("/proc/self/mem-not", -ENOENT, "No such");
    snprintf(path, sizeof(path), "%s/fifo", test_folder);
    cr_assert_eq(mkfifo(path, 0600), 0);
    test_refused(path, -ENXIO, "no process reads");
}

Test(record, the_file_is_its_owners_and_the_second_process_takes_another, .init = test_begin, .fini = test_end)
{
    char path[96], why[160];
    struct stat status;
    snprintf(path, sizeof(path), "%s/shared", test_folder);
    struct host host = {0};
    umask(0);
    cr_assert_eq(host_start(&host, path, false, why), 0, "%s", why);
    cr_assert_eq(stat(path, &status), 0);
    cr_assert_eq(status.st_mode & 07777, 0600);
    host_run(&host, 1, 100, 0);
    pid_t child = test_fork();
    if (child == 0) {
        gp_record_stop(false); /* the recorder is the parent's */
        struct host mine = {0};
        CHECK(host_start(&mine, path, false, why) == 0);
        host_run(&mine, 1, 50, 0);
        gp_record_stop(false);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    host_run(&host, 1, 100, 0);
    gp_record_stop(false);
    struct gp_recording *recording = test_open(path);
    cr_assert_eq(recording->event_count, 200);
    gp_recording_free(recording);
    snprintf(path, sizeof(path), "%s/shared.%d", test_folder, (int)child);
    recording = test_open(path);
    cr_assert_eq(recording->event_count, 50);
    gp_recording_free(recording);
}

/* RLIMIT_FSIZE simulates a full disk; SIGXFSZ would kill the program. */
Test(record, a_full_disk_is_counted_and_stops_no_program, .init = test_begin, .fini = test_end, .timeout = 60)
{
    char path[96], why[160];
    snprintf(path, sizeof(path), "%s/full", test_folder);
    struct host host = {0};
    struct rlimit limit = {64, RLIM_INFINITY}; /* the file is larger already: not even a small block fits */
    cr_assert_eq(host_start(&host, path, true, why), 0, "%s", why);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    host_run(&host, 4, 30000, 100);
    uint64_t lost = host.session.header->record_lost;
    cr_assert_eq(host.session.header->record_state, GP_RECORD_ON, "it waits for room");
    cr_assert_eq(host.session.header->record_errno, EFBIG);
    cr_assert_gt(lost, 0);
    limit.rlim_cur = RLIM_INFINITY;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    host_run(&host, 1, 500, 0);
    gp_record_stop(false);
    struct gp_recording *recording = test_open(path);
    test_counts(recording, &host);
    cr_assert_gt(recording->dropped, 0);
    cr_assert_gt(recording->delivered, 400, "events from when there was room again");
    cr_assert_eq(recording->write_error, EFBIG);
    cr_assert_gt(recording->unwritten, 0);
    cr_assert(!recording->ended_early && recording->end_ns > recording->write_error_ns);
    cr_assert_eq(host.session.header->record_errno, EFBIG, "why events are missing");
    gp_recording_free(recording);
}

/* Mounts a file system of 1 MB in a private namespace. False: not permitted. */
static bool test_small_disk(unsigned long flags)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("gpuprof", test_folder, "tmpfs", flags, "size=1m") != 0)
        return false;
    return true;
}

static int test_wait(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        cr_skip_test("cannot mount here (needs CAP_SYS_ADMIN)");
    return status;
}

/* Walks over the blocks: the index lists each of them but itself. */
static void test_index(const char *path)
{
    struct gp_format_tail tail;
    struct gp_format_place place;
    struct gp_format_block block;
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && fstat(fd, &status) == 0);
    CHECK(pread(fd, &tail, sizeof(tail), status.st_size - (off_t)sizeof(tail)) == sizeof(tail));
    CHECK(memcmp(tail.magic, GP_FORMAT_END, sizeof(tail.magic)) == 0);
    off_t at = sizeof(struct gp_format_head), row = (off_t)tail.index_offset + (off_t)sizeof(block);
    for (uint32_t count = 0;; count++) {
        CHECK(pread(fd, &block, sizeof(block), at) == sizeof(block));
        CHECK(memcmp(block.mark, GP_FORMAT_MARK, sizeof(block.mark)) == 0 && block.sequence == count);
        if (block.type == GP_BLOCK_INDEX) {
            CHECK(at == (off_t)tail.index_offset && block.count == count);
            break;
        }
        CHECK(pread(fd, &place, sizeof(place), row) == sizeof(place));
        CHECK(place.offset == (uint64_t)at && place.type == block.type && place.count == block.count);
        at += (off_t)(sizeof(block) + block.stored_bytes);
        row += (off_t)sizeof(place);
    }
    close(fd);
}

Test(record, a_disk_without_room_keeps_a_whole_file, .init = test_begin, .fini = test_end, .timeout = 60)
{
    char path[96], why[160];
    snprintf(path, sizeof(path), "%s/full", test_folder);
    pid_t child = test_fork();
    if (child == 0) {
        struct host host = {0};
        if (!test_small_disk(0))
            _exit(77);
        CHECK(host_start(&host, path, true, why) == 0);
        for (int i = 0; i < 200 && host.session.header->record_errno != ENOSPC; i++) {
            host_run(&host, 4, 10000, 0);
            usleep(50000);
        }
        CHECK(host.session.header->record_errno == ENOSPC);
        CHECK(host.session.header->record_lost > 0);
        usleep(100000);
        host_run(&host, 4, 1000, 0);
        gp_record_stop(false);
        CHECK(host.session.header->record_errno == ENOSPC);
        test_index(path);
        struct gp_recording *recording = test_open(path);
        CHECK(recording->complete && recording->damaged_blocks == 0);
        CHECK(recording->tried == host.tried && recording->delivered == recording->event_count);
        CHECK(recording->delivered + recording->dropped == recording->tried && recording->dropped > 0);
        CHECK(recording->write_error == ENOSPC && recording->unwritten > 0 && recording->ended_early);
        CHECK(recording->events[recording->event_count - 1].time_ns <= recording->end_ns);
        CHECK(recording->end_ns + 100000000 <= recording->stopped_ns);
        for (size_t i = 0; i < recording->sample_count; i++)
            CHECK(recording->samples[i].time_ns <= recording->end_ns);
        gp_recording_free(recording);
        _exit(0);
    }
    cr_assert_eq(test_wait(child), 0);
}

Test(record, a_read_only_disk_is_reported, .init = test_begin, .fini = test_end, .timeout = 60)
{
    char path[96], why[160];
    snprintf(path, sizeof(path), "%s/none", test_folder);
    pid_t child = test_fork();
    if (child == 0) {
        struct host host = {0};
        if (!test_small_disk(MS_RDONLY))
            _exit(77);
        CHECK(host_start(&host, path, true, why) == -EROFS);
        CHECK(strstr(why, "Read-only"));
        host_run(&host, 1, 1000, 0);
        gp_record_stop(false);
        _exit(0);
    }
    cr_assert_eq(test_wait(child), 0);
}

struct slow_reader {
    int fd;
    size_t bytes;
    bool hasty;
};

static void *slow_reader(void *arg)
{
    struct slow_reader *reader = arg;
    char part[4096];
    for (ssize_t got; (got = read(reader->fd, part, sizeof(part))) > 0; reader->bytes += (size_t)got)
        if (!__atomic_load_n(&reader->hasty, __ATOMIC_RELAXED))
            usleep(200000);
    return NULL;
}

/* 20 KB per second, through a pipe of one page. */
Test(record, a_slow_disk_costs_events_and_no_time, .init = test_begin, .fini = test_end, .timeout = 60)
{
    char path[96], why[160];
    snprintf(path, sizeof(path), "%s/fifo", test_folder);
    cr_assert_eq(mkfifo(path, 0600), 0);
    struct slow_reader reader = {open(path, O_RDONLY | O_NONBLOCK), 0, false};
    fcntl(reader.fd, F_SETFL, 0);
    fcntl(reader.fd, F_SETPIPE_SZ, 4096);
    pthread_t id;
    struct host host = {0};
    cr_assert_eq(host_start(&host, path, false, why), 0, "%s", why);
    pthread_create(&id, NULL, slow_reader, &reader);
    for (int i = 0; i < 20; i++) {
        uint64_t begin = gp_clock_ns();
        host_run(&host, 4, 20000, 0);
        cr_assert_lt(gp_clock_ns() - begin, 2000000000ull);
        usleep(100000);
    }
    __atomic_store_n(&reader.hasty, true, __ATOMIC_RELAXED);
    uint64_t begin = gp_clock_ns();
    gp_record_stop(false);
    cr_assert_lt(gp_clock_ns() - begin, 1500000000ull);
    pthread_join(id, NULL);
    cr_assert_gt(host.session.header->record_lost, 0);
    cr_assert_eq(host.session.header->recorded + host.session.header->record_lost, host.tried);
}

/* The pipe is never read: the exit waits for its second, and the recorder counts what it left
 * out. */
Test(record, a_disk_that_hangs_is_left_and_said, .init = test_begin, .fini = test_end, .timeout = 60)
{
    char path[96], why[160];
    snprintf(path, sizeof(path), "%s/fifo", test_folder);
    cr_assert_eq(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    fcntl(reader, F_SETPIPE_SZ, 4096);
    struct host host = {0};
    cr_assert_eq(host_start(&host, path, false, why), 0, "%s", why);
    host_run(&host, 4, 20000, 0);
    usleep(1200000);
    host_run(&host, 4, 20000, 0);
    uint64_t begin = gp_clock_ns();
    gp_record_stop(false);
    cr_assert_lt(gp_clock_ns() - begin, 1500000000ull);
    const struct gp_wire_header *header = host.session.header;
    cr_assert_eq(header->record_state, GP_RECORD_FAILED);
    cr_assert_eq(header->record_errno, ETIMEDOUT);
    cr_assert_gt(header->record_lost, 0);
    cr_assert_eq(header->recorded + header->record_lost, host.tried);
    close(reader);
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

Test(record, the_program_and_the_recorder_have_descriptors_apart, .init = test_begin, .fini = test_end)
{
    char path[96], why[160], byte;
    int ends[2];
    snprintf(path, sizeof(path), "%s/apart", test_folder);
    struct host host = {0};
    cr_assert_eq(pipe(ends), 0);
    int lowest = dup(0);
    close(lowest);
    cr_assert_eq(host_start(&host, path, false, why), 0, "%s", why);
    cr_assert_eq(dup(0), lowest, "the file has no descriptor in this table");
    close(lowest);
    close(ends[1]);
    cr_assert_eq(read(ends[0], &byte, 1), 0, "the recorder holds the pipe open");
    host_run(&host, 1, 1000, 100);
    for (int fd = 3; fd < 20; fd++) /* daemons do this; the test runner's own descriptors are restored afterwards */
        cr_assert(dup2(fd, 100 + fd) == 100 + fd || errno == EBADF);
    for (int fd = 3; fd < 20; fd++)
        close(fd);
    host_run(&host, 1, 1000, 100);
    gp_record_stop(false);
    for (int fd = 3; fd < 20; fd++)
        dup2(100 + fd, fd);
    struct gp_recording *recording = test_open(path);
    test_counts(recording, &host);
    gp_recording_free(recording);
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

/* ftruncate beyond RLIMIT_FSIZE not only fails: SIGXFSZ kills the caller. */
Test(record, a_session_larger_than_files_may_be_is_none)
{
    struct gp_session session = {0};
    const struct gp_session_size size = {.wide = true};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, 1 << 20}), 0);
    cr_assert_eq(gp_session_open(&session, &size), -EFBIG);
    cr_assert_null(session.header);
}
