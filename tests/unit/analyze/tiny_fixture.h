/* SPDX-License-Identifier: MIT
 * tiny_fixture.h: many small recordings whose times, addresses and sizes come from few values, so that equal times, equal
 * sums and blocks that touch occur all the time.  Half of them are random, a quarter
 * repeats a step, and a quarter holds more and more. */
#ifndef GP_TEST_UNIT_TINY_FIXTURE_H
#define GP_TEST_UNIT_TINY_FIXTURE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train_fixture.h"

#define TINY_SLOTS  6u
#define TINY_SHARED 4u /* the first of them lie in two segments */
#define TINY_ROOM   (4ull * MIB)
#define TINY_GPUS   2u
#define TINY_HOST   2u
#define TINY_STEP   8u /* most actions in a step */

struct tiny {
    struct recmake *make;
    uint64_t seed, now, unit;
    uint32_t sites[6], site_count;
    struct gp_rec_event live[3][TINY_SLOTS]; /* type 0: free */
    bool mapped[3][TINY_SLOTS];              /* at two addresses */
    bool segments[2][2], any_segments, losses;
    uint64_t kept; /* addresses of blocks that stay */
};

static unsigned tiny_draw(struct tiny *tiny, unsigned below)
{
    return (unsigned)(random_next(&tiny->seed) >> 20) % below;
}

static void tiny_put(struct tiny *tiny, struct gp_rec_event event)
{
    event.time_ns = tiny->now;
    event.thread = tiny_draw(tiny, 4) ? 0 : tiny_draw(tiny, 3);
    event.stream = (uint16_t)tiny_draw(tiny, 3);
    event.cost = tiny_draw(tiny, 3);
    recmake_event(tiny->make, &event);
}

static uint64_t tiny_address(unsigned slot)
{
    return 0x7f0000000000ull + slot * TINY_ROOM;
}

static uint64_t tiny_bytes(struct tiny *tiny)
{
    static const uint64_t sizes[] = {0,       1,   511,     512, 513,     1024,        1024,    2048,
                                     MIB - 1, MIB, MIB + 1, MIB, 2 * MIB, 2 * MIB + 1, 4 * MIB, 3 * MIB};
    return sizes[tiny_draw(tiny, 16)];
}

/* A segment of a cache, or pages of a growable one: all of it, a half, or a part with a live block in it. */
static void tiny_segment(struct tiny *tiny, unsigned device, unsigned which)
{
    bool pages = which == 1, part = pages && !tiny_draw(tiny, 3);
    bool *there = &tiny->segments[device][which];
    uint8_t type = pages ? (*there ? GP_EVENT_SEGMENT_UNMAP : GP_EVENT_SEGMENT_MAP)
                         : (*there ? GP_EVENT_SEGMENT_FREE : GP_EVENT_SEGMENT_ALLOC);
    tiny_put(tiny, (struct gp_rec_event){.type = type,
                                         .kind = GP_KIND_LINEAR,
                                         .device = (uint8_t)device,
                                         .address = tiny_address(which * 2) + (part && *there ? TINY_ROOM : 0),
                                         .bytes = part ? TINY_ROOM
                                                       : 2 * TINY_ROOM - (tiny_draw(tiny, 5) || pages ? 0 : 512)});
    *there = part && *there ? true : !*there;
}

static void tiny_alloc(struct tiny *tiny, unsigned device, unsigned slot, uint64_t bytes, uint32_t site)
{
    static const uint8_t kinds[] = {GP_KIND_LINEAR,  GP_KIND_LINEAR, GP_KIND_PITCHED,  GP_KIND_ARRAY,
                                    GP_KIND_POOL,    GP_KIND_GRAPH,  GP_KIND_MANAGED,  GP_KIND_MODULE,
                                    GP_KIND_VIRTUAL, GP_KIND_POOL,   GP_KIND_IMPORTED, GP_KIND_LINEAR};
    uint8_t kind = device == TINY_HOST              ? (slot % 2 ? GP_KIND_PINNED : GP_KIND_REGISTERED)
                   : slot < TINY_SHARED             ? GP_KIND_LINEAR
                   : tiny_draw(tiny, 4) || slot % 2 ? kinds[tiny_draw(tiny, 12)]
                                                    : GP_KIND_VMM;
    struct gp_rec_event event = {.type = kind == GP_KIND_VMM ? GP_EVENT_SEGMENT_ALLOC : GP_EVENT_ALLOC,
                                 .kind = kind & 15,
                                 .device = (uint8_t)device,
                                 .address = tiny_address(slot) + (tiny_draw(tiny, 6) ? 0 : 512),
                                 .bytes = bytes,
                                 .unused = (uint32_t)(tiny_draw(tiny, 3) ? 0 : bytes / (1 + tiny_draw(tiny, 3))),
                                 .site = site};
    tiny_put(tiny, event);
    tiny->live[device][slot] = event;
    tiny->mapped[device][slot] = kind == GP_KIND_VMM && tiny_draw(tiny, 2);
    if (tiny->mapped[device][slot]) {
        for (unsigned i = 0; i < 2; i++)
            tiny_put(tiny, (struct gp_rec_event){.type = GP_EVENT_SEGMENT_MAP,
                                                 .kind = GP_KIND_VMM,
                                                 .device = (uint8_t)device,
                                                 .address = 0x500000000000ull + slot * TINY_ROOM + i * 64 * MIB,
                                                 .bytes = bytes,
                                                 .unused = (uint32_t)(i ? bytes : 0),
                                                 .site = site});
    }
}

static void tiny_free(struct tiny *tiny, unsigned device, unsigned slot)
{
    struct gp_rec_event event = tiny->live[device][slot];
    event.type = event.type == GP_EVENT_SEGMENT_ALLOC ? GP_EVENT_SEGMENT_FREE : GP_EVENT_FREE;
    if (tiny->losses && !tiny_draw(tiny, 6)) /* a damaged file */
        event.site = 0, event.bytes += 512;
    for (unsigned i = 0; i < 2 && tiny->mapped[device][slot] && (!tiny->losses || tiny_draw(tiny, 8)); i++)
        tiny_put(tiny, (struct gp_rec_event){.type = GP_EVENT_SEGMENT_UNMAP,
                                             .kind = GP_KIND_VMM,
                                             .device = (uint8_t)device,
                                             .address = 0x500000000000ull + slot * TINY_ROOM + i * 64 * MIB,
                                             .bytes = tiny->live[device][slot].bytes,
                                             .unused = (uint32_t)(i ? 0 : tiny->live[device][slot].bytes),
                                             .site = tiny->live[device][slot].site});
    tiny_put(tiny, event);
    tiny->live[device][slot].type = 0;
}

static void tiny_sample(struct tiny *tiny)
{
    uint32_t devices = tiny_draw(tiny, 3) ? TINY_GPUS : 1;
    for (uint32_t device = 0; device < devices; device++)
        recmake_sample(tiny->make, &(struct gp_rec_sample){
                                       .time_ns = tiny->now,
                                       .device = device,
                                       .allocated_bytes = MIB,
                                       .reserved_bytes = (int64_t)(tiny_draw(tiny, 6)) * 4 * MIB - 1,
                                       .active_bytes = -1,
                                       .inactive_split_bytes = -1,
                                       .used_bytes = tiny_draw(tiny, 3) ? (int64_t)tiny_draw(tiny, 5) * 16 * MIB : -1,
                                       .process_bytes = (int64_t)(tiny_draw(tiny, 4)) * 16 * MIB - 1});
}

static void tiny_mark(struct tiny *tiny, const char *name)
{
    tiny_put(tiny, (struct gp_rec_event){
                       .type = GP_EVENT_MARK, .bytes = recmake_string(tiny->make, name), .device = GP_REC_NO_DEVICE});
}

/* An action on a slot: it starts if it is free, else it ends, mostly. */
static void tiny_act(struct tiny *tiny, unsigned device, unsigned slot, uint64_t bytes, uint32_t site)
{
    if (device < TINY_GPUS && tiny->any_segments && slot < TINY_SHARED && !tiny_draw(tiny, 3))
        tiny_segment(tiny, device, slot / 2);
    if (tiny->live[device][slot].type && (!tiny->losses || tiny_draw(tiny, 5)))
        tiny_free(tiny, device, slot);
    else
        tiny_alloc(tiny, device, slot, bytes, site);
}

static void tiny_random(struct tiny *tiny, unsigned events)
{
    static const char *const names[] = {
        "a",      "b 1",  "b 2",    "nvtx:a",  "nvtx:b", "/nvtx:a",    "/nvtx:b", "nvtx.point", "12",
        "nvtx:b", "step", "/nvtx:", "batch 3", "/x",     "norm_batch", "a",       "nvtx:a",     "b 3"};
    for (unsigned i = 0; i < events; i++) {
        tiny->now += tiny_draw(tiny, 3) * tiny->unit;
        switch (tiny_draw(tiny, 12)) {
        case 0:
            tiny_mark(tiny, names[tiny_draw(tiny, sizeof(names) / sizeof(names[0]))]);
            break;
        case 1:
            tiny_sample(tiny);
            break;
        case 2:
            tiny_put(tiny, (struct gp_rec_event){
                               .type = GP_EVENT_OOM, .bytes = GIB, .device = (uint8_t)tiny_draw(tiny, TINY_GPUS)});
            break;
        case 3: /* the end of something from before */
            tiny_put(tiny, (struct gp_rec_event){.type = tiny_draw(tiny, 3) ? GP_EVENT_FREE : GP_EVENT_SEGMENT_FREE,
                                                 .kind = GP_KIND_LINEAR,
                                                 .device = (uint8_t)tiny_draw(tiny, TINY_GPUS),
                                                 .address = 0x300000000000ull + i * TINY_ROOM,
                                                 .bytes = 1024,
                                                 .site = tiny->sites[0]});
            break;
        default:
            tiny_act(tiny, tiny_draw(tiny, 3), tiny_draw(tiny, TINY_SLOTS), tiny_bytes(tiny),
                     tiny->sites[tiny_draw(tiny, tiny->site_count)]);
        }
    }
}

/* Repeats a step of some blocks that come and go, and of some that stay. */
static void tiny_steps(struct tiny *tiny, unsigned steps)
{
    struct {
        unsigned slot, site, device;
        uint64_t bytes;
        bool stays;
    } actions[TINY_STEP];
    unsigned count = 2 + tiny_draw(tiny, TINY_STEP - 1), mark = tiny_draw(tiny, 4), skips = tiny_draw(tiny, 3);
    for (unsigned i = 0; i < count; i++) {
        actions[i].slot = tiny_draw(tiny, TINY_SLOTS);
        actions[i].site = tiny->sites[tiny_draw(tiny, tiny->site_count)];
        actions[i].device = tiny_draw(tiny, 4) ? 0 : tiny_draw(tiny, 3);
        actions[i].bytes = tiny_bytes(tiny);
        actions[i].stays = !tiny_draw(tiny, 4);
    }
    for (unsigned step = 0; step < steps; step++) {
        char name[64];
        snprintf(name, sizeof(name), mark == 1 ? "step %u" : "nvtx:iter %u", step);
        if (mark == 1 || mark == 2)
            tiny_mark(tiny, name);
        for (unsigned i = 0; i < 2 * count; i++) {
            unsigned at = i % count;
            tiny->now += (1 + tiny_draw(tiny, 2)) * tiny->unit;
            if (skips && !tiny_draw(tiny, 9))
                continue;
            if (!actions[at].stays)
                tiny_act(tiny, actions[at].device, actions[at].slot, actions[at].bytes, actions[at].site);
            else if (i < count)
                tiny_put(tiny, (struct gp_rec_event){.type = GP_EVENT_ALLOC,
                                                     .kind = GP_KIND_LINEAR,
                                                     .device = (uint8_t)actions[at].device,
                                                     .address = tiny->kept += TINY_ROOM,
                                                     .bytes = actions[at].bytes + (step % 4 == 3 ? 512 : 0),
                                                     .site = actions[at].site});
        }
        if (mark == 2)
            tiny_mark(tiny, "/nvtx:iter 0");
        if (!tiny_draw(tiny, 3))
            tiny_sample(tiny);
    }
}

/* Sites that hold more with nearly every step, and give some of it back. */
static void tiny_growth(struct tiny *tiny, unsigned steps)
{
    static const uint64_t sizes[] = {512, 512, 513, 1024, MIB, 3 * MIB};
    unsigned often = 5 + tiny_draw(tiny, 5), back = tiny_draw(tiny, 4), replaces = !tiny_draw(tiny, 4);
    struct gp_rec_event kept[3][64];
    unsigned count[3] = {0}, kinds = 1 + tiny_draw(tiny, 3);
    for (unsigned step = 0; step < steps; step++) {
        tiny->now += (1 + !tiny_draw(tiny, 4)) * tiny->unit;
        tiny_mark(tiny, "step");
        for (unsigned i = 0; i < kinds; i++) {
            tiny->now += tiny_draw(tiny, 2) * tiny->unit;
            bool gives = count[i] && (replaces || tiny_draw(tiny, 9) < back);
            if (tiny_draw(tiny, 10) < often) {
                struct gp_rec_event event = {.type = GP_EVENT_ALLOC,
                                             .kind = i == 2 ? GP_KIND_PITCHED : GP_KIND_LINEAR,
                                             .device = (uint8_t)(i == 1),
                                             .address = tiny->kept += TINY_ROOM,
                                             .bytes = replaces ? (step + 1) * 512 : sizes[tiny_draw(tiny, 6)],
                                             .site = tiny->sites[i % tiny->site_count]};
                tiny_put(tiny, event);
                kept[i][count[i]++] = event;
            }
            if (gives) {
                struct gp_rec_event event = kept[i][0];
                event.type = GP_EVENT_FREE;
                tiny_put(tiny, event);
                memmove(&kept[i][0], &kept[i][1], --count[i] * sizeof(event));
            }
        }
        tiny_act(tiny, 0, TINY_SHARED + step % 2, 2048, tiny->sites[0]);
        if (!tiny_draw(tiny, 4))
            tiny_sample(tiny);
    }
    tiny->now += tiny->unit;
    if (tiny_draw(tiny, 2))
        tiny_mark(tiny, "step");
}

/* What came first is the baseline, or was there and is only seen when it ends. */
static void tiny_late(struct tiny *tiny, struct gp_recording *recording, size_t count)
{
    recording->baseline = calloc(count + 1, sizeof(*recording->baseline));
    cr_assert(recording->baseline);
    for (size_t i = 0; i < count; i++) {
        const struct gp_rec_event *event = &recording->events[i];
        bool live = recording->peer[i] == GP_REC_NONE || recording->peer[i] >= count;
        bool starts = event->type == GP_EVENT_ALLOC || event->type == GP_EVENT_SEGMENT_ALLOC ||
                      (event->type == GP_EVENT_SEGMENT_MAP && event->kind == GP_KIND_LINEAR);
        if (starts && live && tiny_draw(tiny, 5))
            recording->baseline[recording->baseline_count++] = *event;
    }
    recording->event_count -= count;
    memmove(recording->events, recording->events + count, recording->event_count * sizeof(recording->events[0]));
    recording->from_start = false;
    free(recording->peer);
    recording->peer = calloc(recording->event_count + recording->baseline_count + 1, sizeof(uint32_t));
    cr_assert_eq(gp_recording_match(recording), 0);
}

static void tiny_befores(struct tiny *tiny, struct gp_recording *recording)
{
    recording->attached = (enum gp_rec_attached)tiny_draw(tiny, 3);
    if (!tiny_draw(tiny, 2))
        return;
    recording->befores = calloc(4, sizeof(*recording->befores));
    cr_assert(recording->befores);
    for (unsigned i = 0; i < 4; i++)
        recording->befores[recording->before_count++] = (struct gp_rec_before){
            .time_ns = recording->begin_ns + i / 2 * 5 * tiny->unit,
            .device = i % 2,
            .is = {.bytes = (int64_t)tiny_draw(tiny, 3) * 8 * MIB - 1, .source = tiny_draw(tiny, 3)}};
}

/* What no program makes: numbers just beyond their tables, types that are none, ends of the address space. */
static void tiny_damage(struct tiny *tiny, struct gp_recording *recording)
{
    for (size_t i = 0; i < recording->event_count; i++) {
        struct gp_rec_event *event = &recording->events[i];
        if (event->type == GP_EVENT_MARK)
            event->bytes += tiny_draw(tiny, 9) ? 0 : recording->string_bytes;
        if (event->type == GP_EVENT_MARK || tiny_draw(tiny, 5))
            continue;
        switch (tiny_draw(tiny, 9)) {
        case 0:
            event->site = recording->site_count - tiny_draw(tiny, 2);
            break;
        case 1:
            event->device = (uint8_t)(recording->device_count - tiny_draw(tiny, 2));
            break;
        case 2:
            event->kind = (GP_KINDS - tiny_draw(tiny, 2)) & 15;
            break;
        case 3:
            event->type = tiny_draw(tiny, GP_EVENT_TYPES) & 15;
            event->bytes = event->type == GP_EVENT_MARK ? 0 : event->bytes;
            break;
        case 4:
            event->address = UINT64_MAX - tiny_draw(tiny, 4) * 512;
            break;
        case 5:
            event->bytes = 1ull << (31 + tiny_draw(tiny, 3));
            break;
        case 6:
            event->unused = UINT32_MAX;
            break;
        default:
            event->address = tiny_address(tiny_draw(tiny, TINY_SLOTS)) + tiny_draw(tiny, 3) * 512;
        }
    }
    memset(recording->peer, 0, (recording->event_count + 1) * sizeof(*recording->peer));
    cr_assert_eq(gp_recording_match(recording), 0);
}

#define TINY_DAMAGED 10000u /* from this number on */

/* The recording of this number: always the same. */
static struct gp_recording *tiny_make(unsigned number)
{
    static const uint64_t units[] = {1, 1000, 1000000000};
    static const int64_t totals[] = {64 * MIB, GIB, -1};
    static const char *const allocators[] = {"off", "caching", "pytorch", "", "auto_growth"};
    struct tiny tiny = {.seed = number * 2654435761ull + 88172645463325252ull, .kept = 0x600000000000ull};
    for (unsigned i = 0; i < 5; i++)
        random_next(&tiny.seed);
    tiny.unit = units[tiny_draw(&tiny, 3)];
    tiny.now = tiny_draw(&tiny, 8) ? 1000 * MS : 1;
    tiny.any_segments = tiny_draw(&tiny, 2);
    tiny.losses = !tiny_draw(&tiny, 3);
    tiny.make = recmake_new(totals[tiny_draw(&tiny, 3)]);
    recmake_device(tiny.make, 1, totals[tiny_draw(&tiny, 3)]);
    recmake_device(tiny.make, GP_WIRE_HOST, -1);
    for (tiny.site_count = 0; tiny.site_count < 2 + tiny_draw(&tiny, 5); tiny.site_count++)
        tiny.sites[tiny.site_count] =
            tiny.site_count == 1
                ? recmake_native_site(tiny.make, GP_KIND_LINEAR,
                                      (const char *const[]){"/lib/libcudnn.so.9", "/lib/libtorch_cuda.so", NULL})
            : tiny.site_count == 2 ? 0
                                   : site(tiny.make, tiny.site_count % 2 ? "forward" : "backward", tiny.site_count);
    uint64_t begin = tiny.now;
    if (number % 2)
        tiny_random(&tiny, 4 + tiny_draw(&tiny, 40));
    else if (number % 4)
        tiny_growth(&tiny, 3 + tiny_draw(&tiny, 27));
    else
        tiny_steps(&tiny, 1 + tiny_draw(&tiny, 13));
    if (tiny_draw(&tiny, 2))
        tiny_sample(&tiny);
    recmake_at(tiny.make, tiny.now);
    struct gp_recording *recording = recmake_done(tiny.make);
    recording->begin_ns = begin - (tiny_draw(&tiny, 3) ? 0 : 1);
    recording->end_ns = tiny.now + (tiny_draw(&tiny, 3) ? 0 : tiny_draw(&tiny, 3) * tiny.unit);
    recording->allocator = allocators[tiny_draw(&tiny, 5)];
    free(recording->streams);
    recording->streams = calloc(3, sizeof(*recording->streams));
    cr_assert(recording->streams);
    recording->stream_count = 3;
    recording->streams[1] = 1 + tiny_draw(&tiny, 2);
    recording->streams[2] = tiny_draw(&tiny, 2) ? UINT64_MAX : 77;
    recording->from_start = tiny_draw(&tiny, 2);
    if (number >= TINY_DAMAGED)
        tiny_damage(&tiny, recording);
    if (!tiny_draw(&tiny, 3))
        tiny_late(&tiny, recording, tiny_draw(&tiny, (unsigned)recording->event_count));
    tiny_befores(&tiny, recording);
    return recording;
}

#endif
