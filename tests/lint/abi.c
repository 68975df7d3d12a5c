/* SPDX-License-Identifier: MIT
 *
 * abi.c: compares every number that src/source declares itself with NVIDIA's headers. It is compiled, never run: a
 * difference is a failed static assertion. check-abi skips if the headers are not installed.
 */
#include "source/hooks.h"
/* The rows of wrap.def, which CUPTI describes too; the product makes structs only of some of them. This must
 * precede cuda.h, which gives some of these names another meaning. */
#define GP_ABI_STRUCT(_name, ...)                                                                                      \
    struct gp_params_##_name {                                                                                         \
        GP_EACH(GP_PARAMS_FIELD, __VA_ARGS__)                                                                          \
    };
#define GP_WRAP(_name, ...)     GP_ABI_STRUCT(_name, __VA_ARGS__)
#define GP_RESOURCE(_name, ...) GP_ABI_STRUCT(_name, __VA_ARGS__)
#define GP_SELF(_name, ...)     GP_ABI_STRUCT(_name, __VA_ARGS__)
#include "source/wrap.def"
#undef GP_WRAP

#include <cuda.h>
#include <cupti.h>

#define SAME_SIZE(_ours, _theirs) _Static_assert(sizeof(_ours) == sizeof(_theirs), #_ours)
#define SAME_FIELD(_ours, _our_field, _theirs, _their_field)                                                           \
    _Static_assert(offsetof(_ours, _our_field) == offsetof(_theirs, _their_field) &&                                   \
                       sizeof(((_ours *)0)->_our_field) == sizeof(((_theirs *)0)->_their_field),                       \
                   #_ours "." #_our_field)
#define SAME_NUMBER(_ours, _theirs) _Static_assert((int)(_ours) == (int)(_theirs), #_ours)

/* Every row of hooks.def: callback id, size and each parameter. */
#define GP_HOOK_NAMED(_name, _handler, ...) /* newer than the headers */
#define GP_HOOK(_id, _name, _handler, ...)                                                                             \
    SAME_NUMBER(_id, CUPTI_DRIVER_TRACE_CBID_##_name);                                                                 \
    SAME_SIZE(struct gp_params_##_name, _name##_params);
#include "source/hooks.def"
#undef GP_HOOK
#include "abi_fields.inc"

SAME_SIZE(struct gp_cu_array_desc, CUDA_ARRAY_DESCRIPTOR);
SAME_FIELD(struct gp_cu_array_desc, format, CUDA_ARRAY_DESCRIPTOR, Format);
SAME_FIELD(struct gp_cu_array_desc, channels, CUDA_ARRAY_DESCRIPTOR, NumChannels);
SAME_SIZE(struct gp_cu_array3d_desc, CUDA_ARRAY3D_DESCRIPTOR);
SAME_FIELD(struct gp_cu_array3d_desc, depth, CUDA_ARRAY3D_DESCRIPTOR, Depth);
SAME_FIELD(struct gp_cu_array3d_desc, flags, CUDA_ARRAY3D_DESCRIPTOR, Flags);
SAME_NUMBER(GP_CU_ARRAY_SPARSE, CUDA_ARRAY3D_SPARSE);
SAME_NUMBER(GP_CU_ARRAY_DEFERRED, CUDA_ARRAY3D_DEFERRED_MAPPING);
SAME_SIZE(struct gp_cu_location, CUmemLocation);
SAME_FIELD(struct gp_cu_location, id, CUmemLocation, id);
SAME_NUMBER(GP_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME_NUMBER(GP_CU_LOCATION_HOST, CU_MEM_LOCATION_TYPE_HOST);
SAME_NUMBER(GP_CU_LOCATION_NUMA_CURRENT, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
SAME_NUMBER(GP_CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME_NUMBER(GP_CU_ALLOCATION_MANAGED, CU_MEM_ALLOCATION_TYPE_MANAGED);
SAME_SIZE(struct gp_cu_mem_prop, CUmemAllocationProp);
SAME_FIELD(struct gp_cu_mem_prop, location, CUmemAllocationProp, location);
SAME_SIZE(struct gp_cu_pool_props, CUmemPoolProps);
SAME_FIELD(struct gp_cu_pool_props, location, CUmemPoolProps, location);
SAME_SIZE(struct gp_cu_alloc_node, CUDA_MEM_ALLOC_NODE_PARAMS);
SAME_FIELD(struct gp_cu_alloc_node, bytes, CUDA_MEM_ALLOC_NODE_PARAMS, bytesize);
SAME_FIELD(struct gp_cu_alloc_node, address, CUDA_MEM_ALLOC_NODE_PARAMS, dptr);
SAME_SIZE(struct gp_cu_node_params, CUgraphNodeParams);
SAME_FIELD(struct gp_cu_node_params, alloc, CUgraphNodeParams, alloc);
SAME_FIELD(struct gp_cu_node_params, child, CUgraphNodeParams, graph);
SAME_FIELD(struct gp_cu_child_node, ownership, CUDA_CHILD_GRAPH_NODE_PARAMS, ownership);
SAME_NUMBER(GP_CU_CHILD_MOVED, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE);
SAME_NUMBER(GP_CU_NODE_CHILD, CU_GRAPH_NODE_TYPE_GRAPH);
SAME_NUMBER(GP_CU_NODE_ALLOC, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
SAME_NUMBER(GP_CU_NODE_FREE, CU_GRAPH_NODE_TYPE_MEM_FREE);
SAME_SIZE(struct gp_cu_ipc_handle, CUipcMemHandle);
SAME_SIZE(struct gp_cu_buffer_desc, CUDA_EXTERNAL_MEMORY_BUFFER_DESC);
SAME_FIELD(struct gp_cu_buffer_desc, size, CUDA_EXTERNAL_MEMORY_BUFFER_DESC, size);
SAME_SIZE(struct gp_cu_multicast_prop, CUmulticastObjectProp);
SAME_NUMBER(GP_CU_POOL_RESERVED_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
SAME_NUMBER(GP_CU_POOL_RESERVED_HIGH, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH);
SAME_NUMBER(GP_CU_GRAPH_USED_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
SAME_NUMBER(GP_CU_GRAPH_USED_HIGH, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH);
SAME_NUMBER(GP_CU_GRAPH_RESERVED_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
SAME_NUMBER(GP_CU_GRAPH_RESERVED_HIGH, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH);
SAME_NUMBER(GP_CU_POINTER_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
SAME_NUMBER(GP_CU_POINTER_MAPPED, CU_POINTER_ATTRIBUTE_MAPPED);
SAME_NUMBER(GP_CU_POINTER_MAPPING_SIZE, CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
SAME_NUMBER(GP_CU_POINTER_MAPPING_BASE, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
SAME_NUMBER(GP_CU_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
SAME_NUMBER(GP_CU_CAPTURE_UNJOINED, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
SAME_NUMBER(GP_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);

SAME_NUMBER(GP_CUPTI_DOMAIN_DRIVER, CUPTI_CB_DOMAIN_DRIVER_API);
SAME_NUMBER(GP_CUPTI_DOMAIN_RESOURCE, CUPTI_CB_DOMAIN_RESOURCE);
SAME_NUMBER(GP_CUPTI_ENTER, CUPTI_API_ENTER);
SAME_NUMBER(GP_CUPTI_EXIT, CUPTI_API_EXIT);
SAME_SIZE(struct gp_cupti_call, CUpti_CallbackData);
SAME_FIELD(struct gp_cupti_call, site, CUpti_CallbackData, callbackSite);
SAME_FIELD(struct gp_cupti_call, params, CUpti_CallbackData, functionParams);
SAME_FIELD(struct gp_cupti_call, result, CUpti_CallbackData, functionReturnValue);
SAME_FIELD(struct gp_cupti_call, context, CUpti_CallbackData, context);
SAME_FIELD(struct gp_cupti_call, context_uid, CUpti_CallbackData, contextUid);
SAME_FIELD(struct gp_cupti_call, slot, CUpti_CallbackData, correlationData);
SAME_SIZE(struct gp_cupti_resource, CUpti_ResourceData);
SAME_FIELD(struct gp_cupti_resource, stream, CUpti_ResourceData, resourceHandle);
SAME_FIELD(struct gp_cupti_resource, descriptor, CUpti_ResourceData, resourceDescriptor);
SAME_SIZE(struct gp_cupti_module, CUpti_ModuleResourceData);
SAME_FIELD(struct gp_cupti_module, cubin_bytes, CUpti_ModuleResourceData, cubinSize);
SAME_SIZE(struct gp_cupti_graph, CUpti_GraphData);
SAME_FIELD(struct gp_cupti_graph, node, CUpti_GraphData, node);
SAME_FIELD(struct gp_cupti_graph, node_type, CUpti_GraphData, nodeType);
SAME_FIELD(struct gp_cupti_graph, exec, CUpti_GraphData, graphExec);
SAME_FIELD(struct gp_cupti_subscriber_params, name, CUpti_SubscriberParams, subscriberName);
_Static_assert(sizeof(CUpti_SubscriberParams) == GP_CUPTI_PARAMS_BYTES ||
                   sizeof(CUpti_SubscriberParams) == GP_CUPTI_PARAMS_SHARED,
               "a version of the parameters that is not known");
SAME_FIELD(struct gp_cupti_subscriber_params, old_name, CUpti_SubscriberParams, oldSubscriberName);
SAME_NUMBER(GP_CUPTI_CONTEXT_CREATED, CUPTI_CBID_RESOURCE_CONTEXT_CREATED);
SAME_NUMBER(GP_CUPTI_CONTEXT_DESTROY_STARTING, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING);
SAME_NUMBER(GP_CUPTI_STREAM_CREATED, CUPTI_CBID_RESOURCE_STREAM_CREATED);
SAME_NUMBER(GP_CUPTI_STREAM_DESTROY_STARTING, CUPTI_CBID_RESOURCE_STREAM_DESTROY_STARTING);
SAME_NUMBER(GP_CUPTI_MODULE_LOADED, CUPTI_CBID_RESOURCE_MODULE_LOADED);
SAME_NUMBER(GP_CUPTI_MODULE_UNLOAD_STARTING, CUPTI_CBID_RESOURCE_MODULE_UNLOAD_STARTING);
SAME_NUMBER(GP_CUPTI_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED);
SAME_NUMBER(GP_CUPTI_GRAPHNODE_DESTROY_STARTING, CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING);
SAME_NUMBER(GP_CUPTI_OK, CUPTI_SUCCESS);
SAME_NUMBER(GP_CUPTI_MAX_LIMIT_REACHED, CUPTI_ERROR_MAX_LIMIT_REACHED);
SAME_NUMBER(GP_CUPTI_NOT_INITIALIZED, CUPTI_ERROR_NOT_INITIALIZED);
SAME_NUMBER(GP_CUPTI_MULTIPLE_SUBSCRIBERS, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
