/* SPDX-License-Identifier: MIT
 * The inside of graphs, shared by graph*.c and capture*.c and included only by them.  Call
 * everything with the lock held.  A graph holds nodes, an exec holds a private copy of a graph in
 * an order in which it can run.  Memory of allocation nodes is shared by the copies: struct
 * sim_allocation. */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "cuda/contents.h"
#include "cuda/sim.h"
#include "cuda/stream.h"

/* Memory of one allocation node.  It has an address from the node's creation on, and pages from the
 * first launch or upload to a trim; live between a launch's allocation and its free. refs = nodes
 * that name it as their allocation (in graphs and in execs) + (live ? 1 : 0) */
struct sim_allocation {
    struct sim_allocation *next;
    struct sim_memory memory; /* in the tree while refs > 0 */
    size_t pages;             /* bytes rounded up to SIM_PAGE, taken from the device */
    unsigned refs;
    unsigned busy; /* launches and uploads in progress that need its pages */
    bool mapped, live;
    struct sim_point last; /* the work that used it last */
};

/* A graph allocation that some launch has made and nothing has freed yet. */
static inline bool sim_graph_memory_live(const struct sim_memory *m)
{
    return ((const struct sim_allocation *)m->owner)->live;
}

struct sim_graph;
struct sim_node {
    int tag; /* first: see sim_handle_find */
    struct sim_graph *graph;
    struct sim_node *next; /* in order of creation; in an exec in an order in which they can run */
    uint64_t id;           /* never reused */
    uint64_t original;     /* id of the node that this one was copied from, 0 none */
    struct sim_nodes from; /* dependencies */
    CUgraphNodeParams params;
    struct sim_kernel_pointers pointers; /* kernel nodes */
    struct sim_given given;              /* kernel nodes: for contents.c */
    void **owned;                        /* storage of params.kernel.kernelParams or .extra */
    CUlaunchAttributeValue *attributes;  /* kernel nodes whose attributes were set */
    struct sim_graph *child;
    struct sim_allocation *allocation; /* allocation and free nodes */
    CUmemAccessDesc *access;           /* storage of params.alloc.accessDescs */
    bool disabled;                     /* in an exec */
    /* While sorting and running. */
    size_t waits; /* dependencies that are not sorted yet */
    bool marked, continued;
    struct sim_stream *branch;
    struct sim_point done;
};

struct sim_graph {
    int tag;
    struct sim_node *first, **last;
    size_t count;
    uint64_t id, original;   /* as of nodes */
    struct sim_node *parent; /* the child-graph node that owns it */
    struct sim_capture *capture;
    unsigned execs;                /* instantiations that live */
    struct sim_graph_owned *owned; /* userobject.c's: references to user objects */
    bool counted;                  /* its allocation nodes count in the ledger: a program's graph, no exec's copy */
};

struct sim_exec {
    int tag;
    struct sim_exec *next;
    struct sim_graph *graph;
    struct sim_graph *source; /* the graph that it was made from; NULL once that is destroyed */
    cuuint64_t flags;
    unsigned busy; /* launches in progress: they may drop the lock */
    bool dead;     /* destroyed while busy: the last launch frees it */
    struct sim_point last;
};

/* CUgraphRecaptureCallback of CUDA 13.3: data, node, its parameters so far, those now, a status. */
typedef CUresult sim_recapture_fn(void *, CUgraphNode, const CUgraphNodeParams *, const CUgraphNodeParams *, int);

struct sim_capture {
    struct sim_capture *next;
    uint64_t id;
    CUstreamCaptureMode mode;
    int thread; /* that began it */
    struct sim_stream *origin;
    struct sim_graph *graph;
    bool given; /* the program's own graph (cuStreamBeginCaptureToGraph) */
    bool invalid;
    bool again;                 /* the nodes of the given graph come once more */
    struct sim_node *next_node; /* again: which must come next */
    sim_recapture_fn *callback;
    void *user;
};

/* ---- handles (graph.c): graphs, nodes and execs that a program may name ------------------------------------------ */
enum sim_tag { SIM_TAG_GRAPH = 0x68706172, SIM_TAG_NODE = 0x65646f6e, SIM_TAG_EXEC = 0x63657865 };
void sim_handle_add(void *object);
void sim_handle_remove(void *object);
void *sim_handle_find(const void *handle, enum sim_tag tag); /* NULL: no such object */
static inline struct sim_graph *sim_graph_of(CUgraph h)
{
    return sim_handle_find(h, SIM_TAG_GRAPH);
}
static inline struct sim_node *sim_node_of(CUgraphNode h)
{
    return sim_handle_find(h, SIM_TAG_NODE);
}
static inline struct sim_exec *sim_exec_of(CUgraphExec h)
{
    return sim_handle_find(h, SIM_TAG_EXEC);
}
uint64_t sim_graph_id(void);
void sim_graph_event(uint32_t cbid, struct sim_tool_graph about); /* drops the lock */

/* ---- graphs and nodes (graph.c) ---------------------------------------------------------------------------------- */
struct sim_graph *sim_graph_make(bool counted);
void sim_graph_owned_copy(struct sim_graph *to, const struct sim_graph *from);
void sim_graph_owned_drop(struct sim_graph *g);
void sim_graph_drop(struct sim_graph *g); /* with its nodes; events are the caller's */
/* The program's graph goes, with its events: the handle is dead before the first of them. */
void sim_graph_end(struct sim_graph *g);
/* A copy with the same memory; the copies' `original` tells whence.  counted: for a program. */
struct sim_graph *sim_graph_copy(const struct sim_graph *from, bool counted);
bool sim_graph_has_memory(const struct sim_graph *g);
bool sim_graph_sort(struct sim_graph *g, struct sim_node **cycle); /* false: there is a cycle */

/* Checks the parameters, makes the node and links it; alloc.dptr is filled in.  The event is the
 * caller's: sim_node_created.  dependencies may be the place that the new handle is written to. */
CUresult sim_node_add(struct sim_graph *g, const CUgraphNode *dependencies, size_t count, CUgraphNodeParams *params,
                      struct sim_node **out);
void sim_node_created(struct sim_node *n); /* drops the lock */
void sim_node_drop(struct sim_node *n);
void sim_nodes_remove(struct sim_nodes *n, const struct sim_node *node);
struct sim_node *sim_node_alike(const struct sim_graph *g, uint64_t original); /* the copy of that node, or NULL */

/* ---- parameters (graphparams.c) ---------------------------------------------------------------------------------- */
/* Takes a deep copy of *params into n; type and, for memory nodes, everything must stay as it is
 * once set. */
CUresult sim_params_take(struct sim_node *n, const CUgraphNodeParams *params);
void sim_params_drop(struct sim_node *n);

/* ---- memory (graphmem.c) ----------------------------------------------------------------------------------------- */
CUresult sim_allocation_new(CUDA_MEM_ALLOC_NODE_PARAMS_v2 *params, struct sim_allocation **out);
void sim_allocation_hold(struct sim_allocation *a);
void sim_allocation_release(struct sim_allocation *a);
struct sim_allocation *sim_allocation_find(CUdeviceptr address); /* only the base address; NULL: no graph memory */
CUresult sim_allocation_map(struct sim_allocation *a);
void sim_allocation_begin(struct sim_allocation *a, struct sim_stream *s); /* a launch allocates it */
void sim_allocation_end(struct sim_allocation *a);                         /* freed, wherever */

/* ---- execs (graphrun.c runs them, api/graphexec.c makes them) ---------------------------------------------------- */
/* Runs a launch in s.  *e may be gone afterwards: another thread may destroy it while the lock is
 * dropped. */
CUresult sim_exec_launch(struct sim_exec *e, struct sim_stream *s);
/* Maps pages for all its allocations. */
CUresult sim_exec_upload(struct sim_exec *e);
/* Execs made from g go on without it. */
void sim_exec_source_gone(const struct sim_graph *g);
void sim_exec_unlist(struct sim_exec *e);

/* ---- captures (capture.c) ---------------------------------------------------------------------------------------- */
extern struct sim_capture *sim_captures;
void sim_capture_invalidate(struct sim_capture *c);
void sim_capture_end(struct sim_capture *c); /* streams and events leave it; the graph is the caller's */

/* reserved = cached + pages of mapped allocations; used = bytes of live ones; per device. */
struct sim_graph_memory {
    uint64_t used, used_high, reserved, reserved_high;
    uint64_t cached; /* taken from the device, not mapped anywhere */
};

/* capturing.c */
extern struct sim_capture sim_capture_over;
CUresult sim_capture_broken(struct sim_capture *c, CUresult why);

/* graph.c */
extern struct sim_exec *sim_execs;

/* graphmem.c */
struct sim_graph_memory *sim_graph_memory(int device);

/* graphrun.c */
void sim_exec_free(struct sim_exec *e);

#endif
