/* SPDX-License-Identifier: MIT
 *
 * variables.c: a library that loads the driver into variables of the calls' own names, and exports
 * them.  One has a value from the start, one is written in a constructor, one is asked whether it is
 * empty, and the others are reached through a table of their addresses.
 */
#include <dlfcn.h>
#include <stddef.h>

int variables_take(size_t bytes);

static int variables_none(unsigned flags)
{
    (void)flags;
    return 99;
}

int (*cuInit)(unsigned) = variables_none;
int (*cuDevicePrimaryCtxRetain)(void **, int);
int (*cuCtxSetCurrent)(void *);
int (*cuGetProcAddress)(const char *, void **, int, unsigned long long);
int (*cuMemAlloc_v2)(unsigned long long *, size_t);
int (*cuMemFree_v2)(unsigned long long);
int (*cuMemGetInfo_v2)(size_t *, size_t *);

static const struct {
    const char *name;
    void **at;
} variables_table[] = {
    {"cuDevicePrimaryCtxRetain", (void **)&cuDevicePrimaryCtxRetain},
    {"cuCtxSetCurrent", (void **)&cuCtxSetCurrent},
    {"cuGetProcAddress", (void **)&cuGetProcAddress},
};

static size_t variables_unknown(void)
{
    return 0;
}

__attribute__((constructor)) static void variables_begin(void)
{
    *(void **)&cuMemGetInfo_v2 = (void *)variables_unknown;
}

static int variables_load(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    size_t i;
    if (driver == NULL)
        return 1;
    for (i = 0; i < sizeof(variables_table) / sizeof(variables_table[0]); i++)
        *variables_table[i].at = dlsym(driver, variables_table[i].name);
    *(void **)&cuInit = dlsym(driver, "cuInit");
    *(void **)&cuMemFree_v2 = dlsym(driver, "cuMemFree_v2");
    return cuGetProcAddress("cuMemAlloc", (void **)&cuMemAlloc_v2, 12000, 0);
}

int variables_take(size_t bytes)
{
    unsigned long long first, second;
    void *context;
    if (cuInit != variables_none || *(void **)&cuMemGetInfo_v2 != (void *)variables_unknown)
        return 2;
    if (cuMemAlloc_v2 == NULL && variables_load() != 0)
        return 3;
    return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) ||
           cuMemAlloc_v2(&first, bytes) || cuMemAlloc_v2(&second, 1 << 20) || cuMemFree_v2(second);
}
