/* SPDX-License-Identifier: MIT
 * The part of CUPTI 13.0 that the simulated libcupti offers, declared in our own words: the callback API, ids of
 * contexts, streams and devices, result names.  Tools and tests include it as <cupti.h> and compile unchanged with
 * NVIDIA's.  Names, values and field orders are the ABI; sim/tests/cupti_abi.c holds the sizes that must not change. */
#ifndef SIM_CUPTI_H
#define SIM_CUPTI_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#include "cupti_names.h"

#ifndef CUPTIAPI
#define CUPTIAPI
#endif

/* Since 13.0 the version is the toolkit's: major, minor, update. */
#define CUPTI_API_VERSION 130001

typedef enum {
    CUPTI_SUCCESS = 0,
    CUPTI_ERROR_INVALID_PARAMETER = 1,
    CUPTI_ERROR_INVALID_DEVICE = 2,
    CUPTI_ERROR_INVALID_CONTEXT = 3,
    CUPTI_ERROR_INVALID_EVENT_DOMAIN_ID = 4,
    CUPTI_ERROR_INVALID_EVENT_ID = 5,
    CUPTI_ERROR_INVALID_EVENT_NAME = 6,
    CUPTI_ERROR_INVALID_OPERATION = 7,
    CUPTI_ERROR_OUT_OF_MEMORY = 8,
    CUPTI_ERROR_HARDWARE = 9,
    CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT = 10,
    CUPTI_ERROR_API_NOT_IMPLEMENTED = 11,
    CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
    CUPTI_ERROR_NOT_READY = 13,
    CUPTI_ERROR_NOT_COMPATIBLE = 14,
    CUPTI_ERROR_NOT_INITIALIZED = 15,
    CUPTI_ERROR_INVALID_METRIC_ID = 16,
    CUPTI_ERROR_INVALID_METRIC_NAME = 17,
    CUPTI_ERROR_QUEUE_EMPTY = 18,
    CUPTI_ERROR_INVALID_HANDLE = 19,
    CUPTI_ERROR_INVALID_STREAM = 20,
    CUPTI_ERROR_INVALID_KIND = 21,
    CUPTI_ERROR_INVALID_EVENT_VALUE = 22,
    CUPTI_ERROR_DISABLED = 23,
    CUPTI_ERROR_INVALID_MODULE = 24,
    CUPTI_ERROR_INVALID_METRIC_VALUE = 25,
    CUPTI_ERROR_HARDWARE_BUSY = 26,
    CUPTI_ERROR_NOT_SUPPORTED = 27,
    CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED = 28,
    CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_DEVICE = 29,
    CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_NON_P2P_DEVICES = 30,
    CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS = 31,
    CUPTI_ERROR_CDP_TRACING_NOT_SUPPORTED = 32,
    CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED = 33,
    CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE = 34,
    CUPTI_ERROR_INSUFFICIENT_PRIVILEGES = 35,
    CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED = 36,
    CUPTI_ERROR_OPENACC_UNDEFINED_ROUTINE = 37,
    CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED = 38,
    CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39,
    CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES = 40,
    CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED = 41,
    CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED = 42,
    CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED = 43,
    CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED = 44,
    CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED = 45,
    CUPTI_ERROR_INVALID_CHIP_NAME = 46,
    CUPTI_ERROR_UNKNOWN = 999,
    CUPTI_ERROR_FORCE_INT = 0x7fffffff
} CUptiResult;

typedef enum { CUPTI_API_ENTER = 0, CUPTI_API_EXIT = 1, CUPTI_API_CBSITE_FORCE_INT = 0x7fffffff } CUpti_ApiCallbackSite;

typedef enum {
    CUPTI_CB_DOMAIN_INVALID = 0,
    CUPTI_CB_DOMAIN_DRIVER_API = 1,
    CUPTI_CB_DOMAIN_RUNTIME_API = 2,
    CUPTI_CB_DOMAIN_RESOURCE = 3,
    CUPTI_CB_DOMAIN_SYNCHRONIZE = 4,
    CUPTI_CB_DOMAIN_NVTX = 5,
    CUPTI_CB_DOMAIN_STATE = 6,
    CUPTI_CB_DOMAIN_SIZE,
    CUPTI_CB_DOMAIN_FORCE_INT = 0x7fffffff
} CUpti_CallbackDomain;

typedef enum {
    CUPTI_CBID_RESOURCE_INVALID = 0,
    CUPTI_CBID_RESOURCE_CONTEXT_CREATED = 1,
    CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING = 2,
    CUPTI_CBID_RESOURCE_STREAM_CREATED = 3,
    CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING = 4,
    CUPTI_CBID_RESOURCE_CU_INIT_FINISHED = 5,
    CUPTI_CBID_RESOURCE_MODULE_LOADED = 6,
    CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING = 7,
    CUPTI_CBID_RESOURCE_MODULE_PROFILED = 8,
    CUPTI_CBID_RESOURCE_GRAPH_CREATED = 9,
    CUPTI_CBID_RESOURCE_GRAPH_DESTROY_STARTING = 10,
    CUPTI_CBID_RESOURCE_GRAPH_CLONED = 11,
    CUPTI_CBID_RESOURCE_GRAPHNODE_CREATE_STARTING = 12,
    CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED = 13,
    CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING = 14,
    CUPTI_CBID_RESOURCE_GRAPHNODE_DEPENDENCY_CREATED = 15,
    CUPTI_CBID_RESOURCE_GRAPHNODE_DEPENDENCY_DESTROY_STARTING = 16,
    CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATE_STARTING = 17,
    CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED = 18,
    CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING = 19,
    CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED = 20,
    CUPTI_CBID_RESOURCE_STREAM_ATTRIBUTE_CHANGED = 21,
    CUPTI_CBID_RESOURCE_GRAPH_NODE_UPDATED = 22,
    CUPTI_CBID_RESOURCE_GRAPH_NODE_SET_PARAMS = 23,
    CUPTI_CBID_RESOURCE_SIZE,
    CUPTI_CBID_RESOURCE_FORCE_INT = 0x7fffffff
} CUpti_CallbackIdResource;

typedef enum {
    CUPTI_CBID_SYNCHRONIZE_INVALID = 0,
    CUPTI_CBID_SYNCHRONIZE_STREAM_SYNCHRONIZED = 1,
    CUPTI_CBID_SYNCHRONIZE_CONTEXT_SYNCHRONIZED = 2,
    CUPTI_CBID_SYNCHRONIZE_SIZE,
    CUPTI_CBID_SYNCHRONIZE_FORCE_INT = 0x7fffffff
} CUpti_CallbackIdSync;

typedef enum {
    CUPTI_CBID_STATE_INVALID = 0,
    CUPTI_CBID_STATE_FATAL_ERROR = 1,
    CUPTI_CBID_STATE_ERROR = 2,
    CUPTI_CBID_STATE_WARNING = 3,
    CUPTI_CBID_STATE_SIZE,
    CUPTI_CBID_STATE_FORCE_INT = 0x7fffffff
} CUpti_CallbackIdState;

/* CUPTI_DRIVER_TRACE_CBID_cuInit = 1, ... and CUPTI_RUNTIME_TRACE_CBID_cudaDriverGetVersion_v3020 = 1, ... */
#define SIM_CUPTI_DRIVER_ENUMERATOR(name)  CUPTI_DRIVER_TRACE_CBID_##name,
#define SIM_CUPTI_RUNTIME_ENUMERATOR(name) CUPTI_RUNTIME_TRACE_CBID_##name,
typedef enum {
    CUPTI_DRIVER_TRACE_CBID_INVALID = 0,
    SIM_CUPTI_DRIVER_NAMES(SIM_CUPTI_DRIVER_ENUMERATOR) CUPTI_DRIVER_TRACE_CBID_SIZE,
    CUPTI_DRIVER_TRACE_CBID_FORCE_INT = 0x7fffffff
} CUpti_driver_api_trace_cbid;
typedef enum {
    CUPTI_RUNTIME_TRACE_CBID_INVALID = 0,
    SIM_CUPTI_RUNTIME_NAMES(SIM_CUPTI_RUNTIME_ENUMERATOR) CUPTI_RUNTIME_TRACE_CBID_SIZE,
    CUPTI_RUNTIME_TRACE_CBID_FORCE_INT = 0x7fffffff
} CUpti_runtime_api_trace_cbid;
#undef SIM_CUPTI_DRIVER_ENUMERATOR
#undef SIM_CUPTI_RUNTIME_ENUMERATOR

/* Driver and runtime domains.  72 bytes on LP64. */
typedef struct {
    CUpti_ApiCallbackSite callbackSite;
    const char *functionName;
    const void *functionParams;
    void *functionReturnValue;
    const char *symbolName;
    CUcontext context;
    uint32_t contextUid;
    uint64_t *correlationData;
    uint32_t correlationId;
} CUpti_CallbackData;

/* Resource domain; the descriptor is a module's or a graph's data, by the callback id. */
typedef struct {
    CUcontext context;
    union {
        CUstream stream;
    } resourceHandle;
    void *resourceDescriptor;
} CUpti_ResourceData;

typedef struct {
    uint32_t moduleId;
    size_t cubinSize;
    const char *pCubin;
} CUpti_ModuleResourceData;

typedef struct {
    CUgraph graph, originalGraph;
    CUgraphNode node, originalNode;
    CUgraphNodeType nodeType;
    CUgraphNode dependency;
    CUgraphExec graphExec;
} CUpti_GraphData;

typedef struct {
    CUcontext context;
    CUstream stream;
} CUpti_SynchronizeData;

typedef struct {
    union {
        struct {
            CUptiResult result;
            const char *message;
        } notification;
    };
} CUpti_StateData;

typedef uint32_t CUpti_CallbackId;
typedef void(CUPTIAPI *CUpti_CallbackFunc)(void *userdata, CUpti_CallbackDomain domain, CUpti_CallbackId cbid,
                                           const void *cbdata);
typedef struct CUpti_Subscriber_st *CUpti_SubscriberHandle;
typedef CUpti_CallbackDomain *CUpti_DomainTable;

#define CUPTI_SUBSCRIBER_NAME_MAX_LEN     53
#define CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN 64

typedef struct {
    size_t structSize;
    const char *subscriberName;
    char *oldSubscriberName;
    size_t oldSubscriberSize;
} CUpti_SubscriberParams;
#define CUpti_SubscriberParams_STRUCT_SIZE sizeof(CUpti_SubscriberParams)

#ifdef __cplusplus
extern "C" {
#endif

CUptiResult cuptiGetVersion(uint32_t *version);
CUptiResult cuptiSupportedDomains(size_t *domainCount, CUpti_DomainTable *domainTable);
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *userdata);
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *userdata,
                              CUpti_SubscriberParams *pParams);
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber);
CUptiResult cuptiGetCallbackState(uint32_t *enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                  CUpti_CallbackId cbid);
CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain,
                                CUpti_CallbackId cbid);
CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain);
CUptiResult cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle subscriber);
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char **name);
CUptiResult cuptiGetResultString(CUptiResult result, const char **str);
CUptiResult cuptiGetTimestamp(uint64_t *timestamp);
CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t *deviceId);
CUptiResult cuptiGetContextId(CUcontext context, uint32_t *contextId);
CUptiResult cuptiGetStreamId(CUcontext context, CUstream stream, uint32_t *streamId);
CUptiResult cuptiGetStreamIdEx(CUcontext context, CUstream stream, uint8_t perThreadStream, uint32_t *streamId);
CUptiResult cuptiGetLastError(void);
CUptiResult cuptiFinalize(void);

#ifdef __cplusplus
}
#endif
#endif
