/* SPDX-License-Identifier: MIT
 * Which device and context a thread's runtime calls act on.  A context that the program made
 * current by the driver API wins; else it is the primary context of the thread's device (0 until
 * cudaSetDevice), retained once per process when first needed.  Called under the runtime's bracket;
 * holds its lock only around one retain. */
#include "cudart/runtime.h"

#include <pthread.h>

/* More than a node has: the driver's own limit in this simulator is 32 devices. */
#define RT_DEVICES 64

static struct {
    pthread_mutex_t lock;
    /* All under the lock, except that `generation` is also read without it: it only ever grows. */
    struct rt_device {
        CUcontext context;   /* NULL: not retained in this generation */
        unsigned generation; /* grows at each reset, so that other threads see that their context went */
    } devices[RT_DEVICES];
} rt_primary = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* What this thread bound last. */
static __thread struct {
    int device;
    CUcontext context;
    unsigned generation;
} rt_thread;

static unsigned rt_generation(int device)
{
    /* [generation.R] acquire pairs with [generation.W] in rt_device_reset */
    return __atomic_load_n(&rt_primary.devices[device].generation, __ATOMIC_ACQUIRE);
}

CUcontext rt_context_current(void)
{
    uint32_t uid;

    return rt_tools()->current_context(&uid);
}

cudaError_t rt_device_context(int device, CUcontext *context)
{
    struct rt_device *primary;
    CUresult result = CUDA_SUCCESS;

    if (device < 0 || device >= RT_DEVICES)
        return cudaErrorInvalidDevice;
    primary = &rt_primary.devices[device];
    pthread_mutex_lock(&rt_primary.lock);
    if (!primary->context)
        result = rt_drivers[0].cuDevicePrimaryCtxRetain(&primary->context, device);
    if (result)
        primary->context = NULL;
    *context = primary->context;
    pthread_mutex_unlock(&rt_primary.lock);
    return rt_error_from(result);
}

/* The thread's current context is the one that we bound, and it has not been reset since. */
static bool rt_bound(CUcontext current)
{
    return current && current == rt_thread.context && rt_thread.generation == rt_generation(rt_thread.device);
}

static cudaError_t rt_bind(int device)
{
    unsigned generation = device >= 0 && device < RT_DEVICES ? rt_generation(device) : 0;
    CUcontext context;
    cudaError_t status = rt_device_context(device, &context);

    if (status == cudaSuccess)
        status = rt_error_from(rt_drivers[0].cuCtxSetCurrent(context));
    if (status != cudaSuccess)
        return status;
    rt_thread.device = device;
    rt_thread.context = context;
    /* Read before the retain: a reset in between makes the next call bind again. */
    rt_thread.generation = generation;
    return cudaSuccess;
}

cudaError_t rt_context(void)
{
    CUcontext current = rt_context_current();

    if (current && (current != rt_thread.context || rt_bound(current)))
        return cudaSuccess;
    return rt_bind(rt_thread.device);
}

cudaError_t rt_device_select(int device)
{
    int count = 0;
    CUresult result = rt_drivers[0].cuDeviceGetCount(&count);

    if (result)
        return rt_error_from(result);
    if (device < 0 || device >= count)
        return cudaErrorInvalidDevice;
    if (device == rt_thread.device && rt_bound(rt_context_current()))
        return cudaSuccess;
    /* Since CUDA 12 this also initialises the device's context, at once. */
    return rt_bind(device);
}

cudaError_t rt_device_current(int *device)
{
    CUcontext current = rt_context_current();
    uint32_t ordinal;

    *device = rt_thread.device;
    if (current && current != rt_thread.context) {
        if (rt_tools()->context_device(current, &ordinal))
            return cudaErrorDeviceUninitialized;
        *device = (int)ordinal;
    }
    return cudaSuccess;
}

cudaError_t rt_device_reset(void)
{
    struct rt_device *primary;
    CUresult result;
    int device;
    cudaError_t status = rt_device_current(&device);

    if (status != cudaSuccess)
        return status;
    primary = &rt_primary.devices[device];
    pthread_mutex_lock(&rt_primary.lock);
    primary->context = NULL;
    /* [generation.W] release pairs with [generation.R]: a thread that sees the new number retains
     * again. */
    __atomic_store_n(&primary->generation, primary->generation + 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&rt_primary.lock);
    result = rt_drivers[0].cuDevicePrimaryCtxReset(device);
    if (!result)
        result = rt_drivers[0].cuCtxSetCurrent(NULL);
    rt_thread.context = NULL;
    rt_thread.device = device;
    return rt_error_from(result);
}
