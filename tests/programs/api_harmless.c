/* SPDX-License-Identifier: MIT
 *
 * Calls every function in processes that are not profiled: one without injection that has opened
 * the library, one where the library switched itself off, and (`fork`) the child of a profiled
 * process.  The output is the same in all.
 */
#include <cuda.h>
#include <sys/wait.h>

#include "api.h"

static void everything(void)
{
    int64_t values[GPUPROF_STATS] = {-77}, one = -77;
    errno = 42;
    printf("active %d, devices %d\n", api_gpuprof_active(), api_gpuprof_device_count());
    api_show("numbers", 0);
    printf("resets %d %d %d %d %d\n", api_gpuprof_reset_max_memory_allocated(0),
           api_gpuprof_reset_max_memory_reserved(0), api_gpuprof_reset_peak_memory_stats(0),
           api_gpuprof_reset_accumulated_memory_stats(0), api_gpuprof_reset_host_memory_stats(0));
    printf("stats %d %d %d\n", api_gpuprof_memory_stats(0, values, GPUPROF_STATS),
           api_gpuprof_memory_stat(0, "num_ooms", &one), api_gpuprof_host_memory_stats(values, GPUPROF_HOST_STATS));
    printf("written %d\n", values[0] != -77 || one != -77);
    printf("names %s %s\n", api_gpuprof_stat_name(0), api_gpuprof_host_stat_name(0));
    REPORT("scope begin", api_gpuprof_scope_begin("scope"));
    REPORT("read", api_gpuprof_scope_read(0, 0, &one, &one));
    REPORT("end", api_gpuprof_scope_end(0));
    REPORT("mark", api_gpuprof_mark("mark"));
    printf("errno %d\n", errno);
    fflush(stdout);
}

int main(int count, char **arguments)
{
    int is_fork = count > 1 && strcmp(arguments[1], "fork") == 0, status = -1;
    int64_t free_bytes = -77;
    pid_t child;
    program_start();
    if (!api_load())
        return 3;
    if (!is_fork) {
        everything();
        /* The driver's own numbers need no profiler. */
        REPORT("mem_get_info", api_gpuprof_mem_get_info(0, &free_bytes, NULL));
        printf("free: %d\n", free_bytes > 0);
        return finish();
    }
    program_alloc(MIB);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        everything();
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child ? status : -1);
    REPORT("mem_get_info", api_gpuprof_mem_get_info(0, &free_bytes, NULL));
    printf("free: %d\n", free_bytes > 0);
    return finish() != 0 || api_gpuprof_memory_allocated(0) != (int64_t)MIB; /* the parent goes on counting */
}
