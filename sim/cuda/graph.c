/* SPDX-License-Identifier: MIT
 * Graphs and their nodes as objects: handles, making, linking, copying, sorting, ending.  Called by
 * the other graph files and by captures; makes no callbacks but those of sim_graph_event. */
#include "cuda/graph.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

/* ---- handles ----------------------------------------------------------------------------------------------------- */

static void *sim_handles; /* a search tree of addresses: programs may hand in anything */

static int sim_handle_order(const void *a, const void *b)
{
    return a < b ? -1 : a > b;
}

void sim_handle_add(void *object)
{
    if (!tsearch(object, &sim_handles, sim_handle_order))
        abort(); /* as sim_grow: no host memory for the simulator's own books */
}

void sim_handle_remove(void *object)
{
    tdelete(object, &sim_handles, sim_handle_order);
}

void *sim_handle_find(const void *handle, enum sim_tag tag)
{
    const int *const *found = handle ? tfind(handle, &sim_handles, sim_handle_order) : NULL;

    return found && **found == (int)tag ? (void *)*found : NULL;
}

uint64_t sim_graph_id(void)
{
    static uint64_t last;

    return ++last;
}

void sim_graph_event(uint32_t cbid, struct sim_tool_graph about)
{
    sim_tool_event(SIM_TOOL_RESOURCE, cbid, sim_context_peek(), NULL, &about);
}

/* ---- sets of nodes ----------------------------------------------------------------------------------------------- */

void sim_nodes_remove(struct sim_nodes *n, const struct sim_node *node)
{
    for (size_t i = 0; i < n->count; i++)
        if (n->at[i] == node) {
            memmove(&n->at[i], &n->at[i + 1], (--n->count - i) * sizeof n->at[0]);
            return;
        }
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

struct sim_graph *sim_graph_make(bool counted)
{
    struct sim_graph *g = sim_grow(NULL, sizeof *g);

    *g = (struct sim_graph){.tag = SIM_TAG_GRAPH, .id = sim_graph_id(), .counted = counted};
    g->last = &g->first;
    if (counted)
        sim_handle_add(g);
    return g;
}

/* Nothing refers to n any more but its graph's list. */
static void sim_node_free(struct sim_node *n)
{
    struct sim_graph *g = n->graph;

    if (g->counted) {
        sim_handle_remove(n);
        if (n->allocation && n->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            sim_ledger_kind(n->allocation->memory.device, SIM_GRAPH, -(int64_t)n->allocation->memory.size);
    }
    if (n->allocation)
        sim_allocation_release(n->allocation);
    if (n->child)
        sim_graph_drop(n->child);
    sim_params_drop(n);
    sim_nodes_drop(&n->from);
    sim_point_drop(&n->done);
    free(n);
}

void sim_graph_drop(struct sim_graph *g)
{
    struct sim_node *next;

    if (g->counted)
        sim_handle_remove(g);
    if (g->execs)
        sim_exec_source_gone(g);
    for (struct sim_node *n = g->first; n; n = next) {
        next = n->next;
        sim_node_free(n);
    }
    sim_graph_owned_drop(g);
    free(g);
}

static void sim_graph_end_events(struct sim_graph *g)
{
    sim_handle_remove(g);
    sim_graph_event(SIM_TOOL_GRAPH_DESTROY_STARTING, (struct sim_tool_graph){.graph = (CUgraph)g});
    for (struct sim_node *n = g->first; n; n = n->next) {
        sim_handle_remove(n);
        if (n->child)
            sim_graph_end_events(n->child);
        sim_graph_event(
            SIM_TOOL_GRAPHNODE_DESTROY_STARTING,
            (struct sim_tool_graph){.graph = (CUgraph)g, .node = (CUgraphNode)n, .node_type = n->params.type});
    }
}

/* Callbacks drop the lock.  The handles are removed before, so no other thread finds an object that
 * is being destroyed. */
void sim_graph_end(struct sim_graph *g)
{
    sim_graph_end_events(g);
    sim_graph_drop(g);
}

bool sim_graph_has_memory(const struct sim_graph *g)
{
    for (const struct sim_node *n = g->first; n; n = n->next)
        if (n->allocation || (n->child && sim_graph_has_memory(n->child)))
            return true;
    return false;
}

struct sim_node *sim_node_alike(const struct sim_graph *g, uint64_t original)
{
    for (struct sim_node *n = g->first; n; n = n->next) {
        struct sim_node *inner = n->original == original ? n : NULL;

        if (!inner && n->child)
            inner = sim_node_alike(n->child, original);
        if (inner)
            return inner;
    }
    return NULL;
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static struct sim_node *sim_node_link(struct sim_graph *g)
{
    struct sim_node *n = sim_grow(NULL, sizeof *n);

    *n = (struct sim_node){.tag = SIM_TAG_NODE, .graph = g, .id = sim_graph_id()};
    *g->last = n;
    g->last = &n->next;
    g->count++;
    if (g->counted)
        sim_handle_add(n);
    return n;
}

void sim_node_drop(struct sim_node *n)
{
    struct sim_graph *g = n->graph;

    for (struct sim_node **at = &g->first; *at; at = &(*at)->next)
        if (*at == n) {
            *at = n->next;
            if (g->last == &n->next)
                g->last = at;
            break;
        }
    for (struct sim_node *o = g->first; o; o = o->next)
        sim_nodes_remove(&o->from, n);
    g->count--;
    sim_node_free(n);
}

/* A free node names an allocation that no other node of the graph frees.  *out is set, and held,
 * only on success: the caller's node would release it. */
static CUresult sim_node_free_check(const struct sim_graph *g, CUdeviceptr address, struct sim_allocation **out)
{
    struct sim_allocation *a = sim_allocation_find(address);

    if (!a)
        return CUDA_ERROR_INVALID_VALUE;
    for (const struct sim_node *n = g->first; n; n = n->next)
        if (n->allocation == a && n->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE)
            return CUDA_ERROR_INVALID_VALUE;
    sim_allocation_hold(a);
    *out = a;
    return CUDA_SUCCESS;
}

/* A child graph is copied, or moved in when it may not be copied and the program says so. */
static CUresult sim_node_child(struct sim_graph *g, struct sim_node *n, const CUDA_CHILD_GRAPH_NODE_PARAMS *params)
{
    struct sim_graph *child = sim_graph_of(params->graph);
    const bool move = params->ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;

    if (!child || child == g || child->capture || (!move && sim_graph_has_memory(child)) ||
        (move && (child->parent || child->execs)))
        return CUDA_ERROR_INVALID_VALUE;
    for (const struct sim_node *up = g->parent; up; up = up->graph->parent)
        if (up->graph == child)
            return CUDA_ERROR_INVALID_VALUE;
    n->child = move ? child : sim_graph_copy(child, true);
    n->child->parent = n;
    n->params.graph.graph = (CUgraph)n->child;
    return CUDA_SUCCESS;
}

static CUresult sim_node_fill(struct sim_graph *g, struct sim_node *n, CUgraphNodeParams *params)
{
    CUresult r;

    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        r = sim_allocation_new(&params->alloc, &n->allocation);
        if (r)
            return r;
        sim_ledger_kind(n->allocation->memory.device, SIM_GRAPH, (int64_t)params->alloc.bytesize);
        return sim_params_take(n, params);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        r = sim_node_free_check(g, params->free.dptr, &n->allocation);
        return r ? r : sim_params_take(n, params);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        n->params = *params;
        return sim_node_child(g, n, &params->graph);
    default:
        return sim_params_take(n, params);
    }
}

CUresult sim_node_add(struct sim_graph *g, const CUgraphNode *dependencies, size_t count, CUgraphNodeParams *params,
                      struct sim_node **out)
{
    struct sim_node *n;
    CUresult r;

    if (count && !dependencies)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        const struct sim_node *d = sim_node_of(dependencies[i]);

        if (!d || d->graph != g)
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t k = 0; k < i; k++)
            if (dependencies[k] == dependencies[i])
                return CUDA_ERROR_INVALID_VALUE;
    }
    n = sim_node_link(g);
    r = sim_node_fill(g, n, params);
    if (r) {
        sim_node_drop(n);
        return r;
    }
    for (size_t i = 0; i < count; i++)
        sim_nodes_add(&n->from, (struct sim_node *)dependencies[i]);
    *out = n;
    return CUDA_SUCCESS;
}

void sim_node_created(struct sim_node *n)
{
    sim_graph_event(
        SIM_TOOL_GRAPHNODE_CREATED,
        (struct sim_tool_graph){.graph = (CUgraph)n->graph, .node = (CUgraphNode)n, .node_type = n->params.type});
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static void sim_node_copy(struct sim_node *n, const struct sim_node *from, bool counted)
{
    n->original = from->id;
    n->disabled = from->disabled;
    if (from->child) {
        n->params = from->params;
        n->child = sim_graph_copy(from->child, counted);
        n->child->parent = n;
        n->params.graph.graph = (CUgraph)n->child;
        return;
    }
    if (from->allocation) {
        n->allocation = from->allocation;
        sim_allocation_hold(n->allocation);
    }
    (void)sim_params_take(n, &from->params); /* they were checked when `from` took them */
    n->pointers = from->pointers;
    n->given = from->given;
    if (from->attributes) {
        size_t bytes = (CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING + 1) * sizeof n->attributes[0];

        n->attributes = sim_grow(NULL, bytes);
        memcpy(n->attributes, from->attributes, bytes);
    }
}

struct sim_graph *sim_graph_copy(const struct sim_graph *from, bool counted)
{
    struct sim_graph *g = sim_graph_make(counted);
    struct sim_node **copies = sim_grow(NULL, (from->count + 1) * sizeof *copies);
    size_t i = 0;

    g->original = from->id;
    for (struct sim_node *n = from->first; n; n = n->next) {
        n->waits = i; /* its place among the copies */
        copies[i] = sim_node_link(g);
        sim_node_copy(copies[i++], n, counted);
    }
    i = 0;
    for (const struct sim_node *n = from->first; n; n = n->next, i++)
        for (size_t k = 0; k < n->from.count; k++)
            sim_nodes_add(&copies[i]->from, copies[n->from.at[k]->waits]);
    free(copies);
    sim_graph_owned_copy(g, from);
    return g;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

/* Moves each node that waits for nothing more to the end of the sorted list; a graph as most
 * programs make it, every node after its dependencies, is done in one pass. */
bool sim_graph_sort(struct sim_graph *g, struct sim_node **cycle)
{
    struct sim_node *todo = g->first, **end = &g->first;
    bool moved = true;

    for (struct sim_node *n = todo; n; n = n->next)
        n->marked = false;
    while (todo && moved) {
        struct sim_node **at = &todo;

        moved = false;
        while (*at) {
            struct sim_node *n = *at;
            bool ready = true;

            for (size_t i = 0; i < n->from.count && ready; i++)
                ready = n->from.at[i]->marked;
            if (!ready) {
                at = &n->next;
                continue;
            }
            *at = n->next;
            n->marked = moved = true;
            *end = n;
            end = &n->next;
        }
    }
    *end = todo; /* the remaining nodes form a cycle */
    g->last = end;
    while (*g->last)
        g->last = &(*g->last)->next;
    *cycle = todo;
    return !todo;
}

struct sim_exec *sim_execs;

void sim_exec_unlist(struct sim_exec *e)
{
    for (struct sim_exec **at = &sim_execs; *at; at = &(*at)->next)
        if (*at == e) {
            *at = e->next;
            return;
        }
}

void sim_exec_source_gone(const struct sim_graph *g)
{
    for (struct sim_exec *e = sim_execs; e; e = e->next)
        if (e->source == g)
            e->source = NULL;
}
