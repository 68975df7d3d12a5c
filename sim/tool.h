/* SPDX-License-Identifier: MIT
 * The interface of the simulated driver for tools, not for programs: the table of
 * cuGetExportTable(SIM_TOOL_UUID).  The simulated libcupti turns it into CUPTI, the simulated
 * libcudart reports its own calls through it.  The profiler must not include this file: it uses
 * only CUPTI. */
#ifndef SIM_TOOL_H
#define SIM_TOOL_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

/* Simulator-only: the bytes spell a name, so that no table of a real driver can be meant. */
#define SIM_TOOL_UUID                                                                                                  \
    {                                                                                                                  \
        {                                                                                                              \
            's', 'i', 'm', '-', 't', 'o', 'o', 'l', '-', 't', 'a', 'b', 'l', 'e', '-', '1'                             \
        }                                                                                                              \
    }

/* Domain numbers are CUPTI's (CUpti_CallbackDomain), as are all callback ids below. */
enum sim_tool_domain {
    SIM_TOOL_DRIVER = 1,
    SIM_TOOL_RUNTIME = 2,
    SIM_TOOL_RESOURCE = 3,
    SIM_TOOL_SYNCHRONIZE = 4,
    SIM_TOOL_STATE = 6,
    SIM_TOOL_DOMAINS = 7
};

/* Ids of one domain are below these; the runtime's size is that of CUDA 13.0. */
#define SIM_TOOL_DRIVER_IDS  827
#define SIM_TOOL_RUNTIME_IDS 523
#define SIM_TOOL_OTHER_IDS   24

enum sim_tool_resource_id {
    SIM_TOOL_CONTEXT_CREATED = 1,
    SIM_TOOL_CONTEXT_DESTROY_STARTING = 2,
    SIM_TOOL_STREAM_CREATED = 3,
    SIM_TOOL_STREAM_DESTROY_STARTING = 4,
    SIM_TOOL_INIT_FINISHED = 5,
    SIM_TOOL_MODULE_LOADED = 6,
    SIM_TOOL_MODULE_UNLOAD_STARTING = 7,
    SIM_TOOL_MODULE_PROFILED = 8,
    SIM_TOOL_GRAPH_CREATED = 9,
    SIM_TOOL_GRAPH_DESTROY_STARTING = 10,
    SIM_TOOL_GRAPH_CLONED = 11,
    SIM_TOOL_GRAPHNODE_CREATE_STARTING = 12,
    SIM_TOOL_GRAPHNODE_CREATED = 13,
    SIM_TOOL_GRAPHNODE_DESTROY_STARTING = 14,
    SIM_TOOL_DEPENDENCY_CREATED = 15,
    SIM_TOOL_DEPENDENCY_DESTROY_STARTING = 16,
    SIM_TOOL_GRAPHEXEC_CREATE_STARTING = 17,
    SIM_TOOL_GRAPHEXEC_CREATED = 18,
    SIM_TOOL_GRAPHEXEC_DESTROY_STARTING = 19,
    SIM_TOOL_GRAPHNODE_CLONED = 20
};
enum sim_tool_state_id { SIM_TOOL_FATAL_ERROR = 1, SIM_TOOL_ERROR = 2, SIM_TOOL_WARNING = 3 };
enum sim_tool_sync_id { SIM_TOOL_STREAM_SYNCHRONIZED = 1, SIM_TOOL_CONTEXT_SYNCHRONIZED = 2 };
enum sim_tool_site { SIM_TOOL_ENTER = 0, SIM_TOOL_EXIT = 1 };

/* One ENTER or EXIT of a driver or runtime call; valid only during the callback, except `function`. */
struct sim_tool_call {
    uint32_t domain, cbid, site;
    uint32_t context_uid;  /* 0 without a context */
    CUcontext context;     /* current to the thread at this moment; may be NULL */
    const char *function;  /* exported name, e.g. "cuMemAllocAsync_ptsz"; lives as long as the library */
    const void *params;    /* the call's parameter struct, NULL for a call without parameters */
    const void *result;    /* CUresult * or cudaError_t *; NULL at ENTER */
    const char *symbol;    /* kernel name at launches, else NULL */
    uint64_t *correlation; /* one slot per invocation, the same at ENTER and EXIT, 0 at ENTER */
    uint32_t correlation_id;
};

/* RESOURCE, SYNCHRONIZE or STATE.  `handle` is the stream of stream events; `descriptor` is a
 * struct sim_tool_module, struct sim_tool_graph or (STATE) struct sim_tool_state, else NULL. */
struct sim_tool_event {
    uint32_t domain, cbid;
    uint32_t context_uid;
    CUcontext context;
    void *handle;
    void *descriptor;
};

/* These three have the layout of CUPTI's own payloads and may be handed on as they are. */
struct sim_tool_module {
    uint32_t module_id;
    size_t cubin_size;
    const char *cubin;
};
struct sim_tool_graph {
    CUgraph graph, original_graph;
    CUgraphNode node, original_node;
    CUgraphNodeType node_type;
    CUgraphNode dependency;
    CUgraphExec graph_exec;
};
struct sim_tool_state {
    uint32_t result;
    const char *message;
};

typedef void (*sim_tool_call_fn)(void *user, const struct sim_tool_call *call);
typedef void (*sim_tool_event_fn)(void *user, const struct sim_tool_event *event);

/* Storage for one runtime call between begin and end: on the caller's stack. */
struct sim_tool_frame {
    uint64_t correlation;
    const char *function;
    const void *params;
    uint32_t cbid, correlation_id;
    uint32_t reported; /* ENTER was delivered, so EXIT is owed */
};

/* All functions may be called from any thread, before cuInit too, and from inside a callback. No
 * callback is made with a lock of the simulator held.  Once attach(NULL, NULL, NULL) has returned,
 * calls that began later make no callback; one that is in flight on another thread may still be
 * running (as CUPTI's unsubscribe). */
struct sim_tool_table {
    size_t size; /* sizeof(struct sim_tool_table) of the library */
    /* 0, or -EBUSY while another function listens. */
    int (*attach)(sim_tool_call_fn call, sim_tool_event_fn event, void *user);
    /* 0, or -EINVAL for an id outside of the domain.  enable(domain, 0, on) is refused: see
     * enable_domain. */
    int (*enable)(uint32_t domain, uint32_t cbid, int on);
    int (*enable_domain)(uint32_t domain, int on);
    int (*enabled)(uint32_t domain, uint32_t cbid); /* 0, 1 or -EINVAL */
    const char *(*driver_name)(uint32_t cbid);      /* NULL: an id that the simulator does not implement */
    /* 0 or -EINVAL for a context that does not live. */
    int (*context_device)(CUcontext context, uint32_t *device);
    int (*context_uid)(CUcontext context, uint32_t *uid);
    int (*stream_id)(CUcontext context, CUstream stream, int per_thread, uint64_t *id);
    CUcontext (*current_context)(uint32_t *uid); /* no driver call is made or counted */
    int (*initialized)(void);                    /* cuInit has succeeded in this process */
    /* cudart brackets its own calls: begin delivers ENTER, end delivers EXIT; both cost one load
     * when not enabled. */
    void (*runtime_begin)(struct sim_tool_frame *frame, uint32_t cbid, const char *function, const void *params);
    void (*runtime_end)(struct sim_tool_frame *frame, const void *result);
    uint64_t (*clock_ns)(void); /* the virtual clock */
    /* A variable that the runtime knows of a library, since the driver may be unable to read its
     * image.  0 or -EINVAL. */
    int (*library_declare)(CUlibrary library, const char *name, size_t size, int managed);
};

#endif
