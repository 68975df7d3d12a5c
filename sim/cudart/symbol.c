/* SPDX-License-Identifier: MIT
 * Variables and kernels by the name that they have on the host: addresses, copies, handles; and
 * launches by handle.  Called by programs and by compiled stubs. */
#include "cudart/runtime.h"

RT_API(RT_CONTEXT, 53, cudaGetSymbolAddress, void **, devPtr, const void *, symbol)
{
    CUdeviceptr address;
    cudaError_t status = devPtr ? rt_symbol(symbol, &address, NULL) : cudaErrorInvalidValue;

    if (status == cudaSuccess)
        *devPtr = rt_pointer(address);
    return status;
}

RT_API(RT_CONTEXT, 54, cudaGetSymbolSize, size_t *, size, const void *, symbol)
{
    CUdeviceptr address;

    return size ? rt_symbol(symbol, &address, size) : cudaErrorInvalidValue;
}

/* The part [offset, offset + count) of a variable; the other end's kind of memory is in `kind`. */
static cudaError_t rt_symbol_part(const void *symbol, size_t offset, size_t count, enum cudaMemcpyKind kind,
                                  enum cudaMemcpyKind host, void **at)
{
    CUdeviceptr address;
    size_t size;
    cudaError_t status = rt_symbol(symbol, &address, &size);

    if (status != cudaSuccess)
        return status;
    if (kind != host && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (offset > size || count > size - offset)
        return cudaErrorInvalidValue;
    *at = rt_pointer(address + offset);
    return cudaSuccess;
}

RT_TWINS(RT_CONTEXT, 39, 223, _ptds, cudaMemcpyToSymbol, const void *, symbol, const void *, src, size_t, count, size_t,
         offset, enum cudaMemcpyKind, kind)
{
    void *at;
    cudaError_t status = rt_symbol_part(symbol, offset, count, kind, cudaMemcpyHostToDevice, &at);

    return status == cudaSuccess ? rt_memcpy(D, at, src, count, kind) : status;
}

RT_TWINS(RT_CONTEXT, 40, 224, _ptds, cudaMemcpyFromSymbol, void *, dst, const void *, symbol, size_t, count, size_t,
         offset, enum cudaMemcpyKind, kind)
{
    void *at;
    cudaError_t status = rt_symbol_part(symbol, offset, count, kind, cudaMemcpyDeviceToHost, &at);

    return status == cudaSuccess ? rt_memcpy(D, dst, at, count, kind) : status;
}

RT_TWINS(RT_CONTEXT, 47, 231, _ptsz, cudaMemcpyToSymbolAsync, const void *, symbol, const void *, src, size_t, count,
         size_t, offset, enum cudaMemcpyKind, kind, cudaStream_t, stream)
{
    void *at;
    cudaError_t status = rt_symbol_part(symbol, offset, count, kind, cudaMemcpyHostToDevice, &at);

    return status == cudaSuccess ? rt_memcpy_async(D, at, src, count, kind, stream) : status;
}

RT_TWINS(RT_CONTEXT, 48, 232, _ptsz, cudaMemcpyFromSymbolAsync, void *, dst, const void *, symbol, size_t, count,
         size_t, offset, enum cudaMemcpyKind, kind, cudaStream_t, stream)
{
    void *at;
    cudaError_t status = rt_symbol_part(symbol, offset, count, kind, cudaMemcpyDeviceToHost, &at);

    return status == cudaSuccess ? rt_memcpy_async(D, dst, at, count, kind, stream) : status;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

RT_API(RT_INIT, 439, cudaGetKernel, cudaKernel_t *, kernelPtr, const void *, entryFuncAddr)
{
    CUfunction function;
    cudaError_t status = kernelPtr ? rt_stub_function(entryFuncAddr, &function) : cudaErrorInvalidValue;

    if (status != cudaSuccess)
        return status;
    *kernelPtr = (cudaKernel_t)(uintptr_t)function;
    return rt_kernel_add(*kernelPtr, NULL); /* the driver refuses one whose binary is gone */
}

RT_API(RT_CONTEXT, 336, cudaGetFuncBySymbol, cudaFunction_t *, functionPtr, const void *, symbolPtr)
{
    CUfunction function;
    cudaError_t status = functionPtr ? rt_kernel_function(symbolPtr, &function) : cudaErrorInvalidValue;

    return status == cudaSuccess ? rt_error_from(D->cuKernelGetFunction(functionPtr, (CUkernel)(uintptr_t)function))
                                 : status;
}

RT_API(RT_CONTEXT, 451, cudaFuncGetName, const char **, name, const void *, func)
{
    CUfunction function;
    cudaError_t status = rt_kernel_function(func, &function);

    return status == cudaSuccess ? rt_error_from(D->cuFuncGetName(name, function)) : status;
}

/* What cudaLaunchKernel does, by the handle of __cudaGetKernel; a tool sees that call. */
struct rt_launch_params {
    cudaKernel_t kernel;
    dim3 gridDim, blockDim;
    void **args;
    size_t sharedMem;
    cudaStream_t stream;
};

static cudaError_t rt_launch_kernel(const struct rt_driver *D, const struct rt_launch_params *p, uint32_t cbid,
                                    const char *name)
{
    struct rt_call call;
    cudaError_t status = rt_begin(&call, RT_CONTEXT, cbid, name, p);

    if (status == cudaSuccess)
        status = rt_error_from(D->cuLaunchKernel((CUfunction)(uintptr_t)p->kernel, p->gridDim.x, p->gridDim.y,
                                                 p->gridDim.z, p->blockDim.x, p->blockDim.y, p->blockDim.z,
                                                 (unsigned)p->sharedMem, p->stream, p->args, NULL));
    return rt_end(&call, status);
}

RT_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args,
                                         size_t sharedMem, cudaStream_t stream);
RT_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args,
                                         size_t sharedMem, cudaStream_t stream)
{
    struct rt_launch_params params = {kernel, gridDim, blockDim, args, sharedMem, stream};

    return rt_launch_kernel(&rt_drivers[0], &params, 211, "cudaLaunchKernel");
}

RT_EXPORT cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args,
                                              size_t sharedMem, cudaStream_t stream);
RT_EXPORT cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args,
                                              size_t sharedMem, cudaStream_t stream)
{
    struct rt_launch_params params = {kernel, gridDim, blockDim, args, sharedMem, stream};

    return rt_launch_kernel(&rt_drivers[1], &params, 214, "cudaLaunchKernel_ptsz");
}
