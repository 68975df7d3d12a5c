/* SPDX-License-Identifier: MIT
 *
 * Peaks and their resets: allocate, read the peak, reset, the peak is the current value, allocate
 * again, the peak counts from the reset; for allocated memory and for reserved memory, neither
 * touching the other.
 *
 * api_peaks inside: the program resets by itself.  api_peaks outside: it stops at each reset, which
 * the harness does; the output is the same.  Leaves 1.5 MiB linear.
 */
#include <cuda.h>

#include "api.h"

static int is_outside;

static void reset(const char *what, int (*inside)(int))
{
    if (is_outside)
        program_hold();
    else
        CHECK(inside(0));
    api_show(what, 0);
}

static void totals(const char *what)
{
    printf("%s: allocated %lld KiB, freed %lld KiB, %lld calls, device %lld and %lld\n", what,
           api_stat(0, "allocated_bytes.all.allocated") / 1024, api_stat(0, "allocated_bytes.all.freed") / 1024,
           api_stat(0, "allocation.all.allocated"), api_stat(0, "num_device_alloc"), api_stat(0, "num_device_free"));
}

int main(int count, char **arguments)
{
    CUdeviceptr block;
    is_outside = count > 1 && strcmp(arguments[1], "outside") == 0;
    program_start();
    if (!api_load())
        return 3;
    printf("active %d, devices %d\n", api_gpuprof_active(), api_gpuprof_device_count());
    block = program_alloc(3 * MIB);
    api_show("3 MiB", 0);
    CHECK(cuMemFree(block));
    api_show("freed", 0);
    reset("reset allocated", api_gpuprof_reset_max_memory_allocated);
    program_alloc(MIB);
    api_show("1 MiB", 0);
    reset("reset reserved", api_gpuprof_reset_max_memory_reserved);
    CHECK(cuMemFree(program_alloc(2 * MIB)));
    api_show("2 MiB came and went", 0);
    reset("reset reserved again", api_gpuprof_reset_max_memory_reserved);
    reset("reset peaks", api_gpuprof_reset_peak_memory_stats);
    totals("totals");
    reset("reset accumulated", api_gpuprof_reset_accumulated_memory_stats);
    totals("totals");
    program_alloc(512 * KIB);
    totals("totals");
    api_show("end", 0);
    return finish();
}
