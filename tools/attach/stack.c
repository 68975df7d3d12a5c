/* SPDX-License-Identifier: MIT
 *
 * stack.c: where a thread's own stack ends.  Called by inject.c and seize.c.
 *
 * A stack pointer alone does not tell: a fibre's stack is often a piece of the heap, of a larger mapping or of
 * another thread's stack, with data right below it.  Two stacks are known for sure: the main thread's, which
 * the kernel names, and that of a thread of the C library's, which has the thread's control block at its upper
 * end, in the same mapping, and a guard page at its lower end.
 */
#include <attach/internal.h>
#include <read/collect/peer.h>

#include <base/clock.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GP_STACKS_FRESH_NS 100000000ull
#define GP_STACKS_AREAS    65536u
#define GP_STACK_PAGE      4096ull
#define GP_STACK_PAGES     16384u       /* 64 MiB: how far a guard page is looked for */
#define GP_STACK_GROWTH    (1ull << 20) /* less than the distance that the kernel keeps between this stack and others */
#define GP_STACK_GUARD     (1ull << 58) /* in pagemap: MADV_GUARD_INSTALL, from Linux 6.15 on */

struct stack_area {
    uint64_t start, end;
    bool is_guarded; /* below it is a mapping that may not be touched */
    bool is_main;
};

struct gp_stacks {
    pid_t pid;
    uint64_t looked_ns;
    struct stack_area *areas;
    size_t count, room;
    uint64_t guard_end; /* of the mapping that was looked at last; 0: it is no guard */
};

struct gp_stacks *gp_stacks_new(pid_t pid)
{
    struct gp_stacks *stacks = calloc(1, sizeof(*stacks));
    if (stacks)
        stacks->pid = pid;
    return stacks;
}

void gp_stacks_free(struct gp_stacks *stacks)
{
    if (stacks)
        free(stacks->areas);
    free(stacks);
}

static void stacks_add(struct gp_stacks *stacks, const struct stack_area *area)
{
    if (stacks->count == stacks->room) {
        size_t room = stacks->room ? 2 * stacks->room : 256;
        struct stack_area *more = room <= GP_STACKS_AREAS ? realloc(stacks->areas, room * sizeof(*more)) : NULL;
        if (!more)
            return;
        stacks->areas = more;
        stacks->room = room;
    }
    stacks->areas[stacks->count++] = *area;
}

static bool stacks_mapping(void *context, const struct gp_vma *mapping)
{
    struct gp_stacks *stacks = context;
    const struct stack_area area = {mapping->start, mapping->end, stacks->guard_end == mapping->start,
                                    strcmp(mapping->path, "[stack]") == 0};
    stacks->guard_end = strncmp(mapping->rights, "---", 3) == 0 ? mapping->end : 0;
    if (!mapping->inode && strncmp(mapping->rights, "rw", 2) == 0)
        stacks_add(stacks, &area);
    return true;
}

void gp_stacks_look(struct gp_stacks *stacks)
{
    if (stacks->looked_ns && gp_clock_ns() - stacks->looked_ns < GP_STACKS_FRESH_NS)
        return;
    stacks->count = 0;
    stacks->guard_end = 0;
    gp_proc_mapped_each(stacks->pid, stacks_mapping, stacks);
    stacks->looked_ns = gp_clock_ns();
}

/* The end of the last guard page in [from, to) that was made by advice and is no mapping of its own; 0: none. */
static uint64_t stack_advised(pid_t pid, uint64_t from, uint64_t to)
{
    char path[64];
    uint64_t found = 0, first = from / GP_STACK_PAGE, count = to / GP_STACK_PAGE - first;
    if (count > GP_STACK_PAGES) {
        first += count - GP_STACK_PAGES;
        count = GP_STACK_PAGES;
    }
    snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t *pages = calloc(count + 1, sizeof(*pages));
    ssize_t got = fd >= 0 && pages ? pread(fd, pages, count * sizeof(*pages), (off_t)(first * sizeof(*pages))) : 0;
    for (ssize_t i = got / (ssize_t)sizeof(*pages); i-- > 0 && !found;)
        if (pages[i] & GP_STACK_GUARD)
            found = (first + (uint64_t)i + 1) * GP_STACK_PAGE;
    free(pages);
    if (fd >= 0)
        close(fd);
    return found;
}

uint64_t gp_stack_low(const struct gp_stacks *stacks, pid_t tid, uint64_t sp, uint64_t thread_pointer)
{
    for (size_t i = 0; i < stacks->count; i++) {
        const struct stack_area *area = &stacks->areas[i];
        uint64_t start = area->is_main ? area->start - GP_STACK_GROWTH : area->start;
        if (sp < start || sp >= area->end)
            continue;
        if (tid == stacks->pid || area->is_main)
            return tid == stacks->pid && area->is_main ? start : 0;
        if (thread_pointer <= sp || thread_pointer >= area->end)
            return 0;
        uint64_t advised = stack_advised(stacks->pid, area->start, thread_pointer);
        if (advised)
            return advised > sp ? 0 : advised;
        return area->is_guarded ? area->start : 0;
    }
    return 0;
}
