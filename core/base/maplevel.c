/* SPDX-License-Identifier: MIT
 *
 * maplevel.c: see maplevel.h. Called inside driver callbacks: it must leave errno unchanged, and makes no other system calls than
 * those for memory.
 *
 * Partners: [level.R1] unlock, release, pairs with [level.A1] lock, acquire: a user that takes a level which another one has
 * mapped sees its address.
 */
#include "base/maplevel.h"
#include "base/compiler.h"
#include "base/lock.h"
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEVEL_PAGE (2u << 20) /* a huge one of x86-64, and of other processors with small pages of 4 KiB */

GP_COLD void *gp_maplevel_map(size_t bytes)
{
    int saved = errno;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    errno = saved;
    return memory == MAP_FAILED ? NULL : memory;
}

GP_COLD void gp_maplevel_unmap(void *memory, size_t bytes)
{
    int saved = errno;
    munmap(memory, bytes);
    errno = saved;
}

/* Aligned to huge pages, which the kernel uses if the machine's setting allows them for memory that asks. */
static void *level_map_huge(size_t bytes)
{
    char *memory = gp_maplevel_map(bytes + LEVEL_PAGE);
    if (!memory)
        return NULL;
    size_t before = -(uintptr_t)memory & (LEVEL_PAGE - 1);
    int saved = errno;
    if (before)
        munmap(memory, before);
    munmap(memory + before + bytes, LEVEL_PAGE - before);
    madvise(memory + before, bytes, MADV_HUGEPAGE); /* without them it is on small ones */
    errno = saved;
    return memory + before;
}

static void level_lock(struct gp_maplevel *level)
{
    for (unsigned i = 0; __atomic_exchange_n(&level->x_lock, 1, __ATOMIC_ACQUIRE); i++) /* [level.A1] */
        gp_pause(i);
    GP_TESTPOINT("level.locked");
}

static void level_unlock(struct gp_maplevel *level)
{
    GP_TESTPOINT("level.unlock");
    __atomic_store_n(&level->x_lock, 0, __ATOMIC_RELEASE); /* [level.R1] */
}

GP_COLD bool gp_maplevel_take(struct gp_maplevel *level, size_t bytes)
{
    level_lock(level);
    if (!level->memory)
        level->memory = bytes < GP_MAPLEVEL_HUGE ? gp_maplevel_map(bytes) : level_map_huge(bytes);
    bool taken = level->memory;
    level->users += taken;
    level_unlock(level);
    return taken;
}

GP_COLD void gp_maplevel_give(struct gp_maplevel *level, size_t bytes, void *part, size_t part_bytes)
{
    int saved = errno;
    /* The kernel would round the end up to its pages, which may be larger than 4 KiB, into the part of another user. If
     * this fails, as for locked memory, the part goes with the level. */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (part && bytes < GP_MAPLEVEL_HUGE && !(((uintptr_t)part | part_bytes) & (page - 1)))
        madvise(part, part_bytes, MADV_DONTNEED);
    level_lock(level);
    if (--level->users == 0) {
        munmap(level->memory, bytes);
        level->memory = NULL;
    }
    level_unlock(level);
    errno = saved;
}
