/* SPDX-License-Identifier: MIT
 * serve_enter.c: what surrounds a served call: entering and leaving the library's code; see serve.h. */
#include "allocator/driver.h"
#include "allocator/serve.h"
#include "base/compiler.h"
#include "base/thread.h"
#include <errno.h>

struct gp_served_context *gp_serve_enter(struct gp_serve *serve)
{
    serve->saved_errno = errno;
    if (GP_UNLIKELY(gp_driver_stopped()) || !gp_thread_enter())
        return NULL;
    struct gp_served_context *served = gp_served_of(gp_driver_current());
    if (GP_UNLIKELY(!served))
        gp_serve_leave(serve);
    return served;
}

bool gp_serve_enter_any(struct gp_serve *serve)
{
    serve->saved_errno = errno;
    return gp_thread_enter();
}

uint32_t gp_serve_current(void)
{
    void *ctx = NULL;
    if (gp_driver_stopped()) /* the process is ending: make no driver call */
        return 0;
    uint32_t result = gp_driver_real.cuCtxGetCurrent(&ctx);
    return result || ctx ? result : GP_CU_INVALID_CONTEXT;
}

void gp_serve_leave(const struct gp_serve *serve)
{
    gp_thread_leave();
    errno = serve->saved_errno;
}
