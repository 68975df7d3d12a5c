/* SPDX-License-Identifier: MIT
 *
 * plugged_alone.c: a plug-in that opens the driver by itself (plugged.c of the programs).
 */
#include <dlfcn.h>
#include <stddef.h>

int plugged_take(size_t bytes);

int plugged_take(size_t bytes)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    unsigned long long pointer;
    int (*init)(unsigned) = NULL, (*retain)(void **, int) = NULL, (*set)(void *) = NULL;
    int (*alloc)(unsigned long long *, size_t) = NULL;
    if (driver == NULL)
        return 1;
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&set = dlsym(driver, "cuCtxSetCurrent");
    *(void **)&alloc = dlsym(driver, "cuMemAlloc_v2");
    return init(0) || retain(&context, 0) || set(context) || alloc(&pointer, bytes);
}
