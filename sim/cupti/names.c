/* SPDX-License-Identifier: MIT
 * Names of callbacks and results, and the sizes of the domains.  Called by tools; needs no driver,
 * as the real library answers these without one too. */
#include "cupti/cupti_sim.h"

#define CUPTI_NAME(name) #name,

static const char *const cupti_driver_names[] = {"INVALID", SIM_CUPTI_DRIVER_NAMES(CUPTI_NAME)};
static const char *const cupti_runtime_names[] = {"INVALID", SIM_CUPTI_RUNTIME_NAMES(CUPTI_NAME)};

_Static_assert(sizeof cupti_driver_names / sizeof cupti_driver_names[0] == SIM_TOOL_DRIVER_IDS,
               "a new name in cupti_names.h raises SIM_TOOL_DRIVER_IDS (tool.h)");
_Static_assert(sizeof cupti_runtime_names / sizeof cupti_runtime_names[0] == SIM_TOOL_RUNTIME_IDS,
               "a new name in cupti_names.h raises SIM_TOOL_RUNTIME_IDS (tool.h)");

/* Setting "newer": entry points of a later CUDA, which no program can call here. */
static const char *const cupti_newer_names[] = {"cuSimMemNewer", "cuSimMemcpyNewer", "cuSimOtherNewer",
                                                "cuSimLogicalEndpointNewer"};
#define CUPTI_NEWER (sizeof cupti_newer_names / sizeof cupti_newer_names[0])

/* Ids of the NVTX domain of 13.0 end at 49 (nvtxDomainSyncUserReleasing). */
#define CUPTI_NVTX_IDS 50

uint32_t cupti_domain_size(CUpti_CallbackDomain domain)
{
    static const uint32_t sizes[CUPTI_CB_DOMAIN_SIZE] = {
        [CUPTI_CB_DOMAIN_DRIVER_API] = CUPTI_DRIVER_TRACE_CBID_SIZE,
        [CUPTI_CB_DOMAIN_RUNTIME_API] = CUPTI_RUNTIME_TRACE_CBID_SIZE,
        [CUPTI_CB_DOMAIN_RESOURCE] = CUPTI_CBID_RESOURCE_SIZE,
        [CUPTI_CB_DOMAIN_SYNCHRONIZE] = CUPTI_CBID_SYNCHRONIZE_SIZE,
        [CUPTI_CB_DOMAIN_NVTX] = CUPTI_NVTX_IDS,
        [CUPTI_CB_DOMAIN_STATE] = CUPTI_CBID_STATE_SIZE,
    };

    uint32_t more = 0;

    if (domain == CUPTI_CB_DOMAIN_DRIVER_API)
        more = cupti_setting("newer", NULL) ? (uint32_t)CUPTI_NEWER : cupti_setting("shifted", NULL) ? CUPTI_SHIFT : 0;
    return (unsigned)domain < CUPTI_CB_DOMAIN_SIZE ? sizes[domain] + more : 0;
}

/* Numbers that the driver does not have are 0 there. */
uint32_t cupti_driver_inside(uint32_t cbid)
{
    if (cupti_setting("shifted", NULL))
        cbid = cbid > CUPTI_SHIFT ? cbid - CUPTI_SHIFT : 0;
    return cbid < CUPTI_DRIVER_TRACE_CBID_SIZE ? cbid : 0;
}

/* At each callback, so the setting is read once. */
uint32_t cupti_driver_outside(uint32_t cbid)
{
    static int x_shift = -1;
    int shift = __atomic_load_n(&x_shift, __ATOMIC_RELAXED);

    if (shift < 0) {
        shift = cupti_setting("shifted", NULL) ? CUPTI_SHIFT : 0;
        __atomic_store_n(&x_shift, shift, __ATOMIC_RELAXED);
    }
    return cbid + (uint32_t)shift;
}

static const char *cupti_driver_name(uint32_t cbid)
{
    uint32_t inside = cupti_driver_inside(cbid);

    if (cbid && !inside && cbid >= CUPTI_DRIVER_TRACE_CBID_SIZE)
        return cupti_newer_names[cbid - CUPTI_DRIVER_TRACE_CBID_SIZE];
    return cbid && !inside ? "cuSimUnused" : cupti_driver_names[inside];
}

/* Id 0 has the name "INVALID": measured on the real library, whose guide does not say so. */
CUPTI_EXPORT CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid, const char **name)
{
    if (!name)
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    *name = NULL;
    if (cbid >= cupti_domain_size(domain))
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API)
        *name = cupti_driver_name(cbid);
    else if (domain == CUPTI_CB_DOMAIN_RUNTIME_API)
        *name = cupti_runtime_names[cbid];
    return cupti_result(*name ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER);
}

#define R(name) [name] = #name
static const char *const cupti_result_names[] = {
    R(CUPTI_SUCCESS),
    R(CUPTI_ERROR_INVALID_PARAMETER),
    R(CUPTI_ERROR_INVALID_DEVICE),
    R(CUPTI_ERROR_INVALID_CONTEXT),
    R(CUPTI_ERROR_INVALID_EVENT_DOMAIN_ID),
    R(CUPTI_ERROR_INVALID_EVENT_ID),
    R(CUPTI_ERROR_INVALID_EVENT_NAME),
    R(CUPTI_ERROR_INVALID_OPERATION),
    R(CUPTI_ERROR_OUT_OF_MEMORY),
    R(CUPTI_ERROR_HARDWARE),
    R(CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT),
    R(CUPTI_ERROR_API_NOT_IMPLEMENTED),
    R(CUPTI_ERROR_MAX_LIMIT_REACHED),
    R(CUPTI_ERROR_NOT_READY),
    R(CUPTI_ERROR_NOT_COMPATIBLE),
    R(CUPTI_ERROR_NOT_INITIALIZED),
    R(CUPTI_ERROR_INVALID_METRIC_ID),
    R(CUPTI_ERROR_INVALID_METRIC_NAME),
    R(CUPTI_ERROR_QUEUE_EMPTY),
    R(CUPTI_ERROR_INVALID_HANDLE),
    R(CUPTI_ERROR_INVALID_STREAM),
    R(CUPTI_ERROR_INVALID_KIND),
    R(CUPTI_ERROR_INVALID_EVENT_VALUE),
    R(CUPTI_ERROR_DISABLED),
    R(CUPTI_ERROR_INVALID_MODULE),
    R(CUPTI_ERROR_INVALID_METRIC_VALUE),
    R(CUPTI_ERROR_HARDWARE_BUSY),
    R(CUPTI_ERROR_NOT_SUPPORTED),
    R(CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED),
    R(CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_DEVICE),
    R(CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_ON_NON_P2P_DEVICES),
    R(CUPTI_ERROR_UM_PROFILING_NOT_SUPPORTED_WITH_MPS),
    R(CUPTI_ERROR_CDP_TRACING_NOT_SUPPORTED),
    R(CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED),
    R(CUPTI_ERROR_CUDA_COMPILER_NOT_COMPATIBLE),
    R(CUPTI_ERROR_INSUFFICIENT_PRIVILEGES),
    R(CUPTI_ERROR_LEGACY_PROFILER_NOT_SUPPORTED),
    R(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED),
    R(CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES),
    R(CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED),
    R(CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED),
    R(CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED),
    R(CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED),
    R(CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED),
    R(CUPTI_ERROR_INVALID_CHIP_NAME),
};
#undef R

/* 36, 37 and anything beyond 46 have no text in the real library either. */
CUPTI_EXPORT CUptiResult cuptiGetResultString(CUptiResult result, const char **str)
{
    size_t count = sizeof cupti_result_names / sizeof cupti_result_names[0];

    if (!str)
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    if (result == CUPTI_ERROR_UNKNOWN)
        *str = "CUPTI_ERROR_UNKNOWN";
    else if ((unsigned)result < count && cupti_result_names[result])
        *str = cupti_result_names[result];
    else {
        *str = "<unknown>";
        return cupti_result(CUPTI_ERROR_INVALID_PARAMETER);
    }
    return CUPTI_SUCCESS;
}
