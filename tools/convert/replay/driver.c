/* SPDX-License-Identifier: MIT
 *
 * driver.c: opens the simulated driver and the product in the replay's child; see internal.h.
 */
#include "convert/replay/internal.h"
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static void driver_environment(const struct gp_replay_settings *settings)
{
    char limit[24];
    setenv("GPUPROF_SIM", settings->sim, 1);
    setenv("GPUPROF_ALLOCATOR", settings->allocator, 1);
    /* The driver loads the library at cuInit, as in any profiled program, so `gpuprof top` can show
     * a replay. */
    setenv("CUDA_INJECTION64_PATH", settings->library, 1);
    if (settings->conf)
        setenv("GPUPROF_ALLOC_CONF", settings->conf, 1);
    else
        unsetenv("GPUPROF_ALLOC_CONF");
    snprintf(limit, sizeof(limit), "%" PRIu64 "B", settings->limit_bytes);
    if (settings->limit_bytes)
        setenv("GPUPROF_MEMORY_LIMIT", limit, 1);
    else
        unsetenv("GPUPROF_MEMORY_LIMIT");
    unsetenv("GPUPROF_SIM_LEDGER");
}

static void *driver_symbol(void *library, const char *name, int *missing, char *why, size_t why_bytes)
{
    void *symbol = dlsym(library, name);
    if (!symbol && !*missing) {
        snprintf(why, why_bytes, "%s is missing in the library: do the command and the library belong together?", name);
        *missing = -ENOSYS;
    }
    return symbol;
}

int gp_replay_driver_open(struct gp_replay_driver *driver, const struct gp_replay_settings *settings, char *why,
                          size_t why_bytes)
{
    int rc = 0;
    driver_environment(settings);
    /* Its soname is libcuda.so.1, so a later dlopen of that name gets this copy. */
    void *cuda = dlopen(settings->driver, RTLD_NOW | RTLD_GLOBAL);
    void *product = cuda ? dlopen(settings->library, RTLD_NOW | RTLD_GLOBAL) : NULL;
    if (!product) {
        const char *error = dlerror();
        snprintf(why, why_bytes, "%s", error ? error : "dlopen failed");
        return -ENOENT;
    }
#define GP_DRIVER_TAKE(_name, _parameters) *(void **)&driver->_name = driver_symbol(cuda, #_name, &rc, why, why_bytes);
#define GP_PRODUCT_TAKE(_name, _parameters)                                                                            \
    *(void **)&driver->_name = driver_symbol(product, #_name, &rc, why, why_bytes);
    GP_REPLAY_DRIVER_CALLS(GP_DRIVER_TAKE)
    GP_REPLAY_PRODUCT_CALLS(GP_PRODUCT_TAKE)
    *(void **)&driver->gpuprof_max_memory_reserved =
        driver_symbol(product, "gpuprof_max_memory_reserved", &rc, why, why_bytes);
    return rc;
}
