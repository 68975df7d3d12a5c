/* SPDX-License-Identifier: MIT
 * Libraries, kernels and launches in the runtime.  A compiled program launches the host stub of a
 * kernel (register.c).  A program without a CUDA compiler gets its kernels from cudaLibraryGetKernel
 * and launches them by handle, which the real runtime takes too.  Any other "function" is refused as
 * an invalid device function. */
#include "cudart/runtime.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

cudaError_t rt_kernel_function(const void *func, CUfunction *function)
{
    CUkernel kernel = (CUkernel)(uintptr_t)func;

    if (!func || !rt_kernel_known(kernel))
        return rt_stub_function(func, function);
    /* The driver takes a kernel where it takes a function. */
    *function = (CUfunction)(uintptr_t)func;
    return cudaSuccess;
}

RT_API(RT_CONTEXT, 470, cudaLibraryLoadData, cudaLibrary_t *, library, const void *, code, enum cudaJitOption *,
       jitOptions, void **, jitOptionsValues, unsigned int, numJitOptions, enum cudaLibraryOption *, libraryOptions,
       void **, libraryOptionValues, unsigned int, numLibraryOptions)
{
    return rt_error_from(D->cuLibraryLoadData(library, code, (CUjit_option *)jitOptions, jitOptionsValues,
                                              numJitOptions, (CUlibraryOption *)libraryOptions, libraryOptionValues,
                                              numLibraryOptions));
}

RT_API(RT_CONTEXT, 472, cudaLibraryUnload, cudaLibrary_t, library)
{
    CUresult result = D->cuLibraryUnload(library);

    if (!result)
        rt_kernel_forget(library);
    return rt_error_from(result);
}

RT_API(RT_CONTEXT, 473, cudaLibraryGetKernel, cudaKernel_t *, pKernel, cudaLibrary_t, library, const char *, name)
{
    CUresult result = D->cuLibraryGetKernel(pKernel, library, name);

    return result ? rt_error_from(result) : rt_kernel_add(*pKernel, library);
}

RT_API(RT_CONTEXT, 477, cudaLibraryGetKernelCount, unsigned int *, count, cudaLibrary_t, lib)
{
    return rt_error_from(D->cuLibraryGetKernelCount(count, lib));
}

RT_API(RT_CONTEXT, 478, cudaLibraryEnumerateKernels, cudaKernel_t *, kernels, unsigned int, numKernels, cudaLibrary_t,
       lib)
{
    unsigned count;
    cudaError_t status = rt_error_from(D->cuLibraryEnumerateKernels(kernels, numKernels, lib));

    if (status == cudaSuccess)
        status = rt_error_from(D->cuLibraryGetKernelCount(&count, lib));
    for (unsigned i = 0; status == cudaSuccess && i < count && i < numKernels; i++)
        status = rt_kernel_add(kernels[i], lib);
    return status;
}

RT_API(RT_CONTEXT, 476, cudaLibraryGetUnifiedFunction, void **, fptr, cudaLibrary_t, library, const char *, symbol)
{
    return rt_error_from(D->cuLibraryGetUnifiedFunction(fptr, library, symbol));
}

/* A kernel that the program was compiled with is a function of the driver, which has a device already. */
RT_API(RT_CONTEXT, 479, cudaKernelSetAttributeForDevice, cudaKernel_t, kernel, enum cudaFuncAttribute, attr, int, value,
       int, device)
{
    CUfunction function;
    cudaError_t status = rt_kernel_function(kernel, &function);

    if (status != cudaSuccess)
        return status;
    return rt_error_from(D->cuKernelSetAttribute((CUfunction_attribute)attr, value, (CUkernel)function, device));
}

RT_API(RT_CONTEXT, 471, cudaLibraryLoadFromFile, cudaLibrary_t *, library, const char *, fileName, enum cudaJitOption *,
       jitOptions, void **, jitOptionsValues, unsigned int, numJitOptions, enum cudaLibraryOption *, libraryOptions,
       void **, libraryOptionValues, unsigned int, numLibraryOptions)
{
    return rt_error_from(D->cuLibraryLoadFromFile(library, fileName, (CUjit_option *)jitOptions, jitOptionsValues,
                                                  numJitOptions, (CUlibraryOption *)libraryOptions, libraryOptionValues,
                                                  numLibraryOptions));
}

RT_API(RT_CONTEXT, 474, cudaLibraryGetGlobal, void **, dptr, size_t *, bytes, cudaLibrary_t, library, const char *,
       name)
{
    return rt_error_from(D->cuLibraryGetGlobal((CUdeviceptr *)dptr, bytes, library, name));
}

RT_API(RT_CONTEXT, 475, cudaLibraryGetManaged, void **, dptr, size_t *, bytes, cudaLibrary_t, library, const char *,
       name)
{
    return rt_error_from(D->cuLibraryGetManaged((CUdeviceptr *)dptr, bytes, library, name));
}

RT_TWINS(RT_CONTEXT, 211, 214, _ptsz, cudaLaunchKernel, const void *, func, dim3, gridDim, dim3, blockDim, void **,
         args, size_t, sharedMem, cudaStream_t, stream)
{
    CUfunction function;
    cudaError_t status = rt_kernel_function(func, &function);

    if (status != cudaSuccess)
        return status;
    return rt_error_from(D->cuLaunchKernel(function, gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y,
                                           blockDim.z, (unsigned)sharedMem, stream, args, NULL));
}

RT_TWINS(RT_CONTEXT, 269, 270, _ptsz, cudaLaunchCooperativeKernel, const void *, func, dim3, gridDim, dim3, blockDim,
         void **, args, size_t, sharedMem, cudaStream_t, stream)
{
    CUfunction function;
    cudaError_t status = rt_kernel_function(func, &function);

    if (status != cudaSuccess)
        return status;
    return rt_error_from(D->cuLaunchCooperativeKernel(function, gridDim.x, gridDim.y, gridDim.z, blockDim.x, blockDim.y,
                                                      blockDim.z, (unsigned)sharedMem, stream, args));
}

cudaError_t rt_launch_config(const cudaLaunchConfig_t *from, CUlaunchConfig *to)
{
    if (!from)
        return cudaErrorInvalidValue;
    *to = (CUlaunchConfig){.gridDimX = from->gridDim.x,
                           .gridDimY = from->gridDim.y,
                           .gridDimZ = from->gridDim.z,
                           .blockDimX = from->blockDim.x,
                           .blockDimY = from->blockDim.y,
                           .blockDimZ = from->blockDim.z,
                           .sharedMemBytes = (unsigned)from->dynamicSmemBytes,
                           .hStream = from->stream,
                           .attrs = from->attrs,
                           .numAttrs = from->numAttrs};
    return cudaSuccess;
}

RT_TWINS(RT_CONTEXT, 430, 431, _ptsz, cudaLaunchKernelExC, const cudaLaunchConfig_t *, config, const void *, func,
         void **, args)
{
    CUfunction function;
    CUlaunchConfig ours;
    cudaError_t status = rt_launch_config(config, &ours);

    if (status == cudaSuccess)
        status = rt_kernel_function(func, &function);
    if (status != cudaSuccess)
        return status;
    return rt_error_from(D->cuLaunchKernelEx(&ours, function, args, NULL));
}

/* ---- CuTe -------------------------------------------------------------------------------------------------------- */
/* The code that CUTLASS's CuTe DSL (FlashInfer, FlashAttention 4) compiles calls these and the runtime's functions with
 * "_" before their names, which the Makefile adds.  libcute_dsl_runtime.so has them with NVIDIA's runtime inside; the
 * audit library hands out this one in its place. */

typedef void (*rt_cute_raise)(const char *kind, const char *message);
typedef void (*rt_cute_raise_parts)(const char *kind, const char **parts, int count);

#define RT_CUTE(result, name, ...)                                                                                     \
    RT_EXPORT result name(__VA_ARGS__);                                                                                \
    RT_EXPORT result name(__VA_ARGS__)

RT_CUTE(cudaError_t, _cudaLaunchKernel, const void *func, unsigned gridX, unsigned gridY, unsigned gridZ,
        unsigned blockX, unsigned blockY, unsigned blockZ, void **args, size_t sharedMem, cudaStream_t stream)
{
    return cudaLaunchKernel(func, (dim3){gridX, gridY, gridZ}, (dim3){blockX, blockY, blockZ}, args, sharedMem, stream);
}

/* An ordinal is a device's handle. */
RT_CUTE(CUresult, _cuDeviceGet, CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

RT_CUTE(CUresult, _cuKernelGetAttribute, int *value, CUfunction_attribute attribute, CUkernel kernel, int ordinal)
{
    return rt_init() != cudaSuccess ? CUDA_ERROR_NOT_INITIALIZED
                                    : rt_drivers[0].cuKernelGetAttribute(value, attribute, kernel, ordinal);
}

RT_CUTE(CUresult, _cuTensorMapEncodeTiled, CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
        const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *steps,
        CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
        CUtensorMapFloatOOBfill fill)
{
    if (rt_init() != cudaSuccess)
        return CUDA_ERROR_NOT_INITIALIZED;
    return rt_drivers[0].cuTensorMapEncodeTiled(map, type, rank, address, sizes, strides, box, steps, interleave,
                                                swizzle, promotion, fill);
}

RT_CUTE(CUresult, _cuLibraryLoadData, CUlibrary *library, const void *code, CUjit_option *options, void **values,
        unsigned count, CUlibraryOption *libraryOptions, void **libraryValues, unsigned libraryCount)
{
    if (rt_init() != cudaSuccess)
        return CUDA_ERROR_NOT_INITIALIZED;
    return rt_drivers[0].cuLibraryLoadData(library, code, options, values, count, libraryOptions, libraryValues,
                                           libraryCount);
}

RT_CUTE(CUresult, _cuLibraryUnload, CUlibrary library)
{
    return rt_init() != cudaSuccess ? CUDA_ERROR_NOT_INITIALIZED : rt_drivers[0].cuLibraryUnload(library);
}

RT_CUTE(CUresult, _cuLibraryGetKernel, CUkernel *kernel, CUlibrary library, const char *name)
{
    CUresult result =
        rt_init() != cudaSuccess ? CUDA_ERROR_NOT_INITIALIZED : rt_drivers[0].cuLibraryGetKernel(kernel, library, name);
    return result || rt_kernel_add(*kernel, library) == cudaSuccess ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

RT_CUTE(void, cuda_dialect_print_on_error, cudaError_t error)
{
    if (error != cudaSuccess)
        fprintf(stderr, "CUDA Error: %s: %s\n", cudaGetErrorName(error), cudaGetErrorString(error));
}

RT_CUTE(void, cuda_dialect_assert_success, cudaError_t error)
{
    cuda_dialect_print_on_error(error);
    if (error != cudaSuccess)
        abort();
}

RT_CUTE(const char *, cuda_dialect_get_error_name, cudaError_t error)
{
    return cudaGetErrorName(error);
}

static void rt_cute_fail(rt_cute_raise raise, cudaError_t error)
{
    char text[256];

    snprintf(text, sizeof text, "Got Cuda Runtime Error: %s %s", cudaGetErrorName(error), cudaGetErrorString(error));
    raise("RuntimeError", text);
}

/* Loads the library of a compiled function once, and its kernels on each device: one that can do it is enough.  -1: the
 * error is raised. */
RT_CUTE(int, cuda_dialect_init_library_once, cudaLibrary_t *state, cudaError_t (*init)(cudaLibrary_t *),
        cudaError_t (*load)(cudaLibrary_t *, int device), rt_cute_raise raise)
{
    static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    cudaLibrary_t library = NULL;
    int devices = 0, failed = 0;
    cudaError_t status = cudaSuccess, error;

    if (__atomic_load_n(state, __ATOMIC_ACQUIRE))
        return 0;
    pthread_mutex_lock(&once);
    if (!*state) {
        status = init(&library);
        if (status == cudaSuccess && load && (status = cudaGetDeviceCount(&devices)) == cudaSuccess) {
            for (int device = 0; device < devices; device++)
                if ((error = load(&library, device)) != cudaSuccess)
                    status = error, failed++;
            status = failed == devices ? status : cudaSuccess;
        }
        if (status == cudaSuccess)
            __atomic_store_n(state, library, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&once);
    if (status != cudaSuccess)
        rt_cute_fail(raise, status);
    return status == cudaSuccess ? 0 : -1;
}

RT_CUTE(void, cuda_dialect_unload_library_once, cudaLibrary_t *state)
{
    cudaLibrary_t library = __atomic_exchange_n(state, NULL, __ATOMIC_ACQ_REL);

    if (library)
        cudaLibraryUnload(library);
}

RT_CUTE(void, CuteDSLRT_TVMFFISetRaisedCudaError, rt_cute_raise_parts raise, int error)
{
    const char *parts[] = {"CUDA error: ", cudaGetErrorName((cudaError_t)error)};

    if (raise)
        raise("RuntimeError", parts, 2);
}

/* The launch that failed follows. */
RT_CUTE(void, CuteDSLRT_TVMFFISetRaisedCudaLaunchError, rt_cute_raise_parts raise, int error, ...)
{
    CuteDSLRT_TVMFFISetRaisedCudaError(raise, error);
}
