/* SPDX-License-Identifier: MIT
 * The table of GPUs: look-up, the attributes that a row decides, and its text form for other
 * programs. */
#include "gpu.h"
#include "sim.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SIM_KNOWN_EXACT    SIM_EXACT
#define SIM_KNOWN_MIB      SIM_MIB_KNOWN
#define SIM_KNOWN_ESTIMATE SIM_ESTIMATE

/* Capability 9.0: a generation that has every memory feature which the simulator offers. */
static const struct sim_gpu sim_unnamed = {.key = "",
                                           .capability = 90,
                                           .multiprocessors = 132,
                                           .memory = 16 * SIM_GIB, /* a common inference card's */
                                           .l2 = 52428800,
                                           .clock = 1755000,
                                           .memory_clock = 2619000,
                                           .bus = 5120,
                                           .ecc = 1};

static const struct sim_gpu sim_gpus[] = {
#define SIM_ARCH(...)
#define SIM_NVLINK(...)
#define SIM_BOARD(...)
#define SIM_GPU(key_, name_, capability_, multiprocessors_, memory_, known_, l2_, clock_, memory_clock_, bus_, ecc_)   \
    {key_,          name_, capability_, multiprocessors_, UINT64_C(1) * memory_, SIM_KNOWN_##known_, l2_, clock_,      \
     memory_clock_, bus_,  ecc_},
#include "gpus.def"
#undef SIM_GPU
#undef SIM_ARCH
};

static const struct sim_arch {
    int capability, threads, blocks, shared, shared_block, ratio, smallest, step;
} sim_archs[] = {
#define SIM_ARCH(...) {__VA_ARGS__},
#define SIM_GPU(...)
#include "gpus.def"
#undef SIM_GPU
#undef SIM_ARCH
#undef SIM_NVLINK
};

static const struct {
    const char *key;
    uint64_t mib;
} sim_boards[] = {
#define SIM_ARCH(...)
#define SIM_GPU(...)
#define SIM_NVLINK(...)
#undef SIM_BOARD
#define SIM_BOARD(...) {__VA_ARGS__},
#include "gpus.def"
#undef SIM_BOARD
#undef SIM_NVLINK
#undef SIM_GPU
#undef SIM_ARCH
#define SIM_BOARD(...)
};

static const struct {
    const char *key;
    int links, version;
} sim_nvlinks[] = {
#define SIM_ARCH(...)
#define SIM_GPU(...)
#define SIM_NVLINK(...) {__VA_ARGS__},
#include "gpus.def"
#undef SIM_NVLINK
#undef SIM_GPU
#undef SIM_ARCH
};

#define SIM_GPUS  (sizeof sim_gpus / sizeof sim_gpus[0])
#define SIM_ARCHS (sizeof sim_archs / sizeof sim_archs[0])

const struct sim_gpu *sim_gpu_find(const char *name)
{
    for (size_t i = 0; i < SIM_GPUS; i++)
        if (!strcasecmp(name, sim_gpus[i].key) || !strcasecmp(name, sim_gpus[i].name))
            return &sim_gpus[i];
    return NULL;
}

const struct sim_gpu *sim_gpu_default(void)
{
    return &sim_unnamed;
}

static const struct sim_arch *sim_gpu_arch(const struct sim_gpu *gpu)
{
    const struct sim_arch *arch = sim_archs;
    while (arch->capability != gpu->capability)
        arch++;
    return arch;
}

bool sim_gpu_attribute(const struct sim_gpu *gpu, CUdevice_attribute attribute, int *value)
{
    const struct sim_arch *arch = sim_gpu_arch(gpu);
    const int since_90 = gpu->capability >= 90;
    const struct {
        CUdevice_attribute attribute;
        int value;
    } decided[] = {
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, gpu->clock},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu->multiprocessors},
        {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, gpu->ecc},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, gpu->memory_clock},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, gpu->bus},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, gpu->l2},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, arch->threads},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, gpu->capability / 10},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, gpu->capability % 10},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, arch->shared},
        {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, arch->ratio},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, arch->shared_block},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, arch->blocks},
        {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, gpu->capability >= 80 ? 1024 : 0},
        {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, since_90},
        {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, since_90 ? 4 : 1},
        {CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED, since_90},
        /* NVLink with switches: not on cards of capability 12. */
        {CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, since_90 && gpu->capability < 120},
    };
    for (size_t i = 0; i < sizeof decided / sizeof decided[0]; i++)
        if (decided[i].attribute == attribute) {
            *value = decided[i].value;
            return true;
        }
    return false;
}

void sim_gpu_links(const struct sim_gpu *gpu, int *links, int *version)
{
    *links = *version = 0;
    for (size_t i = 0; i < sizeof sim_nvlinks / sizeof sim_nvlinks[0]; i++)
        if (!strcmp(sim_nvlinks[i].key, gpu->key)) {
            *links = sim_nvlinks[i].links;
            *version = sim_nvlinks[i].version;
        }
}

uint64_t sim_gpu_board(const struct sim_gpu *gpu)
{
    for (size_t i = 0; i < sizeof sim_boards / sizeof sim_boards[0]; i++)
        if (!strcmp(sim_boards[i].key, gpu->key))
            return sim_boards[i].mib * SIM_MIB;
    return gpu->memory;
}

void sim_gpu_groups(const struct sim_gpu *gpu, unsigned *smallest, unsigned *step)
{
    *smallest = (unsigned)sim_gpu_arch(gpu)->smallest;
    *step = (unsigned)sim_gpu_arch(gpu)->step;
}

/* The table for programs that do not run on the simulator, found with dlsym: a line per GPU with
 * tabs between key, the driver's name, compute capability, multiprocessors, bytes of memory, how they
 * are known (exact, MiB or estimate), bytes of L2, bytes per second, and the threads that a
 * multiprocessor can hold.  Static; any thread. */
SIM_EXPORT const char *sim_gpu_table(void);
const char *sim_gpu_table(void)
{
    static const char *const known[] = {"exact", "MiB", "estimate"};
    static char text[SIM_GPUS * 160];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    size_t at = *text ? sizeof text : 0;
    for (const struct sim_gpu *gpu = sim_gpus; gpu < sim_gpus + SIM_GPUS && at < sizeof text; gpu++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s\t%s\t%d.%d\t%d\t%llu\t%s\t%d\t%llu\t%d\n", gpu->key,
                               gpu->name, gpu->capability / 10, gpu->capability % 10, gpu->multiprocessors,
                               (unsigned long long)gpu->memory, known[gpu->known], gpu->l2,
                               2000ull * (unsigned)gpu->memory_clock * (unsigned)gpu->bus / 8,
                               sim_gpu_arch(gpu)->threads);
    pthread_mutex_unlock(&lock);
    return text;
}
