/* SPDX-License-Identifier: MIT
 *
 * abi.h: the part of NVIDIA's binary interface that gpuprof reads, declared by us so that no toolkit
 * is needed to build.  Facts from cuda.h, cupti_callbacks.h and cupti_result.h of CUDA 13.0;
 * tests/lint/abi.c compares every size, offset and constant here with those headers where they are
 * installed.
 */
#ifndef GP_SOURCE_ABI_H
#define GP_SOURCE_ABI_H

#include <stddef.h>
#include <stdint.h>

/* ==== NVIDIA's types ============================================================================================== */

/* ---- driver --------------------------------------------------------------------------------------------------- */

struct gp_cu_array_desc {
    size_t width, height;
    int format;
    unsigned int channels;
};

struct gp_cu_array3d_desc {
    size_t width, height, depth;
    int format;
    unsigned int channels;
    unsigned int flags;
};
#define GP_CU_ARRAY_SPARSE   0x40u
#define GP_CU_ARRAY_DEFERRED 0x80u

struct gp_cu_location {
    int type;
    int id;
};
#define GP_CU_LOCATION_DEVICE       1
#define GP_CU_LOCATION_HOST         2 /* 2, 3, 4: host, a NUMA node, the current NUMA node */
#define GP_CU_LOCATION_NUMA_CURRENT 4
/* Newer than the headers of CUDA 13.0, so tests/lint/abi.c cannot compare it: CUDA 13.4.  The first
 * byte of `id` is the device, the second one the domain. */
#define GP_CU_LOCATION_LOCALITY_DOMAIN 6

#define GP_CU_ALLOCATION_PINNED  1
#define GP_CU_ALLOCATION_MANAGED 2

struct gp_cu_mem_prop {
    int type;
    int handle_types;
    struct gp_cu_location location;
    void *win32;
    unsigned char flags[8];
};

struct gp_cu_pool_props {
    int type;
    int handle_types;
    struct gp_cu_location location;
    void *win32;
    size_t max_bytes;
    unsigned short usage;
    unsigned char reserved[54];
};

struct gp_cu_alloc_node {
    struct gp_cu_pool_props pool;
    const void *access;
    size_t access_count;
    size_t bytes;
    uint64_t address;
};

struct gp_cu_child_node {
    void *graph;
    int ownership;
};
#define GP_CU_CHILD_MOVED 1

struct gp_cu_node_params {
    int type;
    int reserved[3];
    union {
        long long words[29];
        struct gp_cu_alloc_node alloc;
        struct gp_cu_child_node child;
    };
    long long reserved2;
};
#define GP_CU_NODE_CHILD 4
#define GP_CU_NODE_ALLOC 10
#define GP_CU_NODE_FREE  11

struct gp_cu_ipc_handle {
    char bytes[64];
};

struct gp_cu_buffer_desc {
    unsigned long long offset, size;
    unsigned int flags;
    unsigned int reserved[16];
};

struct gp_cu_multicast_prop {
    unsigned int devices;
    size_t size;
    unsigned long long handle_types, flags;
};

#define GP_CU_DEVICE_MULTIPROCESSORS 16
#define GP_CU_DEVICE_THREADS_EACH    39 /* of each multiprocessor, at most */
#define GP_CU_POOL_RELEASE_THRESHOLD 4
#define GP_CU_POOL_RESERVED_CURRENT  5
#define GP_CU_POOL_RESERVED_HIGH     6
#define GP_CU_GRAPH_USED_CURRENT     0
#define GP_CU_GRAPH_USED_HIGH        1
#define GP_CU_GRAPH_RESERVED_CURRENT 2
#define GP_CU_GRAPH_RESERVED_HIGH    3
#define GP_CU_POINTER_CONTEXT        1
#define GP_CU_POINTER_MEMORY_TYPE    2
#define GP_CU_POINTER_IS_MANAGED     8
#define GP_CU_POINTER_DEVICE         9
#define GP_CU_POINTER_RANGE_START    11
#define GP_CU_POINTER_RANGE_SIZE     12
#define GP_CU_POINTER_MAPPED         13
#define GP_CU_POINTER_MAPPING_SIZE   18 /* newer than some drivers */
#define GP_CU_POINTER_MAPPING_BASE   19
#define GP_CU_MEMORY_DEVICE          2 /* CUmemorytype */
#define GP_CU_CAPTURE_UNSUPPORTED    900
#define GP_CU_CAPTURE_INVALIDATED    901
#define GP_CU_CAPTURE_UNJOINED       904
#define GP_CU_CAPTURE_RELAXED        2
#define GP_CU_RECAPTURE_FAILED       918 /* CUDA 13.3 */

/* ---- CUPTI ---------------------------------------------------------------------------------------------------- */

#define GP_CUPTI_DOMAIN_DRIVER   1
#define GP_CUPTI_DOMAIN_RESOURCE 3
#define GP_CUPTI_DOMAIN_STATE    6
#define GP_CUPTI_FATAL_ERROR     1 /* its callback id */

#define GP_CUPTI_ENTER 0
#define GP_CUPTI_EXIT  1

struct gp_cupti_call {
    int site;
    const char *name;
    const void *params;
    void *result;
    const char *symbol;
    void *context;
    uint32_t context_uid;
    uint64_t *slot;
    uint32_t correlation;
};

struct gp_cupti_resource {
    void *context;
    void *stream;
    void *descriptor;
};

struct gp_cupti_module {
    uint32_t module;
    size_t cubin_bytes;
    const char *cubin;
};

struct gp_cupti_graph {
    void *graph, *original_graph;
    void *node, *original_node;
    int node_type;
    void *dependency;
    void *exec;
};

/* `bytes` tells CUPTI which members there are. */
struct gp_cupti_subscriber_params {
    size_t bytes;
    const char *name;
    char *old_name;
    size_t old_name_bytes;
    uint8_t allow_multiple; /* since 13.2: other tools that ask for it too may subscribe */
    uint8_t padding[7];
};
#define GP_CUPTI_PARAMS_BYTES   32u
#define GP_CUPTI_PARAMS_SHARED  40u
#define GP_CUPTI_SHARED_VERSION 130200u /* cuptiGetVersion */

#define GP_CUPTI_CONTEXT_CREATED            1
#define GP_CUPTI_CONTEXT_DESTROY_STARTING   2
#define GP_CUPTI_STREAM_CREATED             3
#define GP_CUPTI_STREAM_DESTROY_STARTING    4
#define GP_CUPTI_MODULE_LOADED              6
#define GP_CUPTI_MODULE_UNLOAD_STARTING     7
#define GP_CUPTI_GRAPHNODE_CREATED          13
#define GP_CUPTI_GRAPHNODE_DESTROY_STARTING 14

#define GP_CUPTI_OK                   0
#define GP_CUPTI_MAX_LIMIT_REACHED    12
#define GP_CUPTI_NOT_INITIALIZED      15
#define GP_CUPTI_MULTIPLE_SUBSCRIBERS 39

typedef void (*gp_cupti_callback_fn)(void *user, int domain, uint32_t id, const void *data);

/* ==== parameters of rows ========================================================================================== */
/* What to do with the parameters of a row of hooks.def, which are (type, name) pairs: GP_EACH(macro,
 * pairs...) gives macro(type, name) for each, GP_EACH_LIST the same with commas between. Up to 8: no
 * row has more. */

#define GP_EACH_COUNT_(_1, _2, _3, _4, _5, _6, _7, _8, _n, ...) _n
#define GP_EACH_COUNT(...)                                      GP_EACH_COUNT_(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define GP_EACH_JOIN_(_a, _b)                                   _a##_b
#define GP_EACH_JOIN(_a, _b)                                    GP_EACH_JOIN_(_a, _b)
#define GP_EACH_CALL(_m, _pair)                                 _m _pair

#define GP_EACH_1(_m, _sep, _p)      GP_EACH_CALL(_m, _p)
#define GP_EACH_2(_m, _sep, _p, ...) GP_EACH_CALL(_m, _p) _sep() GP_EACH_1(_m, _sep, __VA_ARGS__)
#define GP_EACH_3(_m, _sep, _p, ...) GP_EACH_CALL(_m, _p) _sep() GP_EACH_2(_m, _sep, __VA_ARGS__)
#define GP_EACH_4(_m, _sep, _p, ...) GP_EACH_CALL(_m, _p) _sep() GP_EACH_3(_m, _sep, __VA_ARGS__)
#define GP_EACH_5(_m, _sep, _p, ...) GP_EACH_CALL(_m, _p) _sep() GP_EACH_4(_m, _sep, __VA_ARGS__)
#define GP_EACH_6(_m, _sep, _p, ...) GP_EACH_CALL(_m, _p) _sep() GP_EACH_5(_m, _sep, __VA_ARGS__)
#define GP_EACH_7(_m, _sep, _p, ...) GP_EACH_CALL(_m, _p) _sep() GP_EACH_6(_m, _sep, __VA_ARGS__)
#define GP_EACH_8(_m, _sep, _p, ...) GP_EACH_CALL(_m, _p) _sep() GP_EACH_7(_m, _sep, __VA_ARGS__)

#define GP_EACH_NOTHING()
#define GP_EACH_COMMA()       ,
#define GP_EACH(_m, ...)      GP_EACH_JOIN(GP_EACH_, GP_EACH_COUNT(__VA_ARGS__))(_m, GP_EACH_NOTHING, __VA_ARGS__)
#define GP_EACH_LIST(_m, ...) GP_EACH_JOIN(GP_EACH_, GP_EACH_COUNT(__VA_ARGS__))(_m, GP_EACH_COMMA, __VA_ARGS__)

#endif
