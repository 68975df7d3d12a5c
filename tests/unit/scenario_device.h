/* SPDX-License-Identifier: MIT
 *
 * scenario_device.h: a simulated device, without memory, behind struct gp_backend. As a driver does, it checks that
 * all that is freed, unmapped or destroyed exists, and that the memory suffices. Included by scenario.h.
 */
#ifndef GP_TEST_UNIT_SCENARIO_DEVICE_H
#define GP_TEST_UNIT_SCENARIO_DEVICE_H

#include "allocator/cache/cache.h"
#include <criterion/criterion.h>
#include <string.h>

#define SCENE_PAGE  ((uint64_t)2 << 20)
#define SCENE_ITEMS 4096

enum scene_kind { SCENE_NONE, SCENE_ALLOCATION, SCENE_RANGE, SCENE_HANDLE, SCENE_MAPPING };

struct scene_item {
    enum scene_kind kind;
    uint64_t key, bytes; /* address, or the handle's number */
    uint64_t handle;     /* of a mapping */
    unsigned mappings;   /* of a handle: its memory lives until it is destroyed and unmapped */
    bool destroyed;
};

struct scene_device {
    uint64_t total, used, next_address, next_handle;
    uint64_t fences, reached; /* fence n is reached when n <= reached, or always unless pending */
    uint64_t records, queries, waits, allocates;
    uint64_t fence_streams; /* number of streams in the last record */
    bool pending, forbidden;
    struct scene_item items[SCENE_ITEMS];
};

static inline struct scene_item *scene_item_find(struct scene_device *device, enum scene_kind kind, uint64_t key)
{
    for (unsigned i = 0; i < SCENE_ITEMS; i++)
        if (device->items[i].kind == kind && (kind == SCENE_NONE || device->items[i].key == key))
            return &device->items[i];
    return NULL;
}

static inline struct scene_item *scene_item_add(struct scene_device *device, enum scene_kind kind, uint64_t key,
                                                uint64_t bytes)
{
    struct scene_item *item = scene_item_find(device, SCENE_NONE, 0);
    cr_assert(item, "the test's device has no row left");
    *item = (struct scene_item){.kind = kind, .key = key, .bytes = bytes};
    return item;
}

/* A gap after each, so that two are adjacent only on purpose. */
static inline uint64_t scene_address(struct scene_device *device, uint64_t bytes)
{
    uint64_t address = device->next_address;
    device->next_address += (bytes + 2 * SCENE_PAGE) / SCENE_PAGE * SCENE_PAGE;
    return address;
}

static inline uint32_t scene_allocate(void *self, uint64_t bytes, uint64_t *address)
{
    struct scene_device *device = self;
    device->allocates++;
    if (device->forbidden)
        return GP_BACKEND_FORBIDDEN;
    if (bytes > device->total - device->used)
        return GP_BACKEND_OOM;
    device->used += bytes;
    *address = scene_address(device, bytes);
    scene_item_add(device, SCENE_ALLOCATION, *address, bytes);
    return 0;
}

static inline uint32_t scene_free(void *self, uint64_t address)
{
    struct scene_device *device = self;
    struct scene_item *item = scene_item_find(device, SCENE_ALLOCATION, address);
    cr_assert(item, "free of %lx, which was not allocated", address);
    device->used -= item->bytes;
    item->kind = SCENE_NONE;
    return 0;
}

static inline uint32_t scene_reserve(void *self, uint64_t bytes, uint64_t *address)
{
    struct scene_device *device = self;
    cr_assert_eq(bytes % SCENE_PAGE, 0);
    *address = scene_address(device, bytes);
    scene_item_add(device, SCENE_RANGE, *address, bytes);
    return 0;
}

static inline uint32_t scene_unreserve(void *self, uint64_t address, uint64_t bytes)
{
    struct scene_device *device = self;
    struct scene_item *item = scene_item_find(device, SCENE_RANGE, address);
    cr_assert(item && item->bytes == bytes, "unreserve of %lx, which was not reserved so", address);
    for (unsigned i = 0; i < SCENE_ITEMS; i++)
        cr_assert(device->items[i].kind != SCENE_MAPPING || device->items[i].key - address >= bytes,
                  "unreserve of %lx with pages mapped in it", address);
    item->kind = SCENE_NONE;
    return 0;
}

static inline uint32_t scene_create(void *self, uint64_t bytes, uint64_t *handle)
{
    struct scene_device *device = self;
    cr_assert(bytes && bytes % SCENE_PAGE == 0);
    if (device->forbidden)
        return GP_BACKEND_FORBIDDEN;
    if (bytes > device->total - device->used)
        return GP_BACKEND_OOM;
    device->used += bytes;
    *handle = ++device->next_handle;
    scene_item_add(device, SCENE_HANDLE, *handle, bytes);
    return 0;
}

static inline void scene_handle_settle(struct scene_device *device, struct scene_item *handle)
{
    if (!handle->destroyed || handle->mappings)
        return;
    device->used -= handle->bytes;
    handle->kind = SCENE_NONE;
}

static inline uint32_t scene_destroy(void *self, uint64_t handle)
{
    struct scene_item *item = scene_item_find(self, SCENE_HANDLE, handle);
    cr_assert(item && !item->destroyed, "destroy of handle %lu, which is none", handle);
    item->destroyed = true;
    scene_handle_settle(self, item);
    return 0;
}

static inline uint32_t scene_map(void *self, uint64_t address, uint64_t bytes, const uint64_t *handles,
                                 const uint64_t *handle_bytes, unsigned count)
{
    struct scene_device *device = self;
    uint64_t at = address;
    for (unsigned i = 0; i < count; i++, at += handle_bytes[i - 1]) {
        struct scene_item *handle = scene_item_find(device, SCENE_HANDLE, handles[i]);
        cr_assert(handle && !handle->destroyed && handle->bytes == handle_bytes[i], "map of handle %lu", handles[i]);
        cr_assert_eq(handle->mappings, 0, "handle %lu is mapped twice", handles[i]);
        cr_assert_null(scene_item_find(device, SCENE_MAPPING, at), "%lx is mapped already", at);
        handle->mappings++;
        scene_item_add(device, SCENE_MAPPING, at, handle_bytes[i])->handle = handles[i];
    }
    cr_assert_eq(at, address + bytes, "the handles' bytes are not the range's");
    return 0;
}

static inline uint32_t scene_unmap(void *self, uint64_t address, uint64_t bytes)
{
    struct scene_device *device = self;
    for (uint64_t at = address; at < address + bytes;) {
        struct scene_item *mapping = scene_item_find(device, SCENE_MAPPING, at);
        cr_assert(mapping && at + mapping->bytes <= address + bytes, "unmap of a part of a mapping at %lx", at);
        struct scene_item *handle = scene_item_find(device, SCENE_HANDLE, mapping->handle);
        at += mapping->bytes;
        mapping->kind = SCENE_NONE;
        handle->mappings--;
        scene_handle_settle(device, handle);
    }
    return 0;
}

static inline uint32_t scene_record(void *self, const uint64_t *streams, unsigned count, uint64_t *fence)
{
    struct scene_device *device = self;
    (void)streams;
    device->records++;
    if (device->forbidden)
        return GP_BACKEND_FORBIDDEN;
    device->fence_streams = count;
    *fence = ++device->fences;
    return 0;
}

static inline uint32_t scene_query(void *self, uint64_t fence)
{
    struct scene_device *device = self;
    device->queries++;
    return !device->pending || fence <= device->reached ? 0 : GP_BACKEND_BUSY;
}

static inline uint32_t scene_wait(void *self, uint64_t fence)
{
    struct scene_device *device = self;
    /* If fences are reached without a wait, waiting for one does not count. */
    device->waits += device->pending && fence > device->reached;
    if (fence > device->reached)
        device->reached = fence;
    return 0;
}

static inline uint32_t scene_memory(void *self, uint64_t *free_bytes, uint64_t *total_bytes)
{
    struct scene_device *device = self;
    *free_bytes = device->total - device->used;
    *total_bytes = device->total;
    return 0;
}

static inline void scene_device_open(struct scene_device *device, uint64_t total)
{
    device->total = total;
    device->next_address = (uint64_t)1 << 40;
}

static inline struct gp_backend scene_device_backend(struct scene_device *device)
{
    return (struct gp_backend){.self = device,
                               .page_bytes = SCENE_PAGE,
                               .allocate = scene_allocate,
                               .free = scene_free,
                               .reserve = scene_reserve,
                               .unreserve = scene_unreserve,
                               .create = scene_create,
                               .destroy = scene_destroy,
                               .map = scene_map,
                               .unmap = scene_unmap,
                               .record = scene_record,
                               .query = scene_query,
                               .wait = scene_wait,
                               .memory = scene_memory};
}

#endif
