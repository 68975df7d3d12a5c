/* SPDX-License-Identifier: MIT
 *
 * test_record_file.c: the writer of recordings (core/record/file.c) on a disk that fills up and under system calls that
 * fail: which space it keeps, what it leaves in the file, and that it can always end.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <lib/recdump.h>
#include <record/file.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

TestSuite(record_file, .timeout = 60);

#define HEAD 64
#define KEPT (64u << 10)
#define STEP (256u << 10)

/* ---- system calls ------------------------------------------------------------------------------------------------ */

static bool watched;        /* the calls are noted */
static char calls[1 << 16]; /* "write 64\n" and so on */
static uint64_t disk;       /* bytes that a file can have; 0: any number */
static struct {
    const char *call;
    unsigned number; /* the call that fails: 1 the next one */
    int error;       /* for write -1: only half is written */
} fails[3];

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...)
{
    size_t used = strlen(calls);
    va_list args;
    va_start(args, format);
    if (watched)
        vsnprintf(calls + used, sizeof(calls) - used, format, args);
    va_end(args);
}

/* The error of this call; 0: none. */
static int failing(const char *call)
{
    for (unsigned i = 0; i < 3; i++)
        if (fails[i].number && strcmp(fails[i].call, call) == 0)
            return --fails[i].number == 0 ? fails[i].error : 0;
    return 0;
}

static void fail(unsigned i, const char *call, unsigned number, int error)
{
    fails[i].call = call;
    fails[i].number = number;
    fails[i].error = error;
}

static int answer(const char *call, long real)
{
    int error = failing(call);
    if (error)
        errno = error;
    return error ? -1 : (int)real;
}

int fallocate(int fd, int mode, off_t at, off_t bytes)
{
    note("fallocate %d %ld+%ld\n", mode, (long)at, (long)bytes);
    if (disk && (uint64_t)(at + bytes) > disk) {
        errno = ENOSPC;
        return -1;
    }
    (void)fd;
    return answer("fallocate", 0);
}

ssize_t write(int fd, const void *bytes, size_t count)
{
    int error = watched ? failing("write") : 0;
    off_t at = watched ? syscall(SYS_lseek, fd, 0, SEEK_CUR) : 0;
    if (watched && disk && at >= 0 && (uint64_t)at + count > disk)
        error = ENOSPC;
    note(error > 0 ? "write %zu fails\n" : "write %zu\n", count);
    if (error > 0) {
        errno = error;
        return -1;
    }
    return syscall(SYS_write, fd, bytes, error < 0 ? count / 2 : count);
}

int ftruncate(int fd, off_t bytes)
{
    note("truncate %ld\n", (long)bytes);
    int error = failing("truncate");
    errno = error;
    return error ? -1 : (int)syscall(SYS_ftruncate, fd, bytes);
}

off_t lseek(int fd, off_t to, int whence)
{
    int error = failing("seek");
    errno = error;
    return error ? -1 : syscall(SYS_lseek, fd, to, whence);
}

int close(int fd)
{
    int error = failing("close");
    int closed = (int)syscall(SYS_close, fd);
    errno = error;
    return error ? -1 : closed;
}

int flock(int fd, int how)
{
    int error = failing("lock");
    errno = error;
    return error ? -1 : (int)syscall(SYS_flock, fd, how);
}

ssize_t pread(int fd, void *into, size_t bytes, off_t at)
{
    int error = failing("pread");
    errno = error;
    return error ? -1 : syscall(SYS_pread64, fd, into, bytes, at);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static char path[64];

static int file_make(const char *text)
{
    strcpy(path, "/tmp/gpuprof-test-file-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    return fd;
}

static unsigned open_files(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static off_t file_bytes(void)
{
    struct stat status;
    return stat(path, &status) == 0 ? status.st_size : -1;
}

static struct gp_file *begin(void)
{
    struct gp_file *file = NULL;
    int fd = file_make("");
    calls[0] = '\0';
    watched = true;
    cr_assert_eq(gp_file_new(&file, fd, &(struct gp_file_who){.pid = 7, .session_id = {1, 2}, .begin_unix_ns = 99}), 0);
    return file;
}

/* A block of `bytes` bytes that cannot be compressed. */
static int put(struct gp_file *file, enum gp_format_type type, size_t bytes, bool last)
{
    static uint32_t state = 1;
    struct gp_pack *pack = gp_file_pack(file);
    for (size_t i = 0; i < bytes; i++) {
        state = state * 1664525u + 1013904223u;
        uint8_t byte = i ? (uint8_t)(state >> 24) : 0; /* as strings from 0 on */
        gp_pack_raw(pack, &byte, 1);
    }
    return gp_file_block(file, type, (uint32_t)bytes - 1, last);
}

static uint64_t bytes_of(const struct gp_file *file)
{
    struct gp_file_stats stats;
    gp_file_stats(file, &stats);
    return stats.bytes;
}

static void end(struct gp_file *file, int error)
{
    cr_expect_eq(gp_file_end(file), error);
    watched = false;
    memset(fails, 0, sizeof(fails));
    disk = 0;
}

#define EXPECT_CALLS(_text)                                                                                            \
    do {                                                                                                               \
        cr_expect_str_eq(calls, _text, "%s", calls);                                                                   \
        calls[0] = '\0';                                                                                               \
    } while (0)

static void expect_sound(const char *what)
{
    char *all = recdump(path);
    cr_expect(!strstr(all, " bad") && strncmp(all, "bad", 3) != 0, "%s: %s", what, all);
    free(all);
}

static void is_file(const char *word, const char *text)
{
    char *is = recdump_of(path, word);
    cr_expect_str_eq(is, text, "%s", is);
    free(is);
}

/* ---- space ------------------------------------------------------------------------------------------------------- */

/* 64 KiB stay allocated behind the end, and are allocated 256 KiB at a time. The bytes are counted by hand: a block has 32
 * bytes before its payload. */
Test(record_file, space_is_kept_behind_the_end)
{
    struct gp_file *file = begin();
    EXPECT_CALLS("fallocate 1 0+327744\nwrite 64\n"); /* the head, 64 KiB and 256 KiB */
    cr_expect_eq(put(file, GP_BLOCK_STRINGS, STEP - 32, false), 0);
    EXPECT_CALLS("write 262144\n"); /* 64 KiB are left exactly */
    cr_expect_eq(put(file, GP_BLOCK_STRINGS, 1, false), 0);
    EXPECT_CALLS("fallocate 1 262208+327713\nwrite 33\n");
    end(file, 0);
    EXPECT_CALLS("write 96\ntruncate 262337\n"); /* the index: two places of 24 bytes, and a tail of 16 */
    cr_expect_eq(file_bytes(), 262337);
    expect_sound("kept");
    is_file("head", "head 1.6 pid 7 at 99 session 01020000000000000000000000000000\n");
    is_file("INDEX", "INDEX x2 - -\n");
    unlink(path);
}

/* A file system that cannot allocate is written to as it is. */
Test(record_file, a_file_system_that_cannot_allocate)
{
    fail(0, "fallocate", 1, EOPNOTSUPP);
    struct gp_file *file = begin();
    for (unsigned i = 0; i < 3; i++)
        cr_expect_eq(put(file, GP_BLOCK_STRINGS, STEP, false), 0);
    EXPECT_CALLS("fallocate 1 0+327744\nwrite 64\nwrite 262176\nwrite 262176\nwrite 262176\n");
    end(file, 0);
    EXPECT_CALLS("write 120\n"); /* nothing to cut off */
    expect_sound("without");
    unlink(path);
}

/* On a disk of any size: the last bytes are used, then nothing is written until there is room for a whole step, and the
 * last blocks fit into what is kept. */
Test(record_file, a_disk_of_any_size)
{
    for (uint64_t size = HEAD + KEPT; size < HEAD + KEPT + STEP + 40000; size += size % 3 ? 30011 : 30010) {
        disk = size;
        struct gp_file *file = begin();
        uint64_t before = 0;
        for (unsigned i = 0; i < 60; i++) {
            uint64_t was = bytes_of(file);
            int error = put(file, GP_BLOCK_STRINGS, 8000, false);
            bool fits = was + 8032 + KEPT <= size;
            cr_expect_eq(error, fits ? 0 : -ENOSPC, "%lu of %lu", was, size);
            before = bytes_of(file);
        }
        /* Now there is more, but not enough for a step. */
        disk = before + 132 + KEPT + STEP - 1;
        cr_expect_eq(put(file, GP_BLOCK_STRINGS, 100, false), -ENOSPC, "%lu", size);
        cr_expect_eq(put(file, GP_BLOCK_STRINGS, 100, true), 0, "the space that is kept");
        disk = before + 132 + 132 + KEPT + STEP;
        cr_expect_eq(put(file, GP_BLOCK_STRINGS, 100, false), 0, "%lu", size);
        disk = size;
        cr_expect_eq(put(file, GP_BLOCK_STRINGS, 100, true), 0, "%lu", size);
        end(file, 0);
        expect_sound("any size");
        unlink(path);
    }
}

/* The last blocks share what is kept: 8 KiB of it are for the end and the index alone. */
Test(record_file, what_is_kept_is_for_the_end)
{
    disk = HEAD + KEPT;
    struct gp_file *file = begin();
    cr_expect_eq(put(file, GP_BLOCK_SITES, 100, false), -ENOSPC);
    cr_expect_eq(put(file, GP_BLOCK_SITES, KEPT - (8 << 10) - 32 + 1, true), -ENOSPC);
    cr_expect_eq(put(file, GP_BLOCK_SITES, KEPT - (8 << 10) - 32, true), 0);
    cr_expect_eq(put(file, GP_BLOCK_SITES, 1, true), -ENOSPC);
    cr_expect_eq(put(file, GP_BLOCK_END, (8 << 10) - 32 - 96 + 1, false), -ENOSPC);
    cr_expect_eq(put(file, GP_BLOCK_END, (8 << 10) - 32 - 96, true), 0);
    end(file, 0);
    cr_expect_eq(file_bytes(), HEAD + KEPT); /* with an index of 32 + 2 * 24 + 16 bytes */
    char *index = recdump_of(path, "INDEX");
    cr_expect_str_eq(index, "INDEX x2 - -\n");
    free(index);
    unlink(path);
}

Test(record_file, an_end_that_does_not_fit)
{
    disk = HEAD + KEPT;
    struct gp_file *file = begin();
    cr_expect_eq(put(file, GP_BLOCK_SITES, KEPT - (8 << 10) - 32, true), 0);
    cr_expect_eq(put(file, GP_BLOCK_END, (8 << 10) - 32 + 1, true), -ENOSPC);
    cr_expect_eq(put(file, GP_BLOCK_END, (8 << 10) - 32, true), 0);
    end(file, 0); /* without an index */
    cr_expect_eq(file_bytes(), HEAD + KEPT);
    is_file("INDEX", "");
    unlink(path);
}

Test(record_file, a_disk_that_is_full_from_the_start)
{
    unsigned files = open_files();
    disk = HEAD + KEPT - 1;
    struct gp_file *file = NULL;
    watched = true;
    cr_expect_eq(gp_file_new(&file, file_make(""), &(struct gp_file_who){.pid = 7}), -ENOSPC);
    watched = false;
    cr_expect_eq(open_files(), files);
    cr_expect_null(file);
    cr_expect_eq(file_bytes(), 0);
    unlink(path);
}

/* ---- writes ------------------------------------------------------------------------------------------------------ */

/* Writes that are cut short or interrupted go on; a block of which a part was written is taken back. */
Test(record_file, writes_that_end_early)
{
    struct gp_file_stats stats;
    struct gp_file *file = begin();
    calls[0] = '\0';
    fail(0, "write", 1, -1);
    fail(1, "write", 0, 0);
    cr_expect_eq(put(file, GP_BLOCK_STRINGS, 968, false), 0);
    EXPECT_CALLS("write 1000\nwrite 500\n");
    fail(0, "write", 1, EINTR);
    cr_expect_eq(put(file, GP_BLOCK_STRINGS, 968, false), 0);
    EXPECT_CALLS("write 1000 fails\nwrite 1000\n");
    static const int errors[] = {ENOSPC, EDQUOT, EFBIG};
    for (unsigned i = 0; i < 3; i++) {
        fail(0, "write", 1, errors[i]);
        cr_expect_eq(put(file, GP_BLOCK_STRINGS, 968, false), -errors[i]);
        gp_file_stats(file, &stats);
        cr_expect(!stats.dead && stats.error == errors[i] && stats.bytes == 2064);
        EXPECT_CALLS("write 1000 fails\n");
    }
    cr_expect_eq(put(file, GP_BLOCK_STRINGS, 968, false), 0);
    gp_file_stats(file, &stats);
    cr_expect(stats.error == 0 && stats.bytes == 3064 && stats.packed_of == 3 * 968);
    end(file, 0);
    expect_sound("early");
    unlink(path);
}

/* Half of a block is written, and then nothing. It can be taken back, unless the file cannot be cut or turned back. */
Test(record_file, half_a_block)
{
    static const char *const other[] = {NULL, "truncate", "seek"};
    for (unsigned way = 0; way < 3; way++)
        for (int passes = 0; passes < 2; passes++) {
            struct gp_file_stats stats;
            struct gp_file *file = begin();
            cr_expect_eq(put(file, GP_BLOCK_STRINGS, 968, false), 0);
            calls[0] = '\0';
            fail(0, "write", 1, -1);
            fail(1, "write", 1, passes ? ENOSPC : EIO);
            if (other[way])
                fail(2, other[way], 1, EIO);
            cr_expect_eq(put(file, GP_BLOCK_STRINGS, 968, false), passes ? -ENOSPC : -EIO);
            EXPECT_CALLS("write 1000\nwrite 500 fails\ntruncate 1064\n");
            gp_file_stats(file, &stats);
            cr_expect_eq(stats.dead, way || !passes, "way %u", way);
            cr_expect(stats.bytes == 1064 && stats.error == (passes ? ENOSPC : EIO));
            int error = put(file, GP_BLOCK_STRINGS, 968, true);
            cr_expect_eq(error, !stats.dead ? 0 : passes ? -ENOSPC : -EIO);
            end(file, stats.dead && !passes ? -EIO : 0);
            if (!stats.dead)
                expect_sound("half");
            unlink(path);
        }
}

/* What does not fit into a block is refused and not written. */
Test(record_file, a_block_that_is_too_large)
{
    struct gp_file *file = begin();
    calls[0] = '\0';
    cr_expect_eq(put(file, GP_BLOCK_STRINGS, GP_FORMAT_BLOCK_BYTES + 1, false), -E2BIG);
    EXPECT_CALLS("");
    cr_expect_eq(put(file, GP_BLOCK_STRINGS, GP_FORMAT_BLOCK_BYTES, false), 0);
    cr_expect_eq(bytes_of(file), HEAD + 32 + GP_FORMAT_BLOCK_BYTES);
    end(file, 0);
    expect_sound("large");
    unlink(path);
}

static void add(struct gp_file *file, uint64_t time_ns, unsigned count, enum gp_format_type type)
{
    struct gp_wire_event event = {.type = GP_EVENT_ALLOC, .kind = 1, .bytes = 5, .requested_bytes = 5};
    for (unsigned i = 0; i < count; i++) {
        event.time_ns = time_ns + i;
        gp_file_add(file, &event, type);
    }
    gp_file_flush(file, type);
}

/* Events that were given up: the first reason, its time, and how many events the file had then. */
Test(record_file, events_that_are_given_up)
{
    struct gp_file_stats stats;
    struct gp_file *file = begin();
    add(file, 500, 5, GP_BLOCK_BASELINE);
    add(file, 600, 7, GP_BLOCK_EVENTS);
    gp_file_flush(file, GP_BLOCK_EVENTS); /* nothing */
    fail(0, "write", 1, ENOSPC);
    add(file, 700, 3, GP_BLOCK_EVENTS);
    fail(0, "write", 1, EFBIG);
    add(file, 800, 2, GP_BLOCK_EVENTS);
    add(file, 900, 1, GP_BLOCK_EVENTS);
    gp_file_stats(file, &stats);
    cr_expect(stats.baseline == 5 && stats.events == 8 && stats.given_up == 5);
    cr_expect(stats.lost_error == ENOSPC && stats.lost_ns == 700 && stats.lost_after == 7 && stats.error == 0);
    fail(0, "write", 1, EIO);
    add(file, 1000, 1, GP_BLOCK_EVENTS);
    calls[0] = '\0';
    add(file, 1100, 4, GP_BLOCK_BASELINE); /* it is dead */
    EXPECT_CALLS("");
    gp_file_stats(file, &stats);
    cr_expect(stats.dead && stats.given_up == 10 && stats.lost_error == ENOSPC && stats.lost_ns == 700);
    end(file, -EIO);
    is_file("EVENTS", "EVENTS x7 600 600 606\nEVENTS x1 900 900 900\n");
    is_file("BASELINE", "BASELINE x5 500 500 504\n");
    unlink(path);
    file = begin();
    add(file, 600, 7, GP_BLOCK_BASELINE);
    add(file, 300, 7, GP_BLOCK_EVENTS);
    end(file, 0);
    is_file("INDEX", "INDEX x2 600 300\n");
    unlink(path);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

Test(record_file, errors_at_the_end)
{
    static const struct {
        const char *call;
        int error, result;
    } cases[] = {{"truncate", EIO, -EIO},  {"close", EIO, -EIO},       {"close", EINTR, 0},  {"write", ENOSPC, 0},
                 {"write", EDQUOT, 0},     {"write", EFBIG, 0},        {"write", EIO, -EIO}, {"close", ENOSPC, -ENOSPC},
                 {"write", EPIPE, -EPIPE}, {"truncate", EINTR, -EINTR}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        unsigned files = open_files();
        struct gp_file *file = begin();
        cr_expect_eq(put(file, GP_BLOCK_STRINGS, 100, false), 0);
        fail(0, cases[i].call, 1, cases[i].error);
        fail(1, cases[i].call[0] == 'w' ? "close" : "", 1, ENXIO); /* the first error counts */
        if (cases[i].result == 0)
            fails[1].number = 0;
        end(file, cases[i].result);
        cr_expect_eq(open_files(), files);
        unlink(path);
    }
}

/* ---- resuming ---------------------------------------------------------------------------------------------------- */

/* What follows the last sound block is cut off, whatever it is, and the sequence goes on. */
Test(record_file, a_file_that_was_cut_is_continued)
{
    for (unsigned cut = 0; cut < 240; cut += 7) {
        struct gp_file *file = begin();
        cr_expect_eq(put(file, GP_BLOCK_STRINGS, 100, false), 0);
        cr_expect_eq(put(file, GP_BLOCK_STRINGS, 68, false), 0);
        end(file, 0);
        cr_expect_eq(truncate(path, HEAD + 132 + 100 + 96 - cut), 0);
        cr_expect_eq(gp_file_resume(&file, open(path, O_RDWR)), 0);
        unsigned blocks = cut == 0 ? 3 : cut <= 96 ? 2 : cut <= 196 ? 1 : 0;
        cr_expect_eq(bytes_of(file), blocks == 3 ? 392 : blocks == 2 ? 296 : blocks == 1 ? 196 : 64, "%u", cut);
        cr_expect_eq(put(file, GP_BLOCK_STRINGS, 10, false), 0);
        end(file, 0);
        char *all = recdump(path);
        unsigned lines = 0;
        for (char *at = all; (at = strchr(at, '\n')); at++)
            lines++;
        cr_expect_eq(lines, blocks + 2, "%u: %s", cut, all);
        cr_expect_null(strstr(all, "bad"), "%s", all);
        free(all);
        unlink(path);
    }
}

/* A block whose mark, length or bytes are wrong ends it. */
Test(record_file, a_damaged_block_ends_what_is_continued)
{
    static const unsigned places[] = {0, 3, 8, 11, 20, 28, 31, 32, 60, 131};
    for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct gp_file *file = begin();
        for (unsigned k = 0; k < 3; k++)
            cr_expect_eq(put(file, GP_BLOCK_STRINGS, 100, false), 0);
        end(file, 0);
        int fd = open(path, O_RDWR);
        uint8_t byte = 0;
        cr_expect_eq(pread(fd, &byte, 1, HEAD + 132 + places[i]), 1);
        byte ^= 0x41;
        cr_expect_eq(pwrite(fd, &byte, 1, HEAD + 132 + places[i]), 1);
        cr_expect_eq(gp_file_resume(&file, fd), 0);
        cr_expect_eq(bytes_of(file), HEAD + 132, "%u", places[i]);
        end(file, 0);
        cr_expect_eq(file_bytes(), HEAD + 132);
        unlink(path);
    }
}

Test(record_file, a_file_of_another_version_is_not_continued)
{
    static const struct {
        unsigned place; /* of the byte that is another; 99: the call fails */
        const char *call;
        int error;
    } cases[] = {{0, NULL, -EPROTO},  {7, NULL, -EPROTO},     {12, NULL, -EPROTO},    {14, NULL, -EPROTO},
                 {16, NULL, -EPROTO}, {99, "pread", -EPROTO}, {99, "truncate", -EIO}, {99, "seek", -EIO},
                 {99, "lock", -EIO},  {99, NULL, 0}};
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gp_file *file = begin();
        end(file, 0);
        unsigned files = open_files();
        int fd = open(path, O_RDWR);
        uint8_t byte = 0;
        if (cases[i].place != 99) {
            cr_expect_eq(pread(fd, &byte, 1, cases[i].place), 1);
            byte++;
            cr_expect_eq(pwrite(fd, &byte, 1, cases[i].place), 1);
        } else if (cases[i].call) {
            fail(0, cases[i].call, 1, EIO);
        }
        file = NULL;
        cr_expect_eq(gp_file_resume(&file, fd), cases[i].error, "%u", i);
        cr_expect_eq(file != NULL, cases[i].error == 0);
        if (file)
            end(file, 0);
        cr_expect_eq(open_files(), files, "%u", i);
        unlink(path);
    }
}

Test(record_file, nobody_wants_the_file_in_dev_null)
{
    int fd = gp_file_open("/dev/null", false);
    cr_assert(fd >= 0, "%d", fd);
    close(fd);
}
