/* SPDX-License-Identifier: MIT
 * Streams: the default ones (legacy, one per thread), created ones, and the rules by which they
 * wait for one another. Called by programs through the API and by every part that puts work into a
 * stream.  Never runs work itself. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/sim.h"
#include "cuda/graph.h"
#include "cuda/stream.h"

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
static struct sim_stream *sim_stream_special(struct sim_context *c, enum sim_stream_kind kind, int thread, bool make)
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

void sim_stream_charge(struct sim_stream *s, uint64_t device_ns)
{
    if (sim_spec.latency)
        s->point.finish_ns += device_ns;
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

/* Rows that lie back to back are one range; others are touched row by row, so that neighbours in
 * the padding of a pitched layout do not conflict. */
static void sim_side_access(struct sim_stream *s, const struct sim_work *w, const struct sim_side *side, bool write,
                            const char *api)
{
    if (!side->base || side->host)
        return;
    for (size_t z = 0; z < w->depth; z++) {
        const CUdeviceptr slice = side->base + z * side->slice;

        if (w->height == 1 || side->pitch == w->width) {
            sim_access(s, slice, w->width * w->height, write, api);
            continue;
        }
        for (size_t y = 0; y < w->height; y++)
            sim_access(s, slice + y * side->pitch, w->width, write, api);
    }
}

void sim_work_do(struct sim_stream *s, const struct sim_work *work)
{
    const bool copy = work->type == SIM_WORK_COPY;
    const size_t bytes = work->width * work->height * work->depth;

    if (work->type == SIM_WORK_NOTHING)
        return;
    if (copy)
        sim_side_access(s, work, &work->source, false, "copy");
    sim_side_access(s, work, &work->destination, true, copy ? "copy" : "memset");
    sim_work_run(work);
    sim_stream_charge(s, sim_clock_copy_ns(bytes, copy && (work->source.host || work->destination.host)));
}

CUresult sim_stream_submit(CUstream stream, const struct sim_work *work, unsigned flags)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(stream, &s);

    if (r)
        return r;
    if (sim_stream_capturing(s)) {
        if (flags & SIM_SUBMIT_SYNC)
            return sim_capture_refuse(s);
        return sim_capture_work(s, work);
    }
    if (flags & SIM_SUBMIT_SYNC) {
        r = sim_capture_check();
        if (r)
            return r;
    }
    r = sim_work_check(work);
    if (!r)
        r = sim_op_begin(s);
    if (r)
        return r;
    sim_work_do(s, work);
    if (flags & SIM_SUBMIT_SYNC)
        sim_point_wait(&s->point);
    return CUDA_SUCCESS;
}

CUresult sim_stream_check(CUstream stream)
{
    struct sim_stream *s;

    return sim_stream_resolve(stream, &s);
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

void sim_stream_context_created(struct sim_context *context)
{
    (void)context; /* default streams are made when they are first used */
}

/* The context goes: its work finishes, its streams and events die with it. */
void sim_stream_context_destroyed(struct sim_context *c)
{
    struct sim_point all = {0};
    struct sim_stream *s, *next;

    for (s = sim_stream_first(); s; s = s->next)
        if (s->context == c)
            sim_point_join(&all, &s->point);
    sim_point_wait(&all);
    sim_point_drop(&all);
    for (s = sim_stream_first(); s; s = next) {
        next = s->next;
        if (s->context == c) {
            sim_capture_stream_gone(s);
            sim_stream_drop(s);
        }
    }
    sim_context_events_end(c);
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

static CUresult sim_stream_create(CUstream *out, unsigned int flags, int priority)
{
    struct sim_context *c;
    CUresult r = sim_context_current(&c);

    return r ? r : sim_stream_new(out, c, flags, priority, NULL);
}

/* Work that is still queued goes on; only the handle dies.  The legacy stream takes over the duty
 * to be waited for. */
static CUresult sim_stream_destroy(CUstream h)
{
    struct sim_stream *s = (struct sim_stream *)h, *rest;

    if (!h || h == CU_STREAM_LEGACY || h == CU_STREAM_PER_THREAD || !sim_stream_valid(h))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_tool_event(SIM_TOOL_RESOURCE, SIM_TOOL_STREAM_DESTROY_STARTING, s->context, s, NULL);
    if (!sim_stream_valid(h))
        return CUDA_ERROR_INVALID_HANDLE;
    sim_capture_stream_gone(s);
    rest = sim_stream_special(s->context, SIM_STREAM_REST, s->non_blocking, true);
    sim_point_join(&rest->point, &s->point);
    sim_stream_drop(s);
    return CUDA_SUCCESS;
}

SIM_API2(124, 2000, cuStreamCreate, CUstream *, phStream, unsigned int, Flags)
{
    return sim_stream_create(phStream, Flags, 0);
}

SIM_API3(367, 5050, cuStreamCreateWithPriority, CUstream *, phStream, unsigned int, flags, int, priority)
{
    return sim_stream_create(phStream, flags, priority);
}

SIM_API1(326, 4000, cuStreamDestroy_v2, CUstream, hStream)
{
    return sim_stream_destroy(hStream);
}

SIM_API1(127, 2000, cuStreamDestroy, CUstream, hStream)
{
    return sim_stream_destroy(hStream);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */
SIM_API1_PTSZ(125, 439, 2000, cuStreamQuery, CUstream, hStream)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (!r)
        r = sim_capture_refuse(s);
    if (r)
        return r;
    sim_stream_order(s);
    if (!sim_point_finished(&s->point))
        return CUDA_ERROR_NOT_READY;
    sim_point_observe(&s->point);
    return CUDA_SUCCESS;
}

SIM_API1_PTSZ(126, 440, 2000, cuStreamSynchronize, CUstream, hStream)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (!r)
        r = sim_capture_refuse(s);
    if (r)
        return r;
    sim_stream_order(s);
    sim_point_wait(&s->point);
    sim_tool_event(SIM_TOOL_SYNCHRONIZE, SIM_TOOL_STREAM_SYNCHRONIZED, sim_context_peek(), hStream, NULL);
    return CUDA_SUCCESS;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */
SIM_API2_PTSZ(368, 434, 5050, cuStreamGetPriority, CUstream, hStream, int *, priority)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !priority)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *priority = s->priority;
    return CUDA_SUCCESS;
}

SIM_API2_PTSZ(369, 435, 5050, cuStreamGetFlags, CUstream, hStream, unsigned int *, flags)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !flags)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *flags = s->flags;
    return CUDA_SUCCESS;
}

SIM_API2_PTSZ(693, 694, 12000, cuStreamGetId, CUstream, hStream, unsigned long long *, streamId)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !streamId)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *streamId = s->id;
    return CUDA_SUCCESS;
}

SIM_API2_PTSZ(774, 775, 12080, cuStreamGetDevice, CUstream, hStream, CUdevice *, device)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !device)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *device = s->device;
    return CUDA_SUCCESS;
}

SIM_API2_PTSZ(483, 484, 9020, cuStreamGetCtx, CUstream, hStream, CUcontext *, pctx)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !pctx)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *pctx = sim_context_handle(s->context);
    return CUDA_SUCCESS;
}

SIM_API3_PTSZ(759, 760, 12050, cuStreamGetCtx_v2, CUstream, hStream, CUcontext *, pCtx, CUgreenCtx *, pGreenCtx)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !pCtx)
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *pCtx = sim_context_handle(s->context);
    if (pGreenCtx)
        *pGreenCtx = s->green;
    return CUDA_SUCCESS;
}

SIM_API4(758, 12050, cuGreenCtxStreamCreate, CUstream *, phStream, CUgreenCtx, greenCtx, unsigned int, flags, int,
         priority)
{
    struct sim_context *c = sim_context_find((CUcontext)greenCtx);

    /* Green contexts have no legacy stream of their own, so a blocking stream has nothing to block
     * on. */
    if (!c || !c->parent || !(flags & CU_STREAM_NON_BLOCKING))
        return CUDA_ERROR_INVALID_VALUE;
    return sim_stream_new(phStream, c, flags, priority, greenCtx);
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */
static bool sim_attribute_known(CUstreamAttrID attr)
{
    return attr == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW || attr == CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY ||
           attr == CU_LAUNCH_ATTRIBUTE_PRIORITY || attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP ||
           attr == CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

SIM_API2_PTSZ(572, 573, 11000, cuStreamCopyAttributes, CUstream, dst, CUstream, src)
{
    struct sim_stream *to, *from;
    CUresult r = sim_stream_resolve(dst, &to);

    if (!r)
        r = sim_stream_resolve(src, &from);
    if (r)
        return r;
    if (to->context != from->context)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(to->attribute, from->attribute, sizeof to->attribute);
    return CUDA_SUCCESS;
}

SIM_API3_PTSZ(574, 575, 11000, cuStreamGetAttribute, CUstream, hStream, CUstreamAttrID, attr, CUstreamAttrValue *,
              value_out)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !value_out || !sim_attribute_known(attr))
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    *value_out = s->attribute[attr];
    return CUDA_SUCCESS;
}

SIM_API3_PTSZ(576, 577, 11000, cuStreamSetAttribute, CUstream, hStream, CUstreamAttrID, attr, const CUstreamAttrValue *,
              value)
{
    struct sim_stream *s;
    CUresult r = sim_stream_resolve(hStream, &s);

    if (r || !value || !sim_attribute_known(attr))
        return r ? r : CUDA_ERROR_INVALID_VALUE;
    s->attribute[attr] = *value;
    return CUDA_SUCCESS;
}
