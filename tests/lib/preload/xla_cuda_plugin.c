/* SPDX-License-Identifier: MIT
 *
 * xla_cuda_plugin.c: a plug-in with PJRT's function GetPjrtApi, whose client takes three quarters of a device ahead, as XLA's
 * does, and says that it had 640 MiB of it in use (jax.c of the programs).
 */
#include <cuda.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MIB (1024l * 1024l)
enum { ADDRESSABLE = 16, BUFFER = 22, LOCAL_ID = 31, STATS = 34, FUNCTIONS = 140 };

struct args {
    size_t struct_size;
    void *extensions, *object;
    int64_t out[32];
};

static int device;
static void *list[] = {&device};
static int64_t pool;

static void *nothing(struct args *args)
{
    (void)args;
    return NULL;
}

static void *addressable(struct args *args)
{
    args->out[0] = (int64_t)(intptr_t)list;
    args->out[1] = 1;
    return NULL;
}

static void *buffer(struct args *args)
{
    size_t total, free;
    CUdeviceptr pointer;
    CUcontext context;

    (void)args;
    if (!pool && !cuInit(0) && !cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context) &&
        !cuMemGetInfo(&free, &total) && !cuMemAlloc(&pointer, total / 4 * 3)) {
        pool = (int64_t)total / 4 * 3;
    }
    return NULL;
}

static void *local_id(struct args *args)
{
    memcpy(args->out, &(int){0}, sizeof(int));
    return NULL;
}

/* In use; then (value, whether it is set): peak in use first, the limit fourth, the pool ninth. */
static void *stats(struct args *args)
{
    args->out[0] = 64 * MIB;
    args->out[1] = 640 * MIB;
    args->out[7] = args->out[17] = pool;
    args->out[2] = args->out[8] = args->out[18] = 1;
    return NULL;
}

static struct {
    size_t struct_size;
    void *extensions;
    size_t version_size;
    void *version_extensions;
    int major, minor;
    void *(*functions[FUNCTIONS])(struct args *args);
} api = {.struct_size = sizeof(api), .version_size = 24, .minor = 112};

void *GetPjrtApi(void);

void *GetPjrtApi(void)
{
    if (!api.functions[0]) {
        for (unsigned i = 0; i < FUNCTIONS; i++) {
            api.functions[i] = nothing;
        }
        api.functions[ADDRESSABLE] = addressable;
        api.functions[BUFFER] = buffer;
        api.functions[LOCAL_ID] = local_id;
        api.functions[STATS] = stats;
    }
    return &api;
}
