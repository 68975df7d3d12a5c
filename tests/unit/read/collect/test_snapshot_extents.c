/* SPDX-License-Identifier: MIT
 *
 * test_snapshot_extents.c: the reader of a process's extents (tools/read/collect/extents.c) with files that
 * are damaged in every field, and with processes that send wrong answers.
 */
#include <lib/session.h>
#include <read/collect/collect.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/gpuprof.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(pieces, .timeout = 60);

#define COUNT 5
struct layout {
    struct gp_wire_extents head;
    struct gp_wire_extent pieces[COUNT];
};

static struct layout sound(void)
{
    const struct gp_wire_extent piece = {.kind = GP_KIND_LINEAR, .device = 1};
    struct layout file = {.head = {.magic = GP_WIRE_MAGIC,
                                   .count = COUNT,
                                   .begin_ns = 10,
                                   .end_ns = 20,
                                   .piece_bytes = sizeof(struct gp_wire_extent)}};
    for (int i = 0; i < COUNT; i++)
        file.pieces[i] = piece;
    file.pieces[0].what = GP_EXTENT_SEGMENT;
    file.pieces[0].address = 0x1000;
    file.pieces[0].bytes = 0x3000;
    for (int i = 1; i < 4; i++) {
        file.pieces[i].what = GP_EXTENT_BLOCK;
        file.pieces[i].address = (uint64_t)i << 12;
        file.pieces[i].bytes = 0x1000;
    }
    file.pieces[1].requested_bytes = 7;
    file.pieces[1].time_ns = 20;
    file.pieces[2].state = GPUPROF_IDLE;
    file.pieces[3].state = GPUPROF_UNMAPPED;
    file.pieces[4].what = GP_EXTENT_WHOLE;
    file.pieces[4].address = 0x9000;
    file.pieces[4].bytes = 100;
    file.pieces[4].requested_bytes = 100;
    return file;
}

static int read_back(const void *data, size_t count, char *why, size_t why_bytes)
{
    struct gp_extents pieces;
    int fd = memfd_create("t", MFD_CLOEXEC);
    cr_assert_eq(write(fd, data, count), (ssize_t)count);
    int rc = gp_extents_read(&pieces, fd, why, why_bytes);
    if (rc == 0) {
        size_t bytes = count - sizeof(struct gp_wire_extents);
        cr_expect_eq(pieces.count, bytes / sizeof(struct gp_wire_extent));
        cr_expect_eq(memcmp(pieces.pieces, (const char *)data + sizeof(struct gp_wire_extents), bytes), 0);
    } else {
        cr_expect_null(pieces.pieces);
    }
    gp_extents_free(&pieces);
    close(fd);
    return rc;
}

Test(pieces, a_sound_file_is_read)
{
    struct layout file = sound();
    char why[128] = "";
    cr_expect_eq(read_back(&file, sizeof(file), why, sizeof(why)), 0, "%s", why);
    file.head.count = 0;
    cr_expect_eq(read_back(&file, sizeof(file.head), why, sizeof(why)), 0, "%s", why);
}

#define WRONG(_change, _text)                                                                                          \
    do {                                                                                                               \
        struct layout file = sound();                                                                                  \
        struct gp_wire_extent *p = file.pieces;                                                                        \
        char why[128] = "";                                                                                            \
        (void)p;                                                                                                       \
        _change;                                                                                                       \
        cr_expect_eq(read_back(&file, sizeof(file), why, sizeof(why)), -EPROTO, "%s was accepted", #_change);          \
        cr_expect(strstr(why, _text), "%s: '%s' instead of '%s'", #_change, why, _text);                               \
    } while (0)

Test(pieces, every_wrong_field_is_found)
{
    WRONG(file.head.magic++, "version");
    WRONG(file.head.piece_bytes = 56, "version");
    WRONG(file.head.count = 4, "size");
    WRONG(file.head.count = 6, "size");
    WRONG(file.head.count = UINT64_MAX / 64 + 6, "size"); /* 64 times this is the number in the file */
    WRONG(file.head.begin_ns = 21, "end time is before");
    WRONG(p[0].what = GP_EXTENT_BLOCK, "outside a segment");
    WRONG(p[0].what = 3, "range");
    WRONG(p[0].requested_bytes = 1, "fields of a block");
    WRONG(p[0].bytes = 0x4000, "not filled");
    WRONG(p[0].bytes = 0x2000, "outside a segment");
    WRONG(p[0].bytes = 0x2800, "does not follow");
    WRONG(p[0].bytes = UINT64_MAX, "address is out of range");
    WRONG(p[0].address = UINT64_MAX - 4, "address is out of range");
    WRONG(p[1].bytes = 0, "address is out of range");
    WRONG(p[1].address = 0x1001, "does not follow");
    WRONG(p[1].state = 4, "range");
    WRONG(p[1].kind = GP_KINDS, "range");
    WRONG(p[1].kind = GP_KIND_NONE, "range");
    WRONG(p[1].kind = GP_KIND_POOL, "kind or device");
    WRONG(p[1].device = GP_WIRE_DEVICES, "range");
    WRONG(p[1].device = 2, "kind or device");
    WRONG(p[1].requested_bytes = 0x1001, "more bytes requested");
    WRONG(p[1].time_ns = 21, "future");
    WRONG(p[2].requested_bytes = 1, "not live");
    WRONG(p[3].what = GP_EXTENT_SEGMENT, "not filled");
    WRONG(p[4].what = GP_EXTENT_SEGMENT, "fields of a block");
    WRONG(p[4].state = GPUPROF_IDLE, "not live");
    WRONG((p[4].what = GP_EXTENT_SEGMENT, p[4].requested_bytes = 0), "last segment");
}

#define RIGHT(_change)                                                                                                 \
    do {                                                                                                               \
        struct layout file = sound();                                                                                  \
        struct gp_wire_extent *last = &file.pieces[4];                                                                 \
        char why[128] = "";                                                                                            \
        (void)last;                                                                                                    \
        _change;                                                                                                       \
        cr_expect_eq(read_back(&file, sizeof(file), why, sizeof(why)), 0, "%s: %s", #_change, why);                    \
    } while (0)

Test(pieces, numbers_at_their_limits)
{
    RIGHT(last->kind = GP_KINDS - 1);
    RIGHT(last->device = GP_WIRE_DEVICES - 1);
    RIGHT(last->bytes = last->requested_bytes = 1);
    RIGHT((last->address = 0, last->bytes = INT64_MAX));
    WRONG((p[4].address = 0, p[4].bytes = 1ull << 63), "address is out of range");
    RIGHT(last->address = INT64_MAX - 100);
    WRONG(p[4].address = INT64_MAX - 99, "address is out of range");
    WRONG(p[4].requested_bytes = 101, "more bytes requested");
    RIGHT(last->time_ns = 20);
    RIGHT(file.head.begin_ns = 20);
}

/* A megabyte is read at a time; in the last piece one number is wrong. */
Test(pieces, files_of_any_length)
{
    static const uint64_t counts[] = {1, 2, 16383, 16384, 16385, 32768, 32769};
    const uint64_t most = 32769;
    struct gp_wire_extents *head = calloc(1, sizeof(*head) + most * sizeof(struct gp_wire_extent));
    struct gp_wire_extent *all = (struct gp_wire_extent *)(head + 1);
    *head = (struct gp_wire_extents){.magic = GP_WIRE_MAGIC, .end_ns = 1 << 20, .piece_bytes = sizeof(*all)};
    for (uint64_t i = 0; i < most; i++)
        all[i] = (struct gp_wire_extent){.what = GP_EXTENT_WHOLE,
                                         .kind = GP_KIND_LINEAR,
                                         .address = (i + 1) << 12,
                                         .bytes = i + 1,
                                         .requested_bytes = i,
                                         .time_ns = i};
    for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
        char why[128] = "", wanted[100];
        size_t bytes = sizeof(*head) + counts[n] * sizeof(*all);
        head->count = counts[n];
        cr_assert_eq(read_back(head, bytes, why, sizeof(why)), 0, "%s", why);
        all[counts[n] - 1].kind = GP_KIND_NONE;
        snprintf(wanted, sizeof(wanted), "extent %llu: a number is out of range", (unsigned long long)counts[n] - 1);
        cr_expect_eq(read_back(head, bytes, why, sizeof(why)), -EPROTO);
        cr_expect_str_eq(why, wanted);
        all[counts[n] - 1].kind = GP_KIND_LINEAR;
    }
    free(head);
}

/* 2^26 of them: the first one is wrong here. */
Test(pieces, there_is_a_most)
{
    struct gp_wire_extents head = {.magic = GP_WIRE_MAGIC, .end_ns = 1, .piece_bytes = sizeof(struct gp_wire_extent)};
    int fd = memfd_create("t", MFD_CLOEXEC);
    for (uint64_t more = 0; more < 2; more++) {
        struct gp_extents pieces;
        char why[128] = "";
        head.count = (1ull << 26) + more;
        cr_assert_eq(pwrite(fd, &head, sizeof(head), 0), (ssize_t)sizeof(head));
        cr_assert_eq(ftruncate(fd, (off_t)(sizeof(head) + head.count * head.piece_bytes)), 0);
        cr_expect_eq(gp_extents_read(&pieces, fd, why, sizeof(why)), -EPROTO);
        cr_expect_str_eq(why,
                         more ? "its size does not match its number of extents" : "extent 0: a number is out of range");
    }
    close(fd);
}

Test(pieces, every_cut_is_found)
{
    struct layout file = sound();
    for (size_t bytes = 0; bytes < sizeof(file); bytes++)
        cr_expect_eq(read_back(&file, bytes, NULL, 0), -EPROTO, "%zu bytes", bytes);
}

/* The reader returns for any bytes, without an access that the address sanitizer reports. */
Test(pieces, no_change_of_a_byte_does_harm)
{
    struct layout file = sound();
    uint64_t state = 1;
    for (unsigned i = 0; i < 20000; i++) {
        struct layout damaged = file;
        for (unsigned k = 0; k < 1 + i % 4; k++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            ((uint8_t *)&damaged)[(state >> 33) % sizeof(damaged)] = (uint8_t)(state >> 20);
        }
        int rc = read_back(&damaged, sizeof(damaged), NULL, 0);
        cr_assert(rc == 0 || rc == -EPROTO);
    }
}

/* ---- processes that lie ------------------------------------------------------------------------------------------ */

enum lie { HONEST, UNSEALED, OTHER_NAME, NO_DESCRIPTOR, NEGATIVE, A_PIPE, LOOKALIKE, BUSY, FAILS, CONTENT, LIES };

static int opened; /* inotify: reports each time that the lookalike is opened */

/* A pipe that /proc/PID/fd shows with the name of a file of extents: it was deleted, and no other
 * process reaches its file system. */
static int lying_pipe(void)
{
    static const char name[] = "/tmp/memfd:" GP_WIRE_EXTENTS_NAME;
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", "/tmp", "tmpfs", 0, NULL) || mkfifo(name, 0600))
        return -1;
    int fd = open(name, O_RDWR | O_CLOEXEC);
    if (fd < 0 || inotify_add_watch(opened, name, IN_OPEN) < 0 || unlink(name) || umount2("/tmp", MNT_DETACH))
        return -1;
    return fd;
}

static int lying_file(enum lie lie)
{
    struct layout file = sound();
    int pipes[2];
    if (lie == NO_DESCRIPTOR || lie == NEGATIVE)
        return lie == NEGATIVE ? -7 : 900;
    if (lie == A_PIPE)
        return pipe(pipes) == 0 ? pipes[0] : -1;
    if (lie == LOOKALIKE)
        return lying_pipe();
    if (lie == CONTENT)
        file.pieces[2].bytes++;
    int fd = memfd_create(lie == OTHER_NAME ? "gpuprof-piece" : GP_WIRE_EXTENTS_NAME, MFD_ALLOW_SEALING | MFD_CLOEXEC);
    if (write(fd, &file, sizeof(file)) != sizeof(file))
        return -1;
    if (lie != UNSEALED)
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    return fd;
}

/* A child process that answers every request with the wrong file. */
static void lying_process(enum lie lie, int ready)
{
    struct gp_test_session session;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (gp_test_session_make(&session, 64, true) != 0)
        _exit(1);
    gp_test_session_publish(&session);
    session.mailbox->drain_tid = (uint32_t)getpid();
    int fd = lying_file(lie);
    if (write(ready, "r", 1) != 1)
        _exit(1);
    for (;;) {
        for (unsigned i = 0; i < GP_WIRE_SLOTS; i++) {
            struct gp_wire_slot *slot = &session.mailbox->slots[i];
            uint32_t was = GP_SLOT_REQUESTED;
            if (!__atomic_compare_exchange_n(&slot->state, &was, GP_SLOT_SERVING, false, __ATOMIC_ACQUIRE,
                                             __ATOMIC_RELAXED))
                continue;
            slot->result = lie == BUSY ? -EBUSY : lie == FAILS ? -ENOMEM : 0;
            slot->fd = fd;
            __atomic_store_n(&slot->state, GP_SLOT_DONE, __ATOMIC_RELEASE);
            syscall(SYS_futex, &slot->state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        }
        usleep(500);
    }
}

static int take(enum lie lie, char *why, size_t why_bytes)
{
    struct gp_extents pieces;
    int ends[2];
    char byte;
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0)
        lying_process(lie, ends[1]);
    close(ends[1]);
    cr_assert_eq(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    int rc = gp_extents_take(pid, &pieces, 300000000, why, why_bytes);
    if (rc == 0)
        cr_expect_eq(pieces.count, COUNT);
    gp_extents_free(&pieces);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return rc;
}

Test(pieces, a_process_that_lies_is_found_out)
{
    static const int want[LIES] = {
        [HONEST] = 0,         [UNSEALED] = -EPROTO, [OTHER_NAME] = -EPROTO, [NO_DESCRIPTOR] = -EPROTO,
        [NEGATIVE] = -EPROTO, [A_PIPE] = -EPROTO,   [BUSY] = -EBUSY,        [FAILS] = -ENOMEM,
        [CONTENT] = -EPROTO};
    for (enum lie lie = HONEST; lie < LIES; lie++) {
        if (lie == LOOKALIKE)
            continue;
        char why[128] = "";
        int rc = take(lie, why, sizeof(why));
        cr_expect_eq(rc, want[lie], "lie %d: %d (%s)", lie, rc, why);
        cr_expect(rc != -EPROTO || why[0], "lie %d: nothing said", lie);
    }
}

/* Opening a device or a pipe may have effects, and the name proves nothing. */
Test(pieces, a_file_with_the_right_name_is_not_opened_unless_it_is_a_memfd)
{
    char why[128] = "";
    if (geteuid() != 0)
        cr_skip_test("needs a mount namespace");
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
        cr_skip_test("no mounts of its own (in a chroot none can be made private): %s", strerror(errno));
    cr_assert_geq(opened = inotify_init1(IN_NONBLOCK), 0);
    cr_expect_eq(take(LOOKALIKE, why, sizeof(why)), -EPROTO);
    cr_expect(strstr(why, "not a memfd"), "%s", why);
    struct inotify_event event; /* the kernel also reports the end of the watch */
    while (read(opened, &event, sizeof(event)) == sizeof(event))
        cr_expect(!(event.mask & IN_OPEN), "it was opened");
}

Test(pieces, no_process_has_no_pieces)
{
    struct gp_extents pieces;
    cr_expect_eq(gp_extents_take(getpid(), &pieces, 0, NULL, 0), -ESRCH);
    cr_expect_eq(gp_extents_take(0x7ffffff0, &pieces, 0, NULL, 0), -ESRCH);
}
