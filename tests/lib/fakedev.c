/* SPDX-License-Identifier: MIT
 * fakedev.c: the backend that checks every call; see fakedev.h. */
#include "lib/fakedev.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PACKED_BYTES (1ull << 20) /* the driver puts several allocations up to this size into one 2 MiB block */
#define PACKED_ALIGN 512ull
#define LARGE_ALIGN  (2ull << 20)

void fakedev_fault(struct fakedev *dev, const char *format, ...)
{
    va_list args;
    if (__atomic_fetch_add(&dev->faults, 1, __ATOMIC_ACQ_REL))
        return;
    va_start(args, format);
    vsnprintf(dev->fault, sizeof dev->fault, format, args);
    va_end(args);
}

/* ---- lists of ranges -------------------------------------------------------------------------------------------- */

/* The first range that ends after the address. */
static size_t list_seek(const struct fakedev_list *list, uint64_t address)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (list->at[middle].address + list->at[middle].bytes > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void *array_room(void *array, size_t count, size_t *room, size_t bytes)
{
    if (count < *room)
        return array;
    *room = *room ? *room * 2 : 64;
    array = realloc(array, *room * bytes);
    if (!array)
        abort();
    return array;
}

static void list_put(struct fakedev_list *list, struct fakedev_range range)
{
    size_t i = list_seek(list, range.address);
    list->at = array_room(list->at, list->count, &list->room, sizeof list->at[0]);
    memmove(&list->at[i + 1], &list->at[i], (list->count - i) * sizeof list->at[0]);
    list->at[i] = range;
    list->count++;
}

static void list_drop(struct fakedev_list *list, size_t i, size_t n)
{
    memmove(&list->at[i], &list->at[i + n], (list->count - i - n) * sizeof list->at[0]);
    list->count -= n;
}

static struct fakedev_range *list_at(const struct fakedev_list *list, uint64_t address)
{
    size_t i = list_seek(list, address);
    return i < list->count && list->at[i].address <= address ? &list->at[i] : NULL;
}

static bool list_touches(const struct fakedev_list *list, uint64_t address, uint64_t bytes)
{
    size_t i = list_seek(list, address);
    return i < list->count && list->at[i].address < address + bytes;
}

/* The lowest free place of the arena, so addresses are reused as early as possible. */
static uint64_t arena_place(const struct fakedev *dev, uint64_t bytes, uint64_t align)
{
    uint64_t at = FAKEDEV_BASE;
    for (;;) {
        const struct fakedev_range *busy = NULL;
        size_t i = list_seek(&dev->linear, at), j = list_seek(&dev->ranges, at);
        if (i < dev->linear.count && dev->linear.at[i].address < at + bytes)
            busy = &dev->linear.at[i];
        else if (j < dev->ranges.count && dev->ranges.at[j].address < at + bytes)
            busy = &dev->ranges.at[j];
        if (!busy)
            return at + bytes <= FAKEDEV_BASE + FAKEDEV_ARENA ? at : 0;
        at = (busy->address + busy->bytes + align - 1) / align * align;
    }
}

/* ---- every call ------------------------------------------------------------------------------------------------- */

/* Counts the call, runs the hook, and returns the script's error. If it returns 0, the mutex is held. */
static uint32_t call_begin(struct fakedev *dev, enum fakedev_call call)
{
    if (dev->enter)
        dev->enter(dev->arg, call);
    pthread_mutex_lock(&dev->mutex);
    uint32_t rc = 0;
    dev->call_count++;
    dev->calls[call]++;
    if (__atomic_load_n(&dev->capturing, __ATOMIC_ACQUIRE)) {
        rc = GP_BACKEND_FORBIDDEN;
    } else if (dev->call_count == dev->fail_at || dev->calls[call] == dev->fail_kind_at[call]) {
        rc = dev->fail_code ? dev->fail_code : FAKEDEV_FAILED;
        dev->failed++;
    }
    if (rc)
        pthread_mutex_unlock(&dev->mutex);
    return rc;
}

static uint32_t call_end(struct fakedev *dev, uint32_t rc)
{
    pthread_mutex_unlock(&dev->mutex);
    return rc;
}

static uint32_t call_fault(struct fakedev *dev, const char *what, uint64_t a, uint64_t b)
{
    fakedev_fault(dev, "%s (%#llx, %#llx)", what, (unsigned long long)a, (unsigned long long)b);
    return call_end(dev, GP_BACKEND_INVALID);
}

static void hold(struct fakedev *dev, uint64_t bytes)
{
    dev->held += bytes;
    dev->held_peak = dev->held > dev->held_peak ? dev->held : dev->held_peak;
}

static void leave(struct fakedev *dev, uint64_t address, uint64_t bytes)
{
    const char *why = dev->leave ? dev->leave(dev->arg, address, bytes) : NULL;
    if (why)
        fakedev_fault(dev, "memory %#llx + %#llx leaves: %s", (unsigned long long)address, (unsigned long long)bytes,
                      why);
}

/* ---- driver allocations ----------------------------------------------------------------------------------------- */

static uint32_t fake_allocate(void *self, uint64_t bytes, uint64_t *address)
{
    struct fakedev *dev = self;
    uint32_t rc = call_begin(dev, FAKEDEV_ALLOCATE);
    if (rc)
        return rc;
    if (bytes == 0)
        return call_fault(dev, "allocate: no bytes", 0, 0);
    if (bytes > dev->capacity || dev->held + bytes > dev->capacity)
        return call_end(dev, GP_BACKEND_OOM);
    uint64_t at = arena_place(dev, bytes, bytes <= PACKED_BYTES ? PACKED_ALIGN : LARGE_ALIGN);
    if (!at)
        return call_end(dev, GP_BACKEND_OOM);
    list_put(&dev->linear, (struct fakedev_range){.address = at, .bytes = bytes});
    hold(dev, bytes);
    *address = at;
    return call_end(dev, 0);
}

static uint32_t fake_free(void *self, uint64_t address)
{
    struct fakedev *dev = self;
    uint32_t rc = call_begin(dev, FAKEDEV_FREE);
    if (rc)
        return rc;
    struct fakedev_range *range = list_at(&dev->linear, address);
    if (!range || range->address != address)
        return call_fault(dev, "free: no allocation begins there", address, 0);
    /* cuMemFree waits for the device if it must. No other call that releases memory does. */
    if (dev->leave && !dev->lies && dev->leave(dev->arg, range->address, range->bytes))
        fakedev_complete_all(dev);
    leave(dev, range->address, range->bytes);
    dev->held -= range->bytes;
    list_drop(&dev->linear, (size_t)(range - dev->linear.at), 1);
    return call_end(dev, 0);
}

/* ---- virtual memory --------------------------------------------------------------------------------------------- */

static bool paged(const struct fakedev *dev, uint64_t value)
{
    return dev->page_bytes && value % dev->page_bytes == 0;
}

static uint32_t fake_reserve(void *self, uint64_t bytes, uint64_t *address)
{
    struct fakedev *dev = self;
    uint32_t rc = call_begin(dev, FAKEDEV_RESERVE);
    if (rc)
        return rc;
    if (bytes == 0 || !paged(dev, bytes))
        return call_fault(dev, "reserve: not whole pages", bytes, 0);
    uint64_t at = arena_place(dev, bytes, LARGE_ALIGN);
    if (!at)
        return call_end(dev, GP_BACKEND_OOM);
    /* arena_place starts at BASE, which is aligned, and advances by aligned steps. */
    list_put(&dev->ranges, (struct fakedev_range){.address = at, .bytes = bytes});
    *address = at;
    return call_end(dev, 0);
}

static uint32_t fake_unreserve(void *self, uint64_t address, uint64_t bytes)
{
    struct fakedev *dev = self;
    uint32_t rc = call_begin(dev, FAKEDEV_UNRESERVE);
    if (rc)
        return rc;
    struct fakedev_range *range = list_at(&dev->ranges, address);
    if (!range || range->address != address || range->bytes != bytes)
        return call_fault(dev, "unreserve: no such range", address, bytes);
    if (list_touches(&dev->mappings, address, bytes))
        return call_fault(dev, "unreserve: still mapped", address, bytes);
    list_drop(&dev->ranges, (size_t)(range - dev->ranges.at), 1);
    return call_end(dev, 0);
}

static struct fakedev_handle *handle_find(struct fakedev *dev, uint64_t id)
{
    for (size_t i = 0; i < dev->handle_count; i++)
        if (dev->handles[i].id == id)
            return &dev->handles[i];
    return NULL;
}

static uint32_t fake_create(void *self, uint64_t bytes, uint64_t *handle)
{
    struct fakedev *dev = self;
    uint32_t rc = call_begin(dev, FAKEDEV_CREATE);
    if (rc)
        return rc;
    if (bytes == 0 || !paged(dev, bytes))
        return call_fault(dev, "create: not whole pages", bytes, 0);
    if (bytes > dev->capacity || dev->held + bytes > dev->capacity)
        return call_end(dev, GP_BACKEND_OOM);
    dev->handles = array_room(dev->handles, dev->handle_count, &dev->handle_room, sizeof dev->handles[0]);
    *handle = ++dev->next_id;
    dev->handles[dev->handle_count++] = (struct fakedev_handle){.id = *handle, .bytes = bytes};
    hold(dev, bytes);
    return call_end(dev, 0);
}

static uint32_t fake_destroy(void *self, uint64_t handle)
{
    struct fakedev *dev = self;
    uint32_t rc = call_begin(dev, FAKEDEV_DESTROY);
    if (rc)
        return rc;
    struct fakedev_handle *found = handle_find(dev, handle);
    if (!found)
        return call_fault(dev, "destroy: no such handle", handle, 0);
    if (found->mapped)
        return call_fault(dev, "destroy: still mapped", handle, 0);
    dev->held -= found->bytes;
    *found = dev->handles[--dev->handle_count];
    return call_end(dev, 0);
}

/* The text of the error in a call of map, or NULL. */
static const char *map_wrong(struct fakedev *dev, uint64_t address, uint64_t bytes, const uint64_t *handles,
                             const uint64_t *handle_bytes, unsigned count)
{
    struct fakedev_range *range = list_at(&dev->ranges, address);
    uint64_t sum = 0;
    if (bytes == 0 || !paged(dev, address) || !paged(dev, bytes))
        return "map: not whole pages";
    if (!range || address + bytes > range->address + range->bytes)
        return "map: outside an address range";
    if (list_touches(&dev->mappings, address, bytes))
        return "map: something is mapped there";
    for (unsigned i = 0; i < count; i++) {
        struct fakedev_handle *handle = handle_find(dev, handles[i]);
        if (!handle)
            return "map: no such handle";
        if (handle->mapped)
            return "map: handle is mapped already";
        if (handle->bytes != handle_bytes[i])
            return "map: a handle is mapped in part";
        for (unsigned j = 0; j < i; j++)
            if (handles[j] == handles[i])
                return "map: a handle twice";
        sum += handle_bytes[i];
    }
    return sum == bytes ? NULL : "map: the handles do not fill the range";
}

static uint32_t fake_map(void *self, uint64_t address, uint64_t bytes, const uint64_t *handles,
                         const uint64_t *handle_bytes, unsigned count)
{
    struct fakedev *dev = self;
    uint32_t rc = call_begin(dev, FAKEDEV_MAP);
    if (rc)
        return rc;
    const char *wrong = map_wrong(dev, address, bytes, handles, handle_bytes, count);
    if (wrong)
        return call_fault(dev, wrong, address, bytes);
    dev->next_group++;
    for (unsigned i = 0; i < count; i++) {
        handle_find(dev, handles[i])->mapped = true;
        list_put(&dev->mappings,
                 (struct fakedev_range){
                     .address = address, .bytes = handle_bytes[i], .handle = handles[i], .group = dev->next_group});
        address += handle_bytes[i];
    }
    return call_end(dev, 0);
}

static uint32_t fake_unmap(void *self, uint64_t address, uint64_t bytes)
{
    struct fakedev *dev = self;
    uint32_t rc = call_begin(dev, FAKEDEV_UNMAP);
    if (rc)
        return rc;
    size_t first = list_seek(&dev->mappings, address), i = first;
    uint64_t at = address;
    /* The range must consist of whole handles, without a gap. */
    for (; i < dev->mappings.count && at < address + bytes && dev->mappings.at[i].address == at; i++)
        at += dev->mappings.at[i].bytes;
    if (bytes == 0 || at != address + bytes)
        return call_fault(dev, "unmap: not whole mappings", address, bytes);
    leave(dev, address, bytes);
    for (size_t m = first; m < i; m++)
        handle_find(dev, dev->mappings.at[m].handle)->mapped = false;
    list_drop(&dev->mappings, first, i - first);
    return call_end(dev, 0);
}

/* ---- streams and fences ----------------------------------------------------------------------------------------- */

unsigned fakedev_stream_open(struct fakedev *dev, uint64_t id)
{
    pthread_mutex_lock(&dev->mutex);
    unsigned index = dev->stream_count;
    if (index == FAKEDEV_STREAMS)
        abort();
    dev->streams[index] = (struct fakedev_stream){.id = id};
    __atomic_store_n(&dev->stream_count, index + 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&dev->mutex);
    return index;
}

/* The latest incarnation; FAKEDEV_STREAMS: none alive. */
static unsigned stream_index(struct fakedev *dev, uint64_t id)
{
    for (unsigned i = __atomic_load_n(&dev->stream_count, __ATOMIC_ACQUIRE); i-- > 0;)
        if (dev->streams[i].id == id && !dev->streams[i].gone)
            return i;
    return FAKEDEV_STREAMS;
}

unsigned fakedev_stream_index(struct fakedev *dev, uint64_t id)
{
    unsigned index = stream_index(dev, id);
    if (index == FAKEDEV_STREAMS)
        abort(); /* a mistake of the test */
    return index;
}

void fakedev_stream_close(struct fakedev *dev, uint64_t id)
{
    unsigned index = fakedev_stream_index(dev, id);
    pthread_mutex_lock(&dev->mutex);
    dev->streams[index].gone = true;
    pthread_mutex_unlock(&dev->mutex);
}

uint64_t fakedev_submit(struct fakedev *dev, unsigned index)
{
    return __atomic_add_fetch(&dev->streams[index].submitted, 1, __ATOMIC_ACQ_REL);
}

void fakedev_complete(struct fakedev *dev, unsigned index, uint64_t upto)
{
    struct fakedev_stream *stream = &dev->streams[index];
    uint64_t most = __atomic_load_n(&stream->submitted, __ATOMIC_ACQUIRE);
    uint64_t seen = __atomic_load_n(&stream->completed, __ATOMIC_ACQUIRE);
    upto = upto < most ? upto : most;
    while (seen < upto &&
           !__atomic_compare_exchange_n(&stream->completed, &seen, upto, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        ;
}

void fakedev_complete_all(struct fakedev *dev)
{
    for (unsigned i = 0; i < __atomic_load_n(&dev->stream_count, __ATOMIC_ACQUIRE); i++)
        fakedev_complete(dev, i, UINT64_MAX);
}

bool fakedev_done(struct fakedev *dev, unsigned index, uint64_t number)
{
    return __atomic_load_n(&dev->streams[index].completed, __ATOMIC_ACQUIRE) >= number;
}

static uint32_t fake_record(void *self, const uint64_t *streams, unsigned count, uint64_t *fence)
{
    struct fakedev *dev = self;
    struct fakedev_fence made = {0};
    uint32_t rc = call_begin(dev, FAKEDEV_RECORD);
    if (rc)
        return rc;
    dev->recorded_streams = count;
    for (unsigned i = 0; i < count; i++) {
        unsigned index = stream_index(dev, streams[i]);
        if (index == FAKEDEV_STREAMS)
            return call_fault(dev, "record: no such stream", streams[i], i);
        made.submitted[index] = __atomic_load_n(&dev->streams[index].submitted, __ATOMIC_ACQUIRE);
    }
    for (unsigned i = 0; count == 0 && i < dev->stream_count; i++)
        made.submitted[i] = __atomic_load_n(&dev->streams[i].submitted, __ATOMIC_ACQUIRE);
    dev->fences = array_room(dev->fences, dev->fence_count, &dev->fence_room, sizeof dev->fences[0]);
    *fence = made.id = ++dev->next_id;
    dev->fences[dev->fence_count++] = made;
    return call_end(dev, 0);
}

static struct fakedev_fence *fence_find(struct fakedev *dev, uint64_t id)
{
    for (size_t i = 0; i < dev->fence_count; i++)
        if (dev->fences[i].id == id)
            return &dev->fences[i];
    return NULL;
}

/* A refused call leaves the fence as it is, but its maker may treat it as gone. Any other error means that
 * the device has failed: the fence is gone, and no work accesses memory any more. */
static uint32_t fence_refused(struct fakedev *dev, uint64_t id, uint32_t rc)
{
    pthread_mutex_lock(&dev->mutex);
    struct fakedev_fence *fence = fence_find(dev, id);
    if (fence && rc == GP_BACKEND_FORBIDDEN)
        fence->excused = true;
    else if (fence)
        *fence = dev->fences[--dev->fence_count];
    if (rc != GP_BACKEND_FORBIDDEN)
        fakedev_complete_all(dev);
    return call_end(dev, rc);
}

static uint32_t fake_query(void *self, uint64_t id)
{
    struct fakedev *dev = self;
    uint32_t rc = call_begin(dev, FAKEDEV_QUERY);
    if (rc)
        return fence_refused(dev, id, rc);
    struct fakedev_fence *fence = fence_find(dev, id);
    if (!fence)
        return call_fault(dev, "query: no such fence", id, 0);
    for (unsigned i = 0; i < dev->stream_count && !dev->lies; i++)
        if (!fakedev_done(dev, i, fence->submitted[i]))
            return call_end(dev, GP_BACKEND_BUSY);
    *fence = dev->fences[--dev->fence_count];
    return call_end(dev, 0);
}

/* Simulates the wait: completes exactly the work that the fence covers. */
static uint32_t fake_wait(void *self, uint64_t id)
{
    struct fakedev *dev = self;
    uint32_t rc = call_begin(dev, FAKEDEV_WAIT);
    if (rc)
        return fence_refused(dev, id, rc);
    struct fakedev_fence *fence = fence_find(dev, id);
    if (!fence)
        return call_fault(dev, "wait: no such fence", id, 0);
    for (unsigned i = 0; i < dev->stream_count && !dev->lies; i++)
        fakedev_complete(dev, i, fence->submitted[i]);
    *fence = dev->fences[--dev->fence_count];
    return call_end(dev, 0);
}

static uint32_t fake_memory(void *self, uint64_t *free_bytes, uint64_t *total_bytes)
{
    struct fakedev *dev = self;
    uint32_t rc = call_begin(dev, FAKEDEV_MEMORY);
    if (rc)
        return rc;
    *free_bytes = dev->capacity - dev->held;
    *total_bytes = dev->capacity;
    return call_end(dev, 0);
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

struct gp_backend fakedev_backend(struct fakedev *dev)
{
    struct gp_backend backend = {.self = dev,
                                 .page_bytes = dev->page_bytes,
                                 .allocate = fake_allocate,
                                 .free = fake_free,
                                 .record = fake_record,
                                 .query = fake_query,
                                 .wait = fake_wait,
                                 .memory = fake_memory};
    if (dev->page_bytes) {
        backend.reserve = fake_reserve;
        backend.unreserve = fake_unreserve;
        backend.create = fake_create;
        backend.destroy = fake_destroy;
        backend.map = fake_map;
        backend.unmap = fake_unmap;
    }
    return backend;
}

int fakedev_init(struct fakedev *dev, uint64_t capacity, uint64_t page_bytes)
{
    memset(dev, 0, sizeof *dev);
    dev->capacity = capacity;
    dev->page_bytes = page_bytes;
    return -pthread_mutex_init(&dev->mutex, NULL);
}

void fakedev_fini(struct fakedev *dev)
{
    free(dev->linear.at);
    free(dev->ranges.at);
    free(dev->mappings.at);
    free(dev->handles);
    free(dev->fences);
    pthread_mutex_destroy(&dev->mutex);
}

bool fakedev_linear(struct fakedev *dev, uint64_t address, uint64_t bytes, struct fakedev_range *out)
{
    pthread_mutex_lock(&dev->mutex);
    const struct fakedev_range *range = list_at(&dev->linear, address);
    bool inside = range && address + bytes <= range->address + range->bytes;
    if (inside && out)
        *out = *range;
    pthread_mutex_unlock(&dev->mutex);
    return inside;
}

bool fakedev_holds(struct fakedev *dev, uint64_t address, uint64_t bytes)
{
    if (fakedev_linear(dev, address, bytes, NULL))
        return true;
    pthread_mutex_lock(&dev->mutex);
    uint64_t at = address;
    for (size_t i = list_seek(&dev->mappings, address); i < dev->mappings.count && at < address + bytes; i++) {
        if (dev->mappings.at[i].address > at)
            break;
        at = dev->mappings.at[i].address + dev->mappings.at[i].bytes;
    }
    pthread_mutex_unlock(&dev->mutex);
    return at >= address + bytes;
}

bool fakedev_holds_any(struct fakedev *dev, uint64_t address, uint64_t bytes)
{
    pthread_mutex_lock(&dev->mutex);
    bool any = list_touches(&dev->linear, address, bytes) || list_touches(&dev->mappings, address, bytes);
    pthread_mutex_unlock(&dev->mutex);
    return any;
}

void fakedev_die(struct fakedev *dev)
{
    fakedev_complete_all(dev);
    pthread_mutex_lock(&dev->mutex);
    dev->linear.count = dev->ranges.count = dev->mappings.count = 0;
    dev->handle_count = dev->fence_count = 0;
    dev->held = 0;
    pthread_mutex_unlock(&dev->mutex);
}

size_t fakedev_left(struct fakedev *dev, bool ranges, char *what, size_t what_bytes)
{
    pthread_mutex_lock(&dev->mutex);
    size_t fences = 0, vas = ranges ? dev->ranges.count : 0;
    for (size_t i = 0; i < dev->fence_count; i++)
        fences += !dev->fences[i].excused;
    size_t left = dev->linear.count + dev->handle_count + dev->mappings.count + vas + fences;
    snprintf(what, what_bytes, "%zu allocations, %zu handles, %zu mappings, %zu ranges, %zu fences (%llu bytes)",
             dev->linear.count, dev->handle_count, dev->mappings.count, vas, fences, (unsigned long long)dev->held);
    pthread_mutex_unlock(&dev->mutex);
    return left;
}
