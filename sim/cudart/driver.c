/* SPDX-License-Identifier: MIT
 * How the runtime finds its driver.  The way in is the real runtime's: dlopen("libcuda.so.1"), one
 * dlsym of cuGetProcAddress_v2, everything else through that function.  Called by every entry point; must never call the driver by a linked symbol, since
 * programs and shims get in front by these steps. */
#include "cudart/runtime.h"

#include <dlfcn.h>
#include <pthread.h>

struct rt_driver rt_drivers[2];

static struct {
    pthread_once_t load_once, init_once;
    cudaError_t load_status, init_status;
    rt_getproc_fn getproc;
    /* Written once by the loading thread, read by threads that may not have gone through
     * pthread_once. */
    const struct sim_tool_table *tools;
} rt_state = {.load_once = PTHREAD_ONCE_INIT, .init_once = PTHREAD_ONCE_INIT};

/* Stands in for a function that this driver does not have.  36 is the runtime's own code, not the
 * driver's. */
static CUresult rt_missing(void)
{
    return (CUresult)cudaErrorCallRequiresNewerDriver;
}

static void *rt_resolve(const char *name, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult found;
    void *function = NULL;

    if (rt_state.getproc(name, &function, version, flags, &found) || !function)
        return (void *)(uintptr_t)rt_missing;
    return function;
}

static void rt_resolve_all(void)
{
    CUdriverProcAddressQueryResult found;
    void *function = NULL;

    /* The real runtime's first question has an empty name and version 0; drivers and hooks have to
     * bear it. */
    rt_state.getproc("", &function, 0, CU_GET_PROC_ADDRESS_DEFAULT, &found);
#define RT_FILL(name, version, types)                                                                                  \
    *(void **)&rt_drivers[0].name = rt_resolve(#name, version, CU_GET_PROC_ADDRESS_DEFAULT);                           \
    rt_drivers[1].name = rt_drivers[0].name;
#define RT_FILL2(name, version, twin, types)                                                                           \
    *(void **)&rt_drivers[0].name = rt_resolve(#name, version, CU_GET_PROC_ADDRESS_DEFAULT);                           \
    *(void **)&rt_drivers[1].name = rt_resolve(#name, twin, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    RT_DRIVER_FUNCTIONS(RT_FILL, RT_FILL2)
#undef RT_FILL
#undef RT_FILL2
}

static void rt_find_tools(void)
{
    static const CUuuid id = SIM_TOOL_UUID;
    CUresult (*export_table)(const void **, const CUuuid *);
    const void *table = NULL;

    *(void **)&export_table = rt_resolve("cuGetExportTable", 3000, CU_GET_PROC_ADDRESS_DEFAULT);
    if (!export_table(&table, &id) && table)
        __atomic_store_n(&rt_state.tools, table, __ATOMIC_RELEASE); /* [tools.W] pairs with [tools.R] */
}

static void rt_load_once(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    rt_state.load_status = cudaErrorInsufficientDriver;
    if (!library)
        return;
    *(void **)&rt_state.getproc = dlsym(library, "cuGetProcAddress_v2");
    if (!rt_state.getproc)
        return;
    rt_resolve_all();
    rt_find_tools();
    /* Another vendor's driver has no table of the simulator's: the runtime cannot work without it,
     * and answers as the real one does with a driver that it does not trust. */
    rt_state.load_status =
        __atomic_load_n(&rt_state.tools, __ATOMIC_RELAXED) ? cudaSuccess : cudaErrorSoftwareValidityNotEstablished;
}

cudaError_t rt_load(void)
{
    pthread_once(&rt_state.load_once, rt_load_once);
    return rt_state.load_status;
}

static void rt_init_once(void)
{
    rt_state.init_status = rt_load();
    if (rt_state.init_status == cudaSuccess)
        rt_state.init_status = rt_error_from(rt_drivers[0].cuInit(0));
}

cudaError_t rt_init(void)
{
    pthread_once(&rt_state.init_once, rt_init_once);
    return rt_state.init_status;
}

const struct sim_tool_table *rt_tools(void)
{
    return __atomic_load_n(&rt_state.tools, __ATOMIC_ACQUIRE); /* [tools.R] pairs with [tools.W] */
}

rt_getproc_fn rt_getproc(void)
{
    return rt_state.getproc;
}
