/* SPDX-License-Identifier: MIT
 * Selftest of the simulated runtime: devices and contexts (lazy, selected, reset, several threads), streams, events,
 * host functions, kernels, capture, graphs with memory nodes, driver entry points, the log of errors. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

#include "check.h"

static void devices(void)
{
    struct cudaDeviceProp properties;
    CUcontext context = NULL;
    int number = -1, version = 0;
    void *pointer = NULL;

    CHECK_EQ(cudaRuntimeGetVersion(&version), cudaSuccess);
    CHECK_EQ(version, 13000);
    CHECK_EQ(cudaDriverGetVersion(&version), cudaSuccess);
    CHECK_EQ(version, 13040);
    CHECK_EQ(cudaGetDeviceCount(&number), cudaSuccess);
    CHECK_EQ(number, 1);
    CHECK_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    CHECK(context == NULL);
    CHECK_EQ(cudaGetDevice(&number), cudaSuccess);
    CHECK_EQ(number, 0);
    CHECK_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
    CHECK(properties.totalGlobalMem >= 1u << 30 && properties.warpSize == 32 && strstr(properties.name, "Simulated"));
    CHECK_EQ(cudaDeviceGetAttribute(&number, cudaDevAttrMemoryPoolsSupported, 0), cudaSuccess);
    CHECK_EQ(number, 1);
    CHECK_EQ(cudaSetDevice(0), cudaSuccess);
    CHECK_EQ(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    CHECK(context != NULL);
    CHECK_EQ(cudaMalloc(&pointer, 100), cudaSuccess);
    /* A reset takes the memory, and the next call creates the context again. */
    CHECK_EQ(cudaDeviceReset(), cudaSuccess);
    CHECK_EQ(cudaFree(pointer), cudaErrorInvalidValue);
    CHECK_EQ(cudaMalloc(&pointer, 100), cudaSuccess);
    CHECK_EQ(cudaFree(pointer), cudaSuccess);
    cudaGetLastError();
}

static pthread_barrier_t barrier;

/* A thread whose context another thread resets goes on with the new one. */
static void *other_thread(void *result)
{
    void *pointer = NULL;

    *(cudaError_t *)result = cudaMalloc(&pointer, 100);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    if (*(cudaError_t *)result == cudaSuccess)
        *(cudaError_t *)result = cudaMalloc(&pointer, 100);
    if (*(cudaError_t *)result == cudaSuccess)
        *(cudaError_t *)result = cudaFree(pointer);
    return NULL;
}

static void reset_across_threads(void)
{
    cudaError_t result = cudaErrorUnknown;
    pthread_t thread;

    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, other_thread, &result);
    pthread_barrier_wait(&barrier);
    CHECK_EQ(cudaDeviceReset(), cudaSuccess);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    CHECK_EQ(result, cudaSuccess);
}

/* A context that the program made by the driver API is the one that the runtime uses. */
static void foreign_context(void)
{
    CUcontext context = NULL, current = NULL;
    void *pointer = NULL;

    CHECK_EQ(cuCtxCreate(&context, NULL, 0, 0), CUDA_SUCCESS);
    CHECK_EQ(cudaMalloc(&pointer, 100), cudaSuccess);
    CHECK_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    CHECK(current == context);
    CHECK_EQ(cuCtxDestroy(context), CUDA_SUCCESS);
    CHECK_EQ(cudaDeviceSynchronize(), cudaSuccess);
    CHECK_EQ(cudaFree(pointer), cudaErrorInvalidValue);
    cudaGetLastError();
}

static void add_one(void *user)
{
    __atomic_fetch_add((int *)user, 1, __ATOMIC_SEQ_CST);
}

static void add_two(cudaStream_t stream, cudaError_t status, void *user)
{
    (void)stream;
    if (status == cudaSuccess)
        __atomic_fetch_add((int *)user, 2, __ATOMIC_SEQ_CST);
}

static void work(void)
{
    static const char image[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                                ".visible .entry touch(.param .u64 buffer) { ret; }\n";
    cudaLibrary_t library = NULL;
    cudaKernel_t kernel = NULL, only = NULL;
    struct cudaFuncAttributes attributes;
    unsigned count = 0;
    cudaStream_t stream = NULL;
    cudaEvent_t begin = NULL, end = NULL;
    float milliseconds = -1;
    int called = 0;
    void *pointer = NULL;
    void *parameters[] = {&pointer};

    CHECK_EQ(cudaMalloc(&pointer, 4096), cudaSuccess);
    CHECK_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    CHECK_EQ(cudaEventCreate(&begin), cudaSuccess);
    CHECK_EQ(cudaEventCreate(&end), cudaSuccess);
    CHECK_EQ(cudaEventRecord(begin, stream), cudaSuccess);
    CHECK_EQ(cudaLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0), cudaSuccess);
    CHECK_EQ(cudaLibraryGetKernelCount(&count, library), cudaSuccess);
    CHECK_EQ(count, 1);
    CHECK_EQ(cudaLibraryEnumerateKernels(&only, 1, library), cudaSuccess);
    CHECK_EQ(cudaKernelSetAttributeForDevice(only, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536, 0), cudaSuccess);
    CHECK_EQ(cudaFuncGetAttributes(&attributes, only), cudaSuccess);
    CHECK_EQ(attributes.maxDynamicSharedSizeBytes, 65536);
    CHECK_EQ(cudaKernelSetAttributeForDevice(only, cudaFuncAttributeMaxDynamicSharedMemorySize, 1, 99),
             cudaErrorInvalidDevice);
    CHECK_EQ(cudaKernelSetAttributeForDevice((cudaKernel_t)image, cudaFuncAttributeMaxDynamicSharedMemorySize, 1, 0),
             cudaErrorInvalidDeviceFunction);
    CHECK_EQ(cudaLibraryGetUnifiedFunction(&pointer, library, "touch"), cudaErrorSymbolNotFound);
    /* A kernel from the list can be launched. */
    CHECK_EQ(cudaLaunchKernel(only, (dim3){1, 1, 1}, (dim3){32, 1, 1}, parameters, 0, stream), cudaSuccess);
    CHECK_EQ(cudaLibraryGetKernel(&kernel, library, "touch"), cudaSuccess);
    CHECK(kernel == only);
    CHECK_EQ(cudaLaunchKernel(kernel, (dim3){4, 1, 1}, (dim3){32, 1, 1}, parameters, 0, stream), cudaSuccess);
    CHECK_EQ(cudaLaunchHostFunc(stream, add_one, &called), cudaSuccess);
    CHECK_EQ(cudaStreamAddCallback(stream, add_two, &called, 0), cudaSuccess);
    CHECK_EQ(cudaEventRecord(end, stream), cudaSuccess);
    CHECK_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    CHECK_EQ(called, 3);
    CHECK_EQ(cudaEventQuery(end), cudaSuccess);
    CHECK_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaSuccess);
    CHECK(milliseconds >= 0);
    CHECK_EQ(cudaLibraryUnload(library), cudaSuccess);
    CHECK_EQ(cudaLaunchKernel(kernel, (dim3){1, 1, 1}, (dim3){1, 1, 1}, parameters, 0, stream),
             cudaErrorInvalidDeviceFunction);
    CHECK_EQ(cudaEventDestroy(begin), cudaSuccess);
    CHECK_EQ(cudaEventDestroy(end), cudaSuccess);
    CHECK_EQ(cudaStreamDestroy(stream), cudaSuccess);
    CHECK_EQ(cudaFree(pointer), cudaSuccess);
    cudaGetLastError();
}

static void graphs(void)
{
    struct cudaMemAllocNodeParams allocation = {
        .poolProps = {.allocType = cudaMemAllocationTypePinned, .location = {cudaMemLocationTypeDevice, 0}},
        .bytesize = 1 << 20};
    struct cudaGraphNodeParams general = {.type = cudaGraphNodeTypeMemAlloc};
    cudaGraph_t graph = NULL, captured = NULL;
    cudaGraphExec_t exec = NULL;
    cudaGraphNode_t nodes[3] = {NULL};
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStream_t stream = NULL;
    unsigned long long used = 0;
    void *inside = NULL, *refused = NULL;

    CHECK_EQ(cudaStreamCreate(&stream), cudaSuccess);
    CHECK_EQ(cudaGraphCreate(&graph, 0), cudaSuccess);
    CHECK_EQ(cudaGraphAddMemAllocNode(&nodes[0], graph, NULL, 0, &allocation), cudaSuccess);
    CHECK(allocation.dptr != NULL);
    general.alloc.poolProps = allocation.poolProps;
    general.alloc.bytesize = 4096;
    CHECK_EQ(cudaGraphAddNode(&nodes[1], graph, NULL, NULL, 0, &general), cudaSuccess);
    CHECK(general.alloc.dptr != NULL && general.alloc.dptr != allocation.dptr);
    CHECK_EQ(cudaGraphAddMemFreeNode(&nodes[2], graph, &nodes[0], 1, allocation.dptr), cudaSuccess);
    CHECK_EQ(cudaGraphAddMemFreeNode(&nodes[2], graph, &nodes[1], 1, general.alloc.dptr), cudaSuccess);
    CHECK_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    CHECK_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    CHECK_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    CHECK_EQ(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &used), cudaSuccess);
    CHECK(used >= 1 << 20);
    CHECK_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
    CHECK_EQ(cudaGraphDestroy(graph), cudaSuccess);
    CHECK_EQ(cudaDeviceGraphMemTrim(0), cudaSuccess);
    CHECK_EQ(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrReservedMemCurrent, &used), cudaSuccess);
    CHECK_EQ(used, 0);
    CHECK_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    CHECK_EQ(cudaStreamIsCapturing(stream, &status), cudaSuccess);
    CHECK_EQ(status, cudaStreamCaptureStatusActive);
    CHECK_EQ(cudaMallocAsync(&inside, 4096, stream), cudaSuccess);
    CHECK_EQ(cudaFreeAsync(inside, stream), cudaSuccess);
    CHECK_EQ(cudaStreamEndCapture(stream, &captured), cudaSuccess);
    CHECK_EQ(cudaGraphDestroy(captured), cudaSuccess);
    CHECK_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    CHECK_EQ(cudaMalloc(&refused, 4096), cudaErrorStreamCaptureUnsupported);
    CHECK_EQ(cudaStreamEndCapture(stream, &captured), cudaErrorStreamCaptureInvalidated);
    CHECK_EQ(cudaStreamDestroy(stream), cudaSuccess);
    cudaGetLastError();
}

static void entry_points(void)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    CUresult (*allocate)(CUdeviceptr *, size_t) = NULL;
    void *plain = NULL, *twin = NULL;
    CUdeviceptr pointer = 0;

    CHECK_EQ(cudaGetDriverEntryPoint("cuMemAlloc", (void **)&allocate, cudaEnableDefault, &found), cudaSuccess);
    CHECK_EQ(found, cudaDriverEntryPointSuccess);
    CHECK(allocate == cuMemAlloc);
    CHECK_EQ(allocate(&pointer, 64), CUDA_SUCCESS);
    CHECK_EQ(cuMemFree(pointer), CUDA_SUCCESS);
    CHECK_EQ(cudaGetDriverEntryPoint("cuMemAllocAsync", &plain, cudaEnableDefault, &found), cudaSuccess);
    CHECK_EQ(cudaGetDriverEntryPoint("cuMemAllocAsync", &twin, cudaEnablePerThreadDefaultStream, &found), cudaSuccess);
    CHECK(plain && twin && plain != twin);
    CHECK_EQ(cudaGetDriverEntryPointByVersion("cuMemAllocAsync", &plain, 11000, cudaEnableDefault, &found),
             cudaSuccess);
    CHECK(plain == NULL);
    CHECK_EQ(found, cudaDriverEntryPointVersionNotSufficent);
    CHECK_EQ(cudaGetDriverEntryPoint("cuNoSuchThing", &plain, cudaEnableDefault, &found), cudaSuccess);
    CHECK_EQ(found, cudaDriverEntryPointSymbolNotFound);
}

static void heard(void *data, cudaLogLevel level, char *message, size_t length)
{
    (void)level, (void)message, (void)length;
    ++*(int *)data;
}

/* Asked before anything else: nothing starts the driver, and what it refuses is the last error. */
static void logs(void)
{
    cudaLogsCallbackHandle first = NULL, second = NULL;
    cudaLogIterator at = 7;
    CUlogIterator drivers = 7;
    char text[8] = "before";
    size_t size = sizeof text;
    int calls = 0, count;

    CHECK_EQ(cudaLogsRegisterCallback(NULL, NULL, &first), cudaErrorInvalidValue);
    CHECK_EQ(cudaLogsRegisterCallback(heard, &calls, &first), cudaSuccess);
    CHECK_EQ(cudaLogsRegisterCallback(heard, &calls, &second), cudaSuccess);
    CHECK_EQ(cudaLogsRegisterCallback(heard, &calls, NULL), cudaSuccess);
    CHECK(first && second && first != second);
    CHECK_EQ(cudaLogsCurrent(&at, 0), cudaSuccess);
    CHECK_EQ(cuLogsCurrent(&drivers, 0), CUDA_SUCCESS);
    CHECK_EQ(at, drivers);
    CHECK_EQ(cudaLogsCurrent(&at, 1), cudaErrorInvalidValue);
    CHECK_EQ(cudaLogsCurrent(NULL, 0), cudaErrorInvalidValue);
    CHECK_EQ(cudaLogsDumpToMemory(&at, text, &size, 0), cudaSuccess);
    CHECK(size == 0 && text[0] == '\0');
    CHECK_EQ(cudaLogsDumpToMemory(NULL, text, &size, 0), cudaErrorInvalidValue); /* no room */
    CHECK_EQ(cudaLogsDumpToFile(NULL, "/dev/null", 0), cudaSuccess);
    CHECK_EQ(cudaLogsDumpToFile(NULL, "/dev/null/none", 0), cudaErrorInvalidValue);
    /* The log is one: the driver knows the runtime's callbacks. */
    CHECK_EQ(cuLogsUnregisterCallback((CUlogsCallbackHandle)first), CUDA_SUCCESS);
    CHECK_EQ(cudaLogsUnregisterCallback(first), cudaErrorInvalidValue);
    CHECK_EQ(cudaLogsUnregisterCallback(second), cudaSuccess);
    CHECK_EQ(calls, 0);
    CHECK_EQ(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    CHECK_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

int main(void)
{
    logs();
    devices();
    reset_across_threads();
    foreign_context();
    work();
    graphs();
    entry_points();
    return check_done();
}
