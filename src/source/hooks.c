/* SPDX-License-Identifier: MIT
 *
 * hooks.c: one wrapper and one pass function per row of hooks.def and wrap.def, and the steps
 * around an accounted call. Programs call it through libgpuprof-shim.so and through the pointers of
 * hooks_lookup.c, on any thread, at any time from before cuInit to after exit handlers.  Without a
 * server and without accounting a wrapper costs four loads.
 */
#include "account/feed/feed.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "source/internal.h"
#include <errno.h>
#include <gpuprof/wire.h>
#include <stdio.h>
#include <string.h>

static void *x_servers[GP_HOOKS_ROWS];
static uint32_t x_turn; /* odd: hooks are the source of events; each change raises it */

static const char *const hooks_names[] = {
#define GP_HOOK(_id, _name, _handler, ...) #_name,
#define GP_WRAP(_name, ...)                #_name,
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP
};

bool gp_hooks_serve(const char *name, void *server)
{
    for (size_t i = 0; i < GP_COUNT(hooks_names); i++)
        if (strcmp(hooks_names[i], name) == 0) {
            /* [serve.R] release: the data of the server; pairs with [serve.A]. */
            __atomic_store_n(&x_servers[i], server, __ATOMIC_RELEASE);
            return true;
        }
    return false;
}

/* Their servers take every call: no address of the cache may reach the driver, also if a call
 * interrupts our own code (a program that exits in a signal handler) or comes from a forked child. */
static inline bool hooks_is_free(enum gp_hooks_row row)
{
    return row == GP_HOOKS_cuMemFree_v2 || row == GP_HOOKS_cuMemFreeAsync || row == GP_HOOKS_cuMemFreeAsync_ptsz;
}

/* The row's server, if the call is the program's.  After our end too: the program still has blocks
 * of the cache. */
static inline void *hooks_server(enum gp_hooks_row row)
{
    /* [serve.A] acquire: pairs with [serve.R]. */
    void *server = __atomic_load_n(&x_servers[row], __ATOMIC_ACQUIRE);
    if (GP_LIKELY(!server) || hooks_is_free(row))
        return server;
    return gp_thread.inside || gp_thread.ignored || !gp_thread_life_ours() ? NULL : server;
}

static inline uint32_t hooks_turn(void)
{
    return __atomic_load_n(&x_turn, __ATOMIC_ACQUIRE); /* [hooks.A] pairs with [hooks.R] */
}

/* ---- around an accounted call ------------------------------------------------------------------------------------ */

/* Of the thread with this number, the struct gp_hooks_call of the call under way, as an address that is only compared;
 * 0: none. */
#define GP_HOOKS_THREADS 65536u
/* Each call writes its thread's word twice, so threads whose numbers follow each other have lines of their own. */
#define GP_HOOKS_LINE  8u
#define GP_HOOKS_LINES (GP_HOOKS_THREADS / GP_HOOKS_LINE)
static uintptr_t hooks_under_way[GP_HOOKS_LINES][GP_HOOKS_LINE] __attribute__((aligned(64)));

/* NULL: the thread has no number of its own (base/thread.c). */
static inline uintptr_t *hooks_way(void)
{
    uint32_t place = gp_thread.number - 1;
    return GP_LIKELY(place < GP_HOOKS_THREADS) ? &hooks_under_way[place % GP_HOOKS_LINES][place / GP_HOOKS_LINES]
                                               : NULL;
}

/* The thread is in the driver, whose own calls are ignored, but this is none of them. So the program has left that
 * call, by siglongjmp, an exception or another stack, or calls out of it, in a signal handler or a callback. Either way
 * the call is the program's. */
static GP_COLD void hooks_left(const void *caller)
{
    const uintptr_t *way = hooks_way();
    if (!gp_thread.inside && gp_thread_life_on() && way && *way && !gp_hooks_is_inner(caller))
        gp_thread.ignored = 0;
}

/* A call that was made from below this one's place on the stack is over, whether it returned or not. */
static inline bool hooks_is_left(const uintptr_t *way, const struct gp_hooks_call *call)
{
    return GP_UNLIKELY(way && *way && *way <= (uintptr_t)call);
}

static inline void hooks_leave_way(void)
{
    uintptr_t *way = hooks_way();
    if (way)
        *way = 0;
}

static __attribute__((noinline)) bool hooks_begin_inside(struct gp_hooks_call *call)
{
    if (!gp_thread_enter())
        return false;
    int saved_errno = errno;
    if (hooks_is_left(hooks_way(), call))
        gp_feed_call_left();
    if (call->resource->before)
        call->resource->before(call);
    if (call->call.hook)
        gp_dispatch_enter(&call->call);
    errno = saved_errno;
    gp_thread_leave();
    return true;
}

/* False: the call is not accounted.  The thread is ignored until the end of the call: calls that
 * the driver makes by itself are not the program's. */
static bool hooks_begin(struct gp_hooks_call *call, enum gp_hooks_row row, const void *params)
{
    const struct gp_hooks_resource *resource = &gp_hooks_resources[row];
    const struct gp_hook *hook = (unsigned)row < gp_hook_count ? &gp_hooks[row] : NULL;
    /* One by one: the compiler would clear the whole with an instruction that is slow to start. */
    call->call.hook = hook;
    call->call.params = params;
    call->call.context = NULL;
    call->call.ctx = 0;
    call->call.slot = &call->slot;
    call->call.asked_bytes = 0;
    call->call.asked_kind = GP_KIND_NONE;
    call->resource = resource;
    call->slot = 0;
    call->own = call->token = call->green = 0;
    call->let = false;
    bool has_before = resource->before || (hook && hook->handler->enter) || gp_call_timed;
    if (!has_before && gp_thread_is_known() && !hooks_is_left(hooks_way(), call))
        gp_thread.node_type = 0; /* nothing else is to be done before most calls: it needs no entry */
    else if (!hooks_begin_inside(call))
        return false;
    uintptr_t *way = hooks_way();
    if (way)
        *way = (uintptr_t)call;
    call->heed = gp_thread_ignore();
    return true;
}

static uint32_t hooks_end(struct gp_hooks_call *call, uint32_t result, const void *frame)
{
    gp_thread_heed(call->heed);
    hooks_leave_way();
    if (!gp_thread_enter())
        return result; /* switched off meanwhile */
    int saved_errno = errno;
    gp_thread_entered(frame);
    call->call.result = result;
    const struct gp_hooks_resource *resource = call->resource;
    bool has_after = resource->after != NULL;
    if (has_after && resource->is_maker)
        resource->after(call);
    if (!call->own) /* else the current context may be the one that just died */
        gp_hooks_current(&call->call);
    if (has_after && !resource->is_maker)
        resource->after(call);
    if (call->call.hook)
        gp_dispatch_exit(&call->call);
    gp_thread_entered(NULL);
    errno = saved_errno;
    gp_thread_leave();
    return result;
}

/* A context may end in the call, and another thread get its handle before we know that: its number
 * is that from before. */
static GP_COLD void hooks_note(enum gp_hooks_row row, const void *params)
{
    if (!gp_thread_enter())
        return;
    gp_call_slots[gp_thread.number % GP_CALL_SLOTS] = gp_hooks_ends(row, params);
    gp_thread_leave();
}

/* What CUPTI has not reported of the call. Which module was loaded is not known, and the handle of
 * a stream that ended may be another's by now. */
static void hooks_late_end(struct gp_hooks_call *call, enum gp_hooks_row row)
{
    const struct gp_hooks_resource *resource = &gp_hooks_resources[row];
    bool is_module = call->call.hook && call->call.hook->handler == &gp_on_load;
    bool is_known = gp_hooks_is_end(row) || !resource->after || is_module || (resource->is_maker && gp_thread.made);
    if (gp_hooks_is_end(row))
        gp_hooks_ended(row, call);
    else if (!is_known && resource->before)
        resource->before(call);
    if (!is_known && resource->is_maker)
        resource->after(call);
    if (!call->own) /* else the current context may be the one that just died */
        gp_hooks_current(&call->call);
    if (!is_known && !resource->is_maker)
        resource->after(call);
    if (call->call.hook)
        gp_dispatch_exit(&call->call);
}

/* The source has changed while the driver ran the call: CUPTI was given up, and is perhaps the source again by now. */
static GP_COLD uint32_t hooks_late(enum gp_hooks_row row, const void *params, uint32_t result)
{
    struct gp_hooks_call call;
    if (gp_thread.reported == GP_REPORTED_ALL || !gp_thread_enter())
        return result;
    int saved_errno = errno;
    uint32_t noted = gp_call_slots[gp_thread.number % GP_CALL_SLOTS];
    const struct gp_hook *hook = (unsigned)row < gp_hook_count ? &gp_hooks[row] : NULL;
    call = (struct gp_hooks_call){.call = {.hook = hook, .params = params, .slot = &call.slot, .result = result}};
    if (gp_hooks_is_end(row))
        call.own = noted;
    if (hook && gp_thread.reported == GP_REPORTED_NOTHING)
        gp_dispatch_enter(&call.call);
    else
        call.slot = noted;
    hooks_late_end(&call, row);
    errno = saved_errno;
    gp_thread_leave();
    return result;
}

/* ---- one wrapper and one pass a row ------------------------------------------------------------------------------ */

#define GP_HOOKS_NAME(_type, _name) _name
#define GP_HOOKS_ARGS(...)          (GP_EACH_LIST(GP_HOOKS_NAME, __VA_ARGS__))
#define GP_HOOKS_PARAMS(...)        (GP_EACH_LIST(GP_HOOKS_PARAM, __VA_ARGS__))

#define GP_HOOKS_WRAPPER(_name, ...)                                                                                   \
    uint32_t gp_wrap_##_name GP_HOOKS_PARAMS(__VA_ARGS__)                                                              \
    {                                                                                                                  \
        if (GP_UNLIKELY(gp_thread.ignored))                                                                            \
            hooks_left(__builtin_return_address(0));                                                                   \
        uint32_t(*server) GP_HOOKS_PARAMS(__VA_ARGS__) = hooks_server(GP_HOOKS_##_name);                               \
        return server ? server GP_HOOKS_ARGS(__VA_ARGS__) : gp_pass_##_name GP_HOOKS_ARGS(__VA_ARGS__);                \
    }

#define GP_HOOKS_ACCOUNTED(_name, ...)                                                                                 \
    uint32_t gp_pass_##_name GP_HOOKS_PARAMS(__VA_ARGS__)                                                              \
    {                                                                                                                  \
        uint32_t(*real) GP_HOOKS_PARAMS(__VA_ARGS__) = gp_hooks_real(GP_HOOKS_##_name);                                \
        if (GP_UNLIKELY(!real))                                                                                        \
            return GP_HOOKS_NO_DRIVER;                                                                                 \
        struct gp_params_##_name params = {GP_EACH_LIST(GP_HOOKS_NAME, __VA_ARGS__)};                                  \
        uint32_t turn = hooks_turn();                                                                                  \
        if (turn % 2 == 0) {                                                                                           \
            gp_thread.reported = GP_REPORTED_NOTHING;                                                                  \
            gp_thread.made = 0;                                                                                        \
            if (gp_hooks_is_end(GP_HOOKS_##_name))                                                                     \
                hooks_note(GP_HOOKS_##_name, &params);                                                                 \
            uint32_t result = real GP_HOOKS_ARGS(__VA_ARGS__);                                                         \
            return GP_LIKELY(hooks_turn() == turn) ? result : hooks_late(GP_HOOKS_##_name, &params, result);           \
        }                                                                                                              \
        struct gp_hooks_call call;                                                                                     \
        if (!hooks_begin(&call, GP_HOOKS_##_name, &params))                                                            \
            return real GP_HOOKS_ARGS(__VA_ARGS__);                                                                    \
        return hooks_end(&call, real GP_HOOKS_ARGS(__VA_ARGS__), __builtin_frame_address(0));                          \
    }                                                                                                                  \
    GP_HOOKS_WRAPPER(_name, __VA_ARGS__)

#define GP_HOOKS_PLAIN(_name, ...)                                                                                     \
    uint32_t gp_pass_##_name GP_HOOKS_PARAMS(__VA_ARGS__)                                                              \
    {                                                                                                                  \
        uint32_t(*real) GP_HOOKS_PARAMS(__VA_ARGS__) = gp_hooks_real(GP_HOOKS_##_name);                                \
        return GP_LIKELY(real) ? real GP_HOOKS_ARGS(__VA_ARGS__) : GP_HOOKS_NO_DRIVER;                                 \
    }                                                                                                                  \
    GP_HOOKS_WRAPPER(_name, __VA_ARGS__)

#define GP_HOOK(_id, _name, _handler, ...) GP_HOOKS_ACCOUNTED(_name, __VA_ARGS__)
#define GP_WRAP(_name, ...)                GP_HOOKS_PLAIN(_name, __VA_ARGS__)
#define GP_RESOURCE(_name, ...)            GP_HOOKS_ACCOUNTED(_name, __VA_ARGS__)
#include "source/hooks.def"
#include "source/wrap.def"
#undef GP_HOOK
#undef GP_WRAP

/* ---- start ------------------------------------------------------------------------------------------------------- */

bool gp_hooks_start(struct gp_source_status *out)
{
    if (!gp_hooks_present()) {
        snprintf(out->detail, sizeof(out->detail), "libgpuprof-shim.so is not preloaded");
        return false;
    }
    gp_hooks_resource_start();
    out->source = GP_SOURCE_HOOKS;
    out->enabled = gp_hooks_real_count();
    snprintf(out->detail, sizeof(out->detail), "libgpuprof-shim.so");
    /* [hooks.R] release: the driver's functions and the accounts; pairs with [hooks.A]. */
    __atomic_fetch_or(&x_turn, 1, __ATOMIC_RELEASE);
    gp_poll_check(gp_hooks_look);
    return true;
}

void gp_hooks_end(void)
{
    uint32_t turn = __atomic_load_n(&x_turn, __ATOMIC_RELAXED);
    __atomic_store_n(&x_turn, (turn | 1) + 1, __ATOMIC_RELEASE);
}
