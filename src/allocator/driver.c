/* SPDX-License-Identifier: MIT
 * driver.c: the driver's functions that the cache calls, and the context for the call (driver.h). */
#include "allocator/driver.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "source/hooks.h"
#include <pthread.h>

struct gp_allocator_driver gp_driver_real;
static uint32_t x_bound;
uint32_t gp_driver_stop_word;

/* The lookups take the loader's lock, so no lock of ours is held meanwhile: a constructor that holds the loader's may
 * come here too. */
static GP_COLD void driver_look_up(void)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    struct gp_allocator_driver found;
#define GP_DRIVER(_name, ...) *(void **)&found._name = gp_hooks_driver(#_name);
#include "allocator/driver.def"
#undef GP_DRIVER
    bool enough = found.cuCtxGetCurrent && found.cuCtxPushCurrent_v2 && found.cuCtxPopCurrent_v2 &&
                  found.cuCtxSynchronize && found.cuStreamCreate && found.cuStreamDestroy_v2 && found.cuStreamQuery &&
                  found.cuStreamWaitEvent && found.cuEventCreate && found.cuEventRecord && found.cuEventQuery &&
                  found.cuEventSynchronize && found.cuEventDestroy_v2 && found.cuMemAlloc_v2 && found.cuMemFree_v2 &&
                  found.cuMemGetInfo_v2;
    pthread_mutex_lock(&once);
    if (enough && !__atomic_load_n(&x_bound, __ATOMIC_RELAXED)) {
        gp_driver_real = found;
        /* [bind.R] release: the table is complete; pairs with [bind.A]. */
        __atomic_store_n(&x_bound, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&once);
}

bool gp_driver_bind(void)
{
    /* [bind.A] acquire: the table; pairs with [bind.R]. */
    if (GP_LIKELY(__atomic_load_n(&x_bound, __ATOMIC_ACQUIRE)))
        return true;
    driver_look_up();
    return __atomic_load_n(&x_bound, __ATOMIC_ACQUIRE);
}

void *gp_driver_current(void)
{
    void *ctx = NULL;
    return gp_driver_real.cuCtxGetCurrent && gp_driver_real.cuCtxGetCurrent(&ctx) == 0 ? ctx : NULL;
}

uint32_t gp_driver_capturing(void *stream, int *status)
{
    *status = 0;
    return gp_driver_real.cuStreamIsCapturing ? gp_driver_real.cuStreamIsCapturing(stream, status) : 0;
}

bool gp_driver_enter(struct gp_driver_guard *guard, void *ctx)
{
    *guard = (struct gp_driver_guard){.mode = GP_CU_CAPTURE_RELAXED};
    if (gp_driver_stopped())
        return false;
    guard->heed = gp_thread_ignore();
    if (ctx && gp_driver_current() != ctx) {
        guard->pushed = gp_driver_real.cuCtxPushCurrent_v2(ctx) == 0;
        if (!guard->pushed) {
            gp_thread_heed(guard->heed);
            return false;
        }
    }
    guard->relaxed = gp_driver_real.cuThreadExchangeStreamCaptureMode &&
                     gp_driver_real.cuThreadExchangeStreamCaptureMode(&guard->mode) == 0;
    return true;
}

void gp_driver_leave(struct gp_driver_guard *guard)
{
    void *ctx;
    if (guard->relaxed && guard->mode != GP_CU_CAPTURE_RELAXED)
        gp_driver_real.cuThreadExchangeStreamCaptureMode(&guard->mode);
    if (guard->pushed)
        gp_driver_real.cuCtxPopCurrent_v2(&ctx);
    gp_thread_heed(guard->heed);
}

void gp_driver_stop(void)
{
    __atomic_store_n(&gp_driver_stop_word, 1, __ATOMIC_RELAXED); /* calls that are inside the driver already finish */
}
