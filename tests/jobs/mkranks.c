/* SPDX-License-Identifier: MIT
 *
 * mkranks.c: writes recordings of the ranks of a made-up training: mkranks FOLDER WORLD EVENTS [JOB [LATER]].  Each has
 * about EVENTS events, and begins LATER seconds later.  Eight ranks share a host.  JOB:
 *   uneven    (default) rank 3 grows at a line, rank 5 gathers 2 GiB that the others do not have, rank 7 has a smaller GPU
 *   even      all ranks are alike
 *   asleep    as uneven, and rank 2 also loses its optimizer's memory for a while
 *   leaks     each rank grows at a line, but rank 3 at another one, and rank 5 does not
 *   unmarked  as leaks, and no marks say where a step begins
 *   launcher  also the recording of a process without a rank that held no memory, run.gpuprof
 */
#include <lib/recmake.h>
#include <lib/recsave.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB    (1ull << 20)
#define GIB    (1ll << 30)
#define LAYERS 24u
#define US     1000ull

enum job { JOB_UNEVEN, JOB_EVEN, JOB_ASLEEP, JOB_LEAKS, JOB_UNMARKED, JOB_LAUNCHER, JOBS };
static const char *const job_names[] = {"uneven", "even", "asleep", "leaks", "unmarked", "launcher"};

struct mkranks {
    enum job job;
    struct recmake *make;
    uint64_t now_ns, next; /* address */
    uint32_t weights[LAYERS], activations[LAYERS], optimizer, gather, kept, cached;
    uint64_t states[LAYERS]; /* addresses of the optimizer's blocks */
    struct gp_rec_sleep sleeps[2 * LAYERS];
    size_t sleep_count;
};

static bool mkranks_is_uneven(enum job job)
{
    return job == JOB_UNEVEN || job == JOB_ASLEEP;
}

static uint64_t mkranks_take(struct mkranks *job, uint64_t bytes, uint32_t site)
{
    uint64_t address = job->next;
    job->next += bytes;
    recmake_at(job->make, job->now_ns += 5 * US);
    recmake_alloc(job->make, 0, GP_KIND_LINEAR, address, bytes, site);
    return address;
}

static void mkranks_free(struct mkranks *job, uint64_t address, uint64_t bytes, uint32_t site)
{
    recmake_event(job->make, &(struct gp_rec_event){.time_ns = job->now_ns += 5 * US,
                                                    .address = address,
                                                    .bytes = bytes,
                                                    .site = site,
                                                    .type = GP_EVENT_FREE,
                                                    .kind = GP_KIND_LINEAR & 15});
}

static uint32_t mkranks_site(struct mkranks *job, const char *function, uint32_t line)
{
    const struct recmake_frame frames[] = {
        {"forward", "/usr/lib/python3/site-packages/torch/nn/modules/linear.py", 125},
        {function, "/job/model.py", line},
        {"train_step", "/job/train.py", 88},
        {"main", "/job/train.py", 140},
        {0}};
    return recmake_site(job->make, GP_KIND_LINEAR, frames);
}

static void mkranks_sites(struct mkranks *job)
{
    for (uint32_t i = 0; i < LAYERS; i++) {
        job->weights[i] = mkranks_site(job, "build_layer", 20 + i);
        job->activations[i] = mkranks_site(job, "layer", 200 + i);
    }
    job->optimizer = mkranks_site(job, "adam_state", 60);
    job->gather = mkranks_site(job, "gather_metrics", 310);
    job->kept = mkranks_site(job, "keep_history", 320);
    job->cached = mkranks_site(job, "cache_outputs", 330);
}

static void mkranks_keep(struct mkranks *job, int rank)
{
    bool leaks = job->job == JOB_LEAKS || job->job == JOB_UNMARKED;
    if (leaks ? rank != 5 : rank == 3 && mkranks_is_uneven(job->job))
        mkranks_take(job, MIB, leaks && rank == 3 ? job->cached : job->kept);
}

static void mkranks_train(struct mkranks *job, int rank, uint64_t events)
{
    uint64_t held[LAYERS], steps = events / (4 * LAYERS + 2) + 1;
    for (uint32_t i = 0; i < LAYERS; i++) {
        mkranks_take(job, 96 * MIB + (unsigned)(rank % 4) * 16384u, job->weights[i]);
        job->states[i] = mkranks_take(job, 192 * MIB, job->optimizer);
    }
    if (mkranks_is_uneven(job->job) && rank == 5)
        mkranks_take(job, 2048 * MIB, job->gather);
    for (uint64_t step = 0; step < steps; step++) {
        recmake_at(job->make, job->now_ns += 100 * US);
        if (job->job != JOB_UNMARKED)
            recmake_mark(job->make, "step");
        for (uint32_t i = 0; i < LAYERS; i++) {
            uint64_t scratch = mkranks_take(job, 8 * MIB, job->activations[i]);
            held[i] = mkranks_take(job, 24 * MIB, job->activations[i]);
            mkranks_free(job, scratch, 8 * MIB, job->activations[i]);
        }
        for (uint32_t i = LAYERS; i-- > 0;)
            mkranks_free(job, held[i], 24 * MIB, job->activations[i]);
        mkranks_keep(job, rank);
    }
}

static void mkranks_note(struct mkranks *job, uint8_t what)
{
    job->sleeps[job->sleep_count++] =
        (struct gp_rec_sleep){.time_ns = job->now_ns, .bytes = 192 * MIB, .site = job->optimizer, .what = what};
}

/* The blocks stay where they are, without memory, and get some again. */
static void mkranks_sleep(struct mkranks *job)
{
    for (uint32_t i = 0; i < LAYERS; i++) {
        mkranks_free(job, job->states[i], 192 * MIB, job->optimizer);
        mkranks_note(job, GP_SLEEP_FALLS);
    }
    for (uint32_t i = 0; i < LAYERS; i++) {
        recmake_at(job->make, job->now_ns += 5 * US);
        recmake_alloc(job->make, 0, GP_KIND_LINEAR, job->states[i], 192 * MIB, job->optimizer);
        mkranks_note(job, GP_SLEEP_WAKES);
    }
}

static int mkranks_write(const char *folder, int rank, int world, uint64_t events, enum job kind, uint64_t later)
{
    static char host[32], path[512];
    unsigned gib = mkranks_is_uneven(kind) && rank == 7 ? 40 : 80;
    struct mkranks job = {.job = kind, .make = recmake_new((int64_t)(gib * GIB)), .next = 1ull << 40};
    job.now_ns = 1000000 * US + (uint64_t)rank * US;
    mkranks_sites(&job);
    mkranks_train(&job, rank, events);
    if (kind == JOB_ASLEEP && rank == 2)
        mkranks_sleep(&job);
    struct gp_recording *r = recmake_done(job.make);
    if (job.sleep_count) {
        r->sleeps = calloc(job.sleep_count, sizeof(*r->sleeps));
        r->sleep_count = r->sleeps ? job.sleep_count : 0;
        for (size_t i = 0; i < r->sleep_count; i++)
            r->sleeps[i] = job.sleeps[i];
    }
    snprintf(host, sizeof(host), "node%d", rank / 8);
    r->host = host;
    r->begin_unix_ns += later * 1000000000ull;
    r->pid = 1000 + (uint32_t)rank;
    r->has_rank = true;
    r->rank = rank;
    r->local_rank = rank % 8;
    r->world_size = world;
    snprintf(r->devices[0].name, sizeof(r->devices[0].name), "Made-up GPU, %u GiB", gib);
    snprintf(r->devices[0].uuid, sizeof(r->devices[0].uuid), "GPU-00000000-0000-0000-0000-%012x", rank);
    snprintf(path, sizeof(path), "%s/run.rank%d.gpuprof", folder, rank);
    int error = recsave(r, path);
    gp_recording_free(r);
    return error ? fprintf(stderr, "mkranks: %s: %s\n", path, strerror(-error)), 1 : 0;
}

static int mkranks_launcher(const char *folder)
{
    char path[512];
    struct recmake *make = recmake_new(80 * GIB);
    recmake_mark(make, "launched");
    struct gp_recording *r = recmake_done(make);
    snprintf(path, sizeof(path), "%s/run.gpuprof", folder);
    int error = recsave(r, path);
    gp_recording_free(r);
    return error ? fprintf(stderr, "mkranks: %s: %s\n", path, strerror(-error)), 1 : 0;
}

int main(int argc, char **argv)
{
    int kind = JOB_UNEVEN, rc = 0;
    while (argc > 4 && kind < JOBS && strcmp(argv[4], job_names[kind]) != 0)
        kind++;
    if (argc < 4 || kind == JOBS)
        return fprintf(stderr,
                       "usage: mkranks FOLDER WORLD EVENTS [uneven|even|asleep|leaks|unmarked|launcher [LATER]]\n"),
               2;
    int world = atoi(argv[2]);
    for (int rank = 0; rank < world && !rc; rank++)
        rc = mkranks_write(argv[1], rank, world, strtoull(argv[3], NULL, 10), (enum job)kind,
                           argc > 5 ? strtoull(argv[5], NULL, 10) : 0);
    return !rc && kind == JOB_LAUNCHER ? mkranks_launcher(argv[1]) : rc;
}
