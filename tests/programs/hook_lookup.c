/* SPDX-License-Identifier: MIT
 *
 * Looks entry points up in every way, including unusual ones that a wrapper in between could answer
 * wrongly: the output must be the same with a wrapper.  Calls the functions that it finds. Leaves 4
 * x 1 MiB linear and 2 MiB from the pool.
 */
#include <cuda.h>

#include "finish.h"

#undef cuGetProcAddress /* both ABIs are asked below */

typedef CUresult (*getproc_fn)(const char *, void **, int, cuuint64_t);
typedef CUresult (*getproc2_fn)(const char *, void **, int, cuuint64_t, int *);
typedef CUresult (*alloc_fn)(CUdeviceptr *, size_t);
typedef CUresult (*free_fn)(CUdeviceptr);
typedef CUresult (*alloc_async_fn)(CUdeviceptr *, size_t, CUstream);

static getproc2_fn getproc2;

static void *ask(const char *name, int version, cuuint64_t flags)
{
    void *function = (void *)1;
    int status = -1, result = getproc2(name, &function, version, flags, &status);
    printf("%s %d %d: %d, %s, status %d\n", name, version, (int)flags, result,
           function == (void *)1 ? "untouched"
           : function != NULL    ? "found"
                                 : "NULL",
           status);
    return result == 0 && function != (void *)1 ? function : NULL;
}

/* Two ABIs of one name are two functions, or were folded into one: a wrapper must not change which. */
static void pairs(void)
{
    static const struct {
        const char *name;
        int old, new;
    } names[] = {{"cuMemAlloc", 2000, 3020},
                 {"cuMemAdvise", 8000, 12020},
                 {"cuIpcOpenMemHandle", 4010, 11000},
                 {"cuMemHostRegister", 4000, 6050},
                 {"cuCtxCreate", 3020, 12050},
                 {"cuGraphAddNode", 12020, 12030},
                 {"cuDevicePrimaryCtxRelease", 7000, 11000},
                 {"cuCtxGetDevice", 2000, 13000},
                 {"cuStreamBeginCapture", 10000, 10010}};
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *old = ask(names[i].name, names[i].old, 0), *new = ask(names[i].name, names[i].new, 0);
        printf("%s: two functions %d\n", names[i].name, old != new);
    }
    printf("twin: %d %d\n", ask("cuMemAllocAsync", 13000, 2) != ask("cuMemAllocAsync", 13000, 1),
           ask("cuMemAlloc", 13000, 2) == ask("cuMemAlloc", 13000, 1));
}

static void odd(getproc_fn getproc)
{
    void *function = (void *)1;
    ask("", 0, 0);
    ask("cuMemAlloc", 1000, 0);
    ask("cuMemAlloc", 99000, 0);
    ask("cuMemAlloc", 12000, 3);
    ask("cuMemAlloc_v2", 12000, 0);
    ask("cuMem", 12000, 0);
    ask("cuMemAllocate", 12000, 0);
    ask("dlsym", 12000, 0);
    REPORT("no status", getproc2("cuMemAlloc", &function, 12000, 0, NULL));
    REPORT("first ABI", getproc("cuMemFree", &function, 12000, 0));
    printf("first ABI: same as the second's %d\n", function == ask("cuMemFree", 12000, 0));
    REPORT("first ABI, unknown", getproc("cuMemNoSuchThing", &function, 12000, 0));
    REPORT("first ABI, no name", getproc("", &function, 0, 0));
}

static void by_name(void *driver)
{
    static const char *const names[] = {"cuMemAlloc_v2",  "cuMemAlloc",   "cuMemNoSuchThing", "cuMemAllocAsync_ptsz",
                                        "cuInit",         "cuMemAllo",    "cuGetExportTable", "sim_no_such_thing",
                                        "cuLaunchKernel", "cuMemAlloc_v3"};
    const char *error;
    size_t i;
    dlerror();
    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *found = dlsym(driver, names[i]), *again = dlsym(driver, names[i]);
        error = dlerror();
        printf("dlsym %s: %d, the same again %d, error %d\n", names[i], found != NULL, found == again, error != NULL);
    }
    printf("default: %d, next: %d\n", dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") != NULL,
           dlsym(RTLD_NEXT, "cuMemAlloc_v2") != NULL);
}

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUdeviceptr pointer = 0;
    getproc_fn getproc = (getproc_fn)dlsym(driver, "cuGetProcAddress");

    getproc2 = (getproc2_fn)dlsym(driver, "cuGetProcAddress_v2");
    by_name(driver);
    program_start();
    pairs();
    odd(getproc);
    CHECK(((alloc_fn)dlsym(driver, "cuMemAlloc_v2"))(&pointer, MIB));
    CHECK(((alloc_fn)dlsym(RTLD_NEXT, "cuMemAlloc_v2"))(&pointer, MIB));
    CHECK(((alloc_fn)ask("cuMemAlloc", 12000, 0))(&pointer, MIB));
    CHECK(((alloc_fn)ask("cuMemAlloc", 13000, 2))(&pointer, 3 * MIB));
    CHECK(((free_fn)ask("cuMemFree", 3020, 0))(pointer));
    getproc2 = (getproc2_fn)ask("cuGetProcAddress", 12000, 0); /* and later lookups */
    CHECK(((alloc_fn)ask("cuMemAlloc", 3020, 1))(&pointer, MIB));
    CHECK(((alloc_async_fn)ask("cuMemAllocAsync", 11020, 2))(&pointer, 2 * MIB, NULL));
    return finish();
}
