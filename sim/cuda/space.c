/* SPDX-License-Identifier: MIT
 * Addresses and their backing: virtual ranges from reserved arenas, physical ranges in one sparse
 * memfd. Called by bytes.c, array.c, ipc.c, vmm.c and pool.c with the lock held.  A freed range is
 * handed out again at once: address reuse is what breaks tools, so it must happen here more readily
 * than on a real device. */
#define _GNU_SOURCE
#include "contents.h"
#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define SIM_SMALL_PAGE 4096
/* 16 TiB of file and 256 GiB arenas cost nothing until touched; an arena is small enough for a
 * sanitized program. */
#define SIM_FILE_SIZE  (UINT64_C(16) << 40)
#define SIM_ARENA_SIZE (UINT64_C(256) << 30)
#define SIM_STEP       (UINT64_C(32) << 20)
/* Ranges freed last that are tried first; more than a program frees between two allocations of one
 * size. */
#define SIM_RECENT 32

struct sim_range {
    uint64_t base, size;
};
/* Free ranges, sorted by base, never adjacent to each other. */
struct sim_ranges {
    struct sim_range *free;
    size_t count, capacity;
    struct sim_range recent[SIM_RECENT];
    unsigned recent_count;
};
static struct sim_ranges sim_addresses, sim_untouched, sim_pages;
static int sim_backing = -1;
static char *sim_unnamed; /* NULL, or the memory that backs in the place of the file */

/* Index of the first free range whose end is beyond `address`. */
static size_t sim_ranges_find(const struct sim_ranges *ranges, uint64_t address)
{
    size_t low = 0, high = ranges->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges->free[middle].base + ranges->free[middle].size <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int sim_ranges_insert(struct sim_ranges *ranges, size_t at, struct sim_range range)
{
    if (ranges->count == ranges->capacity) {
        size_t capacity = ranges->capacity ? 2 * ranges->capacity : 64;
        struct sim_range *grown = realloc(ranges->free, capacity * sizeof *grown);
        if (!grown)
            return -ENOMEM;
        ranges->free = grown;
        ranges->capacity = capacity;
    }
    memmove(&ranges->free[at + 1], &ranges->free[at], (ranges->count - at) * sizeof *ranges->free);
    ranges->free[at] = range;
    ranges->count++;
    return 0;
}

static void sim_ranges_erase(struct sim_ranges *ranges, size_t at)
{
    ranges->count--;
    memmove(&ranges->free[at], &ranges->free[at + 1], (ranges->count - at) * sizeof *ranges->free);
}

static int sim_ranges_put(struct sim_ranges *ranges, uint64_t base, uint64_t size)
{
    size_t at = sim_ranges_find(ranges, base);
    bool after = at > 0 && ranges->free[at - 1].base + ranges->free[at - 1].size == base;
    bool before = at < ranges->count && base + size == ranges->free[at].base;
    if (after && before) {
        ranges->free[at - 1].size += size + ranges->free[at].size;
        sim_ranges_erase(ranges, at);
    } else if (after) {
        ranges->free[at - 1].size += size;
    } else if (before) {
        ranges->free[at].base = base;
        ranges->free[at].size += size;
    } else if (sim_ranges_insert(ranges, at, (struct sim_range){base, size}) != 0) {
        return -ENOMEM;
    }
    if (ranges->recent_count == SIM_RECENT)
        memmove(ranges->recent, ranges->recent + 1, --ranges->recent_count * sizeof *ranges->recent);
    ranges->recent[ranges->recent_count++] = (struct sim_range){base, size};
    return 0;
}

/* Takes exactly [base, base + size) when it is free. */
static int sim_ranges_take_at(struct sim_ranges *ranges, uint64_t base, uint64_t size)
{
    size_t at = sim_ranges_find(ranges, base);
    if (at == ranges->count || ranges->free[at].base > base ||
        ranges->free[at].base + ranges->free[at].size - base < size)
        return -EBUSY;
    struct sim_range *hole = &ranges->free[at];
    uint64_t end = hole->base + hole->size;
    if (hole->base == base && hole->size == size) {
        sim_ranges_erase(ranges, at);
    } else if (hole->base == base) {
        *hole = (struct sim_range){base + size, end - base - size};
    } else {
        hole->size = base - hole->base;
        if (base + size < end)
            return sim_ranges_insert(ranges, at + 1, (struct sim_range){base + size, end - base - size});
    }
    return 0;
}

static int sim_ranges_take(struct sim_ranges *ranges, uint64_t size, uint64_t align, uint64_t *base)
{
    for (unsigned i = ranges->recent_count; i-- > 0;) {
        struct sim_range range = ranges->recent[i];
        if (range.size != size || range.base % align || sim_ranges_take_at(ranges, range.base, size) != 0)
            continue;
        memmove(&ranges->recent[i], &ranges->recent[i + 1], (--ranges->recent_count - i) * sizeof range);
        *base = range.base;
        return 0;
    }
    for (size_t i = 0; i < ranges->count; i++) {
        uint64_t start = sim_round_up(ranges->free[i].base, align);
        uint64_t end = ranges->free[i].base + ranges->free[i].size;
        if (start < end && end - start >= size) {
            *base = start;
            return sim_ranges_take_at(ranges, start, size);
        }
    }
    return -ENOMEM;
}

/* ---- backing ----------------------------------------------------------------------------------------------------- */

/* A call that makes a file longer than this ends the process with SIGXFSZ. */
bool sim_space_allows(uint64_t size)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || size <= limit.rlim_cur;
}

/* Under a limit of the size of files, which a memfd has too: shared memory without a file, which has none.  mremap gives
 * its ranges second addresses; another process cannot have them.  Returns its size, 0 if there is none. */
static uint64_t sim_space_unnamed(void)
{
    for (uint64_t size = SIM_FILE_SIZE; size >= SIM_GIB; size /= 2) {
        void *all = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED)
            continue;
        madvise(all, size, MADV_DONTDUMP);
        sim_unnamed = all;
        return size;
    }
    return 0;
}

bool sim_space_is_shared(void)
{
    return sim_space_fd() >= 0 && !sim_unnamed;
}

int sim_space_fd(void)
{
    if (sim_backing >= 0)
        return sim_backing;
    int fd = memfd_create("simulated-gpu", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    uint64_t size = sim_space_allows(SIM_FILE_SIZE) ? SIM_FILE_SIZE : sim_space_unnamed();
    if (!size || (!sim_unnamed && ftruncate(fd, (off_t)size) != 0) || sim_ranges_put(&sim_pages, 0, size) != 0) {
        close(fd);
        return -1;
    }
    return sim_backing = fd;
}

int sim_space_back(size_t size, uint64_t *offset)
{
    if (sim_space_fd() < 0)
        return -ENOMEM;
    return sim_ranges_take(&sim_pages, sim_round_up(size, SIM_SMALL_PAGE), SIM_SMALL_PAGE, offset);
}

void sim_space_unback(uint64_t offset, size_t size)
{
    size = sim_round_up(size, SIM_SMALL_PAGE);
    if (sim_unnamed)
        madvise(sim_unnamed + offset, size, MADV_REMOVE);
    else
        fallocate(sim_backing, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size);
    sim_ranges_put(&sim_pages, offset, size);
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static int sim_arena_add(size_t wanted)
{
    for (uint64_t size = wanted > SIM_ARENA_SIZE ? wanted : SIM_ARENA_SIZE; size >= wanted; size /= 2) {
        char *base = mmap(NULL, size + SIM_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base != MAP_FAILED)
            return sim_ranges_put(&sim_untouched, sim_round_up((uintptr_t)base, SIM_PAGE), size);
    }
    return -ENOMEM;
}

/* The range that the program names, where nothing lies yet: a kernel before 4.17 takes it for a hint. */
static CUdeviceptr sim_space_reserve_at(size_t size, CUdeviceptr wanted)
{
    void *got;
    if (sim_ranges_take_at(&sim_addresses, wanted, size) == 0 || sim_ranges_take_at(&sim_untouched, wanted, size) == 0)
        return wanted;
    got =
        mmap((void *)wanted, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != MAP_FAILED && got != (void *)wanted) {
        munmap(got, size);
        got = MAP_FAILED;
    }
    return got == MAP_FAILED ? 0 : wanted;
}

/* The driver of an H200 took addresses from the kernel in steps of 32 MiB, each step below the last, and filled what it had
 * upwards.  PyTorch's cache prefers low addresses among blocks of one size, so what it reserves depends on that. */
static int sim_space_below(size_t size, size_t align, uint64_t *base)
{
    for (size_t i = sim_untouched.count; i-- > 0;) {
        struct sim_range hole = sim_untouched.free[i];
        uint64_t end = hole.base + hole.size;
        if (hole.size < size)
            continue;
        *base = (end - size) / SIM_STEP * SIM_STEP;
        *base -= *base % align;
        if (*base < hole.base)
            continue;
        int error = sim_ranges_take_at(&sim_untouched, *base, end - *base);
        if (!error && *base + size < end)
            error = sim_ranges_put(&sim_addresses, *base + size, end - *base - size);
        return error;
    }
    return -ENOMEM;
}

CUdeviceptr sim_space_reserve(size_t size, size_t align, CUdeviceptr hint)
{
    uint64_t base;
    size = sim_round_up(size, SIM_SMALL_PAGE);
    if (hint)
        return sim_space_reserve_at(size, hint);
    if (sim_ranges_take(&sim_addresses, size, align, &base) == 0 || sim_space_below(size, align, &base) == 0)
        return base;
    if (sim_arena_add(size + align + SIM_STEP) != 0 || sim_space_below(size, align, &base) != 0)
        return 0;
    return base;
}

void sim_space_unmap(CUdeviceptr base, size_t size)
{
    sim_contents_unmapped(base, size);
    mmap((void *)base, sim_round_up(size, SIM_SMALL_PAGE), PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void sim_space_release(CUdeviceptr base, size_t size)
{
    sim_space_unmap(base, size);
    sim_ranges_put(&sim_addresses, base, sim_round_up(size, SIM_SMALL_PAGE));
}

int sim_space_map(CUdeviceptr base, size_t size, int fd, uint64_t offset, int prot)
{
    size = sim_round_up(size, SIM_SMALL_PAGE);
    void *at;
    if (sim_unnamed && fd == sim_backing) /* an old size of 0: the range keeps its first address too */
        at = mremap(sim_unnamed + offset, 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)base);
    else
        at = mmap((void *)base, size, prot, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, (off_t)offset);
    if (at != MAP_FAILED && sim_unnamed && fd == sim_backing && mprotect(at, size, prot) != 0)
        return -errno;
    return at == MAP_FAILED ? -errno : 0;
}
