/* SPDX-License-Identifier: MIT
 *
 * before.c: finds memory that the program had before, by asking the driver address by address
 * (internal.h). Device memory has addresses in the process, and the driver keeps the address space
 * reserved: as mappings without access, next to mappings of its devices. The search goes through
 * such places in steps of 2 MiB, the driver's own unit, and inside an allocation by its size.
 * Smaller allocations share a unit: from one to the next the steps are 512 B, the driver's
 * alignment. The search skips a unit whose first bytes are free, so it may miss small allocations
 * there.
 */
#include "source/before.h"
#include "account/feed/before.h"
#include "base/clock.h"
#include "base/vma.h"
#include "source/internal.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BEFORE_UNIT    (2ull << 20)
#define BEFORE_STEP    512ull
#define BEFORE_TIME_NS 1000000000ull
#define BEFORE_AGAIN   16 /* asked again when memory was freed meanwhile */

struct before_look {
    bool (*ask)(uint64_t address, struct gp_before_range *out);
    uint32_t (*number)(void *context);
    uint64_t deadline_ns;
    bool stopped;
};

/* Returns the end of the allocation at the address, or 0. */
static uint64_t before_at(struct before_look *look, uint64_t address)
{
    struct gp_before_range range = {0};
    for (int again = 0; again < BEFORE_AGAIN && !look->stopped; again++) {
        uint64_t begun = gp_feed_before_begin();
        look->stopped = !look->ask(address, &range) || gp_clock_ns() >= look->deadline_ns;
        if (look->stopped || !range.bytes || address - range.address >= range.bytes)
            return 0;
        uint32_t ctx = range.context && look->number ? look->number(range.context) : 0;
        if (!range.counts || gp_feed_before(begun, range.address, range.bytes, range.device, ctx))
            break;
    }
    return range.bytes ? range.address + range.bytes : 0;
}

static void before_range(struct before_look *look, uint64_t from, uint64_t to)
{
    bool hit = false;
    while (from < to && !look->stopped) {
        uint64_t end = before_at(look, from), unit = (from & ~(BEFORE_UNIT - 1)) + BEFORE_UNIT;
        if (end > from) {
            from = (end + BEFORE_STEP - 1) & ~(BEFORE_STEP - 1);
            hit = (from & (BEFORE_UNIT - 1)) != 0;
        } else {
            from = hit ? from + BEFORE_STEP : unit;
            hit = hit && (from & (BEFORE_UNIT - 1)) != 0;
        }
    }
}

/* ---- /proc/self/maps ----------------------------------------------------------------------------------------------- */

/* Mappings that follow each other without a gap, of which one may be the driver's. A process with more
 * such places than this is looked through in part. */
#define BEFORE_PLACES 1024u

struct before_mapping {
    uint64_t from, to;
    bool fits;  /* without access, or shared: what a driver may have put into its place */
    bool shows; /* it is a place of a driver's: large and without access, or of its device */
};

struct before_place {
    uint64_t from, to;
    bool shows;
};

struct before_list {
    struct before_look look;
    bool is_second, is_full;
    unsigned count;
    struct before_place places[BEFORE_PLACES];
};

static struct before_mapping mapping_judge(const struct gp_vma *mapping)
{
    bool closed = memcmp(mapping->rights, "---p", 4) == 0 && !*mapping->path,
         device = strncmp(mapping->path, "/dev/nvidia", 11) == 0;
    return (struct before_mapping){
        .from = mapping->start,
        .to = mapping->end,
        .fits = closed || device || mapping->rights[3] == 's',
        .shows = device || (closed && mapping->end - mapping->start >= BEFORE_UNIT),
    };
}

static void place_note(struct before_list *list, const struct before_mapping *mapping)
{
    struct before_place *last = list->count ? &list->places[list->count - 1] : NULL;
    if (last && last->to == mapping->from) {
        last->to = mapping->to;
        last->shows |= mapping->shows;
        return;
    }
    if (last && !last->shows)
        list->count--; /* it was none */
    if (list->count == BEFORE_PLACES) {
        list->is_full = true;
        return;
    }
    list->places[list->count++] = (struct before_place){mapping->from, mapping->to, mapping->shows};
}

/* Each mapping from its start, which often is that of an allocation. */
static void place_look(struct before_list *list, const struct before_mapping *mapping)
{
    for (unsigned i = 0; i < list->count; i++)
        if (list->places[i].shows && mapping->from >= list->places[i].from && mapping->from < list->places[i].to)
            before_range(&list->look, mapping->from, mapping->to);
}

static bool before_mapping(void *context, const struct gp_vma *said)
{
    struct before_list *list = context;
    const struct before_mapping mapping = mapping_judge(said);
    if (mapping.fits && list->is_second)
        place_look(list, &mapping);
    else if (mapping.fits)
        place_note(list, &mapping);
    return !list->look.stopped;
}

static bool before_walk(struct before_list *list)
{
    static char lines[65536];
    char path[48];
    /* Not /proc/self: if the main thread has ended, that has none. */
    snprintf(path, sizeof(path), "/proc/self/task/%d/maps", (int)syscall(SYS_gettid));
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    int rc = gp_vma_walk(fd, lines, sizeof(lines), SIZE_MAX, before_mapping, list);
    close(fd);
    return rc == 0;
}

bool gp_before_look(bool (*ask)(uint64_t address, struct gp_before_range *out), uint32_t (*number)(void *context))
{
    static struct before_list list; /* one thread asks, once in a life of the library */
    list.look = (struct before_look){.ask = ask, .number = number, .deadline_ns = gp_clock_ns() + BEFORE_TIME_NS};
    bool all = before_walk(&list);
    list.is_second = true;
    return before_walk(&list) && all && !list.is_full && !list.look.stopped;
}
