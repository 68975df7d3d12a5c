/* SPDX-License-Identifier: MIT
 *
 * Pinned host memory under the names of torch.cuda.host_memory_stats.  Leaves 1 MiB pinned and 64
 * KiB registered.
 */
#include <cuda.h>

#include "api.h"

static void show(const char *what)
{
    static const char *const shown[] = {"active_bytes.current", "active_bytes.peak",    "active_bytes.allocated",
                                        "active_bytes.freed",   "allocated_bytes.peak", "allocations.current",
                                        "active_requests.peak", "num_host_alloc",       "num_host_free"};
    int64_t values[GPUPROF_HOST_STATS + 1];
    unsigned i, n;
    values[GPUPROF_HOST_STATS] = -77; /* more room than statistics: the rest does not change */
    printf("%s: %d", what, api_gpuprof_host_memory_stats(values, GPUPROF_HOST_STATS + 1));
    for (i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
        for (n = 0; api_gpuprof_host_stat_name(n) != NULL; n++)
            if (strcmp(api_gpuprof_host_stat_name(n), shown[i]) == 0)
                printf(" %lld", (long long)values[n]);
    }
    printf("%s\n", values[GPUPROF_HOST_STATS] == -77 ? "" : " and more");
}

int main(void)
{
    static char buffer[64 * 1024] __attribute__((aligned(4096)));
    void *large = NULL, *small = NULL;
    int64_t none;
    int scope;
    program_start();
    if (!api_load())
        return 3;
    REPORT("nothing pinned yet", api_gpuprof_host_memory_stats(&none, 1));
    CHECK(cuMemAllocHost(&large, 2 * MIB));
    CHECK(cuMemHostAlloc(&small, MIB, 0));
    show("3 MiB");
    CHECK(cuMemFreeHost(large));
    show("freed");
    scope = api_gpuprof_scope_begin("host");
    CHECK(api_gpuprof_reset_host_memory_stats(GPUPROF_RESET_PEAKS));
    show("reset peaks");
    CHECK(cuMemHostRegister(buffer, sizeof(buffer), 0));
    show("registered");
    CHECK(api_gpuprof_reset_host_memory_stats(GPUPROF_RESET_ACCUMULATED));
    show("reset accumulated");
    REPORT("scope", api_gpuprof_scope_read(scope, GPUPROF_HOST, &none, NULL));
    printf("scope: %lld\n", (long long)none);
    CHECK(api_gpuprof_scope_end(scope));
    REPORT("no such reset", api_gpuprof_reset_host_memory_stats(2));
    return finish();
}
