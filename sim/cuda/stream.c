/* SPDX-License-Identifier: MIT
 * Streams: the default ones (legacy, one per thread), created ones, and the rules by which they
 * wait for one another. Called by every part that puts work into a stream.  Never runs work itself. */
#include "cuda/graph.h"

#include <errno.h>
#include <stdlib.h>

/* ---- sets of nodes ----------------------------------------------------------------------------------------------- */

void sim_nodes_add(struct sim_nodes *n, struct sim_node *node)
{
    for (size_t i = 0; i < n->count; i++)
        if (n->at[i] == node)
            return;
    n->at = sim_grow(n->at, (n->count + 1) * sizeof n->at[0]);
    n->at[n->count++] = node;
}

void sim_nodes_drop(struct sim_nodes *n)
{
    free(n->at);
    *n = (struct sim_nodes){0};
}

#define SIM_STREAM_MAGIC 0x6d61657274736d69u

/* Numerically lower is more urgent; six levels are what recent devices report. */
#define SIM_PRIORITY_LEAST    0
#define SIM_PRIORITY_GREATEST (-5)

static struct sim_stream *sim_streams;
static unsigned long long sim_stream_ids;

struct sim_stream *sim_stream_first(void)
{
    return sim_streams;
}

static struct sim_stream *sim_stream_make(struct sim_context *c, int device, enum sim_stream_kind kind)
{
    struct sim_stream *s = sim_grow(NULL, sizeof *s);

    *s = (struct sim_stream){.magic = SIM_STREAM_MAGIC, .context = c, .device = device, .kind = kind};
    s->slot = sim_slot_take();
    s->id = ++sim_stream_ids;
    s->attribute[CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY].syncPolicy = CU_SYNC_POLICY_AUTO;
    s->attribute[CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP].memSyncDomainMap.remote = 1;
    return s;
}

struct sim_stream *sim_stream_branch(struct sim_context *c, int device)
{
    return sim_stream_make(c, device, SIM_STREAM_BRANCH);
}

void sim_stream_drop(struct sim_stream *s)
{
    for (struct sim_stream **at = &sim_streams; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    sim_slot_retire(s->slot);
    sim_point_drop(&s->point);
    sim_nodes_drop(&s->frontier);
    s->magic = 0;
    free(s);
}

bool sim_stream_valid(CUstream h)
{
    for (struct sim_stream *s = sim_streams; s; s = s->next)
        if ((CUstream)s == h)
            return true;
    return false;
}

/* thread: the owner of a per-thread stream; for the work of destroyed streams: 1 if they were
 * non-blocking. */
struct sim_stream *sim_stream_special(struct sim_context *c, enum sim_stream_kind kind, int thread, bool make)
{
    struct sim_stream *s;

    for (s = sim_streams; s; s = s->next)
        if (s->context == c && s->kind == kind && s->thread == thread)
            return s;
    if (!make)
        return NULL;
    s = sim_stream_make(c, c->device, kind);
    s->thread = thread;
    s->non_blocking = kind == SIM_STREAM_REST && thread;
    s->next = sim_streams;
    sim_streams = s;
    return s;
}

static struct sim_stream *sim_stream_implicit(struct sim_context *c, bool per_thread)
{
    c = sim_context_owner(c);
    return sim_stream_special(c, per_thread ? SIM_STREAM_PER_THREAD : SIM_STREAM_LEGACY, per_thread ? gettid() : 0,
                              true);
}

CUresult sim_stream_resolve(CUstream h, struct sim_stream **out)
{
    struct sim_context *c;
    CUresult r;

    h = sim_stream_default(h);
    if (h != CU_STREAM_LEGACY && h != CU_STREAM_PER_THREAD) {
        if (!sim_stream_valid(h))
            return CUDA_ERROR_INVALID_HANDLE;
        *out = (struct sim_stream *)h;
        return CUDA_SUCCESS;
    }
    r = sim_context_current(&c);
    if (r)
        return r;
    *out = sim_stream_implicit(c, h == CU_STREAM_PER_THREAD);
    return CUDA_SUCCESS;
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

/* The legacy stream waits for every blocking stream of its context and they wait for it. */
void sim_stream_order(struct sim_stream *s)
{
    if (s->kind == SIM_STREAM_LEGACY) {
        for (struct sim_stream *o = sim_streams; o; o = o->next)
            if (o != s && o->context == s->context && !o->non_blocking && !o->capture)
                sim_point_join(&s->point, &o->point);
    } else if (!s->non_blocking && s->kind != SIM_STREAM_BRANCH) {
        struct sim_stream *legacy = sim_stream_special(s->context, SIM_STREAM_LEGACY, 0, false);

        if (legacy)
            sim_point_join(&s->point, &legacy->point);
    }
    sim_vector_join(&s->point.clock, sim_host());
    if (s->point.finish_ns < sim_clock_now())
        s->point.finish_ns = sim_clock_now();
}

void sim_stream_charge(struct sim_stream *s, uint64_t device_ns)
{
    if (sim_spec.latency)
        s->point.finish_ns += device_ns;
}

void sim_stream_context_created(struct sim_context *context)
{
    (void)context; /* default streams are made when they are first used */
}

int sim_stream_id(struct sim_context *context, CUstream stream, int per_thread, uint64_t *id)
{
    struct sim_stream *s = (struct sim_stream *)stream;

    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
        if (!context)
            return -EINVAL;
        per_thread = stream ? stream == CU_STREAM_PER_THREAD : per_thread;
        s = sim_stream_implicit(context, per_thread);
    } else if (!sim_stream_valid(stream)) {
        return -EINVAL;
    }
    *id = s->id;
    return 0;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

CUresult sim_stream_new(CUstream *out, struct sim_context *c, unsigned int flags, int priority, CUgreenCtx green)
{
    struct sim_stream *s;

    if (!out || flags & ~(unsigned int)CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    s = sim_stream_make(sim_context_owner(c), c->device, SIM_STREAM_CREATED);
    s->flags = flags;
    s->non_blocking = flags & CU_STREAM_NON_BLOCKING;
    s->priority = priority > SIM_PRIORITY_LEAST ? SIM_PRIORITY_LEAST : priority;
    if (s->priority < SIM_PRIORITY_GREATEST)
        s->priority = SIM_PRIORITY_GREATEST;
    s->attribute[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority = s->priority;
    s->green = green;
    s->next = sim_streams;
    sim_streams = s;
    *out = (CUstream)s;
    sim_tool_event(SIM_TOOL_RESOURCE, SIM_TOOL_STREAM_CREATED, c, s, NULL);
    return CUDA_SUCCESS;
}
