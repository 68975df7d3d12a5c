/* SPDX-License-Identifier: MIT
 * The virtual clock: with latency=typical every call adds its cost on a real machine, to the order
 * of magnitude. Called by every wrapper and by stream.c.  Never sleeps; any thread, no lock. */
#include "sim.h"

#include <string.h>

static uint64_t sim_clock;

/* Published measurements.  The calls on 2 MiB of virtual memory are those of vAttention's table
 * (arXiv 2405.04437): reserve 2 us, create 29, map 2, set access 38, unmap 34, release 23.  Linear
 * memory takes the same steps inside the driver, when it takes pages at all: see sim_clock_pages;
 * an allocation in pages that it already holds costs about 1 us. Pinning pays per page; pool and
 * launch calls are a few us; attribute queries below 1 us. First match of the prefix wins. */
static const struct {
    const char *prefix;
    uint32_t ns;
} sim_costs[] = {
    {"cuDevicePrimaryCtxRetain", 1000},
    {"cuCtxCreate", 100000000},
    {"cuMemAllocAsync", 1000},
    {"cuMemAllocFromPoolAsync", 1000},
    {"cuMemAllocHost", 300000},
    {"cuMemAllocManaged", 30000},
    {"cuMemAlloc", 1000},
    {"cuMemFreeAsync", 1000},
    {"cuMemFreeHost", 150000},
    {"cuMemFree", 1000},
    {"cuMemHostAlloc", 300000},
    {"cuMemHostRegister", 200000},
    {"cuMemHostUnregister", 100000},
    {"cuMemCreate", 0},
    {"cuMemRelease", 23000},
    {"cuMemMap", 2000},
    {"cuMemUnmap", 34000},
    {"cuMemSetAccess", 38000},
    {"cuMemAddressReserve", 2000},
    {"cuMemAddressFree", 2000},
    {"cuMemPoolTrimTo", 100000},
    {"cuMemGetInfo", 15000},
    {"cuIpcOpenMemHandle", 100000},
    {"cuArray", 80000},
    {"cuMipmappedArray", 80000},
    {"cuModuleLoad", 500000},
    {"cuLibraryLoad", 100000},
    {"cuGraphInstantiate", 50000},
    {"cuGraphLaunch", 5000},
    {"cuLaunch", 3000},
    {"cuMemcpy", 3000},
    {"cuMemset", 3000},
    {"cuStreamCreate", 10000},
    {"cuStream", 1000},
    {"cuEvent", 1000},
    {"cu", 200},
};

void sim_clock_setup(struct sim_entry *entry)
{
    for (size_t i = 0; i < sizeof sim_costs / sizeof *sim_costs; i++)
        if (strncmp(entry->name, sim_costs[i].prefix, strlen(sim_costs[i].prefix)) == 0) {
            entry->latency = sim_costs[i].ns;
            return;
        }
}

uint64_t sim_clock_now(void)
{
    return __atomic_load_n(&sim_clock, __ATOMIC_RELAXED);
}

void sim_clock_add(uint64_t ns)
{
    if (ns && sim_spec.latency)
        __atomic_add_fetch(&sim_clock, ns, __ATOMIC_RELAXED);
}

/* 500 ns for each further page: with it 1 GiB of linear memory costs 0.3 ms and 4 GiB 1.1 ms,
 * within the 180..1200 us that are reported for large cudaMalloc calls (rtj1/cuda-mempool). */
#define SIM_PAGE_NS UINT64_C(500)

void sim_clock_pages(enum sim_pages what, uint64_t bytes)
{
    static const uint64_t first[] = {
        [SIM_PAGES_CREATE] = 29000,                      /* only physical memory */
        [SIM_PAGES_ALLOC] = 2000 + 29000 + 2000 + 38000, /* reserve, create, map, set access */
        [SIM_PAGES_FREE] = 34000 + 23000, /* unmap, release: no report says that these grow with the size */
    };
    uint64_t pages = (bytes + SIM_PAGE - 1) / SIM_PAGE;

    if (pages)
        sim_clock_add(first[what] + (what == SIM_PAGES_FREE ? 0 : (pages - 1) * SIM_PAGE_NS));
}

uint64_t sim_clock_copy_ns(size_t bytes, bool host)
{
    /* 20 bytes a ns = 20 GB/s, a PCIe 4 x16 link in practice; 1000 = 1 TB/s, device memory read and
     * written. */
    return sim_spec.latency ? bytes / (host ? 20 : 1000) : 0;
}
