/* SPDX-License-Identifier: MIT
 *
 * test_recordthread.c: the recorder's thread (src/inject/recordthread.c), whose sleep and clock are the test's: which file
 * it opens, how long it pauses, what the session says, and how the program ends it, also when the disk hangs. The recorder
 * itself is a stand-in.
 */
#include "base/worker.h"
#include "inject/inject.h"
#include "lib/standin.h"
#include "lib/testclock.h"
#include "record/file.h"
#include "record/format.h"
#include "record/recorder.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/wire.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

TestSuite(recordthread, .timeout = 60);

#define MS     1000000ull
#define SECOND (1000 * MS)

static char notes[4096];
static void (*script)(unsigned step, uint64_t pause_ns);
static unsigned step;
static bool no_close_range, no_unshare;
static unsigned closed;
static bool watch_close;

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...)
{
    size_t used = strlen(notes);
    va_list args;
    va_start(args, format);
    vsnprintf(notes + used, sizeof(notes) - used, format, args);
    va_end(args);
}

STANDIN(long, syscall, long number, ...)
{
    long a[6];
    va_list args;
    va_start(args, number);
    for (unsigned i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_futex && a[1] == FUTEX_WAIT && script) {
        const struct timespec *t = (const void *)a[3];
        script(step++, t ? (uint64_t)t->tv_sec * SECOND + (uint64_t)t->tv_nsec : UINT64_MAX);
        return 0;
    }
    if (number == SYS_close_range) { /* else the test would lose its own */
        note("close_range %ld %lx %ld\n", a[0], a[1] & 0xffffffff, a[2]);
        errno = ENOSYS;
        return no_close_range ? -1 : 0;
    }
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

int unshare(int flags)
{
    note("unshare %d\n", flags == CLONE_FILES);
    errno = EPERM;
    return no_unshare ? -1 : 0;
}

int close(int fd)
{
    if (watch_close && ++closed)
        return 0;
    return (int)syscall(SYS_close, fd);
}

static bool is_secure;

unsigned long getauxval(unsigned long type)
{
    return type == AT_SECURE && is_secure;
}

/* ---- the recorder ------------------------------------------------------------------------------------------------ */

static struct {
    const char *path; /* that cannot be opened; NULL: any */
    bool replace;
    int error;
} refused[4];

STANDIN(int, gp_file_open, const char *path, bool replace)
{
    note("open %s %d\n", path, replace);
    for (unsigned i = 0; i < 4; i++)
        if (refused[i].error && refused[i].replace == replace && (!refused[i].path || !strcmp(refused[i].path, path)))
            return refused[i].error;
    return 55;
}

STANDIN(void, gp_file_drop, const char *path)
{
    note("drop %s\n", path);
}

static struct gp_recorder_setup setup;
static struct gp_recorder_stats stats = {.recorded = 3, .lost = 4};
static int new_error, end_error;
static ssize_t polled;

STANDIN(int, gp_recorder_new, struct gp_recorder **out, int fd, const struct gp_recorder_setup *given)
{
    cr_expect_eq(fd, 55);
    setup = *given;
    *out = (struct gp_recorder *)&setup;
    return new_error;
}

STANDIN(ssize_t, gp_recorder_poll, struct gp_recorder *recorder)
{
    cr_expect_eq(recorder, (struct gp_recorder *)&setup);
    return polled;
}

STANDIN(void, gp_recorder_begin, struct gp_recorder *r)
{
    cr_expect_not_null(r);
}

STANDIN(void, gp_recorder_stats, const struct gp_recorder *recorder, struct gp_recorder_stats *out)
{
    (void)recorder;
    *out = stats;
}

STANDIN(int, gp_recorder_end, struct gp_recorder *recorder, enum gp_format_why why, struct gp_recorder_stats *out)
{
    cr_expect_eq(recorder, (struct gp_recorder *)&setup);
    note("end %d\n", why);
    *out = stats;
    return end_error;
}

static int worker_error;
static bool later; /* the thread does not run yet */
static void *(*worker_main)(void *);

STANDIN(int, gp_worker_start, void *(*main)(void *), const char *name)
{
    cr_expect_str_eq(name, "gpuprof-record");
    worker_main = main;
    if (!worker_error && !later)
        main(NULL);
    return worker_error;
}

static struct {
    struct gp_wire_header header;
    struct gp_wire_chunk chunks[4];
} session;

static unsigned published, appeared;

static void publish(void)
{
    published++;
}

static void appear(void)
{
    appeared++;
}

static char why[96];

static int start(const char *path)
{
    const struct gp_record_setup record = {path, &session.header, publish, appear, NULL, 5000};
    session.header.ring_offset = offsetof(typeof(session), chunks);
    session.header.chunk_count = 4;
    session.header.start_ns = test_now = 100 * SECOND;
    strcpy(why, "nothing");
    step = 0;
    return gp_record_start(&record, why, sizeof(why));
}

static void says(uint32_t state, int error)
{
    cr_expect(session.header.record_state == state && session.header.record_errno == error, "%u %d",
              session.header.record_state, session.header.record_errno);
}

#define EXPECT_NOTES(_text)                                                                                            \
    do {                                                                                                               \
        cr_expect_str_eq(notes, _text, "%s", notes);                                                                   \
        notes[0] = '\0';                                                                                               \
    } while (0)

#define PRIVATE "close_range 0 ffffffff 2\n"

/* ---- a recording ------------------------------------------------------------------------------------------------- */

/* Four chunks have room for 252 events; a 32nd of them is 7. */
static void pauses(unsigned at, uint64_t pause_ns)
{
    static const struct {
        ssize_t polled;
        uint64_t pause;
    } steps[] = {{0, 2 * MS},  {5, 2 * MS},  {0, 4 * MS},  {7, 20 * MS},  {8, 5 * MS},     {0, 10 * MS},
                 {1, 20 * MS}, {0, 40 * MS}, {0, 80 * MS}, {0, 100 * MS}, {-EIO, 100 * MS}};
    cr_assert_lt(at, sizeof(steps) / sizeof(steps[0]));
    cr_expect_eq(pause_ns, steps[at].pause, "%u: %lu", at, pause_ns);
    says(GP_RECORD_ON, at == 7 ? ENOSPC : 0);
    cr_expect(session.header.recorded == 3 + (at == 7) && session.header.record_lost == 4);
    stats.error = at == 6 ? ENOSPC : 0;
    stats.recorded = 3 + (at == 6);
    if (at == 0)
        test_now += SECOND - 1;
    if (at == 1) /* a second has passed since the start */
        test_now++;
    polled = steps[at + 1].polled;
}

static void hang(unsigned at, uint64_t pause_ns)
{
    (void)at;
    test_now += pause_ns;
}

static void pauses_then_hang(unsigned at, uint64_t pause_ns)
{
    if (at == 10)
        script = hang;
    if (at < 10)
        pauses(at, pause_ns);
    else
        gp_record_stop(false);
}

Test(recordthread, pauses_follow_the_events)
{
    script = pauses_then_hang;
    cr_expect_eq(start("a.gpuprof"), 0);
    cr_expect_str_eq(why, "nothing");
    EXPECT_NOTES(PRIVATE "open a.gpuprof 0\nend 1\n");
    cr_expect(setup.from_start && setup.copy_arg == &session.header && setup.header.chunk_count == 4);
    cr_expect_str_eq(setup.proc, "/proc/self");
    cr_expect(setup.rank.rank == -1 && setup.open_module && setup.confined && !setup.measure && !setup.in_file);
    says(GP_RECORD_DONE, 0);
}

/* A known device ends the short pauses. */
static void device_known(unsigned at, uint64_t pause_ns)
{
    static const uint64_t want[] = {2 * MS, 4 * MS, 8 * MS};
    cr_expect_eq(pause_ns, want[at], "%lu", pause_ns);
    if (at == 0) {
        setup.appeared(setup.arg);
        setup.refresh(setup.arg);
    }
    if (at == 2) {
        script = hang;
        gp_record_stop(true);
    }
}

static unsigned open_files(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 1000; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

Test(recordthread, a_device_is_known)
{
    unsigned files = open_files();
    script = device_known;
    cr_expect_eq(start("a.gpuprof"), 0);
    cr_expect_eq(open_files(), files + 4,
                 "of its own: standard input, output, error, and the file that tells of a sandbox");
    cr_expect(appeared == 1 && published == 1);
    EXPECT_NOTES(PRIVATE "open a.gpuprof 0\nend 2\n");
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void stop_and_hang(unsigned at, uint64_t pause_ns)
{
    if (at == 0) {
        cr_expect(!setup.late(setup.arg), "there is no deadline yet");
        gp_record_stop(false);
        says(GP_RECORD_FAILED, ETIMEDOUT);
        cr_expect_eq(session.header.record_lost, 3 + 63 + 100 + 7 - 3);
        cr_expect_eq(test_now, 101 * SECOND);
        return;
    }
    cr_assert_eq(at, 1);
    cr_expect_eq(pause_ns, SECOND, "%lu", pause_ns); /* the rest of the second */
    test_now += SECOND / 2 - 1;
    cr_expect(!setup.late(setup.arg));
    test_now += 1;
    cr_expect(setup.late(setup.arg));
    test_now += SECOND / 2;
}

/* After a second the program goes on; what the ring and the counters say is not in the file is lost. The thread's own
 * numbers replace that. */
Test(recordthread, a_disk_that_hangs)
{
    session.header.lost[GP_LOST_RING] = 3;
    session.chunks[0].state = GP_CHUNK_STATE(5, 0, 63);
    session.chunks[1].written_before = 100;
    session.chunks[3].state = GP_CHUNK_STATE(4, 1, 7);
    script = stop_and_hang;
    stats.lost_error = EDQUOT;
    cr_expect_eq(start("a.gpuprof"), 0);
    says(GP_RECORD_DONE, EDQUOT);
    cr_expect(session.header.recorded == 3 && session.header.record_lost == 4);
    session.header.record_state = 77;
    gp_record_stop(false); /* it has ended */
    cr_expect_eq(session.header.record_state, 77);
}

static void stop_now(unsigned at, uint64_t pause_ns)
{
    (void)at, (void)pause_ns;
    script = hang;
    gp_record_stop(false);
}

Test(recordthread, an_end_that_fails)
{
    script = stop_now;
    end_error = -EIO;
    cr_expect_eq(start("a.gpuprof"), 0);
    says(GP_RECORD_FAILED, EIO);
}

static void die(unsigned at, uint64_t pause_ns)
{
    if (at == 0) {
        stats.dead = true;
        stats.error = EIO;
        return;
    }
    says(GP_RECORD_FAILED, EIO);
    stop_now(at, pause_ns);
}

Test(recordthread, a_file_that_is_given_up)
{
    script = die;
    cr_expect_eq(start("a.gpuprof"), 0);
}

static void stop_in_child(unsigned at, uint64_t pause_ns)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        gp_record_stop(false);
        _exit(session.header.record_state == GP_RECORD_ON && test_now == 100 * SECOND ? 0 : 1);
    }
    waitpid(child, &status, 0);
    cr_expect_eq(status, 0);
    stop_now(at, pause_ns);
}

Test(recordthread, a_child_ends_nothing)
{
    gp_record_stop(false); /* nothing was started */
    script = stop_in_child;
    cr_expect_eq(start("a.gpuprof"), 0);
    says(GP_RECORD_DONE, 0);
}

/* ---- the start --------------------------------------------------------------------------------------------------- */

static void wait_for_file(unsigned at, uint64_t pause_ns)
{
    cr_expect_eq(pause_ns, at ? SECOND : 2 * SECOND, "%lu", pause_ns);
    test_now += SECOND;
}

/* A file that cannot be opened in two seconds does not hold the program up. */
Test(recordthread, a_file_system_that_hangs)
{
    later = true;
    script = wait_for_file;
    cr_expect_eq(start("a.gpuprof"), 0);
    cr_expect_eq(test_now, 102 * SECOND);
    cr_expect_eq(step, 2);
    says(GP_RECORD_OFF, 0);
    script = hang;
    gp_record_stop(false);
    says(GP_RECORD_FAILED, ETIMEDOUT);
    session.header.record_state = GP_RECORD_OFF;
    worker_main(NULL); /* it opens the file, and ends at once */
    says(GP_RECORD_DONE, 0);
}

Test(recordthread, reasons_for_no_recording)
{
    static const struct {
        int error;
        const char *why;
    } cases[] = {{-EEXIST, "the file exists already"},
                 {-ELOOP, "the file is a link, which is not followed"},
                 {-ENXIO, "no process reads this pipe"},
                 {-EPERM, "Operation not permitted"},
                 {-EROFS, "Read-only file system"}};
    char want[128];
    for (unsigned i = 0; i < 5; i++) {
        notes[0] = '\0';
        refused[0].error = cases[i].error;
        cr_expect_eq(start("a.gpuprof"), cases[i].error);
        snprintf(want, sizeof(want), "a.gpuprof: %s", cases[i].why);
        if (i == 0) /* every name */
            snprintf(want, sizeof(want), "a.%d.1000.gpuprof: %s", (int)getpid(), cases[i].why);
        cr_expect_str_eq(why, want);
        says(GP_RECORD_FAILED, -cases[i].error);
    }
    notes[0] = '\0';
    refused[0].error = 0;
    new_error = -ENOSPC;
    cr_expect_eq(start("a.gpuprof"), -ENOSPC);
    EXPECT_NOTES(PRIVATE "open a.gpuprof 0\ndrop a.gpuprof\n");
    new_error = 0;
    worker_error = -EAGAIN;
    cr_expect_eq(start("a.gpuprof"), -EAGAIN);
    EXPECT_NOTES("");
    worker_error = 0;
    is_secure = true;
    cr_expect_eq(start("b.gpuprof"), -EPERM);
    cr_expect_not_null(strstr(why, ": a program with the rights of another user is not recorded"));
    EXPECT_NOTES("");
    is_secure = false;
    cr_expect_eq(start(""), -EINVAL);
    says(GP_RECORD_FAILED, EINVAL);
}

Test(recordthread, names_have_the_rank)
{
    setenv("RANK", "3", 1);
    setenv("LOCAL_RANK", "1", 1);
    setenv("WORLD_SIZE", "8", 1);
    script = stop_now;
    cr_expect_eq(start("a.gpuprof"), 0);
    EXPECT_NOTES(PRIVATE "open a.rank3.gpuprof 0\nend 1\n");
    cr_expect(setup.rank.rank == 3 && setup.rank.local == 1 && setup.rank.world == 8);
}

/* What is there stays, a recording of an earlier run too: this one gets another name. */
Test(recordthread, a_file_that_is_there)
{
    char path[] = "/tmp/gpuprof-test-thread-XXXXXX", want[512];
    struct gp_format_head head = {.begin_unix_ns = 4999, .magic = GP_RECORD_MAGIC};
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, &head, sizeof(head)), (ssize_t)sizeof(head));
    close(fd);
    for (unsigned i = 0; i < 4; i++) {
        notes[0] = '\0';
        refused[0].path = path;
        refused[0].error = -EEXIST;
        script = stop_now;
        cr_expect_eq(start(path), 0);
        snprintf(want, sizeof(want), PRIVATE "open %s 0\nopen %s.%d 0\nend 1\n", path, path, (int)getpid());
        EXPECT_NOTES(want);
    }
    int lowest = open("/dev/null", O_RDONLY);
    cr_expect_lt(lowest, 64, "no descriptor was left open"); /* four are, in each start, of the thread's own */
    unlink(path);
}

/* An older kernel: the table of descriptors is made private and emptied one by one. */
Test(recordthread, an_older_kernel)
{
    struct rlimit limit;
    char want[128];
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 300;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    no_close_range = watch_close = true;
    script = stop_now;
    int error = start("a.gpuprof");
    watch_close = false;
    cr_expect_eq(error, 0);
    cr_expect_eq(closed, 301, "%u, with that of a low number for the file that tells of a sandbox", closed);
    EXPECT_NOTES(PRIVATE "unshare 1\nopen a.gpuprof 0\nend 1\n");
    no_unshare = true;
    cr_expect_eq(start("a.gpuprof"), -EPERM);
    snprintf(want, sizeof(want), "a.gpuprof: Operation not permitted");
    cr_expect_str_eq(why, want);
    EXPECT_NOTES(PRIVATE "unshare 1\n");
}

/* The session is copied word by word. */
Test(recordthread, copies_of_the_session)
{
    uint64_t words[3] = {0, 0, 77};
    script = stop_now;
    cr_expect_eq(start("a.gpuprof"), 0);
    session.header.publish_seq = 5;
    session.header.publish_ns = 6;
    cr_expect_eq(setup.copy(setup.copy_arg, words, 16, offsetof(struct gp_wire_header, publish_seq)), 0);
    cr_expect(words[0] == 5 && words[1] == 6 && words[2] == 77);
}
