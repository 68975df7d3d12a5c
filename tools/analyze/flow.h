/* SPDX-License-Identifier: MIT
 *
 * flow.h: a recording as a stream of changes: a block or a segment (an item) starts or ends, and
 * counts as allocated, reserved, or both.  Every analysis is one or two walks over this stream.
 * Three questions are therefore answered only here: which memory counts as allocated, which item a
 * free ends, and which blocks are inside a segment of a cache.
 *
 * Making a flow takes one pass over the events with a random access per free.  A walk reads the
 * events in order, and one byte for each.
 */
#ifndef GP_ANALYZE_FLOW_H
#define GP_ANALYZE_FLOW_H

#include <analyze/analyze.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GP_FLOW_OPEN     1u
#define GP_FLOW_CLOSE    2u
#define GP_FLOW_SUMMED   4u   /* counts as allocated */
#define GP_FLOW_RESERVED 8u   /* counts as reserved */
#define GP_FLOW_KIND     16u  /* counts as memory of its kind: all except segments of a cache, and mappings */
#define GP_FLOW_CACHED   32u  /* a block inside a segment of a cache */
#define GP_FLOW_OWN      64u  /* an end that has the same bytes, site, kind, device and thread as the start */
#define GP_FLOW_BEFORE   128u /* an end of an item from before the recording that the baseline lacks */

struct gp_flow {
    const struct gp_recording *recording;
    uint8_t *what;          /* GP_FLOW_* of each event; 0: it changes nothing */
    uint8_t *baseline_what; /* GP_FLOW_* of each baseline block */
    uint32_t *baseline_end; /* the event that ends each baseline block; GP_REC_NONE: live at the end */
    size_t before_count;    /* events with GP_FLOW_BEFORE */
    struct gp_flow_ghost {  /* items that end because their address is allocated again (at event `at`); by `at` */
        uint32_t at, item;
    } * ghosts;
    size_t ghost_count;
    bool *has_segments; /* of each device: the recording has segments of a cache */
};

/* NULL: out of memory. */
struct gp_flow *gp_flow_new(const struct gp_recording *recording);
void gp_flow_free(struct gp_flow *flow);

struct gp_flow_change {
    const struct gp_rec_event *item; /* the item that starts or ends, with the bytes, site and thread of its start */
    uint64_t time_ns;
    uint32_t id;    /* of the item, equal at its start and end: index of its event, or of the baseline + event_count */
    uint32_t event; /* index of the event that makes this change; GP_REC_NONE: the item was there at the start */
    uint8_t what;   /* of the item: GP_FLOW_SUMMED .. _CACHED */
    bool add;       /* the item starts; else it ends */
};

struct gp_flow_walk {
    const struct gp_flow *flow;
    unsigned stage;
    size_t at, ghost;
};

static inline struct gp_flow_walk gp_flow_begin(const struct gp_flow *flow)
{
    return (struct gp_flow_walk){.flow = flow};
}
/* The next change, in the order of time; items that were there when the recording started come
 * first.  False: the stream has ended. */
bool gp_flow_next(struct gp_flow_walk *walk, struct gp_flow_change *change);

/* The index of the event that ends an item; GP_REC_NONE: live at the end. */
uint32_t gp_flow_end(const struct gp_flow *flow, uint32_t id);

/* Sums of one device along the walk. */
struct gp_level {
    int64_t allocated, requested, reserved; /* sums of events, without what pools and graphs hold */
    int64_t pool, graph;                    /* blocks of pools, and graphs' memory in use: parts of allocated */
    int64_t held;                           /* by pools and graphs, as events have it */
};

/* What a change adds to the sums, or takes off. Memory that is mapped at several addresses counts
 * once: a mapping has the bytes that its start added, and its end those that it took off, which may
 * differ. They are the requested bytes of these events; where that number is at its limit, none. */
static inline uint64_t gp_flow_bytes(const struct gp_flow_change *change)
{
    const struct gp_rec_event *item = change->item;
    bool mapping = item->type == GP_EVENT_SEGMENT_MAP || item->type == GP_EVENT_SEGMENT_UNMAP;
    if (!mapping || item->kind != GP_KIND_VMM)
        return item->bytes;
    return item->unused == UINT32_MAX ? 0 : gp_rec_requested(item);
}

static inline void gp_level_apply(struct gp_level *level, const struct gp_flow_change *change)
{
    /* Unsigned: the sizes of a damaged file may wrap, which is defined behaviour. */
    uint64_t bytes = change->add ? gp_flow_bytes(change) : -gp_flow_bytes(change);
    if (change->what & GP_FLOW_SUMMED) {
        uint64_t asked = gp_rec_requested(change->item);
        level->allocated = (int64_t)((uint64_t)level->allocated + bytes);
        level->requested = (int64_t)((uint64_t)level->requested + (change->add ? asked : -asked));
        if (change->item->kind == GP_KIND_POOL)
            level->pool = (int64_t)((uint64_t)level->pool + bytes);
        if (change->item->kind == GP_KIND_GRAPH)
            level->graph = (int64_t)((uint64_t)level->graph + bytes);
    }
    if (change->what & GP_FLOW_RESERVED && change->item->kind == GP_KIND_POOL)
        level->held = (int64_t)((uint64_t)level->held + bytes);
    else if (change->what & GP_FLOW_RESERVED)
        level->reserved = (int64_t)((uint64_t)level->reserved + bytes);
}

/* The memory that pools and graphs hold from the driver is polled. In recordings before format 1.6 only samples have it. A
 * caller advances this along with its walk. */
struct gp_flow_polled {
    const struct gp_recording *recording;
    uint32_t device;
    size_t at;     /* next sample */
    int64_t extra; /* reserved bytes in addition to those of events, as of the last sample */
    bool use;      /* the device has pools or graphs */
};
struct gp_flow_polled gp_flow_polled_begin(const struct gp_flow *flow, uint32_t device);
/* Takes the samples up to `time_ns` into account.  level: before the change at that moment. */
void gp_flow_polled_advance(struct gp_flow_polled *polled, uint64_t time_ns, const struct gp_level *level);
int64_t gp_flow_polled_reserved(const struct gp_flow_polled *polled, const struct gp_level *level);
/* What pools and graphs hold, and have not handed out. */
int64_t gp_flow_polled_idle(const struct gp_flow_polled *polled, const struct gp_level *level);

/* What is free of the device at a time at which the process has reserved so much; -1: its size is not known.
 * What contexts and others use is known from samples, and counts. */
int64_t gp_flow_left(const struct gp_flow *flow, uint32_t device, uint64_t time_ns, int64_t reserved);

/* Whether what repeats are steps of the program.  Layers of one forward pass keep their activations, and a program that
 * loads its weights keeps all: neither is a step, and neither leaks.  warm: repeats to leave out.  docs/analyses.md has
 * the rules. */
#define GP_REPEATS_LAYERS 128u /* no pass of a net has more */
struct gp_repeats {
    double kept, freed; /* blocks of one repeat: that outlive the next one, and that do not */
    bool are_steps;     /* told, or none of the following */
    bool is_inside;     /* of one call of a net */
    bool may_load;      /* it keeps most of what it takes */
    bool
        may_be_layers; /* quick, or named so, and each keeps one block of a few; if they are fewer than GP_REPEATS_LAYERS */
};
struct gp_repeats gp_flow_repeats(const struct gp_flow *flow, const struct gp_steps *steps, uint32_t warm);

/* When the program only frees any more, as it does when it ends; the end of the recording if it does not.  young_ns: a
 * block that lived for less is of the last step. */
uint64_t gp_flow_clean_up(const struct gp_recording *recording, uint64_t young_ns);

/* The analyses of analyze.h on an existing flow. */
struct gp_series *gp_flow_allocated(const struct gp_flow *flow, uint32_t device, enum gp_wire_kind kind,
                                    uint32_t points);
struct gp_series *gp_flow_requested(const struct gp_flow *flow, uint32_t device, uint32_t points);
struct gp_series *gp_flow_reserved(const struct gp_flow *flow, uint32_t device, uint32_t points);
/* False: at every change the reserved bytes are the allocated ones. */
bool gp_flow_reserved_apart(const struct gp_flow *flow, uint32_t device);
struct gp_leaks *gp_flow_leaks(const struct gp_flow *flow, const struct gp_steps *steps, uint64_t older_ns);
struct gp_peak *gp_flow_peak(const struct gp_flow *flow, uint32_t device, uint64_t at_ns);
/* The times in which blocks had no memory. NULL: out of memory. */
struct gp_sleeps *gp_flow_sleeps(const struct gp_flow *flow, uint32_t device);
void gp_sleeps_free(struct gp_sleeps *sleeps);
struct gp_churn *gp_flow_churn(const struct gp_flow *flow, const struct gp_steps *steps);
struct gp_fragmentation *gp_flow_fragmentation(const struct gp_flow *flow, uint32_t device, uint32_t points);
struct gp_segments *gp_flow_segments(const struct gp_flow *flow, uint32_t device, uint64_t at_ns);
struct gp_sizes *gp_flow_sizes(const struct gp_flow *flow, uint32_t device);
struct gp_forecast_run *gp_flow_forecast(const struct gp_flow *flow, const struct gp_steps *steps, uint32_t device);
struct gp_bill *gp_flow_bill(const struct gp_flow *flow, uint32_t device);

#endif
