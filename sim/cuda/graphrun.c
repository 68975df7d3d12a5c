/* SPDX-License-Identifier: MIT
 * Launching an executable graph: pages for its allocations, then its nodes in order.  Chains of
 * nodes run as actors of their own, so the hazard detector sees which work the graph's edges order. */
#include "cuda/context.h"
#include "cuda/graph.h"

#include <sched.h>
#include <stdlib.h>

/* ---- pages ------------------------------------------------------------------------------------------------------- */

static void sim_pages_release(struct sim_graph *g, const struct sim_node *end)
{
    for (struct sim_node *n = g->first; n != end; n = n->next)
        if (n->child)
            sim_pages_release(n->child, NULL);
        else if (n->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            n->allocation->busy--;
}

/* Busy pages are not taken back when the device runs short. */
static CUresult sim_pages_hold(struct sim_graph *g)
{
    for (struct sim_node *n = g->first; n; n = n->next) {
        CUresult r = CUDA_SUCCESS;

        if (n->child) {
            r = sim_pages_hold(n->child);
        } else if (n->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
            n->allocation->busy++;
            r = sim_allocation_map(n->allocation);
            if (r)
                n->allocation->busy--;
        }
        if (r) {
            sim_pages_release(g, n);
            return r;
        }
    }
    return CUDA_SUCCESS;
}

CUresult sim_exec_upload(struct sim_exec *e)
{
    CUresult r = sim_pages_hold(e->graph);

    if (!r)
        sim_pages_release(e->graph, NULL);
    return r;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static bool sim_graph_allocates(const struct sim_graph *g, const struct sim_allocation *a)
{
    for (const struct sim_node *n = g->first; n; n = n->next)
        if ((n->allocation == a && n->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) ||
            (n->child && sim_graph_allocates(n->child, a)))
            return true;
    return false;
}

/* The work of a copy or set node; the context of a node that names none is the launch's. */
static CUresult sim_node_work(const struct sim_node *n, struct sim_context *c, struct sim_work *work)
{
    const bool copy = n->params.type == CU_GRAPH_NODE_TYPE_MEMCPY;
    struct sim_context *own = sim_context_find(copy ? n->params.memcpy.copyCtx : n->params.memset.ctx);

    if (copy)
        return sim_work_copy(&n->params.memcpy.copyParams, own ? own : c, work);
    return sim_work_set((const CUDA_MEMSET_NODE_PARAMS *)&n->params.memset, own ? own : c, work);
}

/* All of it before anything runs: a refused launch has done nothing. */
static CUresult sim_graph_check(const struct sim_exec *e, const struct sim_graph *g, struct sim_context *c)
{
    CUresult r = CUDA_SUCCESS;

    for (const struct sim_node *n = g->first; n && !r; n = n->next) {
        struct sim_work work;

        if (n->disabled)
            continue;
        switch (n->params.type) {
        case CU_GRAPH_NODE_TYPE_MEMCPY:
        case CU_GRAPH_NODE_TYPE_MEMSET:
            r = sim_node_work(n, c, &work);
            if (!r)
                r = sim_work_check(&work);
            break;
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
            if (n->allocation->live && !(e->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH))
                r = CUDA_ERROR_INVALID_VALUE;
            break;
        case CU_GRAPH_NODE_TYPE_MEM_FREE:
            if (!n->allocation->live && !sim_graph_allocates(e->graph, n->allocation))
                r = CUDA_ERROR_INVALID_VALUE;
            break;
        case CU_GRAPH_NODE_TYPE_GRAPH:
            r = sim_graph_check(e, n->child, c);
            break;
        default:
            break;
        }
    }
    return r;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static CUresult sim_graph_run(struct sim_graph *g, struct sim_stream *s);

/* A node goes on in the chain of a dependency that nothing else has continued; the first root in
 * the stream's own. */
static void sim_node_place(struct sim_node *n, struct sim_stream *s, const struct sim_point *start, bool *own)
{
    for (size_t i = 0; i < n->from.count && !n->branch; i++) {
        struct sim_node *d = n->from.at[i];

        if (!d->continued) {
            d->continued = true;
            n->branch = d->branch;
        }
    }
    if (!n->branch && *own) {
        *own = false;
        n->branch = s;
    }
    if (!n->branch) {
        n->branch = sim_stream_branch(s->context, s->device);
        n->marked = true; /* its chain is dropped with it */
        sim_point_join(&n->branch->point, start);
    }
    for (size_t i = 0; i < n->from.count; i++)
        sim_point_join(&n->branch->point, &n->from.at[i]->done);
    sim_vector_set(&n->branch->point.clock, n->branch->slot, sim_slot_tick(n->branch->slot));
}

static void sim_node_event(struct sim_node *n, struct sim_stream *b)
{
    struct sim_event *e;

    if (sim_event_find(n->params.eventWait.event, &e))
        return; /* destroyed since: nothing is left to record or to wait for */
    if (n->params.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
        if (e->recorded)
            sim_point_join(&b->point, &e->point);
        return;
    }
    sim_capture_event_clear(e);
    sim_point_copy(&e->point, &b->point);
    e->recorded = true;
}

static void sim_node_free_memory(struct sim_node *n, struct sim_stream *b)
{
    struct sim_allocation *a = n->allocation;

    sim_access(b, a->memory.base, a->memory.size, true, "graph free");
    sim_point_join(&a->last, &b->point);
    sim_allocation_end(a);
}

static CUresult sim_node_run(struct sim_node *n, struct sim_stream *b)
{
    const CUDA_KERNEL_NODE_PARAMS_v3 *k = &n->params.kernel;
    struct sim_function *function;
    struct sim_work work;
    CUresult r = CUDA_SUCCESS;

    if (n->params.type == CU_GRAPH_NODE_TYPE_HOST) {
        sim_host_enqueue(n->params.host.fn, n->params.host.userData, b);
        return CUDA_SUCCESS;
    }
    sim_point_wait_host(&b->point);
    switch (n->params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (!sim_function_get(k->func, &function)) /* else its module is gone */
            r = sim_context_launches(b->context, function);
        if (r)
            break;
        sim_contents_launch_given(&n->given);
        sim_kernel_run(b, &n->pointers,
                       (uint64_t)k->gridDimX * k->gridDimY * k->gridDimZ * k->blockDimX * k->blockDimY * k->blockDimZ);
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
        r = sim_node_work(n, b->context, &work);
        if (!r)
            r = sim_work_check(&work); /* again: the lock may have been dropped since the launch looked */
        if (!r)
            sim_work_do(b, &work);
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        r = sim_graph_run(n->child, b);
        break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        sim_node_event(n, b);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        sim_allocation_begin(n->allocation, b);
        break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        sim_node_free_memory(n, b);
        break;
    default: /* empty nodes order others */
        break;
    }
    return r;
}

static CUresult sim_graph_run(struct sim_graph *g, struct sim_stream *s)
{
    struct sim_point start = {0};
    CUresult r = CUDA_SUCCESS;
    bool own = true;

    sim_point_copy(&start, &s->point);
    for (struct sim_node *n = g->first; n; n = n->next) {
        n->branch = NULL;
        n->marked = n->continued = false;
    }
    for (struct sim_node *n = g->first; n && !r; n = n->next) {
        sim_node_place(n, s, &start, &own);
        if (!n->disabled)
            r = sim_node_run(n, n->branch);
        sim_point_copy(&n->done, &n->branch->point);
    }
    for (struct sim_node *n = g->first; n; n = n->next) {
        if (n->branch)
            sim_point_join(&s->point, &n->done);
        sim_point_drop(&n->done);
    }
    for (struct sim_node *n = g->first; n; n = n->next)
        if (n->marked)
            sim_stream_drop(n->branch);
    sim_point_drop(&start);
    return r;
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

static void sim_graph_free_live(struct sim_graph *g)
{
    for (struct sim_node *n = g->first; n; n = n->next)
        if (n->child)
            sim_graph_free_live(n->child);
        else if (n->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
            sim_allocation_end(n->allocation);
}

static void sim_graph_used(struct sim_graph *g, const struct sim_point *p)
{
    for (struct sim_node *n = g->first; n; n = n->next)
        if (n->child)
            sim_graph_used(n->child, p);
        else if (n->allocation)
            sim_point_join(&n->allocation->last, p);
}

static CUresult sim_exec_run(struct sim_exec *e, struct sim_stream *s)
{
    CUresult r = sim_graph_check(e, e->graph, s->context);

    if (!r)
        r = sim_op_begin(s);
    if (r)
        return r;
    sim_point_join(&s->point, &e->last); /* launches of one exec follow one another */
    if (e->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
        sim_graph_free_live(e->graph);
    r = sim_graph_run(e->graph, s);
    sim_point_copy(&e->last, &s->point);
    sim_graph_used(e->graph, &s->point);
    return r;
}

void sim_exec_free(struct sim_exec *e)
{
    sim_graph_drop(e->graph);
    sim_point_drop(&e->last);
    free(e);
}

/* One launch of an exec at a time; host functions before it make it drop the lock. */
CUresult sim_exec_launch(struct sim_exec *e, struct sim_stream *s)
{
    CUresult r;

    while (e->busy) {
        sim_unlock();
        sched_yield();
        sim_lock();
        if (sim_exec_of((CUgraphExec)e) != e || !sim_stream_valid((CUstream)s))
            return CUDA_ERROR_INVALID_VALUE;
    }
    e->busy++;
    r = sim_pages_hold(e->graph);
    if (!r) {
        r = sim_exec_run(e, s);
        sim_pages_release(e->graph, NULL);
    }
    e->busy--;
    if (e->dead)
        sim_exec_free(e);
    return r;
}
