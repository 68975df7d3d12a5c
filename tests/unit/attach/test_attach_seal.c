/* SPDX-License-Identifier: MIT
 *
 * test_attach_seal.c: which memory file of a process is written to; it is sealed as soon as the kernel no
 * longer holds a page of it.
 */
#include <attach/inject.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* A memory file with a page that a pipe holds. */
static int file_held(int pipes[2])
{
    int fd = memfd_create("gpuprof-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert(fd >= 0 && pipe(pipes) == 0 && ftruncate(fd, 4096) == 0);
    void *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    cr_assert_neq(page, MAP_FAILED);
    const struct iovec part = {page, 4096};
    cr_assert_eq(vmsplice(pipes[1], &part, 1, 0), 4096);
    munmap(page, 4096);
    return fd;
}

static void *let_go_later(void *arg)
{
    const int *pipes = arg;
    usleep(400000); /* the kernel itself waits for less */
    close(pipes[0]);
    close(pipes[1]);
    return NULL;
}

Test(attach_seal, waits_for_a_page_that_is_held)
{
    int pipes[2], fd = file_held(pipes);
    pthread_t thread;
    cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    cr_assert_eq(errno, EBUSY);
    cr_assert_eq(pthread_create(&thread, NULL, let_go_later, pipes), 0);
    cr_expect_eq(gp_attach_seal(fd), 0);
    cr_expect_eq(fcntl(fd, F_GET_SEALS), F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
    pthread_join(thread, NULL);
    close(fd);
}

Test(attach_seal, ends_for_every_other_reason)
{
    int fd = memfd_create("gpuprof-test", MFD_CLOEXEC); /* cannot be sealed */
    cr_assert(fd >= 0);
    cr_expect_eq(gp_attach_seal(fd), -EPERM);
    close(fd);
}

/* ---- which file -------------------------------------------------------------------------------------------------- */

#define NAME "gpuprof/libgpuprof.so"

static int opened(int fd, uid_t owner)
{
    int proc = open("/proc/self", O_PATH | O_DIRECTORY | O_CLOEXEC), rc = gp_attach_memory(proc, fd, NAME, owner);
    if (rc >= 0) {
        cr_expect_eq(write(rc, "x", 1), 1);
        close(rc);
    }
    close(proc);
    return rc >= 0 ? 0 : rc;
}

static int made(const char *name)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert_geq(fd, 0);
    return fd;
}

/* The same file, open for reading alone, as a process has memory that another one shares with it. */
static int read_only(int fd)
{
    char self[32];
    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    int other = open(self, O_RDONLY | O_CLOEXEC);
    cr_assert_geq(other, 0);
    return other;
}

Test(attach_seal, only_the_file_that_the_worker_made_is_written)
{
    uid_t me = geteuid();
    int fd = made(NAME), other = read_only(fd);
    cr_expect_eq(opened(other, me), -ENOENT, "read only");
    cr_expect_eq(opened(fd, me + 1), -EPERM, "somebody else's");
    cr_expect_eq(opened(fd, me), 0);
    cr_expect_eq(opened(fd, me), -EPERM, "it has contents");
    close(other), close(fd);
    fd = made("gpuprof-other");
    cr_expect_eq(opened(fd, me), -EPERM, "another name");
    close(fd);
    fd = made(NAME);
    cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    cr_expect_eq(opened(fd, me), -EPERM, "sealed");
    close(fd);
    fd = memfd_create(NAME, MFD_CLOEXEC); /* F_SEAL_SEAL */
    cr_expect_eq(opened(fd, me), -EPERM);
    close(fd);
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    cr_expect_eq(opened(fd, me), -ENOENT);
    close(fd);
    cr_expect_eq(opened(12345, me), -ENOENT);
}
