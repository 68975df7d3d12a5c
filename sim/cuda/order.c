/* SPDX-License-Identifier: MIT
 * Operations begin in their stream's order, and what they read and write goes to the hazard detector; the host waits for
 * points in the order. */
#include "cuda/graph.h"

CUresult sim_op_begin(struct sim_stream *s)
{
    CUresult r = sim_capture_implicit(s);

    if (r)
        return r;
    sim_stream_order(s);
    sim_vector_set(&s->point.clock, s->slot, sim_slot_tick(s->slot));
    sim_point_wait_host(&s->point);
    return CUDA_SUCCESS;
}

void sim_access(struct sim_stream *s, CUdeviceptr p, size_t bytes, bool write, const char *api)
{
    struct sim_memory *m = sim_memory_find(p);

    if (!bytes)
        return;
    if (m ? m->type == SIM_MEMORY_GRAPH && !sim_graph_memory_live(m) : sim_pool_covers(p))
        sim_hazard_report(s->device, p, bytes, api, "the memory is freed, or its graph has not allocated it");
    else if (m && sim_memory_on_device(m))
        sim_shadow_access(s->device, s->slot, sim_vector_get(&s->point.clock, s->slot), &s->point.clock, p, bytes,
                          write, api);
}

void sim_host_sync_stream(struct sim_stream *s)
{
    sim_point_wait(&s->point);
}

void sim_host_sync_device(int device)
{
    struct sim_point all = {0};

    for (struct sim_stream *s = sim_stream_first(); s; s = s->next)
        if (device == SIM_ALL_DEVICES || s->device == device)
            sim_point_join(&all, &s->point);
    sim_point_wait(&all);
    sim_point_drop(&all);
}

CUresult sim_stream_synchronize(struct sim_context *context)
{
    sim_host_sync_device(context->device);
    return CUDA_SUCCESS;
}

/* ---- waits ------------------------------------------------------------------------------------------------------- */

/* Works on a copy: while the lock is dropped the stream or event may move on or die. */
void sim_point_wait(const struct sim_point *p)
{
    struct sim_point copy = {0};

    sim_point_copy(&copy, p);
    sim_point_wait_host(&copy);
    if (copy.finish_ns > sim_clock_now())
        sim_clock_add(copy.finish_ns - sim_clock_now());
    sim_point_observe(&copy);
    sim_point_drop(&copy);
    sim_pools_observe();
}
