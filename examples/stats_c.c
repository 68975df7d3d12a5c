/* SPDX-License-Identifier: MIT
 * A program that reads its own memory numbers (driver API): each phase of a small training run is a
 * scope with a peak of its own, and each step resets the peak of the device; the two are
 * independent.  At the end it prints the numbers of torch.cuda.memory_stats.
 *
 * The library is opened at run time, and only if it is in the process already: without `gpuprof
 * run`, the program does its work and reports that it is not profiled.
 *
 * stats_c [--steps STEPS] [--seconds S] [--pace MILLISECONDS] */
#include <cuda.h>
#include <dlfcn.h>
#include <gpuprof/gpuprof.h>

#include "example.h"

#define LAYERS 6

static struct {
    int (*active)(void);
    int (*scope_begin)(const char *name);
    int (*scope_read)(int scope, int device, int64_t *allocated_peak, int64_t *reserved_peak);
    int (*scope_end)(int scope);
    int (*mark)(const char *name);
    int (*reset_peak_memory_stats)(int device);
    int64_t (*max_memory_allocated)(int device);
    const char *(*stat_name)(unsigned index);
    int (*memory_stats)(int device, int64_t *values, unsigned count);
} gpuprof;

static int gpuprof_open(void)
{
    static const char *const names[] = {"gpuprof_active",
                                        "gpuprof_scope_begin",
                                        "gpuprof_scope_read",
                                        "gpuprof_scope_end",
                                        "gpuprof_mark",
                                        "gpuprof_reset_peak_memory_stats",
                                        "gpuprof_max_memory_allocated",
                                        "gpuprof_stat_name",
                                        "gpuprof_memory_stats"};
    void *library = dlopen("libgpuprof.so", RTLD_NOW | RTLD_NOLOAD);

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *function = library ? dlsym(library, names[i]) : NULL;

        if (!function)
            return 0;
        *((void **)&gpuprof + i) = function;
    }
    return gpuprof.active();
}

/* ---- the work: a forward pass keeps activations, a backward pass adds gradients and frees both ------------------- */

static CUdeviceptr weights[LAYERS], activations[LAYERS];

static size_t layer_bytes(int layer)
{
    return (size_t)(layer + 1) << 20;
}

static void forward(void)
{
    for (int i = 0; i < LAYERS; i++) {
        CHECK_CU(cuMemAlloc(&activations[i], 2 * layer_bytes(i)));
        CHECK_CU(cuMemsetD8(activations[i], 0, layer_bytes(i)));
    }
}

static void backward(void)
{
    for (int i = LAYERS - 1; i >= 0; i--) {
        CUdeviceptr gradient;

        CHECK_CU(cuMemAlloc(&gradient, layer_bytes(i)));
        CHECK_CU(cuMemcpyDtoD(gradient, activations[i], layer_bytes(i)));
        CHECK_CU(cuMemFree(activations[i]));
        CHECK_CU(cuMemFree(gradient));
    }
}

/* ---- the numbers ------------------------------------------------------------------------------------------------- */

static void phase(const char *name, void (*work)(void), int counted, int printed)
{
    int64_t allocated = 0, reserved = 0;
    int scope = counted ? gpuprof.scope_begin(name) : -1;

    work();
    if (scope < 0)
        return;
    if (gpuprof.scope_read(scope, 0, &allocated, &reserved) == 0 && printed)
        printf("%-10s peak %6.1f MiB allocated, %6.1f MiB reserved\n", name, (double)allocated / 1048576,
               (double)reserved / 1048576);
    gpuprof.scope_end(scope);
}

static void statistics(void)
{
    int64_t values[GPUPROF_STATS];

    if (gpuprof.memory_stats(0, values, GPUPROF_STATS) != 0)
        return;
    for (unsigned i = 0; i < GPUPROF_STATS; i++)
        if (values[i] > 0 && strstr(gpuprof.stat_name(i), ".all."))
            printf("  %-32s %lld\n", gpuprof.stat_name(i), (long long)values[i]);
}

int main(int count, char **arguments)
{
    struct example_limits limits = example_arguments(count, arguments, 1, 5);
    CUcontext context;
    CUdevice device;
    int counted;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));
    counted = gpuprof_open();
    for (int i = 0; i < LAYERS; i++)
        CHECK_CU(cuMemAlloc(&weights[i], layer_bytes(i)));
    for (long step = 0; example_goes_on(&limits, step); step++) {
        if (counted) {
            gpuprof.mark("step");
            gpuprof.reset_peak_memory_stats(0);
        }
        phase("forward", forward, counted, step == 0);
        phase("backward", backward, counted, step == 0);
        if (counted && step == 0)
            printf("%-10s peak %6.1f MiB allocated\n", "step", (double)gpuprof.max_memory_allocated(0) / 1048576);
        example_pause(&limits);
    }
    if (counted)
        statistics();
    else
        printf("stats_c: not profiled: run it with 'gpuprof run --sim build/examples/stats_c'\n");
    return 0;
}
