/* SPDX-License-Identifier: MIT
 * fitdevice.c: the model of a driver's device memory, and the table of functions with which a cache
 * gets memory from it; see fit.h.  Called by fit.c. */
#include <analyze/fit.h>

#include <cache/cache.h>
#include <read/common/hash.h>
#include <stdlib.h>
#include <string.h>

#define GP_FIT_STEP  512u
#define GP_FIT_STEPS (GP_FIT_PAGE / GP_FIT_STEP)
/* The first address that is handed out: NULL and small numbers are none. */
#define GP_FIT_ADDRESS (1ull << 32)
#define GP_FIT_TOP     (1ull << 47)

/* ---- small requests ---------------------------------------------------------------------------------------------- */

struct gp_fit_small { /* one page; without memory while used is 0 */
    uint32_t used;    /* steps */
    uint64_t busy[GP_FIT_STEPS / 64];
};

static bool small_is_busy(const struct gp_fit_small *page, unsigned step)
{
    return page->busy[step / 64] >> step % 64 & 1;
}

static void small_mark(struct gp_fit_small *page, unsigned start, unsigned steps, bool busy)
{
    for (unsigned at = start; at < start + steps;) {
        unsigned some = 64 - at % 64 < start + steps - at ? 64 - at % 64 : start + steps - at;
        uint64_t mask = (some == 64 ? UINT64_MAX : (1ull << some) - 1) << at % 64;
        page->busy[at / 64] = busy ? page->busy[at / 64] | mask : page->busy[at / 64] & ~mask;
        at += some;
    }
    page->used = busy ? page->used + steps : page->used - steps;
}

/* The first step from `at` on that is busy, or that is free. */
static unsigned small_next(const struct gp_fit_small *page, unsigned at, bool busy)
{
    while (at < GP_FIT_STEPS) {
        uint64_t word = (busy ? page->busy[at / 64] : ~page->busy[at / 64]) >> at % 64;
        if (word)
            return at + (unsigned)__builtin_ctzll(word);
        at = at / 64 * 64 + 64;
    }
    return GP_FIT_STEPS;
}

/* The first run of so many free steps; GP_FIT_STEPS: there is none, and the longest has *longest. */
static unsigned small_run(const struct gp_fit_small *page, unsigned steps, unsigned *longest)
{
    *longest = 0;
    for (unsigned start = small_next(page, 0, false), end; start < GP_FIT_STEPS; start = small_next(page, end, false)) {
        end = small_next(page, start, true);
        if (end - start >= steps)
            return start;
        GP_RAISE(*longest, end - start);
    }
    return GP_FIT_STEPS;
}

/* The run of free steps around a place. */
static unsigned small_around(const struct gp_fit_small *page, unsigned start)
{
    unsigned first = start;
    while (first > 0 && !small_is_busy(page, first - 1))
        first -= first % 64 == 0 && !page->busy[first / 64 - 1] ? 64 : 1;
    return small_next(page, start, true) - first;
}

bool gp_fit_device_charge(struct gp_fit_device *device, uint64_t bytes)
{
    if (bytes > device->size - device->used && device->short_of)
        device->short_of(device->short_arg);
    if (bytes > device->size - device->used)
        return false;
    device->used += bytes;
    GP_RAISE(device->peak, device->used);
    return true;
}

/* runs[] is a tree of maxima: the leaf of a page, runs[small_room + page], is at least the length of
 * its longest free run, 0 if it is empty. */
static void small_bound(struct gp_fit_device *device, uint32_t page, unsigned run)
{
    uint32_t at = device->small_room + page;
    device->runs[at] = (uint16_t)run;
    while (at /= 2) {
        uint16_t one = device->runs[at * 2], other = device->runs[at * 2 + 1], most = one > other ? one : other;
        if (device->runs[at] == most)
            return;
        device->runs[at] = most;
    }
}

/* The first page that may have such a run, or the last one; UINT32_MAX: none. */
static uint32_t small_page(const struct gp_fit_device *device, unsigned steps)
{
    uint32_t at = 1;
    if (!device->small_room || device->runs[1] < steps)
        return UINT32_MAX;
    uint32_t wanted = device->downward;
    while (at < device->small_room)
        at = at * 2 + (device->runs[at * 2 + wanted] >= steps ? wanted : !wanted);
    return at - device->small_room;
}

static bool small_grow(struct gp_fit_device *device)
{
    uint32_t old = device->small_room, room = old ? old * 2 : 16;
    struct gp_fit_small *small = realloc(device->small, room * sizeof(*small));
    device->small = small ? small : device->small;
    uint16_t *runs = calloc(room * 2ul, sizeof(*runs));
    if (!small || !runs) {
        free(runs);
        return false;
    }
    memset(small + old, 0, (room - old) * sizeof(*small));
    uint16_t *before = device->runs;
    device->runs = runs;
    device->small_room = room;
    for (uint32_t i = 0; i < old; i++)
        small_bound(device, i, before[old + i]);
    free(before);
    return true;
}

static bool small_new(struct gp_fit_device *device, uint32_t *page)
{
    while (device->small_empty < device->small_room && device->small[device->small_empty].used)
        device->small_empty++;
    *page = device->small_empty;
    return (*page < device->small_room || small_grow(device)) && gp_fit_device_charge(device, GP_FIT_PAGE);
}

static bool small_take(struct gp_fit_device *device, unsigned steps, uint64_t *place)
{
    unsigned start = GP_FIT_STEPS, longest;
    uint32_t page;
    while ((page = small_page(device, steps)) != UINT32_MAX) {
        start = small_run(&device->small[page], steps, &longest);
        if (start < GP_FIT_STEPS)
            break;
        small_bound(device, page, longest);
    }
    if (page == UINT32_MAX) {
        if (!small_new(device, &page))
            return false;
        start = 0;
        small_bound(device, page, GP_FIT_STEPS - steps);
    }
    small_mark(&device->small[page], start, steps, true);
    *place = (uint64_t)page * GP_FIT_STEPS + start;
    return true;
}

static void small_give(struct gp_fit_device *device, uint64_t place, unsigned steps)
{
    uint32_t page = (uint32_t)(place / GP_FIT_STEPS);
    unsigned start = place % GP_FIT_STEPS;
    struct gp_fit_small *small = &device->small[page];
    small_mark(small, start, steps, false);
    if (!small->used) {
        device->used -= GP_FIT_PAGE;
        GP_LOWER(device->small_empty, page);
        small_bound(device, page, 0);
        return;
    }
    unsigned run = small_around(small, start);
    if (run > device->runs[device->small_room + page])
        small_bound(device, page, run);
}

static uint64_t fit_round(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) / step * step;
}

bool gp_fit_device_take(struct gp_fit_device *device, uint64_t bytes, uint64_t *place)
{
    *place = GP_FIT_WHOLE;
    if (bytes > GP_FIT_SMALL)
        return gp_fit_device_charge(device, fit_round(bytes, GP_FIT_PAGE));
    return bytes == 0 || small_take(device, (unsigned)(fit_round(bytes, GP_FIT_STEP) / GP_FIT_STEP), place);
}

void gp_fit_device_give(struct gp_fit_device *device, uint64_t bytes, uint64_t place)
{
    if (place == GP_FIT_WHOLE) {
        device->used -= bytes > GP_FIT_SMALL ? fit_round(bytes, GP_FIT_PAGE) : 0;
        return;
    }
    small_give(device, place, (unsigned)(fit_round(bytes, GP_FIT_STEP) / GP_FIT_STEP));
}

void gp_fit_device_fini(struct gp_fit_device *device)
{
    free(device->small);
    free(device->runs);
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
    driver->next_address -= driver->device->downward ? pages * GP_FIT_PAGE : 0;
    driver->ranges[*number] = (struct gp_fit_range){.address = driver->next_address};
    driver->next_address += driver->device->downward ? 0 : pages * GP_FIT_PAGE;
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
    driver->next_address = device->downward ? GP_FIT_TOP : GP_FIT_ADDRESS;
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
