/* SPDX-License-Identifier: MIT
 * verify.c: proves during a replay that live blocks do not overlap and are not reused too early;
 * see internal.h.
 *
 * A sorted array of live blocks finds overlaps by address.  The hazard detector of the simulated
 * GPU finds early reuse: each block is written on its stream and read where it is used; the bytes
 * are compared too.  Only the first, middle and last KiB of a block are touched, since every
 * touched page costs real host memory.
 *
 * Reads go to a ring of host buffers and are compared later: waiting for each read would order all
 * streams and hide the errors that this file looks for. */
#include "convert/replay/internal.h"

#include <stdlib.h>
#include <string.h>

#define GP_PATCH_BYTES 1024u
#define GP_PATCHES     3u
/* Reads before one wait.  Blocks live for tens of operations, so waits are rare in comparison. */
#define GP_VERIFY_READS 1024u

struct gp_live {
    uint64_t begin, end;
};

struct gp_verify_read {
    uint32_t block, patches;
    uint32_t bytes[GP_PATCHES];
    uint8_t *host;
};

struct gp_replay_verify {
    const struct gp_replay_driver *driver;
    struct gp_replay_result *result;
    void *const *contexts;
    void *events[GP_REPLAY_DEVICES];
    uint32_t devices, device;
    struct gp_live *live; /* sorted by begin */
    uint32_t live_count, live_room;
    uint32_t reads_count;
    struct gp_verify_read reads[GP_VERIFY_READS];
    uint8_t host[GP_VERIFY_READS][GP_PATCHES * GP_PATCH_BYTES];
};

struct gp_patch {
    uint64_t address;
    uint32_t bytes; /* a multiple of 4 */
};

static unsigned verify_patches(struct gp_patch patches[GP_PATCHES], uint64_t address, uint64_t bytes)
{
    bytes &= ~3ull;
    if (bytes <= GP_PATCHES * GP_PATCH_BYTES) {
        patches[0] = (struct gp_patch){address, (uint32_t)bytes};
        return bytes > 0;
    }
    patches[0] = (struct gp_patch){address, GP_PATCH_BYTES};
    patches[1] = (struct gp_patch){address + (bytes / 2 & ~3ull), GP_PATCH_BYTES};
    patches[2] = (struct gp_patch){address + bytes - GP_PATCH_BYTES, GP_PATCH_BYTES};
    return GP_PATCHES;
}

/* Blocks with consecutive numbers have different patterns. */
static uint32_t verify_pattern(uint32_t block)
{
    return (block + 1) * 0x9e3779b1u;
}

struct gp_replay_verify *gp_replay_verify_new(const struct gp_replay_driver *driver, struct gp_replay_result *result,
                                              void *const *contexts, uint32_t devices)
{
    struct gp_replay_verify *v = calloc(1, sizeof(*v));
    if (!v)
        return NULL;
    v->driver = driver;
    v->result = result;
    v->contexts = contexts;
    v->devices = devices;
    for (uint32_t d = devices; d-- > 0;) {
        gp_replay_verify_on(v, d);
        if (driver->cuEventCreate(&v->events[d], 2 /* CU_EVENT_DISABLE_TIMING */) != 0) {
            free(v);
            return NULL;
        }
    }
    return v;
}

void gp_replay_verify_on(struct gp_replay_verify *v, uint32_t device)
{
    v->driver->cuCtxSetCurrent(v->contexts[device]);
    v->device = device;
}

void gp_replay_verify_free(struct gp_replay_verify *v)
{
    if (v)
        free(v->live);
    free(v);
}

/* ---- overlaps ---------------------------------------------------------------------------------------------------- */

static uint32_t live_place(const struct gp_replay_verify *v, uint64_t address)
{
    uint32_t low = 0, high = v->live_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (v->live[middle].begin < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void live_insert(struct gp_replay_verify *v, uint64_t address, uint64_t bytes)
{
    uint32_t at = live_place(v, address);
    if ((at < v->live_count && v->live[at].begin < address + bytes) || (at > 0 && v->live[at - 1].end > address))
        v->result->overlaps++;
    if (v->live_count == v->live_room) {
        uint32_t room = v->live_room ? 2 * v->live_room : 4096;
        struct gp_live *bigger = realloc(v->live, room * sizeof(bigger[0]));
        if (!bigger)
            abort(); /* the parent reports the end of the child as a failed run */
        v->live = bigger;
        v->live_room = room;
    }
    memmove(&v->live[at + 1], &v->live[at], (v->live_count - at) * sizeof(v->live[0]));
    v->live[at] = (struct gp_live){address, address + bytes};
    v->live_count++;
}

static void live_remove(struct gp_replay_verify *v, uint64_t address)
{
    uint32_t at = live_place(v, address);
    if (at == v->live_count || v->live[at].begin != address)
        return; /* it overlapped another one of the same address */
    memmove(&v->live[at], &v->live[at + 1], (v->live_count - at - 1) * sizeof(v->live[0]));
    v->live_count--;
}

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

static void verify_compare(struct gp_replay_verify *v, const struct gp_verify_read *read)
{
    uint32_t pattern = verify_pattern(read->block), word;
    const uint8_t *at = read->host;
    bool same = true;
    for (unsigned i = 0; i < read->patches; i++) {
        for (uint32_t b = 0; b < read->bytes[i]; b += 4, at += 4) {
            memcpy(&word, at, 4);
            same &= word == pattern;
        }
    }
    v->result->checked++;
    v->result->damaged += !same;
}

void gp_replay_verify_settle(struct gp_replay_verify *v)
{
    for (uint32_t d = 0; d < v->devices; d++) {
        v->driver->cuCtxSetCurrent(v->contexts[d]);
        v->driver->cuCtxSynchronize();
    }
    v->driver->cuCtxSetCurrent(v->contexts[v->device]);
    for (uint32_t i = 0; i < v->reads_count; i++)
        verify_compare(v, &v->reads[i]);
    v->reads_count = 0;
}

static void verify_read(struct gp_replay_verify *v, uint32_t block, uint64_t address, uint64_t bytes, void *stream)
{
    struct gp_patch patches[GP_PATCHES];
    if (v->reads_count == GP_VERIFY_READS)
        gp_replay_verify_settle(v);
    struct gp_verify_read *read = &v->reads[v->reads_count];
    *read = (struct gp_verify_read){.block = block, .host = v->host[v->reads_count]};
    read->patches = verify_patches(patches, address, bytes);
    uint8_t *at = read->host;
    v->reads_count++;
    for (unsigned i = 0; i < read->patches; i++) {
        /* A failed read leaves the bytes of another block in the buffer and counts as damage. */
        v->driver->cuMemcpyDtoHAsync_v2(at, patches[i].address, patches[i].bytes, stream);
        read->bytes[i] = patches[i].bytes;
        at += patches[i].bytes;
    }
}

void gp_replay_verify_alloc(struct gp_replay_verify *v, uint32_t block, uint64_t address, uint64_t bytes, void *stream)
{
    struct gp_patch patches[GP_PATCHES];
    live_insert(v, address, bytes);
    v->result->misaligned += address % 256 != 0; /* CUDA guarantees 256; most policies give 512 */
    unsigned count = verify_patches(patches, address, bytes);
    for (unsigned i = 0; i < count; i++)
        v->driver->cuMemsetD32Async(patches[i].address, verify_pattern(block), patches[i].bytes / 4, stream);
}

void gp_replay_verify_use(struct gp_replay_verify *v, uint32_t block, uint64_t address, uint64_t bytes, void *own,
                          void *stream)
{
    if (own == stream)
        return;
    v->driver->cuEventRecord(v->events[v->device], own);
    v->driver->cuStreamWaitEvent(stream, v->events[v->device], 0);
    verify_read(v, block, address, bytes, stream);
}

void gp_replay_verify_release(struct gp_replay_verify *v, uint32_t block, uint64_t address, uint64_t bytes,
                              void *stream)
{
    verify_read(v, block, address, bytes, stream);
    live_remove(v, address);
}
