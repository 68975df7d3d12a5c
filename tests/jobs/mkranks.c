/* SPDX-License-Identifier: MIT
 *
 * mkranks.c: writes recordings of the ranks of a made-up training: mkranks FOLDER WORLD EVENTS [even [LATER]].  Each has
 * about EVENTS events, and begins LATER seconds later.  Unless the job is even, rank 3 grows at a line, rank 5 gathers 2 GiB that the others do not have, and
 * rank 7 has a smaller GPU.  Eight ranks share a host.
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

struct mkranks {
    struct recmake *make;
    uint64_t now_ns, next; /* address */
    uint32_t weights[LAYERS], activations[LAYERS], optimizer, gather, kept;
};

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
}

static void mkranks_train(struct mkranks *job, int rank, uint64_t events, int even)
{
    uint64_t held[LAYERS], steps = events / (4 * LAYERS + 2) + 1;
    for (uint32_t i = 0; i < LAYERS; i++) {
        mkranks_take(job, 96 * MIB + (unsigned)(rank % 4) * 16384u, job->weights[i]);
        mkranks_take(job, 192 * MIB, job->optimizer);
    }
    if (!even && rank == 5)
        mkranks_take(job, 2048 * MIB, job->gather);
    for (uint64_t step = 0; step < steps; step++) {
        recmake_at(job->make, job->now_ns += 100 * US);
        recmake_mark(job->make, "step");
        for (uint32_t i = 0; i < LAYERS; i++) {
            uint64_t scratch = mkranks_take(job, 8 * MIB, job->activations[i]);
            held[i] = mkranks_take(job, 24 * MIB, job->activations[i]);
            mkranks_free(job, scratch, 8 * MIB, job->activations[i]);
        }
        for (uint32_t i = LAYERS; i-- > 0;)
            mkranks_free(job, held[i], 24 * MIB, job->activations[i]);
        if (!even && rank == 3)
            mkranks_take(job, MIB, job->kept);
    }
}

static int mkranks_write(const char *folder, int rank, int world, uint64_t events, int even, uint64_t later)
{
    static char host[32], path[512];
    struct mkranks job = {.make = recmake_new((!even && rank == 7 ? 40 : 80) * GIB), .next = 1ull << 40};
    job.now_ns = 1000000 * US + (uint64_t)rank * US;
    mkranks_sites(&job);
    mkranks_train(&job, rank, events, even);
    struct gp_recording *r = recmake_done(job.make);
    snprintf(host, sizeof(host), "node%d", rank / 8);
    r->host = host;
    r->begin_unix_ns += later * 1000000000ull;
    r->pid = 1000 + (uint32_t)rank;
    r->has_rank = true;
    r->rank = rank;
    r->local_rank = rank % 8;
    r->world_size = world;
    snprintf(r->devices[0].name, sizeof(r->devices[0].name), "Made-up GPU, %d GiB", !even && rank == 7 ? 40 : 80);
    snprintf(r->devices[0].uuid, sizeof(r->devices[0].uuid), "GPU-00000000-0000-0000-0000-%012x", rank);
    snprintf(path, sizeof(path), "%s/run.rank%d.gpuprof", folder, rank);
    int error = recsave(r, path);
    gp_recording_free(r);
    return error ? fprintf(stderr, "mkranks: %s: %s\n", path, strerror(-error)), 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return fprintf(stderr, "usage: mkranks FOLDER WORLD EVENTS [even [LATER]]\n"), 2;
    int world = atoi(argv[2]), rc = 0;
    for (int rank = 0; rank < world && !rc; rank++)
        rc = mkranks_write(argv[1], rank, world, strtoull(argv[3], NULL, 10), argc > 4,
                           argc > 5 ? strtoull(argv[5], NULL, 10) : 0);
    return rc;
}
