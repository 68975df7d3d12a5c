/* SPDX-License-Identifier: MIT
 * fakedriver.c: see fakedriver.h. */
#include "lib/fakedriver.h"
#include "allocator/driver.h"
#include "base/thread.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define OBJECTS 512
#define PAGE    (2ull << 20)

enum kind { NONE, CONTEXT, LINEAR, RANGE, HANDLE, MAPPING, STREAM, EVENT };

/* One record of any kind. */
struct object {
    enum kind kind;
    uint64_t key, bytes; /* a handle, or an address and its bytes */
    void *ctx;           /* that it dies with */
    int device;
    int references;   /* context: retained; handle: mappings */
    uint64_t backing; /* mapping: its handle */
    unsigned access;  /* mapping: a bit for each device */
    bool primary, synced, released, capturing;
    uint64_t submitted, done; /* stream: pieces of work; event: in `of`, up to `submitted` */
    uint64_t of;
};

struct fakedriver fakedriver;
static struct object objects[OBJECTS];
static void *stack[16];
static unsigned depth;
static uint64_t next_handle = 0x5000, next_address = 1ull << 40;

static void fault(const char *format, ...)
{
    va_list args;
    if (fakedriver.faults++)
        return;
    va_start(args, format);
    vsnprintf(fakedriver.fault, sizeof(fakedriver.fault), format, args);
    va_end(args);
}

static struct object *find(enum kind kind, uint64_t key)
{
    for (unsigned i = 0; i < OBJECTS; i++)
        if (objects[i].kind == kind && objects[i].key == key)
            return &objects[i];
    return NULL;
}

static struct object *around(enum kind kind, uint64_t address)
{
    for (unsigned i = 0; i < OBJECTS; i++)
        if (objects[i].kind == kind && address - objects[i].key < objects[i].bytes)
            return &objects[i];
    return NULL;
}

static struct object *make(enum kind kind, uint64_t key)
{
    static struct object spare;
    for (unsigned i = 0; i < OBJECTS; i++)
        if (objects[i].kind == NONE) {
            objects[i] = (struct object){.kind = kind, .key = key, .ctx = fakedriver_current(), .device = -1};
            objects[i].device = fakedriver_context_device(objects[i].ctx);
            return &objects[i];
        }
    fault("the fake driver is full");
    return &spare;
}

static unsigned count(enum kind kind)
{
    unsigned found = 0;
    for (unsigned i = 0; i < OBJECTS; i++)
        found += objects[i].kind == kind;
    return found;
}

/* ---- every call -------------------------------------------------------------------------------------------------- */

enum call {
#define GP_DRIVER(_name, ...) CALL_##_name,
#include "allocator/driver.def"
#undef GP_DRIVER
    CALLS
};
static const char *const names[] = {
#define GP_DRIVER(_name, ...) #_name,
#include "allocator/driver.def"
#undef GP_DRIVER
};
static unsigned counts[CALLS];

/* Nonzero: the result of the call, which does nothing. */
static uint32_t begin(enum call call)
{
    unsigned number = ++counts[call];
    fakedriver.calls++;
    bool asks = call == CALL_cuCtxGetCurrent || call == CALL_cuCtxGetDevice || call == CALL_cuDevicePrimaryCtxGetState;
    if (!asks && !fakedriver.program && !gp_thread.ignored && !gp_thread.inside)
        fault("%s: the library's call would be accounted", names[call]);
    if (fakedriver.lacks && strcmp(fakedriver.lacks, names[call]) == 0)
        fault("%s: the driver has no such function", names[call]);
    if (!fakedriver.fails || strcmp(fakedriver.fails, names[call]) != 0 ||
        (fakedriver.number && fakedriver.number != number))
        return 0;
    fakedriver.failed++;
    return fakedriver.code;
}

#define BEGIN(_name)                                                                                                   \
    uint32_t failed = begin(CALL_##_name);                                                                             \
    if (failed)                                                                                                        \
    return failed
#define NEED(_condition, _code, ...)                                                                                   \
    if (!(_condition)) {                                                                                               \
        if (gp_thread.ignored || gp_thread.inside)                                                                     \
            fault(__VA_ARGS__);                                                                                        \
        return _code;                                                                                                  \
    }
#define NEED_CONTEXT(_name) NEED(fakedriver_current(), GP_CU_INVALID_CONTEXT, #_name ": no context is current")

/* ---- devices and contexts ---------------------------------------------------------------------------------------- */

static uint32_t fake_cuInit(unsigned flags)
{
    BEGIN(cuInit);
    return flags;
}

static uint32_t fake_cuDeviceGet(int *device, int ordinal)
{
    BEGIN(cuDeviceGet);
    if (ordinal < 0 || ordinal >= FAKEDRIVER_DEVICES)
        return 101;
    *device = ordinal;
    return 0;
}

/* The library was told that growable memory of device 0 can be registered. */
static bool rdma;

static uint32_t fake_cuDeviceGetAttribute(int *value, int attribute, int device)
{
    BEGIN(cuDeviceGetAttribute);
    *value = attribute == GP_CU_RDMA_VMM && device == 0;
    rdma |= *value != 0;
    return 0;
}

static uint32_t fake_cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    BEGIN(cuDeviceTotalMem_v2);
    (void)device;
    *bytes = FAKEDRIVER_MEMORY;
    return 0;
}

void *fakedriver_current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

unsigned fakedriver_depth(void)
{
    return depth;
}

int fakedriver_context_device(void *ctx)
{
    const struct object *context = ctx ? find(CONTEXT, (uintptr_t)ctx) : NULL;
    return context ? context->device : -1;
}

static struct object *primary_of(int device)
{
    for (unsigned i = 0; i < OBJECTS; i++)
        if (objects[i].kind == CONTEXT && objects[i].primary && objects[i].device == device)
            return &objects[i];
    return NULL;
}

int fakedriver_references(int device)
{
    const struct object *primary = primary_of(device);
    return primary ? primary->references : 0;
}

/* A primary context keeps its handle. */
static uint32_t fake_cuDevicePrimaryCtxRetain(void **ctx, int device)
{
    BEGIN(cuDevicePrimaryCtxRetain);
    struct object *primary = primary_of(device);
    if (!primary) {
        primary = make(CONTEXT, 0x1000 + 16 * (unsigned)device);
        primary->primary = true;
        primary->device = device;
        primary->ctx = NULL;
    }
    primary->references++;
    *ctx = (void *)(uintptr_t)primary->key;
    return 0;
}

static void context_end(struct object *context)
{
    void *ctx = (void *)(uintptr_t)context->key;
    for (unsigned i = 0; i < OBJECTS; i++)
        if (objects[i].ctx == ctx &&
            (objects[i].kind == LINEAR || objects[i].kind == STREAM || objects[i].kind == EVENT))
            objects[i].kind = NONE;
    context->kind = NONE;
}

static uint32_t fake_cuDevicePrimaryCtxRelease_v2(int device)
{
    BEGIN(cuDevicePrimaryCtxRelease_v2);
    struct object *primary = primary_of(device);
    NEED(primary, GP_CU_INVALID_CONTEXT, "a primary context is released too often");
    if (--primary->references == 0)
        context_end(primary);
    return 0;
}

static uint32_t fake_cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    BEGIN(cuDevicePrimaryCtxGetState);
    *flags = 0;
    *active = primary_of(device) != NULL;
    return 0;
}

static uint32_t fake_cuCtxGetCurrent(void **ctx)
{
    BEGIN(cuCtxGetCurrent);
    *ctx = fakedriver_current();
    return 0;
}

static uint32_t fake_cuCtxGetDevice(int *device)
{
    BEGIN(cuCtxGetDevice);
    if (!fakedriver_current())
        return GP_CU_INVALID_CONTEXT;
    *device = fakedriver_context_device(fakedriver_current());
    return 0;
}

static uint32_t fake_cuCtxPushCurrent_v2(void *ctx)
{
    BEGIN(cuCtxPushCurrent_v2);
    NEED(fakedriver_context_device(ctx) >= 0, GP_CU_INVALID_CONTEXT, "a dead context is pushed");
    stack[depth++ % 16] = ctx;
    return 0;
}

static uint32_t fake_cuCtxPopCurrent_v2(void **ctx)
{
    BEGIN(cuCtxPopCurrent_v2);
    NEED(depth > 0, GP_CU_INVALID_CONTEXT, "an empty stack is popped");
    *ctx = stack[--depth];
    return 0;
}

static uint32_t fake_cuThreadExchangeStreamCaptureMode(int *mode)
{
    BEGIN(cuThreadExchangeStreamCaptureMode);
    int before = fakedriver.capture_mode;
    fakedriver.capture_mode = *mode;
    *mode = before;
    return 0;
}

/* The program's. */
static uint32_t fake_cuCtxCreate_v2(void **ctx, unsigned flags, int device)
{
    (void)flags;
    struct object *context = make(CONTEXT, next_handle += 16);
    context->device = device;
    context->ctx = NULL;
    *ctx = (void *)(uintptr_t)context->key;
    stack[depth++ % 16] = *ctx;
    return 0;
}

static uint32_t fake_cuCtxDestroy_v2(void *ctx)
{
    struct object *context = find(CONTEXT, (uintptr_t)ctx);
    if (!context || context->primary)
        return GP_CU_INVALID_CONTEXT;
    if (fakedriver_current() == ctx)
        depth--;
    context_end(context);
    return 0;
}

static uint32_t fake_cuDevicePrimaryCtxReset_v2(int device)
{
    struct object *primary = primary_of(device);
    if (primary) {
        struct object again = *primary;
        context_end(primary);
        *primary = again;
    }
    return 0;
}

static uint32_t fake_cuCtxEnablePeerAccess(void *peer, unsigned flags)
{
    return flags || fakedriver_context_device(peer) < 0 ? GP_CU_INVALID_VALUE : 0;
}

/* ---- streams, events, captures ----------------------------------------------------------------------------------- */

static struct object *legacy(void)
{
    static struct object streams[FAKEDRIVER_DEVICES];
    int device = fakedriver_context_device(fakedriver_current());
    return &streams[device > 0 ? device : 0];
}

static struct object *stream_of(void *stream)
{
    return (uintptr_t)stream <= GP_CU_STREAM_PER_THREAD ? legacy() : find(STREAM, (uintptr_t)stream);
}

static bool is_capturing(void)
{
    for (unsigned i = 0; i < OBJECTS; i++)
        if (objects[i].kind == STREAM && objects[i].capturing)
            return true;
    return false;
}

void fakedriver_submit(void *stream)
{
    stream_of(stream)->submitted++;
}

void fakedriver_complete(void *stream)
{
    struct object *of = stream_of(stream);
    of->done = of->submitted;
}

static uint32_t fake_cuCtxSynchronize(void)
{
    BEGIN(cuCtxSynchronize);
    NEED_CONTEXT(cuCtxSynchronize);
    NEED(!is_capturing(), 900, "a context is synchronised during a capture");
    for (unsigned i = 0; i < OBJECTS; i++)
        if (objects[i].kind == STREAM && objects[i].ctx == fakedriver_current())
            objects[i].done = objects[i].submitted;
    return 0;
}

static uint32_t fake_cuStreamCreate(void **stream, unsigned flags)
{
    BEGIN(cuStreamCreate);
    NEED_CONTEXT(cuStreamCreate);
    struct object *made = make(STREAM, next_handle += 16);
    made->access = flags;
    *stream = (void *)(uintptr_t)made->key;
    return 0;
}

static uint32_t fake_cuStreamDestroy_v2(void *stream)
{
    BEGIN(cuStreamDestroy_v2);
    struct object *of = find(STREAM, (uintptr_t)stream);
    NEED(of, GP_CU_INVALID_VALUE, "a dead stream is destroyed");
    of->kind = NONE;
    return 0;
}

static uint32_t fake_cuStreamIsCapturing(void *stream, int *status)
{
    BEGIN(cuStreamIsCapturing);
    const struct object *of = stream_of(stream);
    NEED(of, GP_CU_INVALID_VALUE, "a dead stream is asked");
    *status = of->capturing;
    return 0;
}

static uint32_t fake_cuStreamQuery(void *stream)
{
    BEGIN(cuStreamQuery);
    const struct object *of = stream_of(stream);
    NEED(of && !of->capturing, GP_CU_INVALID_VALUE, "a dead or capturing stream is queried");
    return of->done < of->submitted ? 600 : 0;
}

static uint32_t fake_cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    BEGIN(cuStreamWaitEvent);
    struct object *of = stream_of(stream);
    const struct object *what = find(EVENT, (uintptr_t)event);
    NEED(of && what && !flags, GP_CU_INVALID_VALUE, "a dead stream waits, or for a dead event");
    return 0;
}

static uint32_t fake_cuEventCreate(void **event, unsigned flags)
{
    BEGIN(cuEventCreate);
    NEED_CONTEXT(cuEventCreate);
    NEED(flags == GP_CU_EVENT_NO_TIMING, GP_CU_INVALID_VALUE, "an event with a clock");
    *event = (void *)(uintptr_t)make(EVENT, next_handle += 16)->key;
    return 0;
}

/* An event in the legacy stream, or in the library's own stream, stands for the work of all streams. */
static uint32_t fake_cuEventRecord(void *event, void *stream)
{
    BEGIN(cuEventRecord);
    const struct object *of = stream_of(stream);
    struct object *made = find(EVENT, (uintptr_t)event);
    NEED(of && made, GP_CU_INVALID_VALUE, "a dead event is recorded, or in a dead stream");
    NEED(!is_capturing(), 900, "an event is recorded during a capture");
    made->of = (uintptr_t)stream;
    made->submitted = of->submitted;
    return 0;
}

static bool event_done(const struct object *event)
{
    const struct object *of = find(STREAM, event->of);
    if (of && of->submitted)
        return of->done >= event->submitted;
    for (unsigned i = 0; i < OBJECTS; i++)
        if (objects[i].kind == STREAM && objects[i].ctx == event->ctx && objects[i].done < objects[i].submitted)
            return false;
    return true;
}

static uint32_t fake_cuEventQuery(void *event)
{
    BEGIN(cuEventQuery);
    const struct object *of = find(EVENT, (uintptr_t)event);
    NEED(of, GP_CU_INVALID_VALUE, "a dead event is queried");
    return event_done(of) ? 0 : 600;
}

static uint32_t fake_cuEventSynchronize(void *event)
{
    BEGIN(cuEventSynchronize);
    const struct object *of = find(EVENT, (uintptr_t)event);
    NEED(of, GP_CU_INVALID_VALUE, "the library waits for a dead event");
    for (unsigned i = 0; i < OBJECTS; i++)
        if (objects[i].kind == STREAM && objects[i].ctx == of->ctx)
            objects[i].done = objects[i].submitted;
    return 0;
}

static uint32_t fake_cuEventDestroy_v2(void *event)
{
    BEGIN(cuEventDestroy_v2);
    struct object *of = find(EVENT, (uintptr_t)event);
    NEED(of, GP_CU_INVALID_VALUE, "a dead event is destroyed");
    of->kind = NONE;
    return 0;
}

static uint32_t fake_cuStreamBeginCapture_v2(void *stream, int mode)
{
    struct object *of = find(STREAM, (uintptr_t)stream);
    (void)mode;
    if (fakedriver.lacks && strcmp(fakedriver.lacks, "cuStreamIsCapturing") == 0)
        return GP_CU_NOT_SUPPORTED; /* older than captures */
    if (!of || of->capturing)
        return GP_CU_INVALID_VALUE;
    of->capturing = true;
    return 0;
}

static uint32_t fake_cuStreamEndCapture(void *stream, void **graph)
{
    struct object *of = find(STREAM, (uintptr_t)stream);
    if (!of || !of->capturing)
        return GP_CU_INVALID_VALUE;
    of->capturing = false;
    *graph = (void *)0x900;
    return 0;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

uint64_t fakedriver_held(int device)
{
    uint64_t held = 0;
    for (unsigned i = 0; i < OBJECTS; i++)
        if (objects[i].device == device && (objects[i].kind == LINEAR || objects[i].kind == HANDLE))
            held += objects[i].bytes;
    return held;
}

static uint32_t fake_cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    BEGIN(cuMemAlloc_v2);
    if (!address || !bytes)
        return GP_CU_INVALID_VALUE;
    NEED_CONTEXT(cuMemAlloc_v2);
    if (is_capturing() && fakedriver.capture_mode != GP_CU_CAPTURE_RELAXED)
        return 900;
    if (fakedriver_held(fakedriver_context_device(fakedriver_current())) + bytes > FAKEDRIVER_MEMORY)
        return GP_CU_OUT_OF_MEMORY;
    struct object *made = make(LINEAR, next_address);
    next_address += (bytes + PAGE) / PAGE * PAGE;
    made->bytes = bytes;
    *address = made->key;
    return 0;
}

static uint32_t fake_cuMemFree_v2(uint64_t address)
{
    BEGIN(cuMemFree_v2);
    struct object *of = find(LINEAR, address);
    NEED(of, GP_CU_INVALID_VALUE, "an address is freed that is not allocated");
    of->kind = NONE;
    return 0;
}

static uint32_t fake_cuMemGetInfo_v2(size_t *free, size_t *total)
{
    BEGIN(cuMemGetInfo_v2);
    NEED_CONTEXT(cuMemGetInfo_v2);
    *total = FAKEDRIVER_MEMORY;
    *free = FAKEDRIVER_MEMORY - fakedriver_held(fakedriver_context_device(fakedriver_current()));
    return 0;
}

static uint32_t fake_cuMemGetAllocationGranularity(size_t *bytes, const struct gp_cu_mem_prop *prop, int option)
{
    BEGIN(cuMemGetAllocationGranularity);
    NEED(prop->type == 1 && prop->location.type == 1 && !option && prop->flags[1] == (rdma && prop->location.id == 0),
         GP_CU_INVALID_VALUE, "the granularity of other memory");
    *bytes = PAGE;
    return 0;
}

static uint32_t fake_cuMemAddressReserve(uint64_t *address, size_t bytes, size_t alignment, uint64_t hint,
                                         unsigned long long flags)
{
    BEGIN(cuMemAddressReserve);
    NEED(bytes && bytes % PAGE == 0 && !alignment && !hint && !flags, GP_CU_INVALID_VALUE, "a wrong range");
    struct object *made = make(RANGE, next_address);
    next_address += bytes + PAGE;
    made->bytes = bytes;
    made->ctx = NULL;
    *address = made->key;
    return 0;
}

static uint32_t fake_cuMemAddressFree(uint64_t address, size_t bytes)
{
    BEGIN(cuMemAddressFree);
    struct object *of = find(RANGE, address);
    NEED(of && of->bytes == bytes, GP_CU_INVALID_VALUE, "a range is freed that is not reserved");
    bool unmaps = !fakedriver.fails || strcmp(fakedriver.fails, "cuMemUnmap") != 0;
    for (unsigned i = 0; i < OBJECTS; i++)
        if (objects[i].kind == MAPPING && objects[i].key - address < bytes) {
            NEED(!unmaps, GP_CU_INVALID_VALUE, "a range is freed that is mapped");
            return GP_CU_INVALID_VALUE;
        }
    of->kind = NONE;
    return 0;
}

static uint32_t fake_cuMemCreate(uint64_t *handle, size_t bytes, const struct gp_cu_mem_prop *prop,
                                 unsigned long long flags)
{
    BEGIN(cuMemCreate);
    NEED(bytes && bytes % PAGE == 0 && prop->type == 1 && prop->location.type == 1 && !flags &&
             prop->flags[1] == (rdma && prop->location.id == 0),
         GP_CU_INVALID_VALUE, "wrong memory is created");
    if (fakedriver_held(prop->location.id) + bytes > FAKEDRIVER_MEMORY)
        return GP_CU_OUT_OF_MEMORY;
    struct object *made = make(HANDLE, next_handle += 16);
    made->bytes = bytes;
    made->device = prop->location.id;
    made->ctx = NULL;
    *handle = made->key;
    return 0;
}

static void handle_settle(struct object *handle)
{
    if (handle->released && !handle->references)
        handle->kind = NONE;
}

static uint32_t fake_cuMemRelease(uint64_t handle)
{
    BEGIN(cuMemRelease);
    struct object *of = find(HANDLE, handle);
    NEED(of && !of->released, GP_CU_INVALID_VALUE, "a dead handle is released");
    of->released = true;
    handle_settle(of);
    return 0;
}

static uint32_t fake_cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags)
{
    BEGIN(cuMemMap);
    struct object *of = find(HANDLE, handle), *range = around(RANGE, address);
    NEED(of && !of->released && of->bytes == bytes && !offset && !flags, GP_CU_INVALID_VALUE,
         "a wrong handle is mapped");
    NEED(range && address + bytes <= range->key + range->bytes, GP_CU_INVALID_VALUE, "mapped outside of a range");
    NEED(!around(MAPPING, address), GP_CU_INVALID_VALUE, "mapped twice");
    struct object *made = make(MAPPING, address);
    *made = (struct object){.kind = MAPPING, .key = address, .bytes = bytes, .backing = handle, .device = -1};
    of->references++;
    return 0;
}

static uint32_t fake_cuMemUnmap(uint64_t address, size_t bytes)
{
    BEGIN(cuMemUnmap);
    struct object *of = find(MAPPING, address);
    NEED(of && of->bytes == bytes, GP_CU_INVALID_VALUE, "unmapped otherwise than mapped");
    struct object *handle = find(HANDLE, of->backing);
    of->kind = NONE;
    handle->references--;
    handle_settle(handle);
    return 0;
}

static uint32_t fake_cuMemSetAccess(uint64_t address, size_t bytes, const struct gp_cu_access *access, size_t descs)
{
    BEGIN(cuMemSetAccess);
    unsigned devices = 0;
    for (size_t i = 0; i < descs; i++) {
        NEED(access[i].flags == GP_CU_ACCESS_READWRITE && access[i].location.type == 1 &&
                 !(devices >> access[i].location.id & 1),
             GP_CU_INVALID_VALUE, "a wrong or double device gets access");
        devices |= 1u << access[i].location.id;
    }
    for (uint64_t at = address; at < address + bytes;) {
        struct object *of = find(MAPPING, at);
        NEED(of, GP_CU_INVALID_VALUE, "access to what is not mapped");
        of->access |= devices;
        at += of->bytes;
    }
    return 0;
}

bool fakedriver_usable(uint64_t address, uint64_t bytes, int device)
{
    for (uint64_t at = address; at < address + bytes;) {
        const struct object *of = around(LINEAR, at);
        if (of && of->device != device)
            return false;
        if (!of)
            of = around(MAPPING, at);
        if (!of || (of->kind == MAPPING && !(of->access >> device & 1)))
            return false;
        at = of->key + of->bytes;
    }
    return true;
}

unsigned fakedriver_growable(void)
{
    return count(RANGE) + count(HANDLE) + count(MAPPING);
}

unsigned fakedriver_events(void)
{
    return count(EVENT);
}

static uint32_t fake_cuPointerSetAttribute(const void *value, int attribute, uint64_t address)
{
    BEGIN(cuPointerSetAttribute);
    struct object *of = around(LINEAR, address);
    NEED(of && attribute == GP_CU_SYNC_MEMOPS, GP_CU_INVALID_VALUE, "a wrong attribute is set");
    of->synced = *(const unsigned *)value;
    return 0;
}

bool fakedriver_synced(uint64_t address)
{
    const struct object *of = around(LINEAR, address);
    return of && of->synced;
}

/* What only programs call. */
static uint32_t fake_cuMemAllocPitch_v2(uint64_t *address, size_t *pitch, size_t width, size_t height, unsigned element)
{
    if (element != 4 && element != 8 && element != 16)
        return GP_CU_INVALID_VALUE;
    *pitch = (width + 511) / 512 * 512;
    return fake_cuMemAlloc_v2(address, *pitch * height);
}

static uint32_t fake_cuMemFreeAsync(uint64_t address, void *stream)
{
    return stream_of(stream) ? fake_cuMemFree_v2(address) : GP_CU_INVALID_VALUE;
}

static uint32_t fake_cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t address)
{
    const struct object *of = around(LINEAR, address);
    if (!of)
        return GP_CU_NOT_FOUND;
    *base = of->key;
    *bytes = of->bytes;
    return 0;
}

static uint32_t fake_cuPointerGetAttribute(void *data, int attribute, uint64_t address)
{
    const struct object *of = around(LINEAR, address);
    if (!of)
        return GP_CU_INVALID_VALUE;
    if (attribute == 10)
        *(uint32_t *)data = 1;
    else if (attribute != GP_CU_SYNC_MEMOPS)
        *(uint64_t *)data = attribute == 1                       ? (uintptr_t)of->ctx
                            : attribute == 12 || attribute == 18 ? of->bytes
                                                                 : of->key;
    return 0;
}

static uint32_t fake_cuIpcGetMemHandle(const void *handle, uint64_t address)
{
    (void)handle;
    return around(LINEAR, address) ? 0 : GP_CU_INVALID_VALUE;
}

/* An array takes memory of the device beside the cache. */
static uint32_t fake_cuMemAllocAsync(uint64_t *address, size_t bytes, void *stream)
{
    return stream_of(stream) ? fake_cuMemAlloc_v2(address, bytes) : GP_CU_INVALID_VALUE;
}

/* ---- by name ----------------------------------------------------------------------------------------------------- */

void *fakedriver_function(const char *name)
{
    static const struct {
        const char *name;
        void *function;
    } table[] = {
#define ROW(_name)            {#_name, (void *)fake_##_name}
#define GP_DRIVER(_name, ...) ROW(_name),
#include "allocator/driver.def"
#undef GP_DRIVER
        ROW(cuCtxCreate_v2),          ROW(cuCtxDestroy_v2),         ROW(cuDevicePrimaryCtxReset_v2),
        ROW(cuCtxEnablePeerAccess),   ROW(cuStreamBeginCapture_v2), ROW(cuStreamEndCapture),
        ROW(cuMemAllocPitch_v2),      ROW(cuMemFreeAsync),          ROW(cuMemAllocAsync),
        ROW(cuMemGetAddressRange_v2), ROW(cuPointerGetAttribute),   ROW(cuIpcGetMemHandle),
    };
    if (fakedriver.lacks && strcmp(fakedriver.lacks, name) == 0)
        return NULL;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strcmp(table[i].name, name) == 0)
            return table[i].function;
    return NULL;
}

unsigned fakedriver_calls(const char *name)
{
    for (unsigned i = 0; i < CALLS; i++)
        if (strcmp(names[i], name) == 0)
            return counts[i];
    return 0;
}
