/* SPDX-License-Identifier: MIT
 * Selftest of the runtime: textures, user objects, copies between devices and in batches, graphs that are looked into
 * and changed, and the exports without behaviour. */
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include "check.h"

static void textures(void)
{
    struct cudaTextureDesc how = {.filterMode = cudaFilterModeLinear, .readMode = cudaReadModeElementType, .sRGB = 1};
    struct cudaTextureDesc how_back;
    struct cudaResourceDesc from = {.resType = cudaResourceTypeLinear}, back;
    cudaTextureObject_t texture = 0;
    void *memory;

    CHECK_EQ(cudaMalloc(&memory, 4096), cudaSuccess);
    from.res.linear.devPtr = memory;
    from.res.linear.sizeInBytes = 4096;
    from.res.linear.desc = (struct cudaChannelFormatDesc){24, 0, 0, 0, cudaChannelFormatKindFloat};
    CHECK_EQ(cudaCreateTextureObject(&texture, &from, &how, NULL), cudaErrorInvalidChannelDescriptor);
    from.res.linear.desc = (struct cudaChannelFormatDesc){32, 32, 0, 0, cudaChannelFormatKindFloat};
    CHECK_EQ(cudaCreateTextureObject(&texture, &from, &how, NULL), cudaSuccess);
    memset(&back, 0x55, sizeof back);
    CHECK_EQ(cudaGetTextureObjectResourceDesc(&back, texture), cudaSuccess);
    CHECK(back.res.linear.devPtr == memory && back.res.linear.desc.x == 32 && back.res.linear.desc.y == 32);
    CHECK_EQ(back.flags, 0x55555555); /* behind the end of CUDA 12's struct */
    CHECK_EQ(cudaGetTextureObjectTextureDesc(&how_back, texture), cudaSuccess);
    CHECK(how_back.readMode == cudaReadModeElementType && how_back.sRGB == 1 && !how_back.normalizedCoords);
    CHECK_EQ(cudaDestroyTextureObject(texture), cudaSuccess);
    CHECK_EQ(cudaFree(memory), cudaSuccess);
}

static int destroyed;

static void destroy(void *data)
{
    __atomic_add_fetch((int *)data, 1, __ATOMIC_RELAXED);
}

static void graphs(void)
{
    struct cudaMemsetParams set = {.elementSize = 1, .width = 16, .height = 1, .value = 1};
    cudaGraphNode_t first, second, roots[2];
    cudaUserObject_t object;
    cudaGraphExec_t exec;
    cudaGraph_t graph;
    size_t count = 2;
    char byte = 0;

    CHECK_EQ(cudaMalloc(&set.dst, 16), cudaSuccess);
    CHECK_EQ(cudaGraphCreate(&graph, 0), cudaSuccess);
    CHECK_EQ(cudaUserObjectCreate(&object, &destroyed, destroy, 1, cudaUserObjectNoDestructorSync), cudaSuccess);
    CHECK_EQ(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove), cudaSuccess);
    CHECK_EQ(cudaGraphAddMemsetNode(&first, graph, NULL, 0, &set), cudaSuccess);
    CHECK_EQ(cudaGraphAddEmptyNode(&second, graph, &first, 1), cudaSuccess);
    CHECK_EQ(cudaGraphGetRootNodes(graph, roots, &count), cudaSuccess);
    CHECK(count == 1 && roots[0] == first);
    CHECK_EQ(cudaGraphGetEdges(graph, NULL, NULL, NULL, &count), cudaSuccess);
    CHECK_EQ(count, 1);
    CHECK_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    set.value = 7;
    CHECK_EQ(cudaGraphExecMemsetNodeSetParams(exec, first, &set), cudaSuccess);
    CHECK_EQ(cudaGraphLaunch(exec, NULL), cudaSuccess);
    CHECK_EQ(cudaMemcpy(&byte, set.dst, 1, cudaMemcpyDeviceToHost), cudaSuccess);
    CHECK_EQ(byte, 7);
    CHECK_EQ(cudaGraphDestroy(graph), cudaSuccess);
    CHECK_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    for (int i = 0; i < 2000 && !__atomic_load_n(&destroyed, __ATOMIC_RELAXED); i++)
        usleep(1000);
    CHECK_EQ(__atomic_load_n(&destroyed, __ATOMIC_RELAXED), 1);
    CHECK_EQ(cudaFree(set.dst), cudaSuccess);
}

static void copies(void)
{
    char text[64] = "between devices", back[64] = "";
    struct cudaMemcpy3DPeerParms peer = {.dstDevice = 1, .extent = {16, 4, 1}};
    struct cudaMemcpyAttributes how = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream};
    const void *to[1], *from[1];
    size_t bytes[] = {64}, start[] = {0};
    cudaStream_t stream;
    void *here, *there;

    CHECK_EQ(cudaMalloc(&here, 64), cudaSuccess);
    CHECK_EQ(cudaSetDevice(1), cudaSuccess);
    CHECK_EQ(cudaMalloc(&there, 64), cudaSuccess);
    CHECK_EQ(cudaSetDevice(0), cudaSuccess);
    CHECK_EQ(cudaStreamCreate(&stream), cudaSuccess);
    to[0] = here, from[0] = text;
    CHECK_EQ(cudaMemcpyBatchAsync(to, from, bytes, 1, &how, start, 1, stream), cudaSuccess);
    peer.srcPtr = (struct cudaPitchedPtr){here, 16, 16, 4};
    peer.dstPtr = (struct cudaPitchedPtr){there, 16, 16, 4};
    CHECK_EQ(cudaMemcpy3DPeerAsync(&peer, stream), cudaSuccess);
    CHECK_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    CHECK_EQ(cudaMemcpy3DPeer(&peer), cudaSuccess);
    CHECK_EQ(cudaMemcpy(back, there, 64, cudaMemcpyDefault), cudaSuccess);
    CHECK(!strcmp(back, text));
    peer.dstDevice = 7;
    CHECK_EQ(cudaMemcpy3DPeer(&peer), cudaErrorInvalidDevice);
    CHECK_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

static void absent(void)
{
    cudaError_t (*call)(void) = (cudaError_t(*)(void))dlsym(RTLD_DEFAULT, "cudaGLMapBufferObject");

    CHECK(call != NULL);
    cudaGetLastError();
    if (call)
        CHECK_EQ(call(), cudaErrorNotSupported);
    CHECK_EQ(cudaGetLastError(), cudaErrorNotSupported);
}

/* ---- what code that CuTe compiled calls -------------------------------------------------------------------------- */

static const char cute_image[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                                 ".visible .entry touch(.param .u64 a)\n{\n ret;\n}\n";
static cudaKernel_t cute_kernel;
static cudaError_t cute_status; /* of the next init */
static int cute_loads, cute_fails;
static char cute_said[256];

static cudaError_t cute_init(cudaLibrary_t *library)
{
    return cute_status ? cute_status : cudaLibraryLoadData(library, cute_image, NULL, NULL, 0, NULL, NULL, 0);
}

static cudaError_t cute_load(cudaLibrary_t *library, int device)
{
    cute_loads++;
    if (device < cute_fails)
        return cudaErrorNoKernelImageForDevice;
    return cudaLibraryGetKernel(&cute_kernel, *library, "touch");
}

static void cute_raise(const char *kind, const char *message)
{
    snprintf(cute_said, sizeof cute_said, "%s: %s", kind, message);
}

static void cute(void)
{
#define CALL(name, result, ...) ((result(*)(__VA_ARGS__))dlsym(RTLD_DEFAULT, #name))
    int (*once)(cudaLibrary_t *, cudaError_t(*)(cudaLibrary_t *), cudaError_t(*)(cudaLibrary_t *, int),
                void (*)(const char *, const char *)) = dlsym(RTLD_DEFAULT, "cuda_dialect_init_library_once");
    void (*unload)(cudaLibrary_t *) = dlsym(RTLD_DEFAULT, "cuda_dialect_unload_library_once");
    cudaLibrary_t library = NULL;
    void *memory, *args[] = {&memory};
    int value = 0;

    CHECK(dlsym(RTLD_DEFAULT, "_cudaMalloc") == dlsym(RTLD_DEFAULT, "cudaMalloc"));
    CHECK(dlsym(RTLD_DEFAULT, "_cudaLaunchKernelEx") == dlsym(RTLD_DEFAULT, "cudaLaunchKernelExC"));
    cute_status = cudaErrorSymbolNotFound;
    CHECK_EQ(once(&library, cute_init, cute_load, cute_raise), -1);
    CHECK(library == NULL && strstr(cute_said, "cudaErrorSymbolNotFound"));
    cute_status = cudaSuccess, cute_fails = 2; /* on both devices */
    CHECK_EQ(once(&library, cute_init, cute_load, cute_raise), -1);
    CHECK(library == NULL && strstr(cute_said, "cudaErrorNoKernelImageForDevice"));
    cute_fails = 1, cute_loads = 0;
    CHECK_EQ(once(&library, cute_init, cute_load, cute_raise), 0);
    CHECK_EQ(once(&library, cute_init, cute_load, cute_raise), 0);
    CHECK(library != NULL && cute_loads == 2);
    CHECK_EQ(cudaMalloc(&memory, 4096), cudaSuccess);
    CHECK_EQ(CALL(_cudaLaunchKernel, cudaError_t, const void *, unsigned, unsigned, unsigned, unsigned, unsigned,
                  unsigned, void **, size_t, cudaStream_t)(cute_kernel, 1, 1, 1, 32, 1, 1, args, 0, NULL),
             cudaSuccess);
    CHECK_EQ(CALL(_cuKernelGetAttribute, int, int *, int, cudaKernel_t, int)(&value, 0, cute_kernel, 1), 0);
    CHECK(value > 0);
    CHECK_EQ(cudaFree(memory), cudaSuccess);
    unload(&library);
    CHECK(library == NULL);
    unload(&library);
}

int main(void)
{
    setenv("GPUPROF_SIM", "devices=2", 1);
    cute();
    textures();
    graphs();
    copies();
    absent();
    return check_done();
}
