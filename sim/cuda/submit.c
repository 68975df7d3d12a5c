/* SPDX-License-Identifier: MIT
 * Work for a stream: done at once, or a node of the graph that the stream captures into. */
#include "cuda/stream.h"

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
