/* SPDX-License-Identifier: MIT
 *
 * foreign.c: cuptiSubscribe and cuptiUnsubscribe of the program's own profilers, where
 * libgpuprof-shim.so is preloaded: it exports them for programs that are linked with CUPTI, and its
 * dlsym gives them to programs that look them up. If CUPTI refuses another subscriber because of
 * ours, these functions give ours up and ask CUPTI again.
 */
#include "base/compiler.h"
#include "base/loader.h"
#include "source/abi.h"
#include "source/hooks.h"
#include "source/internal.h"
#include <dlfcn.h>
#include <string.h>

extern void *gpuprof_preload_next(const char *name) __attribute__((weak));

static const char *const foreign_names[GP_FOREIGN_CALLS] = {"cuptiSubscribe", "cuptiSubscribe_v2", "cuptiUnsubscribe"};
static void *x_found[GP_FOREIGN_CALLS]; /* by dlsym */

/* That among the libraries which the caller needs. */
static void *foreign_needed(enum gp_foreign_call call, const void *caller)
{
    Dl_info info;
    if (!GP_LOADER(dladdr(caller, &info)) || !info.dli_fname)
        return NULL;
    void *handle = GP_LOADER(dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD));
    if (!handle) {
        GP_LOADER(dlerror());
        return NULL;
    }
    void *found = gp_hooks_symbol(handle, foreign_names[call]);
    GP_LOADER(dlclose(handle));
    return found;
}

/* The function that the caller would have got without the shim. Not first the next in the global
 * order: a process may have two copies of CUPTI, and the caller's other calls go to the version
 * that it was linked with. */
static void *foreign_real(enum gp_foreign_call call, const void *caller)
{
    void *found = foreign_needed(call, caller);
    return found || !gpuprof_preload_next ? found : GP_LOADER(gpuprof_preload_next(foreign_names[call]));
}

static bool foreign_is_taken(int status)
{
    return status == GP_CUPTI_MULTIPLE_SUBSCRIBERS || status == GP_CUPTI_MAX_LIMIT_REACHED;
}

static int foreign_subscribe(void *real, void **subscriber, void *callback, void *user)
{
    int (*subscribe)(void **, void *, void *) = (int (*)(void **, void *, void *))real;
    int status = real ? subscribe(subscriber, callback, user) : GP_CUPTI_NOT_INITIALIZED;
    return foreign_is_taken(status) && gp_handover_give() ? subscribe(subscriber, callback, user) : status;
}

static int foreign_subscribe_v2(void *real, void **subscriber, void *callback, void *user, void *params)
{
    int (*subscribe)(void **, void *, void *, void *) = (int (*)(void **, void *, void *, void *))real;
    int status = real ? subscribe(subscriber, callback, user, params) : GP_CUPTI_NOT_INITIALIZED;
    return foreign_is_taken(status) && gp_handover_give() ? subscribe(subscriber, callback, user, params) : status;
}

static int foreign_unsubscribe(void *real, void *subscriber)
{
    int status = real ? ((int (*)(void *))real)(subscriber) : GP_CUPTI_NOT_INITIALIZED;
    if (status == GP_CUPTI_OK)
        gp_handover_want();
    return status;
}

int gp_foreign_subscribe(void **subscriber, void *callback, void *user, const void *caller)
{
    return foreign_subscribe(foreign_real(GP_FOREIGN_SUBSCRIBE, caller), subscriber, callback, user);
}

int gp_foreign_subscribe_v2(void **subscriber, void *callback, void *user, void *params, const void *caller)
{
    return foreign_subscribe_v2(foreign_real(GP_FOREIGN_SUBSCRIBE_V2, caller), subscriber, callback, user, params);
}

int gp_foreign_unsubscribe(void *subscriber, const void *caller)
{
    return foreign_unsubscribe(foreign_real(GP_FOREIGN_UNSUBSCRIBE, caller), subscriber);
}

/* ---- looked up ---------------------------------------------------------------------------------------------------- */

static void *foreign_found(enum gp_foreign_call call)
{
    return __atomic_load_n(&x_found[call], __ATOMIC_RELAXED); /* a code address: needs no order */
}

static int found_subscribe(void **subscriber, void *callback, void *user)
{
    return foreign_subscribe(foreign_found(GP_FOREIGN_SUBSCRIBE), subscriber, callback, user);
}

static int found_subscribe_v2(void **subscriber, void *callback, void *user, void *params)
{
    return foreign_subscribe_v2(foreign_found(GP_FOREIGN_SUBSCRIBE_V2), subscriber, callback, user, params);
}

static int found_unsubscribe(void *subscriber)
{
    return foreign_unsubscribe(foreign_found(GP_FOREIGN_UNSUBSCRIBE), subscriber);
}

int gp_foreign_call_of(const char *name)
{
    for (int call = 0; strncmp(name, "cupti", 5) == 0 && call < GP_FOREIGN_CALLS; call++)
        if (strcmp(name, foreign_names[call]) == 0)
            return call;
    return -1;
}

void *gp_foreign_wrap(int call, void *real)
{
    static void *const wrappers[GP_FOREIGN_CALLS] = {(void *)found_subscribe, (void *)found_subscribe_v2,
                                                     (void *)found_unsubscribe};
    __atomic_store_n(&x_found[call], real, __ATOMIC_RELAXED);
    return wrappers[call];
}
