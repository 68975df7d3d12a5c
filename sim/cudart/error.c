/* SPDX-License-Identifier: MIT
 * Names and short texts of the runtime's error codes, and the mapping from the driver's codes.  The
 * runtime's codes have been the driver's numbers since CUDA 10.1, so the mapping is the identity
 * wherever the runtime has a name for the number.  Called by every runtime entry point; never
 * allocates and never calls the driver. */
#include "cudart/runtime.h"

struct rt_error {
    int code;
    const char *name, *text;
};

#define E(name, text)                                                                                                  \
    {                                                                                                                  \
        name, #name, text                                                                                              \
    }

/* In order of the code: the lookup is a binary search. */
static const struct rt_error rt_errors[] = {
    E(cudaSuccess, "no error"),
    E(cudaErrorInvalidValue, "invalid argument"),
    E(cudaErrorMemoryAllocation, "out of memory"),
    E(cudaErrorInitializationError, "initialization error"),
    E(cudaErrorCudartUnloading, "driver shutting down"),
    E(cudaErrorProfilerDisabled, "profiler disabled"),
    E(cudaErrorProfilerNotInitialized, "profiler not initialized"),
    E(cudaErrorProfilerAlreadyStarted, "profiler already started"),
    E(cudaErrorProfilerAlreadyStopped, "profiler already stopped"),
    E(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    E(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    E(cudaErrorInvalidSymbol, "invalid device symbol"),
    E(cudaErrorInvalidHostPointer, "invalid host pointer"),
    E(cudaErrorInvalidDevicePointer, "invalid device pointer"),
    E(cudaErrorInvalidTexture, "invalid texture"),
    E(cudaErrorInvalidTextureBinding, "invalid texture binding"),
    E(cudaErrorInvalidChannelDescriptor, "invalid channel descriptor"),
    E(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    E(cudaErrorAddressOfConstant, "address of constant"),
    E(cudaErrorTextureFetchFailed, "texture fetch failed"),
    E(cudaErrorTextureNotBound, "texture not bound"),
    E(cudaErrorSynchronizationError, "synchronization error"),
    E(cudaErrorInvalidFilterSetting, "invalid filter setting"),
    E(cudaErrorInvalidNormSetting, "invalid norm setting"),
    E(cudaErrorMixedDeviceExecution, "mixed device execution"),
    E(cudaErrorNotYetImplemented, "not yet implemented"),
    E(cudaErrorMemoryValueTooLarge, "memory value too large"),
    E(cudaErrorStubLibrary, "stub library"),
    E(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    E(cudaErrorCallRequiresNewerDriver, "call requires newer driver"),
    E(cudaErrorInvalidSurface, "invalid surface"),
    E(cudaErrorDuplicateVariableName, "duplicate variable name"),
    E(cudaErrorDuplicateTextureName, "duplicate texture name"),
    E(cudaErrorDuplicateSurfaceName, "duplicate surface name"),
    E(cudaErrorDevicesUnavailable, "devices unavailable"),
    E(cudaErrorIncompatibleDriverContext, "incompatible driver context"),
    E(cudaErrorMissingConfiguration, "missing configuration"),
    E(cudaErrorPriorLaunchFailure, "prior launch failure"),
    E(cudaErrorLaunchMaxDepthExceeded, "launch max depth exceeded"),
    E(cudaErrorLaunchFileScopedTex, "launch file scoped tex"),
    E(cudaErrorLaunchFileScopedSurf, "launch file scoped surf"),
    E(cudaErrorSyncDepthExceeded, "sync depth exceeded"),
    E(cudaErrorLaunchPendingCountExceeded, "launch pending count exceeded"),
    E(cudaErrorInvalidDeviceFunction, "invalid device function"),
    E(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    E(cudaErrorInvalidDevice, "invalid device ordinal"),
    E(cudaErrorDeviceNotLicensed, "device not licensed"),
    E(cudaErrorSoftwareValidityNotEstablished, "software validity not established"),
    E(cudaErrorStartupFailure, "startup failure"),
    E(cudaErrorInvalidKernelImage, "device kernel image is invalid"),
    E(cudaErrorDeviceUninitialized, "invalid device context"),
    E(cudaErrorMapBufferObjectFailed, "map buffer object failed"),
    E(cudaErrorUnmapBufferObjectFailed, "unmap buffer object failed"),
    E(cudaErrorArrayIsMapped, "array is mapped"),
    E(cudaErrorAlreadyMapped, "already mapped"),
    E(cudaErrorNoKernelImageForDevice, "no kernel image is available for execution on the device"),
    E(cudaErrorAlreadyAcquired, "already acquired"),
    E(cudaErrorNotMapped, "not mapped"),
    E(cudaErrorNotMappedAsArray, "not mapped as array"),
    E(cudaErrorNotMappedAsPointer, "not mapped as pointer"),
    E(cudaErrorECCUncorrectable, "ecc uncorrectable"),
    E(cudaErrorUnsupportedLimit, "unsupported limit"),
    E(cudaErrorDeviceAlreadyInUse, "device already in use"),
    E(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    E(cudaErrorInvalidPtx, "invalid ptx"),
    E(cudaErrorInvalidGraphicsContext, "invalid graphics context"),
    E(cudaErrorNvlinkUncorrectable, "nvlink uncorrectable"),
    E(cudaErrorJitCompilerNotFound, "jit compiler not found"),
    E(cudaErrorUnsupportedPtxVersion, "unsupported ptx version"),
    E(cudaErrorJitCompilationDisabled, "jit compilation disabled"),
    E(cudaErrorUnsupportedExecAffinity, "unsupported exec affinity"),
    E(cudaErrorUnsupportedDevSideSync, "unsupported dev side sync"),
    E(cudaErrorContained, "contained"),
    E(cudaErrorInvalidSource, "invalid source"),
    E(cudaErrorFileNotFound, "file not found"),
    E(cudaErrorSharedObjectSymbolNotFound, "shared object symbol not found"),
    E(cudaErrorSharedObjectInitFailed, "shared object init failed"),
    E(cudaErrorOperatingSystem, "OS call failed or operation not supported on this OS"),
    E(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    E(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    E(cudaErrorLossyQuery, "lossy query"),
    E(cudaErrorSymbolNotFound, "named symbol not found"),
    E(cudaErrorNotReady, "device not ready"),
    E(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    E(cudaErrorLaunchOutOfResources, "launch out of resources"),
    E(cudaErrorLaunchTimeout, "launch timeout"),
    E(cudaErrorLaunchIncompatibleTexturing, "launch incompatible texturing"),
    E(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    E(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    E(cudaErrorSetOnActiveProcess, "cannot set while device is active in this process"),
    E(cudaErrorContextIsDestroyed, "context is destroyed"),
    E(cudaErrorAssert, "assert"),
    E(cudaErrorTooManyPeers, "too many peers"),
    E(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    E(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    E(cudaErrorHardwareStackError, "hardware stack error"),
    E(cudaErrorIllegalInstruction, "illegal instruction"),
    E(cudaErrorMisalignedAddress, "misaligned address"),
    E(cudaErrorInvalidAddressSpace, "invalid address space"),
    E(cudaErrorInvalidPc, "invalid pc"),
    E(cudaErrorLaunchFailure, "unspecified launch failure"),
    E(cudaErrorCooperativeLaunchTooLarge, "cooperative launch too large"),
    E(cudaErrorTensorMemoryLeak, "tensor memory leak"),
    E(cudaErrorNotPermitted, "operation not permitted"),
    E(cudaErrorNotSupported, "operation not supported"),
    E(cudaErrorSystemNotReady, "system not ready"),
    E(cudaErrorSystemDriverMismatch, "system driver mismatch"),
    E(cudaErrorCompatNotSupportedOnDevice, "compat not supported on device"),
    E(cudaErrorMpsConnectionFailed, "mps connection failed"),
    E(cudaErrorMpsRpcFailure, "mps rpc failure"),
    E(cudaErrorMpsServerNotReady, "mps server not ready"),
    E(cudaErrorMpsMaxClientsReached, "mps max clients reached"),
    E(cudaErrorMpsMaxConnectionsReached, "mps max connections reached"),
    E(cudaErrorMpsClientTerminated, "mps client terminated"),
    E(cudaErrorCdpNotSupported, "cdp not supported"),
    E(cudaErrorCdpVersionMismatch, "cdp version mismatch"),
    E(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    E(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    E(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    E(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    E(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    E(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    E(cudaErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing blocking stream"),
    E(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    E(cudaErrorStreamCaptureWrongThread, "attempt to terminate a thread-local capture sequence from another thread"),
    E(cudaErrorTimeout, "timeout"),
    E(cudaErrorGraphExecUpdateFailure, "the graph update was not performed because it included changes which violated "
                                       "constraints specific to instantiated graph update"),
    E(cudaErrorExternalDevice, "external device"),
    E(cudaErrorInvalidClusterSize, "invalid cluster size"),
    E(cudaErrorFunctionNotLoaded, "function not loaded"),
    E(cudaErrorInvalidResourceType, "invalid resource type"),
    E(cudaErrorInvalidResourceConfiguration, "invalid resource configuration"),
    E(cudaErrorUnknown, "unknown error"),
};

static const struct rt_error *rt_error_find(int code)
{
    size_t low = 0, high = sizeof rt_errors / sizeof rt_errors[0];

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (rt_errors[middle].code == code)
            return &rt_errors[middle];
        if (rt_errors[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

cudaError_t rt_error_from(CUresult result)
{
    return rt_error_find((int)result) ? (cudaError_t)result : cudaErrorUnknown;
}

RT_EXPORT const char *cudaGetErrorName(cudaError_t error)
{
    const struct rt_error *found = rt_error_find((int)error);

    return found ? found->name : "unrecognized error code";
}

RT_EXPORT const char *cudaGetErrorString(cudaError_t error)
{
    const struct rt_error *found = rt_error_find((int)error);

    return found ? found->text : "unrecognized error code";
}
