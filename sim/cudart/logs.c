/* SPDX-License-Identifier: MIT
 * The log of errors: the driver's, and the runtime adds nothing to it.  A program may ask before
 * anything else and without a GPU, so the driver is loaded and not started. */
#include "cudart/runtime.h"

RT_API(RT_NOTHING, 513, cudaLogsRegisterCallback, cudaLogsCallback_t, callbackFunc, void *, userData,
       cudaLogsCallbackHandle *, callback_out)
{
    cudaError_t status = rt_load();

    /* The two types of callbacks differ in the name of the level alone. */
    return status == cudaSuccess
               ? rt_error_from(D->cuLogsRegisterCallback((CUlogsCallback)callbackFunc, userData, callback_out))
               : status;
}

RT_API(RT_NOTHING, 514, cudaLogsUnregisterCallback, cudaLogsCallbackHandle, callback)
{
    cudaError_t status = rt_load();

    return status == cudaSuccess ? rt_error_from(D->cuLogsUnregisterCallback(callback)) : status;
}

RT_API(RT_NOTHING, 515, cudaLogsCurrent, cudaLogIterator *, iterator_out, unsigned int, flags)
{
    cudaError_t status = rt_load();

    return status == cudaSuccess ? rt_error_from(D->cuLogsCurrent(iterator_out, flags)) : status;
}

RT_API(RT_NOTHING, 516, cudaLogsDumpToFile, cudaLogIterator *, iterator, const char *, pathToFile, unsigned int, flags)
{
    cudaError_t status = rt_load();

    return status == cudaSuccess ? rt_error_from(D->cuLogsDumpToFile(iterator, pathToFile, flags)) : status;
}

RT_API(RT_NOTHING, 517, cudaLogsDumpToMemory, cudaLogIterator *, iterator, char *, buffer, size_t *, size, unsigned int,
       flags)
{
    cudaError_t status = rt_load();

    return status == cudaSuccess ? rt_error_from(D->cuLogsDumpToMemory(iterator, buffer, size, flags)) : status;
}
