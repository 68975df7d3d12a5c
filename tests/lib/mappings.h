/* SPDX-License-Identifier: MIT
 *
 * mappings.h: the memory that the product maps: counted, and refused when a test wants it.
 */
#ifndef GP_TEST_LIB_MAPPINGS_H
#define GP_TEST_LIB_MAPPINGS_H

#include "lib/standin.h"
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>

static struct {
    unsigned fail;     /* the how manieth mapping from now on fails; 0: none */
    size_t fail_bytes; /* so do all of this size; 0: none */
    bool fail_all;
    unsigned made, undone;    /* calls; a failed one is made too */
    long long bytes, highest; /* mapped now, and at most */
    int flags;                /* of the last one */
} mappings;

static inline bool mappings_refuse(size_t bytes)
{
    mappings.made++;
    if (!mappings.fail_all && bytes != mappings.fail_bytes && (!mappings.fail || --mappings.fail != 0))
        return false;
    errno = ENOMEM;
    return true;
}

static inline void mappings_add(long long bytes)
{
    mappings.bytes += bytes;
    mappings.highest = mappings.bytes > mappings.highest ? mappings.bytes : mappings.highest;
}

STANDIN(void *, mmap, void *at, size_t bytes, int access, int flags, int fd, off_t offset)
{
    if (mappings_refuse(bytes))
        return MAP_FAILED;
    mappings_add((long long)bytes);
    mappings.flags = flags;
    return __real_mmap(at, bytes, access, flags, fd, offset);
}

STANDIN(int, munmap, void *at, size_t bytes)
{
    mappings.undone++;
    mappings.bytes -= (long long)bytes;
    return __real_munmap(at, bytes);
}

#endif
