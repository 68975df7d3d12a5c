/* SPDX-License-Identifier: MIT
 * Multicast objects: a team of devices, and memory of each bound at offsets.  An object is a handle
 * like those of memory but owns no device memory; bound memory stays alive until it is unbound or
 * the object is destroyed.  The devices of a team may belong to several processes, which share the
 * object's memfd. */
#define _GNU_SOURCE
#include "cuda/vmm.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

_Static_assert(SIM_MAX_DEVICES <= 64, "a bit per device");

/* ---- teams ------------------------------------------------------------------------------------------------------- */

static void sim_multicast_end(struct sim_physical *p)
{
    sim_bind_remove_all(&p->multicast->binds);
    if (p->own_fd) {
        munmap(p->multicast->shared, sizeof *p->multicast->shared);
    } else {
        sim_space_unback(p->offset, p->size);
        free(p->multicast->shared);
    }
    free(p->multicast);
}

static void sim_multicast_new(struct sim_physical *p, struct sim_physical_header *shared)
{
    p->multicast = sim_grow(NULL, sizeof *p->multicast);
    *p->multicast = (struct sim_multicast){.shared = shared};
    p->end = sim_multicast_end;
}

bool sim_multicast_open(struct sim_physical *p)
{
    void *shared =
        mmap(NULL, sizeof(struct sim_physical_header), PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, (off_t)p->size);

    if (shared == MAP_FAILED)
        return false;
    sim_multicast_new(p, shared);
    return true;
}

bool sim_multicast_start(struct sim_physical *p, const CUmulticastObjectProp *prop)
{
    struct sim_physical_header h = {.magic = SIM_PHYSICAL_MAGIC, .size = p->size, .physical = SIM_HOST, .team = *prop};
    struct sim_physical_header *own;

    if (prop->handleTypes) {
        p->fd = memfd_create("sim-multicast", MFD_CLOEXEC);
        p->own_fd = p->fd >= 0;
        return p->own_fd && sim_space_allows(p->size + sizeof h) &&
               pwrite(p->fd, &h, sizeof h, (off_t)p->size) == (ssize_t)sizeof h && sim_multicast_open(p);
    }
    p->fd = sim_space_fd();
    if (sim_space_back(p->size, &p->offset))
        return false;
    own = sim_grow(NULL, sizeof *own);
    *own = h;
    sim_multicast_new(p, own);
    return true;
}

static bool sim_multicast_all(const struct sim_physical_header *shared)
{
    return __atomic_load_n(&shared->joined, __ATOMIC_ACQUIRE) >= shared->team.numDevices;
}

CUresult sim_multicast_join(struct sim_physical *p, int device)
{
    struct sim_physical_header *shared = p->multicast->shared;
    unsigned int joined = __atomic_load_n(&shared->joined, __ATOMIC_RELAXED);

    if (p->multicast->devices >> device & 1)
        return CUDA_ERROR_INVALID_VALUE;
    do
        if (joined >= shared->team.numDevices)
            return CUDA_ERROR_INVALID_VALUE;
    while (
        !__atomic_compare_exchange_n(&shared->joined, &joined, joined + 1, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    p->multicast->devices |= UINT64_C(1) << device;
    return CUDA_SUCCESS;
}

/* Of an object that cannot be exported the devices of this process have joined, or none will. */
bool sim_multicast_complete(struct sim_physical *p)
{
    const CUmemGenericAllocationHandle handle = p->handle;
    struct timespec pause = {.tv_nsec = 1000000};

    while (!sim_multicast_all(p->multicast->shared)) {
        if (!p->own_fd)
            return false;
        sim_unlock();
        nanosleep(&pause, NULL);
        sim_lock();
        if (sim_physical_find(handle) != p || !p->multicast)
            return false;
        if (pause.tv_nsec < 100000000) /* a process that waits for long shall use no time */
            pause.tv_nsec *= 2;
    }
    return true;
}

/* ---- binds ------------------------------------------------------------------------------------------------------- */

static void sim_bind_end(struct sim_bind **at)
{
    struct sim_bind *b = *at;

    *at = b->next;
    b->memory->binds--;
    sim_physical_settle(b->memory);
    free(b);
}

CUresult sim_bind_add(struct sim_bind **list, int device, size_t offset, struct sim_physical *memory, size_t at,
                      size_t size)
{
    struct sim_bind *b;

    if (!memory || memory->multicast || !size || (offset | at | size) % SIM_VMM_GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    if (size > memory->size || at > memory->size - size || (memory->device != device && memory->device != SIM_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    for (b = *list; b; b = b->next) /* one device's binds do not overlap */
        if (b->device == device && offset < b->offset + b->size && b->offset < offset + size)
            return CUDA_ERROR_INVALID_VALUE;
    b = sim_grow(NULL, sizeof *b);
    *b = (struct sim_bind){*list, memory, device, offset, size};
    *list = b;
    memory->binds++;
    return CUDA_SUCCESS;
}

static struct sim_bind **sim_bind_find(struct sim_bind **list, int device, size_t offset)
{
    while (*list && ((*list)->device != device || (*list)->offset != offset))
        list = &(*list)->next;
    return list;
}

CUresult sim_bind_remove(struct sim_bind **list, int device, size_t offset, size_t size)
{
    struct sim_bind *b;
    size_t covered = 0;

    while (covered < size && (b = *sim_bind_find(list, device, offset + covered)))
        covered += b->size;
    if (!size || covered != size)
        return CUDA_ERROR_INVALID_VALUE;
    while (covered) {
        struct sim_bind **at = sim_bind_find(list, device, offset);

        offset += (*at)->size;
        covered -= (*at)->size;
        sim_bind_end(at);
    }
    return CUDA_SUCCESS;
}

void sim_bind_remove_all(struct sim_bind **list)
{
    while (*list)
        sim_bind_end(list);
}
