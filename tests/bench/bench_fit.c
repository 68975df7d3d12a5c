/* SPDX-License-Identifier: MIT
 *
 * bench_fit.c: seconds of processor time of `gpuprof fit`: bench_fit [EVENTS [FILE]].  TSV: part, allocator, events, replays, seconds.  The
 * recording has blocks of 512 B to 8 MiB, of which 20 000 are live, and 256 of 2 MiB to 256 MiB; with FILE it is also
 * written there, for `gpuprof fit FILE`. */
#include <analyze/fit.h>
#include <analyze/flow.h>

#include <cache/policy.h>
#include <lib/recmake.h>
#include <lib/recsave.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BENCH_LIVE  20000u
#define BENCH_LARGE 256u

static uint64_t seed = 1;

static uint32_t chance(uint32_t below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % below;
}

static struct gp_recording *bench_recording(size_t events)
{
    struct recmake *make = recmake_new(800ll << 30);
    struct gp_rec_event *live = calloc(BENCH_LIVE, sizeof(*live)), event;
    for (size_t i = 0; i < events; i++) {
        struct gp_rec_event *slot = &live[chance(BENCH_LIVE)];
        bool large = slot - live < BENCH_LARGE;
        event = *slot;
        event.type = GP_EVENT_FREE;
        if (!slot->bytes)
            event = (struct gp_rec_event){.bytes = large ? 2ull << (20 + chance(8)) : 512ull << chance(15),
                                          .type = GP_EVENT_ALLOC,
                                          .kind = GP_KIND_LINEAR};
        /* Two small blocks share a page of the driver. */
        uint64_t room = event.bytes <= 1 << 20 ? 1 << 20 : 256 << 20;
        event.address = (room >> 20 == 1 ? 0x7d0000000000ull : 0x7f0000000000ull) + (uint64_t)(slot - live) * room;
        *slot = slot->bytes ? (struct gp_rec_event){0} : event;
        event.time_ns = 1000000000ull + i * 1000;
        recmake_event(make, &event);
    }
    recmake_at(make, 1000000000ull + events * 1000);
    free(live);
    return recmake_done(make);
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000ull + (uint64_t)time.tv_nsec;
}

static double since(uint64_t begin)
{
    fflush(stdout);
    return (double)(now() - begin) / 1e9;
}

int main(int argc, char **argv)
{
    size_t events = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000000;
    struct gp_recording *recording = bench_recording(events);
    if (argc > 2 && recsave(recording, argv[2]) != 0)
        return 1;
    uint64_t begin = now();
    struct gp_flow *flow = gp_flow_new(recording);
    printf("flow\t-\t%zu\t0\t%.2f\n", events, since(begin));
    begin = now();
    struct gp_fit_trace *trace = flow ? gp_fit_trace_new(flow, 0, false) : NULL;
    if (!trace)
        return 1;
    printf("requests\t-\t%zu\t0\t%.2f\n", events, since(begin));
    for (unsigned i = 0; i == 0 || gp_policy_at(i - 1); i++) {
        const struct gp_fit_setup setup = {.policy = i ? gp_policy_at(i - 1) : NULL, .yields = true};
        struct gp_fit_sizes fit;
        begin = now();
        if (gp_fit_find(trace, &setup, &fit) != 0)
            return 1;
        printf("search\t%s\t%zu\t%u\t%.2f\n", i ? setup.policy->name : "off", events, fit.replays, since(begin));
    }
    gp_fit_trace_free(trace);
    gp_flow_free(flow);
    gp_recording_free(recording);
    return 0;
}
