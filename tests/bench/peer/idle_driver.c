/* SPDX-License-Identifier: MIT
 *
 * idle_driver.c: a driver and its CUPTI, for bench_budget, whose calls do nothing but what every caller of them needs: an
 * address goes up and comes down, and a callback is called where one is enabled. The file is linked as libcuda.so.1, and
 * libcupti.so.13 is a link to it. One thread calls it at a time.
 */
#include "source/abi.h"
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))
#define IDS    2048

struct alloc_params {
    uint64_t *address;
    size_t bytes;
    void *stream;
};
struct free_params {
    uint64_t address;
    void *stream;
};
struct stream_params {
    void **stream;
    unsigned flags;
};

static char context, stream_made;
static uint64_t next = 0x700000000000;
static gp_cupti_callback_fn callback;
static uint8_t enabled[7][IDS];

/* ---- calls --------------------------------------------------------------------------------------------------------- */

static void call_back(int site, uint32_t id, const char *name, const void *params, uint32_t *result, uint64_t *slot)
{
    if (!enabled[GP_CUPTI_DOMAIN_DRIVER][id])
        return;
    const struct gp_cupti_call call = {.site = site,
                                       .name = name,
                                       .params = params,
                                       .result = result,
                                       .context = &context,
                                       .context_uid = 1,
                                       .slot = slot};
    callback(NULL, GP_CUPTI_DOMAIN_DRIVER, id, &call);
}

#define CALL(_id, _name, _params, _work)                                                                               \
    do {                                                                                                               \
        uint32_t result_ = 0;                                                                                          \
        uint64_t slot_;                                                                                                \
        call_back(GP_CUPTI_ENTER, _id, _name, _params, &result_, &slot_);                                              \
        _work;                                                                                                         \
        call_back(GP_CUPTI_EXIT, _id, _name, _params, &result_, &slot_);                                               \
        return result_;                                                                                                \
    } while (0)

EXPORT uint32_t cuMemAlloc_v2(uint64_t *address, size_t bytes);
uint32_t cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    CALL(243, "cuMemAlloc_v2", (&(struct alloc_params){address, bytes, NULL}), (*address = next, next += 512));
}

EXPORT uint32_t cuMemFree_v2(uint64_t address);
uint32_t cuMemFree_v2(uint64_t address)
{
    CALL(245, "cuMemFree_v2", (&(struct free_params){address, NULL}), next -= 512);
}

EXPORT uint32_t cuMemAllocAsync(uint64_t *address, size_t bytes, void *stream);
uint32_t cuMemAllocAsync(uint64_t *address, size_t bytes, void *stream)
{
    CALL(598, "cuMemAllocAsync", (&(struct alloc_params){address, bytes, stream}), (*address = next, next += 512));
}

EXPORT uint32_t cuMemFreeAsync(uint64_t address, void *stream);
uint32_t cuMemFreeAsync(uint64_t address, void *stream)
{
    CALL(600, "cuMemFreeAsync", (&(struct free_params){address, stream}), next -= 512);
}

EXPORT uint32_t cuStreamCreate(void **stream, unsigned flags);
uint32_t cuStreamCreate(void **stream, unsigned flags)
{
    (void)flags;
    *stream = &stream_made;
    if (enabled[GP_CUPTI_DOMAIN_RESOURCE][GP_CUPTI_STREAM_CREATED])
        callback(NULL, GP_CUPTI_DOMAIN_RESOURCE, GP_CUPTI_STREAM_CREATED,
                 &(struct gp_cupti_resource){.context = &context, .stream = *stream});
    return 0;
}

/* ---- the context ----------------------------------------------------------------------------------------------------- */

/* As the driver, it injects the library that the environment names. */
EXPORT uint32_t cuInit(unsigned flags);
uint32_t cuInit(unsigned flags)
{
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    int (*start)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    (void)flags;
    return !path || (start && start()) ? 0 : 999;
}

EXPORT uint32_t cuDevicePrimaryCtxRetain(void **made, int device);
uint32_t cuDevicePrimaryCtxRetain(void **made, int device)
{
    (void)device;
    *made = &context;
    if (enabled[GP_CUPTI_DOMAIN_RESOURCE][GP_CUPTI_CONTEXT_CREATED])
        callback(NULL, GP_CUPTI_DOMAIN_RESOURCE, GP_CUPTI_CONTEXT_CREATED,
                 &(struct gp_cupti_resource){.context = *made});
    return 0;
}

EXPORT uint32_t cuCtxSetCurrent(void *current);
uint32_t cuCtxSetCurrent(void *current)
{
    return current == &context ? 0 : 201;
}

EXPORT uint32_t cuCtxGetCurrent(void **current);
uint32_t cuCtxGetCurrent(void **current)
{
    *current = &context;
    return 0;
}

EXPORT uint32_t cuCtxGetDevice(int *device);
uint32_t cuCtxGetDevice(int *device)
{
    *device = 0;
    return 0;
}

EXPORT uint32_t cuStreamGetCaptureInfo_v3(void *stream, int *status, uint64_t *id, void **graph, void *const **nodes,
                                          const void **edges, size_t *count);
uint32_t cuStreamGetCaptureInfo_v3(void *stream, int *status, uint64_t *id, void **graph, void *const **nodes,
                                   const void **edges, size_t *count)
{
    (void)stream, (void)id, (void)graph, (void)nodes, (void)edges, (void)count;
    *status = 0;
    return 0;
}

/* ---- CUPTI ----------------------------------------------------------------------------------------------------------- */

EXPORT int cuptiGetVersion(uint32_t *version);
int cuptiGetVersion(uint32_t *version)
{
    *version = 130000;
    return 0;
}

EXPORT int cuptiSubscribe(void **subscriber, gp_cupti_callback_fn fn, void *user);
int cuptiSubscribe(void **subscriber, gp_cupti_callback_fn fn, void *user)
{
    (void)user;
    callback = fn;
    *subscriber = &callback;
    return 0;
}

EXPORT int cuptiUnsubscribe(void *subscriber);
int cuptiUnsubscribe(void *subscriber)
{
    (void)subscriber;
    return 0;
}

EXPORT int cuptiEnableCallback(uint32_t on, void *subscriber, uint32_t domain, uint32_t id);
int cuptiEnableCallback(uint32_t on, void *subscriber, uint32_t domain, uint32_t id)
{
    (void)subscriber;
    if (domain >= 7 || id >= IDS)
        return 1;
    enabled[domain][id] = on != 0;
    return 0;
}

EXPORT int cuptiGetDeviceId(void *of, uint32_t *device);
int cuptiGetDeviceId(void *of, uint32_t *device)
{
    (void)of;
    *device = 0;
    return 0;
}

EXPORT int cuptiGetContextId(void *of, uint32_t *number);
int cuptiGetContextId(void *of, uint32_t *number)
{
    (void)of;
    *number = 1;
    return 0;
}
