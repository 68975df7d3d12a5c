/* SPDX-License-Identifier: MIT
 *
 * python_copy.c: has the kernel copy memory that may be freed while it is read.
 *
 * The copied bytes are valid only if shutdown had not begun when the copy ended. So that is checked
 * after each call, before any address out of the copy is followed.
 */
#include "base/compiler.h"
#include "base/sandbox.h"
#include "stack/python.h"
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

/* A divisor of the page size: a block is either mapped completely or not at all. */
#define GP_PYTHON_BLOCK 512u

void gp_python_copies_start(struct gp_python_copies *copies, int pid, int (*finalizing)(void))
{
    copies->finalizing = finalizing;
    copies->pid = pid;
    copies->ended = false;
    copies->ranges = 0;
    copies->used = 0;
}

static long python_read(const struct gp_python_copies *copies, uint32_t at, uint32_t bytes, const struct iovec *there,
                        unsigned count)
{
    int saved = errno;
    if (gp_sandboxed()) {
        gp_python_note_set("Python frames of threads that do not hold the GIL are missing since the program entered a "
                           "seccomp sandbox");
        return -1;
    }
    struct iovec here = {.iov_base = (void *)(uintptr_t)(copies->bytes + at), .iov_len = bytes};
    long n = process_vm_readv(copies->pid, &here, 1, there, count, 0);
    if (n < 0 && (errno == EPERM || errno == ENOSYS))
        gp_python_note_set(
            "Python frames of threads that do not hold the GIL are missing: this process may not use process_vm_readv");
    errno = saved;
    return n;
}

unsigned gp_python_fetch(struct gp_python_copies *copies, const struct gp_python_range *want, unsigned count)
{
    struct iovec there[GP_PYTHON_RANGES];
    uint32_t bytes = 0;
    if (copies->ended || count > GP_PYTHON_RANGES)
        return 0;
    for (unsigned i = 0; i < count; i++) {
        there[i] = (struct iovec){.iov_base = (void *)(uintptr_t)want[i].from, .iov_len = want[i].bytes};
        bytes += want[i].bytes;
    }
    if (bytes > GP_PYTHON_COPIED)
        return 0;
    if (copies->ranges + count > GP_PYTHON_RANGES || copies->used + bytes > GP_PYTHON_COPIED)
        copies->ranges = copies->used = 0;
    long n = python_read(copies, copies->used, bytes, there, count);
    /* The flag is read after the bytes; the interpreter sets it before it frees the first of
     * them. */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (copies->finalizing()) {
        copies->ended = true;
        return 0;
    }
    unsigned whole = 0;
    for (long left = n; whole < count && left >= (long)want[whole].bytes; whole++) {
        left -= (long)want[whole].bytes;
        copies->used += want[whole].bytes;
        copies->range[copies->ranges++] = want[whole];
    }
    return whole;
}

const char *gp_python_copied(const struct gp_python_copies *copies, uint64_t from, size_t bytes)
{
    uint32_t at = 0;
    for (unsigned i = 0; i < copies->ranges; at += copies->range[i++].bytes) {
        uint64_t skip = from - copies->range[i].from;
        if (skip < copies->range[i].bytes && bytes <= copies->range[i].bytes - skip)
            return copies->bytes + at + skip;
    }
    return NULL;
}

GP_COLD bool gp_python_copy(struct gp_python_copies *copies, uint64_t from, void *to, size_t bytes)
{
    const char *found = gp_python_copied(copies, from, bytes);
    if (!found) {
        uint64_t start = from & ~(uint64_t)(GP_PYTHON_BLOCK - 1),
                 end = (from + bytes + GP_PYTHON_BLOCK - 1) & ~(uint64_t)(GP_PYTHON_BLOCK - 1);
        struct gp_python_range want = {.from = start, .bytes = (uint32_t)(end - start)};
        if (bytes > GP_PYTHON_COPIED / 2 || gp_python_fetch(copies, &want, 1) != 1)
            return false;
        found = gp_python_copied(copies, from, bytes);
    }
    if (bytes) /* an empty text has no bytes to point to */
        memcpy(to, found, bytes);
    return true;
}
