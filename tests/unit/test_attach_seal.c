/* SPDX-License-Identifier: MIT
 *
 * test_attach_seal.c: a memory file is sealed as soon as the kernel no longer holds a page of it.
 */
#define _GNU_SOURCE /* memfd_create, vmsplice */
#include <attach/internal.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/uio.h>
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
