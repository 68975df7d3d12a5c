/* SPDX-License-Identifier: MIT
 * fakeuse.c: see fakeuse.h. */
#include "lib/fakeuse.h"

#include <stdlib.h>
#include <string.h>

static size_t extent_seek(const struct fakeuse *use, uint64_t address)
{
    size_t low = 0, high = use->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (use->at[middle].address + use->at[middle].bytes > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void extent_put(struct fakeuse *use, size_t i, const struct fakeuse_extent *extent)
{
    struct fakeuse_extent copy = *extent; /* it may point into the array that grows */
    if (use->count == use->room) {
        use->room = use->room ? use->room * 2 : 64;
        use->at = realloc(use->at, use->room * sizeof use->at[0]);
        if (!use->at)
            abort();
    }
    memmove(&use->at[i + 1], &use->at[i], (use->count - i) * sizeof use->at[0]);
    use->at[i] = copy;
    use->count++;
}

static void extent_add(struct fakeuse *use, struct fakeuse_extent *extent, struct fakeuse_work work)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < extent->count; i++) {
        struct fakeuse_work *old = &extent->work[i];
        if (old->stream == work.stream && old->hard == work.hard)
            work.number = old->number > work.number ? old->number : work.number;
        else if (!fakedev_done(use->dev, old->stream, old->number))
            extent->work[kept++] = *old;
    }
    if (kept == FAKEUSE_MOST)
        abort();
    extent->work[kept++] = work;
    extent->count = kept;
}

static unsigned extent_pending(const struct fakeuse *use, const struct fakeuse_extent *extent)
{
    for (unsigned i = 0; i < extent->count; i++)
        if (!fakedev_done(use->dev, extent->work[i].stream, extent->work[i].number))
            return i;
    return FAKEUSE_MOST;
}

/* Cuts [address, address + bytes) out of extent i, which overlaps it, and keeps the rest. Returns the index
 * of the next extent. */
static size_t extent_cut(struct fakeuse *use, size_t i, uint64_t address, uint64_t bytes)
{
    struct fakeuse_extent tail = use->at[i];
    uint64_t end = tail.address + tail.bytes;
    if (end > address + bytes) {
        tail.address = address + bytes;
        tail.bytes = end - tail.address;
        extent_put(use, i + 1, &tail);
    }
    if (use->at[i].address < address) {
        use->at[i].bytes = address - use->at[i].address;
        return i + 1;
    }
    memmove(&use->at[i], &use->at[i + 1], (use->count - i - 1) * sizeof use->at[0]);
    use->count--;
    return i;
}

static bool extent_touches(const struct fakeuse *use, size_t i, uint64_t address, uint64_t bytes)
{
    return i < use->count && use->at[i].address < address + bytes;
}

/* Checks that the old owner's work is done or ordered before the new owner's stream. */
static void judge(struct fakeuse *use, struct fakeuse_extent *made, const struct fakeuse_extent *old, unsigned stream)
{
    for (unsigned w = 0; w < old->count; w++) {
        const struct fakeuse_work *work = &old->work[w];
        if (fakedev_done(use->dev, work->stream, work->number))
            continue;
        use->judged++;
        if (work->hard || stream == FAKEUSE_ANY || work->stream != stream)
            fakedev_fault(use->dev, "hazard: %#llx is given to stream #%u while work %llu of stream #%u is pending%s",
                          (unsigned long long)made->address, stream, (unsigned long long)work->number, work->stream,
                          work->hard ? " (freed for all streams)" : "");
        extent_add(use, made, *work);
    }
}

void fakeuse_grant(struct fakeuse *use, uint64_t address, uint64_t bytes, unsigned stream)
{
    struct fakeuse_extent made = {.address = address, .bytes = bytes, .live = true};
    size_t i = extent_seek(use, address);
    while (extent_touches(use, i, address, bytes)) {
        if (use->at[i].live) {
            fakedev_fault(use->dev, "overlap: %#llx + %#llx is given, %#llx + %#llx is live",
                          (unsigned long long)address, (unsigned long long)bytes,
                          (unsigned long long)use->at[i].address, (unsigned long long)use->at[i].bytes);
            return;
        }
        judge(use, &made, &use->at[i], stream);
        i = extent_cut(use, i, address, bytes);
    }
    extent_put(use, i, &made);
}

static struct fakeuse_extent *extent_live(struct fakeuse *use, uint64_t address)
{
    size_t i = extent_seek(use, address);
    if (i == use->count || use->at[i].address != address || !use->at[i].live)
        abort(); /* a mistake of the test */
    return &use->at[i];
}

void fakeuse_work(struct fakeuse *use, uint64_t address, unsigned stream)
{
    struct fakeuse_work work = {.stream = stream, .number = fakedev_submit(use->dev, stream)};
    extent_add(use, extent_live(use, address), work);
}

void fakeuse_release(struct fakeuse *use, uint64_t address, bool hard)
{
    struct fakeuse_extent *extent = extent_live(use, address);
    extent->live = false;
    for (unsigned i = 0; i < extent->count; i++)
        extent->work[i].hard |= hard;
}

static const char *use_leave(void *arg, uint64_t address, uint64_t bytes)
{
    struct fakeuse *use = arg;
    size_t i = extent_seek(use, address);
    while (extent_touches(use, i, address, bytes)) {
        if (use->at[i].live)
            return "a live block lies in it";
        if (extent_pending(use, &use->at[i]) < FAKEUSE_MOST)
            return "work in it is pending";
        i = extent_cut(use, i, address, bytes);
    }
    return NULL;
}

void fakeuse_init(struct fakeuse *use, struct fakedev *dev)
{
    memset(use, 0, sizeof *use);
    use->dev = dev;
    dev->arg = use;
    dev->leave = use_leave;
}

void fakeuse_fini(struct fakeuse *use)
{
    free(use->at);
}

void fakeuse_forget(struct fakeuse *use)
{
    use->count = 0;
}
