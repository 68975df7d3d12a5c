/* SPDX-License-Identifier: MIT
 * Selftest: gpu=NAME.  The driver's answers are those of the GPU, the list of names is whole, and the runtime's properties
 * of CUDA 12 and 13 follow. */
#define _GNU_SOURCE
#include "core_check.h"

#include <sys/wait.h>

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev); /* deprecated: not in the header */

/* Runs in a process of its own, which reads the specification. */
static void with(const char *spec, void (*check)(void))
{
    fflush(NULL);
    pid_t child = fork();
    int status = -1;
    if (child == 0) {
        check_passed = check_failed = 0;
        setenv("GPUPROF_SIM", spec, 1);
        check();
        _exit(check_failed || !check_passed);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    if (status)
        fprintf(stderr, "%s: status 0x%x\n", spec, (unsigned)status);
}

static int attribute(CUdevice_attribute which)
{
    int value = -1;
    CHECK_OK(cuDeviceGetAttribute(&value, which, 0));
    return value;
}

static void device(const char *name, int capability, size_t memory, int multiprocessors, int l2)
{
    char found[64] = "";
    size_t total = 0, left = 0;
    int major = 0, minor = 0;
    check_begin(0);
    CHECK_OK(cuDeviceGetName(found, sizeof found, 0));
    CHECK(!strcmp(found, name));
    CHECK_OK(cuDeviceTotalMem(&total, 0));
    CHECK_EQ(total, memory);
    CHECK_OK(cuMemGetInfo(&left, &total));
    CHECK_EQ(total, memory);
    CHECK_OK(cuDeviceComputeCapability(&major, &minor, 0));
    CHECK_EQ(10 * major + minor, capability);
    CHECK_EQ(10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                 attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
             capability);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), multiprocessors);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE), l2);
}

static void unnamed(void)
{
    device("Simulated GPU 0", 90, 16ull << 30, 132, 52428800);
}

static void t4(void)
{
    CUmodule module;
    CUfunction function;
    CUdevResource resource;
    int value = 0;
    device("Tesla T4", 75, 15843721216, 40, 4194304);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK), 49152);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), 65536);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR), 1024);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR), 16);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH), 0);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED), 0);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE), 5001000);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH), 256);
    CHECK_OK(cuModuleLoadData(&module, ".version 8.0\n.target sm_75\n.visible .entry f()\n{\nret;\n}\n"));
    CHECK_OK(cuModuleGetFunction(&function, module, "f"));
    CHECK_OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_BINARY_VERSION, function));
    CHECK_EQ(value, 75);
    CHECK_OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 1024, 0));
    CHECK_EQ(value, 1);
    CHECK_OK(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_EQ(resource.sm.smCount, 40);
    CHECK_EQ(resource.sm.minSmPartitionSize, 2);
}

static void a100(void)
{
    CUdeviceptr p = 0;
    device("NVIDIA A100-SXM4-80GB", 80, 85100068864, 108, 41943040);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK), 1024);
    CHECK_OK(cuMemAlloc(&p, 78ull << 30));
    CHECK_OK(cuMemFree(p));
    CHECK_EQ(cuMemAlloc(&p, 80ull << 30), CUDA_ERROR_OUT_OF_MEMORY);
}

static void rtx(void)
{
    device("NVIDIA GeForce RTX 4090", 89, 4ull << 30, 128, 75497472); /* memory= wins */
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_ECC_ENABLED), 0);
}

static size_t wanted;

static void size(void)
{
    size_t total = 0;
    check_begin(0);
    CHECK_OK(cuDeviceTotalMem(&total, 0));
    CHECK_EQ(total, wanted);
}

static void sizes(void)
{
    static const struct {
        const char *spec;
        size_t bytes;
    } sizes[] = {{"memory=7.5GiB", 15ull << 29},     {"memory=8 GiB", 8ull << 30}, {"memory=8gb", 8000000000},
                 {"memory=7.514GiB", 8068096065ull}, {"memory=16e9", 16000000000}, {"memory=0.5T", 1ull << 39}};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        wanted = sizes[i].bytes;
        with(sizes[i].spec, size);
    }
}

static void b200(void)
{
    device("NVIDIA B200", 100, 182642ull << 20, 148, 132644864);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED), 1);
}

/* As an H200 answered. */
static void h200(void)
{
    size_t bytes = 0;
    device("NVIDIA H200", 90, 150109880320, 132, 62914560);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH), 6016);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH), 131072);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH), 2097120);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS), 2046);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH), 268435456);
    CHECK_EQ(attribute(CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT), 4);
    CHECK_OK(cuCtxGetLimit(&bytes, CU_LIMIT_PRINTF_FIFO_SIZE));
    CHECK_EQ(bytes, 8650752);
    CHECK_EQ(cuCtxGetLimit(&bytes, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH), CUDA_ERROR_UNSUPPORTED_LIMIT);
    CHECK_EQ(cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2), CUDA_ERROR_UNSUPPORTED_LIMIT);
    CHECK_OK(cuCtxGetLimit(&bytes, CU_LIMIT_PERSISTING_L2_CACHE_SIZE));
    CHECK_EQ(bytes, 11796480);
    CHECK_OK(cuCtxGetLimit(&bytes, CU_LIMIT_SHMEM_SIZE));
    CHECK_EQ(bytes, 232448);
    CHECK_OK(cuCtxGetLimit(&bytes, CU_LIMIT_CIG_ENABLED));
    CHECK_EQ(bytes, 0);
    CHECK_EQ(cuCtxSetLimit(CU_LIMIT_SHMEM_SIZE, 1), CUDA_ERROR_UNSUPPORTED_LIMIT);
    CHECK_EQ(cuCtxGetLimit(&bytes, CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED), CUDA_ERROR_UNSUPPORTED_LIMIT);
}

/* What a process without code holds on the real one, as NVML tells it; what is simulated is near to it. */
static size_t seen;

static void context(void)
{
    size_t left = 0, total = 0;
    check_begin(0);
    CHECK_OK(cuMemGetInfo(&left, &total));
    CHECK(total - left > seen - seen / 16 && total - left < seen + seen / 16);
    CHECK_EQ((total - left) % (2 << 20), 0);
}

static void contexts(void)
{
    static const struct {
        const char *spec;
        size_t mib;
    } known[] = {{"gpu=h200", 518}, {"gpu=rtx-pro-6000", 555}, {"gpu=rtx-3090", 256}, {"gpu=h200,memory=2GiB", 256}};
    for (unsigned i = 0; i < sizeof known / sizeof known[0]; i++) {
        seen = known[i].mib << 20;
        with(known[i].spec, context);
    }
}

/* ---- which of a binary's codes runs ------------------------------------------------------------------------------ */

/* A fat binary with an entry of each kind (2 compiled, 1 PTX) and generation. */
struct code {
    uint16_t kind;
    uint32_t generation;
};

static void generation(const struct code *codes, unsigned count, int ptx, int binary)
{
    struct {
        struct check_fat head;
        struct {
            struct check_fat_entry is;
            char bytes[8];
        } entries[4];
    } fat = {CHECK_FAT(count * sizeof fat.entries[0]), {{{0}}}};
    CUmodule module;
    CUfunction function;
    int value = 0;
    for (unsigned i = 0; i < count; i++) {
        fat.entries[i].is = (struct check_fat_entry)CHECK_FAT_ENTRY(codes[i].kind, 8);
        fat.entries[i].is.generation = codes[i].generation;
    }
    CHECK_OK(cuModuleLoadData(&module, &fat));
    CHECK_OK(cuModuleGetFunction(&function, module, "f"));
    CHECK_OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_PTX_VERSION, function));
    CHECK_EQ(value, ptx);
    CHECK_OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_BINARY_VERSION, function));
    CHECK_EQ(value, binary);
    CHECK_OK(cuModuleUnload(module));
}

/* PyTorch's wheels have no code for 8.9: it runs the code for 8.6, and CUB looks at that number. */
static void generations(void)
{
    const struct code wheel[] = {{2, 75}, {2, 80}, {2, 86}, {2, 90}};
    const struct code older[] = {{2, 75}, {1, 70}, {1, 80}, {1, 90}};
    const struct code before[] = {{2, 70}, {2, 75}};
    const struct code newer[] = {{2, 90}, {1, 90}};
    char path[] = "/tmp/core_gpus_XXXXXX", line[256] = "";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    setenv("GPUPROF_STANDIN_REPORT", path, 1);
    check_begin(0);
    generation(wheel, 4, 86, 86);
    generation(older, 4, 80, 89);
    CHECK_EQ(read(fd, line, sizeof line), 0);
    /* A driver refuses these.  That is said, and the run goes on. */
    generation(before, 2, 75, 75);
    generation(newer, 2, 90, 90);
    CHECK(read(fd, line, sizeof line - 1) > 0 && strstr(line, "code for compute capability 8.9"));
    CHECK_OK(unlink(path));
    close(fd);
}

static void unknown(void)
{
    CHECK_EQ(cuInit(0), CUDA_ERROR_SYSTEM_NOT_READY);
}

/* What people call them. */
static void named(void)
{
    static const char *const names[][2] = {{"4090", "rtx-4090"},
                                           {"RTX4090", "rtx-4090"},
                                           {"rtx_4090", "rtx-4090"},
                                           {"GeForce RTX 4090", "rtx-4090"},
                                           {"4080", "rtx-4080"},
                                           {"RTX 4080 Super", "rtx-4080s"},
                                           {"2080ti", "rtx-2080ti"},
                                           {"2080 Ti", "rtx-2080ti"},
                                           {"4060ti", "rtx-4060ti-8g, rtx-4060ti-16g"},
                                           {"4060 Ti 16GB", "rtx-4060ti-16g"},
                                           {"h100", "h100-80g"},
                                           {"H100 SXM5", "h100-80g"},
                                           {"h100 pcie", "h100-80g-pcie"},
                                           {"H100-96GB", "h100-96g"},
                                           {"h200", "h200"},
                                           {"a100", "a100-40g, a100-40g-pcie, a100-80g, a100-80g-pcie"},
                                           {"a100 80GB", "a100-80g"},
                                           {"A100-SXM4-40GB", "a100-40g"},
                                           {"a10", "a10"},
                                           {"A6000", "rtx-a6000"},
                                           {"rtx 6000", "rtx-6000-ada, rtx-pro-6000"},
                                           {"6000 Ada", "rtx-6000-ada"},
                                           {"v100", "v100-16g, v100-32g"},
                                           {"l40", ""},
                                           {"3080ti", ""},
                                           {"24", ""},
                                           {"", ""},
                                           {" - ", ""},
                                           {"a b c d e f g h i j", ""},
                                           {"h100-of-a-name-that-is-longer-than-the-name-of-any-GPU", ""},
                                           {"a10aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", ""}};
    void (*ask)(const char *, char *, size_t) =
        (void (*)(const char *, char *, size_t))dlsym(RTLD_DEFAULT, "sim_gpu_named");
    char keys[128];
    CHECK(ask != NULL);
    for (unsigned i = 0; ask && i < sizeof names / sizeof names[0]; i++) {
        ask(names[i][0], keys, sizeof keys);
        CHECK(!strcmp(keys, names[i][1]));
        if (strcmp(keys, names[i][1]))
            fprintf(stderr, "%s: %s\n", names[i][0], keys);
    }
    ask("rtx", keys, 8);
    CHECK(!strcmp(keys, "rtx-208"));
}

static char listed_name[64];
static size_t listed_memory;
static int listed_capability;

static void listed(void)
{
    char found[64] = "";
    size_t total = 0;
    int major = 0, minor = 0;
    CHECK_OK(cuInit(0));
    CHECK_OK(cuDeviceGetName(found, sizeof found, 0));
    CHECK(!strcmp(found, listed_name));
    CHECK_OK(cuDeviceTotalMem(&total, 0));
    CHECK_EQ(total, listed_memory);
    CHECK_OK(cuDeviceComputeCapability(&major, &minor, 0));
    CHECK_EQ(10 * major + minor, listed_capability);
    /* Two arrays of attributes and one of generations: a row without its generation would not get here. */
    CHECK(attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) >= 49152);
    CHECK(attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) > 1000000);
}

static void list(void)
{
    const char *(*table)(void) = (const char *(*)(void))dlsym(RTLD_DEFAULT, "sim_gpu_table");
    int count = 0;
    CHECK(table != NULL);
    for (const char *at = table ? table() : ""; *at; at = strchr(at, '\n') + 1, count++) {
        char key[32], spec[64], known[16];
        int major, minor, multiprocessors, l2, threads;
        unsigned long long bandwidth;
        int fields = sscanf(at, "%31[^\t]\t%63[^\t]\t%d.%d\t%d\t%zu\t%15[^\t]\t%d\t%llu\t%d\n", key, listed_name,
                            &major, &minor, &multiprocessors, &listed_memory, known, &l2, &bandwidth, &threads);
        CHECK_EQ(fields, 10);
        CHECK(threads == 1024 || threads == 1536 || threads == 2048);
        CHECK(multiprocessors > 0 && l2 > 0 && bandwidth > 100000000000ull);
        listed_capability = 10 * major + minor;
        snprintf(spec, sizeof spec, "gpu=%s", key);
        with(spec, listed);
    }
    CHECK(count >= 40);
}

/* ---- the runtime: CUDA 13's struct begins as CUDA 12's but for the clock ----------------------------------------- */

static void properties(const char *library, const char *function, size_t multiprocessors_at)
{
    static char all[8192];
    void *runtime = dlopen(library, RTLD_NOW);
    int (*get)(void *, int) = runtime ? (int (*)(void *, int))dlsym(runtime, function) : NULL;
    size_t memory = 0;
    int multiprocessors = 0;
    CHECK(get != NULL);
    if (!get)
        return;
    CHECK_EQ(get(all, 0), 0);
    CHECK(!strcmp(all, "NVIDIA L40S"));
    memcpy(&memory, all + 288, sizeof memory);
    CHECK_EQ(memory, 47576711168);
    memcpy(&multiprocessors, all + multiprocessors_at, sizeof multiprocessors);
    CHECK_EQ(multiprocessors, 142);
}

static void runtime_12(void)
{
    properties("libcudart.so.12", "cudaGetDeviceProperties_v2", 388);
}

static void runtime_13(void)
{
    properties("libcudart.so.13", "cudaGetDeviceProperties", 384);
}

int main(void)
{
    with("", unnamed);
    with("gpu=t4", t4);
    with("gpu=A100-80G", a100);
    with("memory=4GiB,gpu=rtx-4090", rtx);
    with("gpu=4090,memory=4GiB", rtx);
    with("gpu=NVIDIA B200", b200);
    with("gpu=h200", h200);
    with("gpu=l4", generations);
    with("gpu=h300", unknown);
    with("gpu=l40s", runtime_12);
    with("gpu=l40s", runtime_13);
    contexts();
    sizes();
    named();
    with("gpu=a100", unknown);
    list();
    return check_done();
}
