/* SPDX-License-Identifier: MIT
 * Code that a CUDA compiler put into the program: its constructors hand over fat binaries and the
 * host stub of each kernel, before main and without a driver.  Nothing is loaded until a stub is
 * launched: then the binary becomes a library of the driver, and the kernel is looked up in it.
 * Called by compiled code, and by launch.c. */
#include "cudart/runtime.h"

#include <pthread.h>
#include <stdlib.h>

/* What the compiler's wrapper section holds. */
struct rt_wrapper {
    int magic, version;
    const void *image;
    void *more;
};
#define RT_WRAPPER_MAGIC 0x466243b1

/* A variable of device code, named by its host side. */
struct rt_variable {
    struct rt_variable *next;
    const void *host;
    const char *name;
    size_t size;
    void **shown; /* managed: where compiled code reads its address, else NULL */
};

struct rt_binary {
    struct rt_binary *next;
    const void *image;
    CUlibrary library;             /* NULL: nothing of it was used yet */
    struct rt_variable *variables; /* all registered before the first use */
};

/* A hash table with open addressing: PyTorch registers some hundred thousand stubs. */
struct rt_stub {
    const void *host; /* NULL: empty; RT_GONE: was here */
    struct rt_binary *binary;
    const char *name;
    CUkernel kernel;
};
#define RT_GONE ((const void *)1)

static struct {
    pthread_mutex_t lock;
    struct rt_stub *slots;
    size_t used, capacity; /* used counts the ones that are gone, too; capacity is a power of two */
    struct rt_binary *binaries;
} rt_stubs = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct rt_stub *rt_stub_slot(struct rt_stub *slots, size_t capacity, const void *host)
{
    size_t at = ((uintptr_t)host * UINT64_C(0x9e3779b97f4a7c15)) >> 20;

    for (;; at++) {
        struct rt_stub *slot = &slots[at & (capacity - 1)];

        if (!slot->host || slot->host == host)
            return slot;
    }
}

static bool rt_stubs_grow(void)
{
    size_t capacity = rt_stubs.capacity ? 2 * rt_stubs.capacity : 1024, used = 0;
    struct rt_stub *slots = calloc(capacity, sizeof *slots);

    if (!slots)
        return false;
    for (size_t i = 0; i < rt_stubs.capacity; i++)
        if (rt_stubs.slots[i].host && rt_stubs.slots[i].host != RT_GONE) {
            *rt_stub_slot(slots, capacity, rt_stubs.slots[i].host) = rt_stubs.slots[i];
            used++;
        }
    free(rt_stubs.slots);
    rt_stubs.slots = slots;
    rt_stubs.capacity = capacity;
    rt_stubs.used = used;
    return true;
}

/* The driver is called without the lock: two threads may load the same binary, and one wins. */
static cudaError_t rt_binary_load(struct rt_binary *binary, CUlibrary *library)
{
    CUlibrary loaded = NULL, none = NULL;
    CUlibraryOption preserved = CU_LIBRARY_BINARY_IS_PRESERVED; /* the binary is part of the program */
    void *yes = (void *)1;
    CUresult result;

    *library = __atomic_load_n(&binary->library, __ATOMIC_ACQUIRE);
    if (*library)
        return cudaSuccess;
    result = rt_drivers[0].cuLibraryLoadData(&loaded, binary->image, NULL, NULL, 0, &preserved, &yes, 1);
    if (result)
        return rt_error_from(result);
    for (const struct rt_variable *at = binary->variables; at; at = at->next)
        rt_tools()->library_declare(loaded, at->name, at->size, at->shown != NULL);
    if (!__atomic_compare_exchange_n(&binary->library, &none, loaded, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        rt_drivers[0].cuLibraryUnload(loaded);
        loaded = none;
    }
    *library = loaded;
    return cudaSuccess;
}

/* cudaErrorInvalidDeviceFunction: `host` is no registered stub. */
cudaError_t rt_stub_function(const void *host, CUfunction *function)
{
    struct rt_stub found = {.host = NULL}, *slot;
    CUlibrary library;
    CUkernel kernel;
    cudaError_t status;
    CUresult result;

    pthread_mutex_lock(&rt_stubs.lock);
    if (rt_stubs.capacity && host && host != RT_GONE)
        found = *rt_stub_slot(rt_stubs.slots, rt_stubs.capacity, host);
    pthread_mutex_unlock(&rt_stubs.lock);
    if (!found.host)
        return cudaErrorInvalidDeviceFunction;
    *function = (CUfunction)(uintptr_t)found.kernel;
    if (found.kernel)
        return cudaSuccess;
    status = rt_binary_load(found.binary, &library);
    if (status != cudaSuccess)
        return status;
    result = rt_drivers[0].cuLibraryGetKernel(&kernel, library, found.name);
    if (result)
        return rt_error_from(result);
    pthread_mutex_lock(&rt_stubs.lock);
    slot = rt_stub_slot(rt_stubs.slots, rt_stubs.capacity, host);
    if (slot->host == host)
        slot->kernel = kernel;
    pthread_mutex_unlock(&rt_stubs.lock);
    *function = (CUfunction)(uintptr_t)kernel;
    return cudaSuccess;
}

/* cudaErrorInvalidSymbol: `host` is no registered variable. */
cudaError_t rt_symbol(const void *host, CUdeviceptr *address, size_t *size)
{
    struct rt_binary *binary;
    struct rt_variable found = {.host = NULL};
    CUlibrary library;
    cudaError_t status;

    pthread_mutex_lock(&rt_stubs.lock);
    for (binary = rt_stubs.binaries; binary && host; binary = binary->next) {
        const struct rt_variable *at = binary->variables;

        /* Compiled code names a managed variable by its address, once that is known. */
        while (at && at->host != host && !(at->shown && *at->shown == host))
            at = at->next;
        if (at) {
            found = *at;
            break;
        }
    }
    pthread_mutex_unlock(&rt_stubs.lock);
    if (!found.host)
        return cudaErrorInvalidSymbol;
    status = rt_binary_load(binary, &library);
    if (status != cudaSuccess)
        return status;
    return rt_error_from(found.shown ? rt_drivers[0].cuLibraryGetManaged(address, size, library, found.name)
                                     : rt_drivers[0].cuLibraryGetGlobal(address, size, library, found.name));
}

RT_EXPORT void **__cudaRegisterFatBinary(void *fatCubin);
RT_EXPORT void **__cudaRegisterFatBinary(void *fatCubin)
{
    const struct rt_wrapper *wrapper = fatCubin;
    struct rt_binary *binary;

    if (!wrapper || wrapper->magic != RT_WRAPPER_MAGIC)
        return NULL;
    binary = calloc(1, sizeof *binary);
    if (!binary)
        return NULL;
    binary->image = wrapper->image;
    pthread_mutex_lock(&rt_stubs.lock);
    binary->next = rt_stubs.binaries;
    rt_stubs.binaries = binary;
    pthread_mutex_unlock(&rt_stubs.lock);
    return (void **)binary;
}

RT_EXPORT void __cudaRegisterFatBinaryEnd(void **fatCubinHandle);
RT_EXPORT void __cudaRegisterFatBinaryEnd(void **fatCubinHandle)
{
    (void)fatCubinHandle;
}

RT_EXPORT void __cudaUnregisterFatBinary(void **fatCubinHandle);
RT_EXPORT void __cudaUnregisterFatBinary(void **fatCubinHandle)
{
    struct rt_binary *binary = (struct rt_binary *)fatCubinHandle;

    if (!binary)
        return;
    pthread_mutex_lock(&rt_stubs.lock);
    for (size_t i = 0; i < rt_stubs.capacity; i++)
        if (rt_stubs.slots[i].binary == binary)
            rt_stubs.slots[i] = (struct rt_stub){.host = RT_GONE};
    for (struct rt_binary **at = &rt_stubs.binaries; *at; at = &(*at)->next)
        if (*at == binary) {
            *at = binary->next;
            break;
        }
    pthread_mutex_unlock(&rt_stubs.lock);
    if (binary->library) {
        rt_kernel_forget(binary->library);
        rt_drivers[0].cuLibraryUnload(binary->library);
    }
    while (binary->variables) {
        struct rt_variable *variable = binary->variables;

        binary->variables = variable->next;
        free(variable);
    }
    free(binary);
}

RT_EXPORT void __cudaRegisterFunction(void **fatCubinHandle, const char *hostFun, char *deviceFun,
                                      const char *deviceName, int thread_limit, void *tid, void *bid, dim3 *bDim,
                                      dim3 *gDim, int *wSize);
RT_EXPORT void __cudaRegisterFunction(void **fatCubinHandle, const char *hostFun, char *deviceFun,
                                      const char *deviceName, int thread_limit, void *tid, void *bid, dim3 *bDim,
                                      dim3 *gDim, int *wSize)
{
    struct rt_binary *binary = (struct rt_binary *)fatCubinHandle;
    struct rt_stub *slot;

    (void)deviceFun, (void)thread_limit, (void)tid, (void)bid, (void)bDim, (void)gDim, (void)wSize;
    if (!binary || !hostFun)
        return;
    pthread_mutex_lock(&rt_stubs.lock);
    /* At most half full, so that a search ends soon.  A stub without room cannot be launched. */
    if (2 * rt_stubs.used < rt_stubs.capacity || rt_stubs_grow()) {
        slot = rt_stub_slot(rt_stubs.slots, rt_stubs.capacity, hostFun);
        rt_stubs.used += !slot->host;
        *slot = (struct rt_stub){.host = hostFun, .binary = binary, .name = deviceName};
    }
    pthread_mutex_unlock(&rt_stubs.lock);
}

static void rt_variable_add(void **handle, const struct rt_variable *variable)
{
    struct rt_binary *binary = (struct rt_binary *)handle;
    struct rt_variable *made = binary && variable->name ? malloc(sizeof *made) : NULL;

    if (!made)
        return;
    *made = *variable;
    pthread_mutex_lock(&rt_stubs.lock);
    made->next = binary->variables;
    binary->variables = made;
    pthread_mutex_unlock(&rt_stubs.lock);
}

RT_EXPORT void __cudaRegisterVar(void **fatCubinHandle, char *hostVar, char *deviceAddress, const char *deviceName,
                                 int ext, size_t size, int constant, int global);
RT_EXPORT void __cudaRegisterVar(void **fatCubinHandle, char *hostVar, char *deviceAddress, const char *deviceName,
                                 int ext, size_t size, int constant, int global)
{
    (void)deviceAddress, (void)ext, (void)constant, (void)global;
    rt_variable_add(fatCubinHandle, &(struct rt_variable){.host = hostVar, .name = deviceName, .size = size});
}

RT_EXPORT void __cudaRegisterManagedVar(void **fatCubinHandle, void **hostVarPtrAddress, char *deviceAddress,
                                        const char *deviceName, int ext, size_t size, int constant, int global);
RT_EXPORT void __cudaRegisterManagedVar(void **fatCubinHandle, void **hostVarPtrAddress, char *deviceAddress,
                                        const char *deviceName, int ext, size_t size, int constant, int global)
{
    (void)deviceAddress, (void)ext, (void)constant, (void)global;
    rt_variable_add(
        fatCubinHandle,
        &(struct rt_variable){.host = hostVarPtrAddress, .name = deviceName, .size = size, .shown = hostVarPtrAddress});
}

RT_EXPORT void __cudaRegisterHostVar(void **fatCubinHandle, const char *deviceName, char *hostVar, size_t size);
RT_EXPORT void __cudaRegisterHostVar(void **fatCubinHandle, const char *deviceName, char *hostVar, size_t size)
{
    (void)fatCubinHandle, (void)deviceName, (void)hostVar, (void)size; /* device code reads it; none runs */
}

/* Compiled code calls it before the host first touches a managed variable of the binary.  The
 * answer says whether it is ready. */
RT_EXPORT char __cudaInitModule(void **fatCubinHandle);
RT_EXPORT char __cudaInitModule(void **fatCubinHandle)
{
    const struct rt_binary *binary = (const struct rt_binary *)fatCubinHandle;
    cudaError_t status = rt_init();

    if (status == cudaSuccess)
        status = rt_context();
    for (const struct rt_variable *at = binary ? binary->variables : NULL; at && status == cudaSuccess; at = at->next) {
        CUdeviceptr address;

        if (!at->shown)
            continue;
        status = rt_symbol(at->host, &address, NULL);
        if (status == cudaSuccess)
            *at->shown = rt_pointer(address);
    }
    return status == cudaSuccess;
}

/* Stubs of CUDA 13 ask for the kernel once and launch it by its handle. */
RT_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *entry);
RT_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *entry)
{
    cudaError_t status = kernel ? rt_init() : cudaErrorInvalidValue;
    CUfunction function;

    if (status == cudaSuccess)
        status = rt_stub_function(entry, &function);
    if (status == cudaSuccess)
        *kernel = (cudaKernel_t)(uintptr_t)function;
    return status;
}

/* f<<<grid, block, shared, stream>>>(...) pushes the shape, evaluates the arguments, which may
 * launch kernels themselves, and calls the stub, which pops it. */
#define RT_SHAPES 16
static __thread struct {
    struct rt_shape {
        dim3 grid, block;
        size_t shared;
        void *stream;
    } at[RT_SHAPES];
    unsigned count;
} rt_shapes;

RT_EXPORT unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, void *stream);
RT_EXPORT unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, void *stream)
{
    if (rt_shapes.count == RT_SHAPES)
        return cudaErrorLaunchOutOfResources;
    rt_shapes.at[rt_shapes.count++] = (struct rt_shape){gridDim, blockDim, sharedMem, stream};
    return cudaSuccess;
}

RT_EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem, void *stream);
RT_EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem, void *stream)
{
    const struct rt_shape *shape;

    if (!rt_shapes.count)
        return cudaErrorMissingConfiguration;
    shape = &rt_shapes.at[--rt_shapes.count];
    *gridDim = shape->grid;
    *blockDim = shape->block;
    *sharedMem = shape->shared;
    *(void **)stream = shape->stream;
    return cudaSuccess;
}
