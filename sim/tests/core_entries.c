/* SPDX-License-Identifier: MIT
 * Selftest: the linker, textures, semaphores, launches as before CUDA 4, user objects, batches of copies, occupancy,
 * and the entry points without behaviour. */
#define _GNU_SOURCE
#include <fcntl.h>

#include "core_check.h"

static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .global .align 4 .b8 table[64];\n"
                          ".const .align 4 .b32 factor = 3;\n"
                          ".visible .entry scale(.param .u64 p, .param .u32 n)\n{ ld.const.u32 %r1, [factor]; ret; }\n";
static const char more[] = ".version 8.0\n.target sm_90\n.visible .entry other()\n{ ret; }\n";

static CUmodule linked(void)
{
    CUlinkState state = NULL;
    void *image = NULL;
    size_t size = 0;
    CUmodule module = NULL;
    CUfunction function;

    CHECK_EQ(cuLinkCreate(0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuLinkCreate(0, NULL, NULL, &state));
    CHECK_EQ(cuLinkComplete(state, &image, &size), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)"text", 5, "a", 0, NULL, NULL), CUDA_ERROR_INVALID_PTX);
    CHECK_EQ(cuLinkAddFile(state, CU_JIT_INPUT_PTX, "/nowhere.ptx", 0, NULL, NULL), CUDA_ERROR_FILE_NOT_FOUND);
    CHECK_OK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)ptx, sizeof ptx, "a", 0, NULL, NULL));
    CHECK_OK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)more, sizeof more, "b", 0, NULL, NULL));
    CHECK_OK(cuLinkComplete(state, &image, &size));
    CHECK(size > sizeof ptx);
    CHECK_EQ(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)more, sizeof more, "b", 0, NULL, NULL),
             CUDA_ERROR_INVALID_HANDLE);
    CHECK_OK(cuModuleLoadData(&module, image));
    CHECK_OK(cuLinkDestroy(state));
    CHECK_EQ(cuLinkDestroy(state), CUDA_ERROR_INVALID_HANDLE);
    CHECK_OK(cuModuleGetFunction(&function, module, "scale"));
    CHECK_OK(cuModuleGetFunction(&function, module, "other"));
    CHECK_EQ(cuModuleGetFunction(&function, module, "third"), CUDA_ERROR_NOT_FOUND);
    return module;
}

static void variables(CUmodule module)
{
    CUdeviceptr address = 0;
    size_t size = 0;
    int value = 7;
    CUresult (*old)(unsigned *, unsigned *, CUmodule, const char *) =
        (CUresult(*)(unsigned *, unsigned *, CUmodule, const char *))dlsym(RTLD_DEFAULT, "cuModuleGetGlobal");
    unsigned small = 0;

    CHECK_OK(cuModuleGetGlobal(&address, &size, module, "table"));
    CHECK_EQ(size, 64);
    CHECK_OK(cuMemcpyHtoD(address, &value, sizeof value));
    CHECK_OK(cuModuleGetGlobal(&address, &size, module, "factor"));
    CHECK_EQ(size, 4);
    CHECK_OK(old(NULL, &small, module, "table"));
    CHECK_EQ(small, 64);
    CHECK_EQ(cuModuleGetGlobal(&address, &size, module, "none"), CUDA_ERROR_NOT_FOUND);
}

static void launches(CUmodule module, CUdeviceptr memory)
{
    CUfunction function;

    CHECK_OK(cuModuleGetFunction(&function, module, "scale"));
    CHECK_EQ(cuFuncSetBlockShape(function, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuFuncSetBlockShape((CUfunction)1, 1, 1, 1), CUDA_ERROR_INVALID_HANDLE);
    CHECK_OK(cuFuncSetBlockShape(function, 32, 2, 1));
    CHECK_OK(cuFuncSetSharedSize(function, 1024));
    CHECK_OK(cuParamSetv(function, 0, &memory, sizeof memory));
    CHECK_OK(cuParamSeti(function, 8, 5));
    CHECK_EQ(cuParamSeti(function, 4096, 5), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuLaunch(function), CUDA_ERROR_INVALID_VALUE); /* two parameters, of which none has bytes yet */
    CHECK_OK(cuParamSetSize(function, 12));
    CHECK_OK(cuLaunch(function));
    CHECK_OK(cuLaunchGrid(function, 4, 4));
    CHECK_OK(cuLaunchGridAsync(function, 4, 4, NULL));
    CHECK_EQ(cuLaunchGrid(function, 0, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuFuncSetBlockShape(function, 1024, 2, 1));
    CHECK_EQ(cuLaunch(function), CUDA_ERROR_INVALID_VALUE);
}

static void textures(CUdeviceptr memory)
{
    CUDA_RESOURCE_DESC linear = {.resType = CU_RESOURCE_TYPE_LINEAR,
                                 .res.linear = {memory, CU_AD_FORMAT_FLOAT, 1, 4096}};
    CUDA_RESOURCE_DESC array = {.resType = CU_RESOURCE_TYPE_ARRAY}, back;
    CUDA_TEXTURE_DESC how = {.filterMode = CU_TR_FILTER_MODE_LINEAR}, how_back;
    CUDA_RESOURCE_VIEW_DESC view;
    CUDA_ARRAY_DESCRIPTOR shape = {64, 64, CU_AD_FORMAT_FLOAT, 1};
    CUtexObject texture = 0;
    CUsurfObject surface = 0;
    CUarray storage;

    CHECK_EQ(cuTexObjectCreate(&texture, &linear, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuTexObjectCreate(&texture, &linear, &how, NULL));
    CHECK(texture != 0);
    CHECK_OK(cuTexObjectGetResourceDesc(&back, texture));
    CHECK_EQ(back.res.linear.devPtr, memory);
    CHECK_OK(cuTexObjectGetTextureDesc(&how_back, texture));
    CHECK_EQ(how_back.filterMode, CU_TR_FILTER_MODE_LINEAR);
    CHECK_EQ(cuTexObjectGetResourceViewDesc(&view, texture), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuTexObjectDestroy(texture));
    CHECK_EQ(cuTexObjectDestroy(texture), CUDA_ERROR_INVALID_VALUE);
    linear.res.linear.devPtr = 4096; /* no memory of the device's */
    CHECK(cuTexObjectCreate(&texture, &linear, &how, NULL) != CUDA_SUCCESS);
    CHECK_OK(cuArrayCreate(&storage, &shape));
    array.res.array.hArray = storage;
    CHECK_OK(cuSurfObjectCreate(&surface, &array));
    CHECK_OK(cuSurfObjectGetResourceDesc(&back, surface));
    CHECK(back.res.array.hArray == storage);
    CHECK_EQ(cuTexObjectDestroy(surface), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuSurfObjectDestroy(surface));
    CHECK_OK(cuArrayDestroy(storage));
    CHECK_EQ(cuSurfObjectCreate(&surface, &array), CUDA_ERROR_INVALID_HANDLE);
}

static void semaphores(void)
{
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC from = {.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD};
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal = {.params.fence.value = 1};
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait = {.params.fence.value = 1};
    CUexternalSemaphore semaphore = NULL, none = NULL;
    CUstream stream;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    from.handle.fd = -1;
    CHECK_EQ(cuImportExternalSemaphore(&semaphore, &from), CUDA_ERROR_INVALID_HANDLE);
    from.handle.fd = fd;
    CHECK_OK(cuImportExternalSemaphore(&semaphore, &from));
    CHECK_OK(cuStreamCreate(&stream, 0));
    CHECK_OK(cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, stream));
    CHECK_OK(cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, stream));
    CHECK_EQ(cuWaitExternalSemaphoresAsync(&none, &wait, 1, stream), CUDA_ERROR_INVALID_HANDLE);
    CHECK_OK(cuStreamDestroy(stream));
    CHECK_OK(cuDestroyExternalSemaphore(semaphore));
    CHECK_EQ(cuDestroyExternalSemaphore(semaphore), CUDA_ERROR_INVALID_HANDLE);
    CHECK(fcntl(fd, F_GETFD) < 0); /* the import owned it */
}

static int destroyed;

static void destroy(void *data)
{
    __atomic_add_fetch((int *)data, 1, __ATOMIC_RELAXED);
}

static int destroyed_soon(int wanted)
{
    for (int i = 0; i < 2000 && __atomic_load_n(&destroyed, __ATOMIC_RELAXED) != wanted; i++)
        usleep(1000);
    return __atomic_load_n(&destroyed, __ATOMIC_RELAXED);
}

static void user_objects(void)
{
    CUuserObject object = NULL;
    CUgraphExec exec;
    CUgraph graph;

    CHECK_EQ(cuUserObjectCreate(&object, &destroyed, destroy, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuUserObjectCreate(&object, &destroyed, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    CHECK_OK(cuGraphCreate(&graph, 0));
    CHECK_EQ(cuGraphRetainUserObject(graph, object, 2, CU_GRAPH_USER_OBJECT_MOVE), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CHECK_EQ(cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuGraphInstantiate(&exec, graph, 0));
    CHECK_OK(cuGraphDestroy(graph));
    CHECK_EQ(__atomic_load_n(&destroyed, __ATOMIC_RELAXED), 0); /* the instantiation holds it */
    CHECK_OK(cuGraphExecDestroy(exec));
    CHECK_EQ(destroyed_soon(1), 1);
    CHECK_EQ(cuUserObjectRetain(object, 1), CUDA_ERROR_INVALID_VALUE);

    CHECK_OK(cuUserObjectCreate(&object, &destroyed, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    CHECK_OK(cuGraphCreate(&graph, 0));
    CHECK_OK(cuGraphRetainUserObject(graph, object, 2, 0));
    CHECK_OK(cuUserObjectRetain(object, 1));
    CHECK_OK(cuUserObjectRelease(object, 2));
    CHECK_EQ(cuGraphReleaseUserObject(graph, object, 3), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuGraphReleaseUserObject(graph, object, 2));
    CHECK_EQ(destroyed_soon(2), 2);
    CHECK_OK(cuGraphDestroy(graph));
}

static void batches(CUdeviceptr memory)
{
    char host[3][16] = {"first", "second", ""};
    CUdeviceptr to[] = {memory, memory + 16, (CUdeviceptr)(uintptr_t)host[2]};
    CUdeviceptr from[] = {(CUdeviceptr)(uintptr_t)host[0], (CUdeviceptr)(uintptr_t)host[1], memory + 16};
    size_t bytes[] = {16, 16, 16}, first[] = {0};
    CUmemcpyAttributes how = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
    CUstream stream;

    CHECK_OK(cuStreamCreate(&stream, 0));
    CHECK_OK(cuMemcpyBatchAsync(to, from, bytes, 3, &how, first, 1, stream));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK(!strcmp(host[2], "second"));
    CHECK_EQ(cuMemcpyBatchAsync(to, from, bytes, 3, &how, first, 1, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyBatchAsync(to, from, bytes, 3, NULL, first, 0, stream), CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(cuStreamWriteValue64(stream, memory, 0x0102030405060708, 0));
    CHECK_OK(cuStreamSynchronize(stream));
    CHECK_OK(cuMemcpyDtoH(host[0], memory, 8));
    CHECK_EQ(*(uint64_t *)host[0], 0x0102030405060708);
    CHECK_OK(cuStreamDestroy(stream));
}

static size_t per_block(int block)
{
    return (size_t)block * 512;
}

static void occupancy(CUmodule module)
{
    CUlaunchConfig config = {
        .gridDimX = 16, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1, .blockDimZ = 1};
    CUfunction function;
    size_t bytes = 0;
    int grid = 0, block = 0, size = 0;

    CHECK_OK(cuModuleGetFunction(&function, module, "scale"));
    CHECK_OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, NULL, 0, 0));
    CHECK_EQ(block, 1024);
    CHECK_EQ(grid, 2 * 132);
    CHECK_OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, function, per_block, 0, 0));
    CHECK(block * 512 <= 233472 && block > 0);
    CHECK_OK(cuOccupancyMaxPotentialClusterSize(&size, function, &config));
    CHECK_EQ(size, 8);
    CHECK_OK(cuOccupancyMaxActiveClusters(&size, function, &config));
    CHECK_EQ(size, 16 * 132);
    CHECK_OK(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, 2, 128));
    CHECK_EQ(bytes, 233472 / 2);
}

/* Each of them is there by both ways, answers with an error, and reports this once. */
static void absent(void)
{
    static const char *const names[] = {"cuGLInit", "cuTexRefCreate", "cuMemcpy3DBatchAsync_v2"};
    char text[4096] = "";
    int saved = dup(2), pipes[2];
    CUresult results[4];

    CHECK(pipe(pipes) == 0);
    dup2(pipes[1], 2);
    for (int i = 0; i < 4; i++) {
        CUresult (*call)(void) = (CUresult(*)(void))dlsym(RTLD_DEFAULT, names[i % 3]);
        results[i] = call ? call() : CUDA_SUCCESS;
    }
    dup2(saved, 2);
    close(pipes[1]);
    ssize_t length = read(pipes[0], text, sizeof text - 1);
    close(pipes[0]);
    close(saved);
    CHECK(length > 0);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(results[i], CUDA_ERROR_NOT_SUPPORTED);
    const char *once = strstr(text, "gpuprof: sim: cuGLInit is not simulated");
    CHECK(once && !strstr(once + strlen("gpuprof: sim: cuGLInit"), "cuGLInit"));
    void *found = NULL;
    CHECK_OK(cuGetProcAddress("cuTexRefSetAddress2D", &found, 13000, 0, NULL));
    CHECK(found == dlsym(RTLD_DEFAULT, "cuTexRefSetAddress2D_v3"));
    CHECK_OK(cuGetProcAddress("cuMemcpyHtoD", &found, 13000, 0, NULL));
    CHECK(found == dlsym(RTLD_DEFAULT, "cuMemcpyHtoD_v2"));
}

int main(void)
{
    CUdeviceptr memory;

    check_begin(0);
    CHECK_OK(cuMemAlloc(&memory, 4096));
    CUmodule module = linked();
    variables(module);
    launches(module, memory);
    textures(memory);
    semaphores();
    user_objects();
    batches(memory);
    occupancy(module);
    absent();
    CHECK_OK(cuMemFree(memory));
    return check_done();
}
