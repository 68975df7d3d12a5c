/* SPDX-License-Identifier: MIT
 *
 * test_reserve_file.c: the file of reservations (tools/read/collect/reserve.c): where it lies, who may have written it, and which of
 * its records count.  The records are written here byte by byte.
 */
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <lib/build.h>
#include <lib/standin.h>
#include <read/collect/collect.h>
#include <read/collect/procfs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- a machine with folders of its own --------------------------------------------------------------------------- */

#define USER 4123456u

static char *folder;        /* stands for the root of /run/lock and /tmp */
static bool lock_is_usable; /* /run/lock */
static int create_error;    /* of open with O_CREAT; 0: it works */
static int again_error;     /* of open without it */
static uid_t owner = USER;  /* of every folder */
static bool is_squatted;    /* the folder in /run/lock is another user's */
static int mkdir_error, lstat_error;

static const char *moved(const char *path)
{
    static char to[600];
    if (strncmp(path, "/run/lock/gpuprof-", 18) != 0 && strncmp(path, "/tmp/gpuprof-4123456", 20) != 0 &&
        strncmp(path, "/run/user/4123456/", 18) != 0)
        return path;
    snprintf(to, sizeof(to), "%s/%s", folder, path + 5);
    return to;
}

uid_t geteuid(void)
{
    return USER;
}

int access(const char *path, int mode)
{
    cr_assert(strcmp(path, "/run/lock") == 0 && mode == (W_OK | X_OK), "%s", path);
    return lock_is_usable ? 0 : -1;
}

STANDIN(int, mkdir, const char *path, mode_t mode)
{
    errno = mkdir_error;
    return mkdir_error ? -1 : __real_mkdir(moved(path), mode);
}

STANDIN(int, lstat, const char *restrict path, struct stat *restrict status)
{
    int rc = __real_lstat(moved(path), status);
    status->st_uid = owner + (is_squatted && strncmp(path, "/run/lock/", 10) == 0);
    errno = lstat_error;
    return lstat_error ? -1 : rc;
}

/* Files of this process are that user's. */
STANDIN(int, fstat, int fd, struct stat *status)
{
    int rc = __real_fstat(fd, status);
    status->st_uid = status->st_uid == getuid() ? USER : status->st_uid;
    return rc;
}

STANDIN(int, open, const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    unsigned mode = flags & O_CREAT ? va_arg(list, unsigned) : 0;
    va_end(list);
    size_t length = strlen(path);
    bool ours = length > 5 && strcmp(path + length - 5, "/wait") == 0;
    errno = flags & O_CREAT ? create_error : again_error;
    return ours && errno ? -1 : __real_open(moved(path), flags, mode);
}

static uint64_t later; /* nanoseconds, of the time since the boot */

STANDIN(int, clock_gettime, clockid_t clock, struct timespec *time)
{
    int rc = __real_clock_gettime(clock, time);
    time->tv_sec += clock == CLOCK_BOOTTIME ? (time_t)(later / 1000000000u) : 0;
    return rc;
}

static struct gp_reserve reserve;

static void begin(void)
{
    char path[300];
    folder = build_folder();
    cr_assert(folder);
    snprintf(path, sizeof(path), "%s/lock", folder);
    cr_assert_eq(mkdir(path, 0700), 0);
}

static void end(void)
{
    gp_reserve_close(&reserve);
    build_remove(folder);
}

TestSuite(reserve_file, .init = begin, .fini = end, .timeout = 60);

static int lowest(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
}

static mode_t mode_of(const char *path)
{
    struct stat status;
    cr_assert_eq(stat(path, &status), 0, "%s", path);
    return status.st_mode & 07777;
}

/* ---- where it lies ----------------------------------------------------------------------------------------------- */

Test(reserve_file, the_callers_own_folder)
{
    char path[400];
    for (int usable = 0; usable < 2; usable++)
        for (int again = 0; again < 2; again++) {
            lock_is_usable = usable;
            cr_assert_eq(gp_reserve_open(&reserve, NULL), 0);
            cr_expect_str_eq(reserve.path, usable ? "/run/lock/gpuprof-4123456/wait" : "/tmp/gpuprof-4123456/wait");
            cr_expect(reserve.fd >= 0 && reserve.slot == -1 && !reserve.held);
            snprintf(path, sizeof(path), "%s", moved(reserve.path));
            cr_expect_eq(mode_of(path), 0600);
            *strrchr(path, '/') = '\0';
            cr_expect_eq(mode_of(path), 0700);
            gp_reserve_close(&reserve);
            cr_expect_eq(reserve.fd, -1);
        }
}

Test(reserve_file, a_folder_that_is_not_the_callers)
{
    static const struct {
        mode_t mode;
        uid_t owner;
        int rc;
    } rows[] = {{0700, USER, 0},      {0755, USER, 0},          {0720, USER, -EPERM}, {0702, USER, -EPERM},
                {0722, USER, -EPERM}, {0700, USER + 1, -EPERM}, {0700, 0, -EPERM},    {0744, USER, 0}};
    char path[400];
    int before = lowest();
    snprintf(path, sizeof(path), "%s/gpuprof-4123456", folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        cr_assert_eq(chmod(path, rows[i].mode), 0);
        owner = rows[i].owner;
        cr_expect_eq(gp_reserve_open(&reserve, NULL), rows[i].rc, "%zu", i);
        cr_expect_str_eq(reserve.path, rows[i].rc ? "/tmp/gpuprof-4123456" : "/tmp/gpuprof-4123456/wait");
        gp_reserve_close(&reserve);
        cr_expect_eq(lowest(), before);
    }
    owner = USER;
    char file[420];
    snprintf(file, sizeof(file), "%s/wait", path);
    unlink(file);
    cr_assert_eq(rmdir(path), 0);
    int fd = creat(path, 0600); /* not a folder */
    cr_assert_geq(fd, 0);
    close(fd);
    cr_expect_eq(gp_reserve_open(&reserve, NULL), -EPERM);
    mkdir_error = EACCES;
    cr_expect_eq(gp_reserve_open(&reserve, NULL), -EACCES);
    mkdir_error = EEXIST, lstat_error = ENOENT;
    cr_expect_eq(gp_reserve_open(&reserve, NULL), -ENOENT);
    cr_expect_eq(reserve.fd, -1);
}

Test(reserve_file, a_folder_of_several_users)
{
    char path[400];
    mode_t mask = umask(027);
    cr_assert_eq(gp_reserve_open(&reserve, folder), 0);
    snprintf(path, sizeof(path), "%s/wait", folder);
    cr_expect_str_eq(reserve.path, path);
    cr_expect_eq(mode_of(path), 0666, "each of them may write it");
    cr_expect_eq(umask(mask), 027, "the mask is as before");
    gp_reserve_close(&reserve);
    create_error = EACCES; /* fs.protected_regular */
    cr_expect_eq(gp_reserve_open(&reserve, folder), 0);
    gp_reserve_close(&reserve);
    again_error = EACCES;
    cr_expect_eq(gp_reserve_open(&reserve, folder), -EACCES);
    create_error = EROFS, again_error = 0;
    cr_expect_eq(gp_reserve_open(&reserve, folder), -EROFS);
    create_error = 0;
    int before = lowest();
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_eq(gp_reserve_open(&reserve, folder), -EPERM, "not a file");
    cr_expect_eq(lowest(), before);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(symlink("/dev/null", path), 0);
    cr_expect_eq(gp_reserve_open(&reserve, folder), -ELOOP);
    unlink(path);
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

struct record { /* as reserve.c writes it */
    uint64_t magic;
    int64_t need, had;
    uint64_t until_ns, start_time, begun_ns;
    int32_t pid;
    char uuid[48];
    char rest_[256 - 6 * 8 - 4 - 48];
};
_Static_assert(sizeof(struct record) == 256, "one record");

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

/* That of a program that runs: this one. */
static struct record running(void)
{
    struct gp_proc proc;
    cr_assert_eq(gp_proc_open(&proc, getpid()), 0);
    struct record record = {.magic = 0x3174696177706721ull,
                            .need = 100,
                            .had = 30,
                            .until_ns = now() + (1ull << 45),
                            .start_time = proc.start_time,
                            .begun_ns = now() - 1,
                            .pid = getpid(),
                            .uuid = "GPU-0"};
    gp_proc_close(&proc);
    return record;
}

static void put(unsigned slot, const struct record *record)
{
    cr_assert_eq(pwrite(reserve.fd, record, sizeof(*record), 256 * (off_t)(slot + 1)), 256);
}

static int64_t outstanding(const struct record *record)
{
    put(0, record);
    return gp_reserve_outstanding(&reserve, "GPU-0");
}

Test(reserve_file, which_records_count)
{
    cr_assert_eq(gp_reserve_open(&reserve, folder), 0);
    const struct record good = running();
    cr_expect_eq(outstanding(&good), 70);
    cr_expect_eq(gp_reserve_outstanding(&reserve, "GPU-1"), 0);
    cr_expect_eq(gp_reserve_outstanding(&reserve, "GPU-"), 0);
#define TRY(_change, _wanted)                                                                                          \
    do {                                                                                                               \
        struct record r = good;                                                                                        \
        _change;                                                                                                       \
        cr_expect_eq(outstanding(&r), (_wanted), #_change);                                                            \
    } while (0)
    TRY(r.magic++, 0);
    TRY(r.need = -5, 0);
    TRY(r.had = -5, 100);
    TRY(r.had = 99, 1);
    TRY(r.had = 100, 0);
    TRY(r.had = 101, 0);
    TRY((r.need = (1ll << 60) + 1, r.had = 0), 1ll << 60);
    TRY((r.need = 1ll << 60, r.had = 0), 1ll << 60);
    TRY(r.until_ns = now() - 1, 0);
    TRY(r.begun_ns = now() + (1ull << 40), 0); /* from before a restart of the machine */
    TRY(r.pid = 0, 0);
    TRY(r.pid = -1, 0);
    TRY(r.pid = 0x3fffffff, 0);
    TRY(r.pid = getppid(), 0); /* another program of that number */
    TRY(r.start_time++, 0);
    TRY(memset(r.uuid, 'x', sizeof(r.uuid)), 0);
    struct record longest = good;
    char uuid[48];
    memset(longest.uuid, 'x', sizeof(longest.uuid));
    memset(uuid, 'x', 47), uuid[47] = '\0';
    put(0, &longest);
    cr_expect_eq(gp_reserve_outstanding(&reserve, uuid), 70, "the text is ended");
}

/* A record counts if it is there whole. */
Test(reserve_file, files_of_any_length)
{
    cr_assert_eq(gp_reserve_open(&reserve, folder), 0);
    const struct record good = running();
    for (unsigned slot = 0; slot < 4; slot++)
        put(slot, &good);
    for (off_t bytes = 0; bytes <= 1280; bytes += bytes % 256 == 254                      ? 1
                                                  : bytes % 256 < 2 || bytes % 256 == 255 ? 1
                                                                                          : 126) {
        cr_assert_eq(ftruncate(reserve.fd, 1280), 0);
        for (unsigned slot = 0; slot < 4; slot++)
            put(slot, &good);
        cr_assert_eq(ftruncate(reserve.fd, bytes), 0);
        cr_expect_eq(gp_reserve_outstanding(&reserve, "GPU-0"), bytes < 512 ? 0 : (bytes / 256 - 1) * 70, "%lld",
                     (long long)bytes);
    }
}

/* 1024 places. */
Test(reserve_file, there_is_a_last_place)
{
    cr_assert_eq(gp_reserve_open(&reserve, folder), 0);
    struct record good = running();
    static struct record all[1030];
    for (unsigned i = 0; i < 1030; i++)
        all[i] = good;
    cr_assert_eq(pwrite(reserve.fd, all, sizeof(all), 256), (ssize_t)sizeof(all));
    cr_expect_eq(gp_reserve_outstanding(&reserve, "GPU-0"), 1024 * 70);
    cr_expect_eq(gp_reserve_take(&reserve, "GPU-0", 5, 1000), -ENOSPC);
    cr_expect_eq(reserve.slot, -1);
    good.had = good.need;
    put(1023, &good);
    cr_assert_eq(gp_reserve_take(&reserve, "GPU-0", 5, 1ull << 40), 0);
    cr_expect_eq(reserve.slot, 1023);
    cr_expect_eq(gp_reserve_outstanding(&reserve, "GPU-0"), 1023 * 70, "one's own does not count");
}

/* Sums end at 2^63 - 1. */
Test(reserve_file, sums_do_not_overflow)
{
    cr_assert_eq(gp_reserve_open(&reserve, folder), 0);
    struct record good = running();
    good.need = 1ll << 60, good.had = 0;
    for (unsigned slot = 0; slot < 10; slot++) {
        put(slot, &good);
        cr_expect_eq(gp_reserve_outstanding(&reserve, "GPU-0"), slot < 7 ? (slot + 1ll) << 60 : INT64_MAX, "%u", slot);
    }
}

/* What is in the file after each step. */
Test(reserve_file, a_reservation_from_its_begin_to_its_end)
{
    struct record r;
    struct gp_proc proc;
    cr_assert_eq(gp_reserve_open(&reserve, folder), 0);
    cr_assert_eq(gp_proc_open(&proc, getpid()), 0);
    cr_expect(!gp_reserve_update(&reserve, getpid(), 5), "there is none");
    uint64_t early = now();
    cr_assert_eq(gp_reserve_take(&reserve, "GPU-7", 100, 1ull << 40), 0);
    uint64_t late = now();
    cr_assert_eq(pread(reserve.fd, &r, sizeof(r), 256), 256);
    cr_expect(r.need == 100 && r.had == 0 && r.pid == 0 && r.begun_ns >= early && r.begun_ns <= late);
    cr_expect_eq(r.until_ns, r.begun_ns + (1ull << 40));
    cr_expect_str_eq(r.uuid, "GPU-7");
    static const int64_t had[][2] = {{0, 0}, {40, 40}, {30, 40}, {99, 99}};
    for (size_t i = 0; i < GP_COUNT(had); i++) {
        cr_expect(gp_reserve_update(&reserve, i < 2 ? getpid() : 1, had[i][0]));
        cr_assert_eq(pread(reserve.fd, &r, sizeof(r), 256), 256);
        cr_expect(r.had == had[i][1] && r.pid == getpid() && r.start_time == proc.start_time, "%zu", i);
    }
    cr_expect(!gp_reserve_update(&reserve, getpid(), 100), "it has all");
    cr_expect_eq(reserve.slot, -1);
    cr_assert_eq(pread(reserve.fd, &r, sizeof(r), 256), 256);
    static const struct record none;
    cr_expect_eq(memcmp(&r, &none, sizeof(r)), 0);
    for (uint64_t hold = UINT64_MAX - 1; hold; hold++) { /* the last times that there are */
        cr_assert_eq(gp_reserve_take(&reserve, "GPU-7", 100, hold), 0);
        cr_assert_eq(pread(reserve.fd, &r, sizeof(r), 256), 256);
        cr_expect_eq(r.until_ns, UINT64_MAX);
        gp_reserve_end(&reserve);
        gp_reserve_end(&reserve);
    }
    cr_assert_eq(gp_reserve_take(&reserve, "GPU-7", 100, 0), 0);
    cr_expect(!gp_reserve_update(&reserve, getpid(), 5), "its time has passed");
    gp_proc_close(&proc);
}

/* ---- the lock ---------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t stops;

static void on_stop(int number)
{
    (void)number;
    stops++;
}

/* ^Z stops a command before or after a decision, and not with the lock, for which all others wait. */
Test(reserve_file, a_terminal_does_not_stop_a_command_with_the_lock)
{
    static const int signals[] = {SIGTSTP, SIGTTIN, SIGTTOU};
    struct gp_reserve other;
    cr_assert_eq(gp_reserve_open(&other, folder), 0);
    for (int i = 0; i < 3; i++) {
        signal(signals[i], on_stop);
        stops = 0;
        cr_assert_eq(gp_reserve_open(&reserve, folder), 0);
        cr_assert(gp_reserve_lock(&reserve));
        raise(signals[i]);
        cr_expect_eq(stops, 0, "%d", i);
        gp_reserve_unlock(&reserve);
        cr_expect_eq(stops, 1, "%d", i);
        raise(signals[i]);
        cr_expect_eq(stops, 2, "the mask is as before");
        cr_assert(gp_reserve_lock(&reserve));
        cr_assert_not(gp_reserve_lock(&other));
        raise(signals[i]);
        cr_expect_eq(stops, 2, "%d", i);
        gp_reserve_close(&reserve);
        cr_expect_eq(stops, 3, "%d", i);
    }
    gp_reserve_close(&other);
}

/* A place in the file is used again once its record has ended. */
Test(reserve_file, places_are_used_again)
{
    struct gp_reserve handles[5];
    struct stat status;
    for (unsigned i = 0; i < 50; i++) {
        for (unsigned h = 0; h < 5; h++) {
            cr_assert_eq(gp_reserve_open(&handles[h], folder), 0);
            cr_assert_eq(gp_reserve_take(&handles[h], "GPU-0", 10, 1ull << 50), 0);
        }
        for (unsigned h = 0; h < 5; h++) {
            if (i % 2)
                gp_reserve_end(&handles[h]);
            gp_reserve_close(&handles[h]);
        }
    }
    cr_assert_eq(gp_reserve_open(&reserve, folder), 0);
    cr_assert_eq(fstat(reserve.fd, &status), 0);
    cr_expect_eq(status.st_size, (5 + 1) * 256);
}

/* ---- files that are removed -------------------------------------------------------------------------------------- */

static void put_away(void)
{
    char path[400];
    snprintf(path, sizeof(path), "%s", moved(reserve.path));
    cr_assert_eq(unlink(path), 0, "%s", path);
    if (reserve.is_shared) {
        snprintf(path, sizeof(path), "%s/wait-4123456", folder);
        cr_assert_eq(unlink(path), 0, "%s", path);
    }
}

/* The other commands see the reservation again. */
static void removed(const char *in)
{
    struct gp_reserve other;
    lock_is_usable = true;
    int before = lowest();
    cr_assert_eq(gp_reserve_open(&reserve, in), 0);
    cr_expect(gp_reserve_is_new(&reserve));
    cr_assert(gp_reserve_lock(&reserve));
    cr_assert_eq(gp_reserve_take(&reserve, "GPU-0", 70, 1ull << 40), 0);
    gp_reserve_unlock(&reserve);
    put_away();
    cr_assert_eq(gp_reserve_open(&other, in), 0);
    cr_assert(gp_reserve_lock(&other));
    cr_expect(gp_reserve_is_new(&other), "nothing may be decided from it");
    cr_expect_not(gp_reserve_lock(&reserve), "the lock of the new file is held");
    gp_reserve_unlock(&other);
    cr_assert(gp_reserve_lock(&reserve));
    cr_expect_not(gp_reserve_lock(&other), "one lock for both");
    cr_expect_eq(gp_reserve_outstanding(&other, "GPU-0"), 70);
    cr_expect_eq(gp_reserve_outstanding(&reserve, "GPU-0"), 0);
    cr_expect(gp_reserve_update(&reserve, getpid(), 50));
    gp_reserve_unlock(&reserve);
    cr_expect_eq(gp_reserve_outstanding(&other, "GPU-0"), 20);
    usleep(1050000);
    cr_expect_not(gp_reserve_is_new(&other));
    gp_reserve_close(&other);
    gp_reserve_close(&reserve);
    cr_assert_eq(gp_reserve_open(&other, in), 0);
    cr_expect_not(gp_reserve_is_new(&other), "a file that was there");
    gp_reserve_close(&other);
    cr_expect_eq(lowest(), before);
}

Test(reserve_file, the_callers_file_is_removed)
{
    removed(NULL);
}

Test(reserve_file, the_files_of_several_users_are_removed)
{
    removed(folder);
}

/* Another user makes the folder in /run/lock, and removes it again. */
Test(reserve_file, a_folder_that_another_user_took)
{
    char path[400];
    lock_is_usable = is_squatted = true;
    cr_assert_eq(gp_reserve_open(&reserve, NULL), 0);
    cr_expect_str_eq(reserve.path, "/tmp/gpuprof-4123456/wait");
    gp_reserve_close(&reserve);
    snprintf(path, sizeof(path), "%s/user", folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    strcat(path, "/4123456");
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(gp_reserve_open(&reserve, NULL), 0);
    cr_expect_str_eq(reserve.path, "/run/user/4123456/gpuprof/wait");
    cr_assert_eq(gp_reserve_take(&reserve, "GPU-0", 70, 1ull << 40), 0);
    is_squatted = false;
    struct gp_reserve other;
    cr_assert_eq(gp_reserve_open(&other, NULL), 0);
    cr_expect_str_eq(other.path, "/run/lock/gpuprof-4123456/wait");
    cr_assert(gp_reserve_lock(&reserve));
    cr_expect_str_eq(reserve.path, "/run/lock/gpuprof-4123456/wait");
    cr_expect_eq(gp_reserve_outstanding(&other, "GPU-0"), 70);
    gp_reserve_close(&other);
}

/* ---- other users ------------------------------------------------------------------------------------------------- */

/* The bytes that a file of that name and owner with this record reserves. */
static int64_t foreign(const char *name, uid_t file_owner, const struct record *record)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    cr_assert_eq(pwrite(fd, record, sizeof(*record), 256), 256);
    cr_assert_eq(fchown(fd, file_owner, (gid_t)-1), 0);
    close(fd);
    int64_t bytes = gp_reserve_outstanding(&reserve, "GPU-0");
    cr_assert_eq(unlink(path), 0);
    return bytes;
}

/* A user can reserve for programs of that user, and not for ever. */
Test(reserve_file, records_of_another_user)
{
    const uint64_t day = 86400 * 1000000000ull;
    struct gp_proc proc;
    if (getuid() != 0)
        cr_skip_test("needs root");
    cr_assert_eq(gp_reserve_open(&reserve, folder), 0);
    char path[400];
    snprintf(path, sizeof(path), "%s/wait-4123456", folder);
    cr_expect_eq(mode_of(path), 0644, "no other user may write it");
    struct record good = running();
    cr_expect_eq(foreign("wait-64001", 64001, &good), 0, "a process of root's");
    pid_t child = fork();
    if (child == 0) {
        if (setuid(64001) != 0)
            _exit(1);
        for (;;)
            pause();
    }
    do { /* until it has changed its user */
        usleep(1000);
        cr_assert_eq(gp_proc_open(&proc, child), 0);
        gp_proc_close(&proc);
    } while (proc.uid != 64001);
    good.pid = child, good.start_time = proc.start_time;
    cr_expect_eq(foreign("wait-64001", 64001, &good), 70);
    cr_expect_eq(foreign("wait-64001", 64002, &good), 0, "another user's file");
    cr_expect_eq(foreign("wait-64001", 0, &good), 0);
    cr_expect_eq(foreign("wait-64002", 64002, &good), 0, "another user's process");
    cr_expect_eq(foreign("wait-", 64001, &good), 0);
    cr_expect_eq(foreign("wait-64001x", 64001, &good), 0);
    cr_expect_eq(foreign("wait--64001", 64001, &good), 0);
    cr_expect_eq(foreign("wait-4295031297", 64001, &good), 0);
    good.until_ns += 2 * day;
    later = day - 1000000000;
    cr_expect_eq(foreign("wait-64001", 64001, &good), 70);
    later = day;
    cr_expect_eq(foreign("wait-64001", 64001, &good), 0, "it has had a day");
    cr_expect_eq(outstanding(&good), 70, "the own ones end when they say");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* No other user may change the own file: one that another user made is not used. */
Test(reserve_file, an_own_file_that_is_another_users)
{
    char path[400];
    snprintf(path, sizeof(path), "%s/wait-4123456", folder);
    int fd = creat(path, 0666);
    cr_assert(fd >= 0 && fchmod(fd, 0666) == 0);
    cr_expect_eq(gp_reserve_open(&reserve, folder), -EPERM, "others may write it");
    cr_expect_str_eq(reserve.path, path);
    cr_assert_eq(fchmod(fd, 0644), 0);
    cr_expect_eq(gp_reserve_open(&reserve, folder), 0);
    gp_reserve_close(&reserve);
    if (getuid() == 0) {
        cr_assert_eq(fchown(fd, 64001, 64001), 0);
        cr_expect_eq(gp_reserve_open(&reserve, folder), -EPERM);
    }
    close(fd);
}

/* ---- descendants ------------------------------------------------------------------------------------------------- */

Test(reserve_file, descendants)
{
    pid_t me = getpid();
    cr_expect(gp_reserve_descends(me, me));
    cr_expect(getppid() <= 1 || gp_reserve_descends(me, getppid()));
    cr_expect(!gp_reserve_descends(getppid(), me) && !gp_reserve_descends(1, 1) && !gp_reserve_descends(0, 0));
    cr_expect(!gp_reserve_descends(0x3fffffff, me));
    pid_t child = fork();
    if (child == 0) {
        pid_t inner = fork();
        if (inner == 0)
            _exit(gp_reserve_descends(getpid(), me) && gp_reserve_descends(getpid(), getppid()) &&
                          !gp_reserve_descends(me, getpid())
                      ? 0
                      : 1);
        int status;
        waitpid(inner, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
