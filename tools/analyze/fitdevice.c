/* SPDX-License-Identifier: MIT
 * fitdevice.c: the model of a driver's device memory, and the table of functions with which a cache
 * gets memory from it; see fit.h.  Called by fit.c. */
#include <analyze/fit.h>

#include <cache/cache.h>
#include <common/hash.h>
#include <stdlib.h>
#include <string.h>

#define GP_FIT_STEP  512u
#define GP_FIT_STEPS (GP_FIT_PAGE / GP_FIT_STEP)
#define GP_FIT_SMALL (1ull << 20) /* the largest request that shares a page */
/* The first address that is handed out: NULL and small numbers are none. */
#define GP_FIT_ADDRESS (1ull << 32)

/* ---- small requests ---------------------------------------------------------------------------------------------- */

struct gp_fit_small { /* one page; without memory while used is 0 */
    uint32_t used;    /* steps */
    uint32_t bound;   /* no longer run of steps is free */
    uint64_t busy[GP_FIT_STEPS / 64];
};

static void small_mark(struct gp_fit_small *page, unsigned start, unsigned steps, bool busy)
{
    for (unsigned i = start; i < start + steps; i++) {
        if (busy)
            page->busy[i / 64] |= 1ull << i % 64;
        else
            page->busy[i / 64] &= ~(1ull << i % 64);
    }
    page->used = busy ? page->used + steps : page->used - steps;
}

/* The first run of free steps; GP_FIT_STEPS: none is long enough. */
static unsigned small_run(struct gp_fit_small *page, unsigned steps)
{
    unsigned start = 0, longest = 0;
    if (page->bound < steps)
        return GP_FIT_STEPS;
    for (unsigned at = 0; at < GP_FIT_STEPS; at++) {
        if (at % 64 == 0 && page->busy[at / 64] == UINT64_MAX) {
            at += 63;
            start = at + 1;
        } else if (page->busy[at / 64] >> at % 64 & 1) {
            start = at + 1;
        } else if (at + 1 - start >= steps) {
            return start;
        } else if (at + 1 - start > longest) {
            longest = at + 1 - start;
        }
    }
    page->bound = longest;
    return GP_FIT_STEPS;
}

static bool device_charge(struct gp_fit_device *device, uint64_t bytes)
{
    if (bytes > device->size - device->used)
        return false;
    device->used += bytes;
    device->peak = device->used > device->peak ? device->used : device->peak;
    return true;
}

static bool small_room(struct gp_fit_device *device)
{
    if (device->small_count < device->small_room)
        return true;
    uint32_t room = device->small_room ? device->small_room * 2 : 16;
    struct gp_fit_small *grown = realloc(device->small, room * sizeof(*grown));
    if (!grown)
        return false;
    device->small = grown;
    device->small_room = room;
    return true;
}

static bool small_take(struct gp_fit_device *device, unsigned steps, uint64_t *place)
{
    uint32_t empty = UINT32_MAX, at = device->small_first;
    while (device->small_first < device->small_count && device->small[device->small_first].used == GP_FIT_STEPS)
        at = ++device->small_first;
    for (; at < device->small_count; at++) {
        struct gp_fit_small *page = &device->small[at];
        if (!page->used) {
            empty = empty == UINT32_MAX ? at : empty;
            continue;
        }
        unsigned start = GP_FIT_STEPS - page->used >= steps ? small_run(page, steps) : GP_FIT_STEPS;
        if (start < GP_FIT_STEPS) {
            small_mark(page, start, steps, true);
            *place = (uint64_t)at * GP_FIT_STEPS + start;
            return true;
        }
    }
    if ((empty == UINT32_MAX && !small_room(device)) || !device_charge(device, GP_FIT_PAGE))
        return false;
    at = empty == UINT32_MAX ? device->small_count++ : empty;
    device->small[at] = (struct gp_fit_small){.bound = GP_FIT_STEPS};
    small_mark(&device->small[at], 0, steps, true);
    *place = (uint64_t)at * GP_FIT_STEPS;
    return true;
}

static uint64_t fit_round(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) / step * step;
}

bool gp_fit_device_take(struct gp_fit_device *device, uint64_t bytes, uint64_t *place)
{
    *place = GP_FIT_WHOLE;
    if (bytes > GP_FIT_SMALL)
        return device_charge(device, fit_round(bytes, GP_FIT_PAGE));
    return bytes == 0 || small_take(device, (unsigned)(fit_round(bytes, GP_FIT_STEP) / GP_FIT_STEP), place);
}

void gp_fit_device_give(struct gp_fit_device *device, uint64_t bytes, uint64_t place)
{
    if (place == GP_FIT_WHOLE) {
        device->used -= bytes > GP_FIT_SMALL ? fit_round(bytes, GP_FIT_PAGE) : 0;
        return;
    }
    uint32_t at = (uint32_t)(place / GP_FIT_STEPS);
    struct gp_fit_small *page = &device->small[at];
    small_mark(page, place % GP_FIT_STEPS, (unsigned)(fit_round(bytes, GP_FIT_STEP) / GP_FIT_STEP), false);
    page->bound = GP_FIT_STEPS;
    device->used -= page->used ? 0 : GP_FIT_PAGE;
    device->small_first = at < device->small_first ? at : device->small_first;
}

void gp_fit_device_fini(struct gp_fit_device *device)
{
    free(device->small);
    *device = (struct gp_fit_device){.size = device->size};
}

/* ---- the backend of a cache -------------------------------------------------------------------------------------- */

struct gp_fit_range { /* a driver allocation, a handle, or a reservation of addresses */
    uint64_t address, bytes, place;
    uint32_t next; /* a free range of the same size; UINT32_MAX: none */
};

/* Addresses of one size are used again, the last one first, so they do not run out. */
struct gp_fit_driver {
    struct gp_fit_device *device;
    struct gp_fit_range *ranges;
    uint32_t count, room;
    uint64_t next_address;
    struct gp_hash live; /* address -> its range */
    struct gp_hash idle; /* pages -> the first free range of that size */
};

static struct gp_fit_range *driver_range(struct gp_fit_driver *driver, uint64_t bytes, uint32_t *number)
{
    uint64_t pages = (bytes + GP_FIT_PAGE - 1) / GP_FIT_PAGE;
    if (gp_hash_get(&driver->idle, pages, number) && *number != UINT32_MAX) {
        struct gp_fit_range *range = &driver->ranges[*number];
        return gp_hash_set(&driver->idle, pages, range->next) == 0 ? range : NULL;
    }
    if (driver->count == driver->room) {
        uint32_t room = driver->room ? driver->room * 2 : 64;
        struct gp_fit_range *grown = realloc(driver->ranges, room * sizeof(*grown));
        if (!grown)
            return NULL;
        driver->ranges = grown;
        driver->room = room;
    }
    *number = driver->count;
    driver->ranges[*number] = (struct gp_fit_range){.address = driver->next_address};
    driver->next_address += pages * GP_FIT_PAGE;
    return &driver->ranges[driver->count++];
}

static void driver_retire(struct gp_fit_driver *driver, uint32_t number)
{
    struct gp_fit_range *range = &driver->ranges[number];
    uint64_t pages = (range->bytes + GP_FIT_PAGE - 1) / GP_FIT_PAGE;
    if (!gp_hash_get(&driver->idle, pages, &range->next))
        range->next = UINT32_MAX;
    /* Out of memory: the addresses are lost, which harms nothing. */
    (void)gp_hash_set(&driver->idle, pages, number);
}

/* memory: the range takes memory of the device. */
static uint32_t driver_new(struct gp_fit_driver *driver, uint64_t bytes, uint64_t *address, bool memory)
{
    uint32_t number;
    uint64_t place = GP_FIT_WHOLE;
    if (memory && !gp_fit_device_take(driver->device, bytes, &place))
        return GP_BACKEND_OOM;
    struct gp_fit_range *range = driver_range(driver, bytes, &number);
    if (!range || gp_hash_set(&driver->live, range->address, number) != 0) {
        if (memory)
            gp_fit_device_give(driver->device, bytes, place);
        return GP_BACKEND_OOM;
    }
    range->bytes = bytes;
    range->place = place;
    *address = range->address;
    return 0;
}

static uint32_t driver_end(struct gp_fit_driver *driver, uint64_t address, bool memory)
{
    uint32_t number;
    if (!gp_hash_get(&driver->live, address, &number))
        return GP_BACKEND_INVALID;
    if (memory)
        gp_fit_device_give(driver->device, driver->ranges[number].bytes, driver->ranges[number].place);
    gp_hash_remove(&driver->live, gp_hash_of_number(address), NULL, NULL);
    driver_retire(driver, number);
    return 0;
}

static uint32_t backend_allocate(void *self, uint64_t bytes, uint64_t *address)
{
    return driver_new(self, bytes, address, true);
}

static uint32_t backend_free(void *self, uint64_t address)
{
    return driver_end(self, address, true);
}

static uint32_t backend_reserve(void *self, uint64_t bytes, uint64_t *address)
{
    return driver_new(self, bytes, address, false);
}

static uint32_t backend_unreserve(void *self, uint64_t address, uint64_t bytes)
{
    (void)bytes;
    return driver_end(self, address, false);
}

static uint32_t backend_map(void *self, uint64_t address, uint64_t bytes, const uint64_t *handles,
                            const uint64_t *handle_bytes, unsigned count)
{
    (void)self, (void)address, (void)bytes, (void)handles, (void)handle_bytes, (void)count;
    return 0;
}

static uint32_t backend_unmap(void *self, uint64_t address, uint64_t bytes)
{
    (void)self, (void)address, (void)bytes;
    return 0;
}

static uint32_t backend_record(void *self, const uint64_t *streams, unsigned count, uint64_t *fence)
{
    (void)self, (void)streams, (void)count;
    *fence = 1;
    return 0;
}

static uint32_t backend_reached(void *self, uint64_t fence)
{
    (void)self, (void)fence;
    return 0;
}

static uint32_t backend_memory(void *self, uint64_t *free_bytes, uint64_t *total_bytes)
{
    const struct gp_fit_driver *driver = self;
    *free_bytes = driver->device->size - driver->device->used;
    *total_bytes = driver->device->size;
    return 0;
}

struct gp_fit_driver *gp_fit_driver_new(struct gp_fit_device *device, struct gp_backend *backend)
{
    struct gp_fit_driver *driver = calloc(1, sizeof(*driver));
    if (!driver)
        return NULL;
    driver->device = device;
    driver->next_address = GP_FIT_ADDRESS;
    *backend = (struct gp_backend){
        .self = driver,
        .page_bytes = GP_FIT_PAGE,
        .allocate = backend_allocate,
        .free = backend_free,
        .reserve = backend_reserve,
        .unreserve = backend_unreserve,
        .create = backend_allocate, /* handles are named by addresses */
        .destroy = backend_free,
        .map = backend_map,
        .unmap = backend_unmap,
        .record = backend_record,
        .query = backend_reached,
        .wait = backend_reached,
        .memory = backend_memory,
    };
    return driver;
}

void gp_fit_driver_free(struct gp_fit_driver *driver)
{
    if (!driver)
        return;
    free(driver->ranges);
    gp_hash_free(&driver->live);
    gp_hash_free(&driver->idle);
    free(driver);
}
