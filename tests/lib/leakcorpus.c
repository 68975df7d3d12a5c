/* SPDX-License-Identifier: MIT
 * leakcorpus.c: see leakcorpus.h.  Its parts: a program, steps and requests, one pass of a net, other programs, the table. */
#include <lib/leakcorpus.h>
#include <lib/random.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define US  1000ull
#define MS  1000000ull
#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)

/* ---- a program --------------------------------------------------------------------------------------------------- */

enum shows {            /* how its steps show in the recording */
             FLAT,      /* only in what it allocates, at call sites in C */
             MARKED,    /* marks "step N" */
             RANGED,    /* NVTX ranges "iteration" */
             WORDLESS,  /* NVTX ranges whose name tells nothing of steps */
             OPTIMIZED, /* calls of an optimizer's step on stacks of Python */
             CALLED,    /* calls of a net on stacks of Python */
             SHOWS
};
static const char *const shows_names[SHOWS] = {"flat", "marked", "ranged", "wordless", "optimizer", "net"};

enum keeps { /* what it keeps */
             NOTHING,
             BLOCK,    /* a block in each step */
             BRANCH,   /* a block in two of three steps */
             LATE,     /* from the middle on */
             NTH,      /* in each fourth step */
             SMALL,    /* a few KiB beside everything else */
             TWO,      /* at two call sites */
             REPLACED, /* one block, replaced by a larger one */
             FOUNDING, /* 96 to 124 MiB beside 300 call sites that free all */
             ALMOST,   /* more than everything else takes */
             MANY,     /* an entry of a list for each of several rows of a batch */
             KEEPS
};
static const char *const keeps_names[KEEPS] = {"nothing", "block",    "branch",   "late",   "nth", "small",
                                               "two",     "replaced", "founding", "almost", "many"};

enum ends { STAYS, FREES, KILLED, FAILED, ENDS }; /* with its memory; frees it; within a step; out of memory */
static const char *const ends_names[ENDS] = {"exits", "frees", "killed", "fails"};

enum {                   /* what it does besides */
       LOADS = 1,        /* weights at the start */
       TUNES = 2,        /* tries workspaces in the first step */
       STATES = 4,       /* keeps the state of an optimizer in the first step */
       CACHES = 8,       /* fills a cache in the first third of the steps */
       EVALUATES = 16,   /* after every fifth step */
       ACCUMULATES = 32, /* gradients over four steps */
       VARIES = 64,      /* sizes of blocks change from step to step */
       SLEEPS = 128,     /* between its steps, sometimes for long */
       RINGS = 256,      /* keeps what the last few steps made */
       EPOCHS = 512,     /* keeps what its steps make until an epoch ends */
       COLLECTS = 1024,  /* frees what it dropped only when garbage is collected */
       FETCHES = 2048,   /* a thread that prepares the next batches */
       DOUBLES = 4096    /* two buffers that take turns */
};

struct corpus {
    struct recmake *make;
    struct leak_truth *truth;
    uint64_t seed, now_ns, address, held, total;
    uint32_t thread; /* that works now */
    enum shows shows;
    enum keeps keeps;
    enum ends ends;
    unsigned does;
    unsigned sites, steps, repeats; /* repeats: how often a call site allocates in a step */
    uint64_t unit, pace_ns;         /* size of a usual block; time of a usual call */
    uint32_t ops[512], leaky[2], loads, caches, kept_by_epoch, garbage, batch, optimizer, gradients, tunes, ring,
        doubles;
    struct {
        uint64_t address, bytes;
    } * live; /* of the whole program */
    size_t live_count, live_room;
    uint64_t replaced, replaced_bytes, queue[8], double_buffer;
    uint64_t pending[4096]; /* what the epoch or the collector frees */
    unsigned pending_count;
};

static uint64_t draw(struct corpus *p, uint64_t from, uint64_t to)
{
    return from + random_next(&p->seed) % (to - from + 1);
}

static bool does(const struct corpus *p, unsigned what)
{
    return p->does & what;
}

static void pass_time(struct corpus *p, uint64_t ns)
{
    recmake_at(p->make, p->now_ns += ns);
}

static uint64_t take(struct corpus *p, uint32_t site, uint64_t bytes)
{
    bytes = (bytes + 511) / 512 * 512;
    pass_time(p, draw(p, p->pace_ns / 2, p->pace_ns * 3 / 2) + 1);
    struct gp_rec_event event = {.time_ns = p->now_ns,
                                 .type = GP_EVENT_ALLOC,
                                 .kind = GP_KIND_LINEAR,
                                 .thread = p->thread & 1,
                                 .address = p->address += 64 * GIB,
                                 .bytes = bytes,
                                 .site = site};
    recmake_event(p->make, &event);
    if (p->live_count == p->live_room)
        p->live = realloc(p->live, (p->live_room = p->live_room * 2 + 64) * sizeof(*p->live));
    if (!p->live)
        abort();
    p->live[p->live_count].address = p->address;
    p->live[p->live_count++].bytes = bytes;
    p->held += bytes;
    return p->address;
}

static void drop(struct corpus *p, uint64_t address)
{
    for (size_t i = p->live_count; address && i-- > 0;) {
        if (p->live[i].address != address)
            continue;
        pass_time(p, p->pace_ns / 8 + 1);
        recmake_free(p->make, 0, GP_KIND_LINEAR, address);
        p->held -= p->live[i].bytes;
        memmove(&p->live[i], &p->live[i + 1], (--p->live_count - i) * sizeof(*p->live));
        return;
    }
}

/* ---- call sites -------------------------------------------------------------------------------------------------- */

#define NET    "/usr/lib/python3/dist-packages/torch/nn/modules/module.py"
#define ADAM   "/usr/lib/python3/dist-packages/torch/optim/adam.py"
#define TENSOR "/usr/lib/python3/dist-packages/torch/_tensor.py"

/* Where main() works itself, outside of any net. */
static uint32_t main_site(struct corpus *p, const char *function, uint32_t line)
{
    bool python = p->shows >= OPTIMIZED;
    struct recmake_frame frames[] = {{function, python ? "work.py" : "work.c", line},
                                     {python ? "<module>" : "main", python ? "main.py" : "main.c", 7},
                                     {NULL, NULL, 0}};
    return recmake_site(p->make, GP_KIND_LINEAR, frames);
}

static uint32_t net_site(struct corpus *p, const char *function, uint32_t line)
{
    struct recmake_frame frames[] = {{function, "net.py", line},
                                     {"Module._call_impl", NET, 1750},
                                     {"Net.forward", "net.py", 40},
                                     {"Module._call_impl", NET, 1750},
                                     {"run_batch", "work.py", 12},
                                     {"<module>", "main.py", 7},
                                     {NULL, NULL, 0}};
    return p->shows >= OPTIMIZED ? recmake_site(p->make, GP_KIND_LINEAR, frames) : main_site(p, function, line);
}

static uint32_t optimizer_site(struct corpus *p)
{
    struct recmake_frame frames[] = {
        {"Adam.step", ADAM, 210}, {"train", "work.py", 30}, {"<module>", "main.py", 7}, {NULL, NULL, 0}};
    return p->shows == OPTIMIZED ? recmake_site(p->make, GP_KIND_LINEAR, frames) : main_site(p, "update", 30);
}

static uint32_t backward_site(struct corpus *p)
{
    struct recmake_frame frames[] = {
        {"Tensor.backward", TENSOR, 500}, {"train", "work.py", 29}, {"<module>", "main.py", 7}, {NULL, NULL, 0}};
    return p->shows == OPTIMIZED ? recmake_site(p->make, GP_KIND_LINEAR, frames) : main_site(p, "gradients", 29);
}

static void corpus_sites(struct corpus *p)
{
    for (unsigned i = 0; i < p->sites; i++)
        p->ops[i] = net_site(p, "operation", 100 + i);
    p->leaky[0] = main_site(p, "remember", 500);
    p->leaky[1] = main_site(p, "log_outputs", 600);
    p->loads = main_site(p, "load_weights", 20);
    p->caches = main_site(p, "cache_of_tables", 21);
    p->kept_by_epoch = main_site(p, "outputs_of_epoch", 22);
    p->garbage = main_site(p, "cycle", 23);
    p->batch = main_site(p, "next_batch", 24);
    p->ring = main_site(p, "history_of_four", 25);
    p->tunes = main_site(p, "try_algorithm", 26);
    p->doubles = main_site(p, "swap_buffers", 27);
    p->optimizer = optimizer_site(p);
    p->gradients = backward_site(p);
}

/* ---- steps and requests ------------------------------------------------------------------------------------------ */

static uint64_t size_of(struct corpus *p, unsigned op)
{
    uint64_t usual = p->unit * (1 + op % 7) / 2;
    return does(p, VARIES) ? draw(p, usual / 2 + 512, usual * 2 + 512) : usual + 512;
}

static void leak_block(struct corpus *p, unsigned which, uint64_t bytes)
{
    take(p, p->leaky[which], bytes);
    p->truth->sites[which] = p->leaky[which];
    p->truth->bytes_per_step += (double)bytes / p->steps;
}

static void leak_replaced(struct corpus *p, uint64_t by)
{
    uint64_t bytes = p->replaced_bytes ? p->replaced_bytes + by : 8 * by;
    uint64_t next = take(p, p->leaky[0], bytes);
    drop(p, p->replaced);
    p->replaced = next;
    p->truth->sites[0] = p->leaky[0];
    p->truth->bytes_per_step += p->replaced_bytes ? (double)by / p->steps : 0;
    p->replaced_bytes = bytes;
}

static void leak(struct corpus *p, unsigned step)
{
    uint64_t usual = p->unit * 4;
    switch (p->keeps) {
    case NTH:
        if (step % 4 != 3)
            return;
        break;
    case LATE:
        if (step < p->steps / 2)
            return;
        break;
    case BRANCH:
        if (draw(p, 0, 2) == 0)
            return;
        break;
    default:
        break;
    }
    if (p->keeps == REPLACED)
        leak_replaced(p, usual);
    else if (p->keeps == SMALL)
        leak_block(p, 0, draw(p, 1, 8) * KIB);
    else if (p->keeps == FOUNDING)
        leak_block(p, 0, draw(p, 96, 124) * MIB);
    else if (p->keeps == ALMOST)
        leak_block(p, 0, p->unit * p->sites * 16);
    else if (p->keeps == MANY)
        for (unsigned i = 0; i < 6; i++)
            leak_block(p, 0, draw(p, usual / 2, usual * 3 / 2));
    else if (p->keeps != NOTHING)
        leak_block(p, 0, does(p, VARIES) ? draw(p, usual / 2, usual * 3 / 2) : usual);
    if (p->keeps == TWO)
        leak_block(p, 1, usual / 3);
}

/* What stays for some steps, and is no leak. */
static void hold_for_a_while(struct corpus *p, unsigned step)
{
    if (does(p, CACHES) && step * 3 < p->steps)
        take(p, p->caches, p->unit * 3);
    if (does(p, RINGS)) {
        drop(p, p->queue[step % 4]);
        p->queue[step % 4] = take(p, p->ring, size_of(p, 3));
    }
    if (does(p, DOUBLES)) {
        uint64_t next = take(p, p->doubles, size_of(p, 5));
        drop(p, p->double_buffer);
        p->double_buffer = next;
    }
    unsigned every = does(p, EPOCHS) ? p->steps / 4 : does(p, COLLECTS) ? 3 : 0;
    if (!every)
        return;
    if (p->pending_count < 4096)
        p->pending[p->pending_count++] = take(p, does(p, EPOCHS) ? p->kept_by_epoch : p->garbage, p->unit * 2);
    if (step % every != every - 1)
        return;
    for (unsigned i = 0; i < p->pending_count; i++)
        drop(p, p->pending[i]);
    p->pending_count = 0;
}

static void mark_step(struct corpus *p, unsigned step)
{
    char name[32];
    const char *word = p->shows == MARKED ? "step" : p->shows == RANGED ? "nvtx:iteration" : "nvtx:process";
    if (p->shows < MARKED || p->shows > WORDLESS)
        return;
    snprintf(name, sizeof(name), "%s %u", word, step);
    recmake_mark(p->make, p->shows == MARKED ? name : word);
}

/* Forward and backward: a part of what each operation makes stays until the backward half. */
static void work_of_step(struct corpus *p, bool trains)
{
    uint64_t kept[1024];
    unsigned count = 0;
    for (unsigned r = 0; r < p->repeats; r++) {
        for (unsigned i = 0; i < p->sites; i++) {
            uint64_t block = take(p, p->ops[i], size_of(p, i));
            if (trains && i % 3 && count < 1024)
                kept[count++] = block;
            else
                drop(p, block);
        }
    }
    while (count > 0) {
        uint64_t gradient = trains && count % 2 ? take(p, p->gradients, p->unit / 2 + 512) : 0;
        drop(p, kept[--count]);
        drop(p, gradient);
    }
}

static void tune(struct corpus *p)
{
    for (unsigned i = 0; i < 12; i++)
        drop(p, take(p, p->tunes, p->unit * draw(p, 1, 60)));
}

static void one_step(struct corpus *p, unsigned step, bool trains)
{
    mark_step(p, step);
    uint64_t batch = take(p, p->batch, size_of(p, 2));
    if (step == 0 && does(p, TUNES))
        tune(p);
    work_of_step(p, trains);
    if (does(p, ACCUMULATES) && step % 4 == 0)
        p->queue[7] = take(p, p->gradients, p->unit * 12);
    if (does(p, ACCUMULATES) && step % 4 == 3)
        drop(p, p->queue[7]);
    for (unsigned i = 0; step == 0 && does(p, STATES) && i < 24; i++)
        take(p, p->optimizer, p->unit * (1 + i % 5));
    if (trains && (p->shows == OPTIMIZED || does(p, STATES)))
        drop(p, take(p, p->optimizer, p->unit));
    leak(p, step);
    hold_for_a_while(p, step);
    drop(p, batch);
    for (unsigned i = 0; does(p, EVALUATES) && step % 5 == 4 && i < 3; i++)
        work_of_step(p, false);
    if (does(p, SLEEPS))
        pass_time(p, draw(p, 1, draw(p, 0, 9) ? 20 : 900) * MS);
}

static void fetch(struct corpus *p, unsigned step)
{
    if (!does(p, FETCHES))
        return;
    struct gp_rec_event event = {.time_ns = ++p->now_ns,
                                 .type = GP_EVENT_ALLOC,
                                 .kind = GP_KIND_LINEAR,
                                 .thread = 1,
                                 .address = (1 + step % 3) * MIB,
                                 .bytes = p->unit,
                                 .site = p->batch};
    if (step >= 3)
        recmake_free(p->make, 0, GP_KIND_LINEAR, event.address);
    recmake_event(p->make, &event);
}

static void end_program(struct corpus *p)
{
    if (p->ends == KILLED || p->ends == FAILED) /* within a step */
        for (unsigned i = 0; i < p->sites / 2; i++)
            take(p, p->ops[i], size_of(p, i));
    if (p->ends == FAILED) {
        struct gp_rec_event oom = {.time_ns = ++p->now_ns,
                                   .type = GP_EVENT_OOM,
                                   .kind = GP_KIND_LINEAR,
                                   .bytes = p->total - p->held + MIB,
                                   .site = p->ops[p->sites / 2]};
        recmake_event(p->make, &oom);
    }
    bool backwards = draw(p, 0, 1);
    while (p->ends == FREES && p->live_count)
        drop(p, p->live[backwards ? p->live_count - 1 : 0].address);
    if (p->ends == FREES)
        pass_time(p, draw(p, 1, 300) * MS);
}

static void run_steps(struct corpus *p, bool trains)
{
    for (unsigned i = 0; does(p, LOADS) && i < 40; i++)
        take(p, p->loads, p->unit * (1 + i % 9));
    for (unsigned step = 0; step < p->steps; step++) {
        fetch(p, step);
        one_step(p, step, trains);
    }
    if (p->ends != KILLED && p->ends != FAILED)
        mark_step(p, p->steps);
    end_program(p);
}

/* Requests differ in length: each makes as many tokens as it is asked for, with a cache of its own that grows. */
static void run_requests(struct corpus *p)
{
    uint32_t cache = net_site(p, "append_to_cache", 90);
    for (unsigned i = 0; i < 40; i++)
        take(p, p->loads, p->unit * (1 + i % 9));
    for (unsigned request = 0; request < p->steps; request++) {
        unsigned tokens = (unsigned)draw(p, 2, 24);
        uint64_t rows = 0, prompt = take(p, p->batch, draw(p, 1, 40) * p->unit);
        mark_step(p, request);
        for (unsigned token = 0; token < tokens; token++) {
            uint64_t longer = take(p, cache, p->unit * (8 + token));
            drop(p, rows);
            rows = longer;
            for (unsigned i = 0; i < p->sites; i++)
                drop(p, take(p, p->ops[i], size_of(p, i)));
        }
        leak(p, request);
        hold_for_a_while(p, request);
        drop(p, rows);
        drop(p, prompt);
        if (does(p, SLEEPS))
            pass_time(p, draw(p, 1, draw(p, 0, 9) ? 20 : 2000) * MS);
    }
    end_program(p);
}

/* ---- one pass of a net ------------------------------------------------------------------------------------------- */

enum { PLAIN = 1, CHECKPOINTED = 2, BACK = 4, LAYER_RANGES = 8, EXPERTS = 16, PYTHON = 32, REPEATED = 64 };

/* Layers that keep what the backward half needs; of a checkpointed one that is its input alone. */
static void run_pass(struct corpus *p, unsigned how)
{
    struct recmake_frame again[] = {{"operation", "net.py", 100},
                                    {"Module._call_impl", NET, 1750},
                                    {"unpack_hook", "/usr/lib/python3/dist-packages/torch/utils/checkpoint.py", 1100},
                                    {NULL, NULL, 0}};
    uint32_t recomputes = p->shows >= OPTIMIZED ? recmake_site(p->make, GP_KIND_LINEAR, again) : p->tunes;
    p->pace_ns = p->pace_ns > MS ? 80 * US : p->pace_ns / 5; /* the CPU only starts the kernels of a layer */
    uint64_t kept[4096];
    unsigned count = 0, layers = (unsigned)draw(p, 12, 64), temporary = how & EXPERTS ? 40 : (unsigned)draw(p, 3, 16);
    for (unsigned i = 0; i < 40; i++)
        take(p, p->loads, p->unit * (1 + i % 9));
    uint64_t batch = take(p, p->batch, p->unit * 8), first = take(p, net_site(p, "embedding", 50), p->unit * 4);
    for (unsigned layer = 0; layer < layers; layer++) {
        if (how & LAYER_RANGES)
            recmake_mark(p->make, "nvtx:layer");
        for (unsigned i = 0; i < temporary; i++)
            drop(p, take(p, p->ops[i % p->sites], size_of(p, i)));
        unsigned keeps = how & CHECKPOINTED ? 1 : (unsigned)2 + temporary / 3;
        for (unsigned i = 0; i < keeps && count < 4096; i++)
            kept[count++] = take(p, p->ops[(i * 3) % p->sites], size_of(p, i));
    }
    uint64_t loss = take(p, p->tunes, p->unit);
    p->thread = p->shows >= OPTIMIZED; /* backward() works on a thread without frames of Python */
    uint32_t gradients = p->thread
                             ? recmake_native_site(p->make, GP_KIND_LINEAR, (const char *[]){"libtorch_cuda.so", NULL})
                             : p->gradients;
    for (unsigned i = 0; how & BACK && count > 0; i++) {
        for (unsigned k = 0; how & CHECKPOINTED && k < temporary; k++)
            drop(p, take(p, recomputes, size_of(p, k)));
        take(p, gradients, p->unit);
        drop(p, kept[--count]);
    }
    p->thread = 0;
    drop(p, loss);
    if (p->ends == FREES)
        drop(p, first);
    drop(p, batch);
    end_program(p);
}

/* ---- other programs ---------------------------------------------------------------------------------------------- */

enum { STAGED = 1, THEN_WORKS = 2, SHARDS = 4 };

static void run_loading(struct corpus *p, unsigned how)
{
    unsigned tensors = (unsigned)draw(p, 40, 300);
    for (unsigned i = 0; i < tensors; i++) {
        uint64_t bytes = how & VARIES ? draw(p, p->unit, p->unit * 20) : p->unit * (1 + i % 5);
        uint64_t staging = how & STAGED ? take(p, p->tunes, bytes) : 0;
        take(p, p->loads, bytes);
        drop(p, staging);
        if (how & SHARDS && i % 20 == 19)
            pass_time(p, draw(p, 100, 2000) * MS);
    }
    p->steps = how & THEN_WORKS ? (unsigned)draw(p, 20, 60) : 0;
    p->does = 0;
    run_steps(p, false);
}

/* Each token makes the cache of its generation longer; `times` generations. */
static void run_generate(struct corpus *p, unsigned times)
{
    struct recmake_frame inside[] = {
        {"DynamicCache.update", "/usr/lib/python3/dist-packages/transformers/cache_utils.py", 120},
        {"Attention.forward", "/usr/lib/python3/dist-packages/transformers/models/gpt2/modeling_gpt2.py", 300},
        {"Module._call_impl", NET, 1750},
        {"GenerationMixin._sample", "/usr/lib/python3/dist-packages/transformers/generation/utils.py", 2800},
        {"GenerationMixin.generate", "/usr/lib/python3/dist-packages/transformers/generation/utils.py", 2500},
        {"<module>", "main.py", 7},
        {NULL, NULL, 0}};
    uint32_t cache = recmake_site(p->make, GP_KIND_LINEAR, inside), ops[32], picks;
    for (unsigned i = 0; i < 32; i++) {
        inside[0] = (struct recmake_frame){"MLP.forward", inside[1].file, 10 + i};
        ops[i] = recmake_site(p->make, GP_KIND_LINEAR, inside);
    }
    picks = recmake_site(p->make, GP_KIND_LINEAR, &inside[3]);
    for (unsigned i = 0; i < 40; i++)
        take(p, p->loads, p->unit * (1 + i % 9));
    for (unsigned time = 0; time < times; time++) {
        unsigned tokens = (unsigned)draw(p, 16, 80);
        uint64_t rows[8] = {0}, prompt = take(p, p->batch, 4 * p->unit);
        for (unsigned token = 0; token < tokens; token++) {
            for (unsigned layer = 0; layer < 8; layer++) {
                for (unsigned i = 0; i < 6; i++)
                    drop(p, take(p, ops[(layer + i) % 32], size_of(p, i)));
                uint64_t longer = take(p, cache, (8 + token) * p->unit / 4);
                drop(p, rows[layer]);
                rows[layer] = longer;
            }
            drop(p, take(p, picks, p->unit));
        }
        for (unsigned layer = 0; layer < 8; layer++)
            drop(p, rows[layer]);
        drop(p, prompt);
    }
    end_program(p);
}

/* Steps over one net, each longer than the one before: batches grow, and each step frees all. */
static void run_growing(struct corpus *p)
{
    uint64_t unit = p->unit;
    for (unsigned step = 0; step < p->steps; step++) {
        p->unit = unit * (step + 1);
        one_step(p, step, true);
    }
    end_program(p);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

enum family { STEPS, INFERS, REQUESTS, PASS, LOADING, GENERATE, GROWING };

struct row {
    enum family family;
    enum shows shows;
    enum keeps keeps;
    enum ends ends;
    unsigned does; /* of a pass, a loading, generations: how, or how often */
};

static const struct row table[] = {
    {STEPS, FLAT, FOUNDING, STAYS, VARIES},
    {STEPS, FLAT, BLOCK, FREES, LOADS | STATES | TUNES},
    {STEPS, MARKED, FOUNDING, STAYS, VARIES},
    {STEPS, MARKED, BLOCK, FREES, LOADS | STATES | TUNES},
    {STEPS, RANGED, FOUNDING, STAYS, VARIES},
    {STEPS, RANGED, BLOCK, FREES, LOADS | STATES | TUNES},
    {STEPS, WORDLESS, FOUNDING, STAYS, VARIES},
    {STEPS, WORDLESS, BLOCK, FREES, LOADS | STATES | TUNES},
    {STEPS, OPTIMIZED, FOUNDING, STAYS, VARIES},
    {STEPS, OPTIMIZED, BLOCK, FREES, LOADS | STATES | TUNES},
    {STEPS, CALLED, FOUNDING, STAYS, VARIES},
    {STEPS, CALLED, BLOCK, FREES, LOADS | STATES | TUNES},
    {STEPS, FLAT, BRANCH, STAYS, LOADS | VARIES | DOUBLES},
    {STEPS, FLAT, SMALL, STAYS, LOADS | STATES | RINGS},
    {STEPS, FLAT, LATE, STAYS, LOADS | CACHES},
    {STEPS, MARKED, BRANCH, STAYS, LOADS | VARIES | DOUBLES},
    {STEPS, MARKED, SMALL, STAYS, LOADS | STATES | RINGS},
    {STEPS, MARKED, LATE, STAYS, LOADS | CACHES},
    {STEPS, OPTIMIZED, BRANCH, STAYS, LOADS | VARIES | DOUBLES},
    {STEPS, OPTIMIZED, SMALL, STAYS, LOADS | STATES | RINGS},
    {STEPS, OPTIMIZED, LATE, STAYS, LOADS | CACHES},
    {STEPS, CALLED, BRANCH, STAYS, LOADS | VARIES | DOUBLES},
    {STEPS, CALLED, SMALL, STAYS, LOADS | STATES | RINGS},
    {STEPS, CALLED, LATE, STAYS, LOADS | CACHES},
    {STEPS, FLAT, FOUNDING, FREES, VARIES | LOADS},
    {STEPS, FLAT, FOUNDING, FAILED, VARIES | LOADS},
    {STEPS, FLAT, FOUNDING, KILLED, VARIES | STATES},
    {STEPS, FLAT, BLOCK, KILLED, LOADS | EVALUATES},
    {STEPS, OPTIMIZED, BLOCK, FAILED, LOADS | STATES | ACCUMULATES},
    {STEPS, MARKED, NTH, STAYS, LOADS | STATES},
    {STEPS, FLAT, NTH, FREES, LOADS | STATES},
    {STEPS, OPTIMIZED, TWO, FREES, LOADS | STATES | VARIES},
    {STEPS, FLAT, TWO, STAYS, LOADS | FETCHES},
    {STEPS, FLAT, REPLACED, STAYS, LOADS},
    {STEPS, MARKED, REPLACED, FREES, LOADS | VARIES},
    {STEPS, FLAT, MANY, STAYS, LOADS | COLLECTS},
    {STEPS, RANGED, BLOCK, STAYS, LOADS | EPOCHS},
    {STEPS, FLAT, BLOCK, STAYS, LOADS | SLEEPS | VARIES},
    {INFERS, FLAT, BLOCK, STAYS, LOADS},
    {INFERS, FLAT, ALMOST, STAYS, 0},
    {REQUESTS, FLAT, BLOCK, STAYS, SLEEPS},
    {REQUESTS, FLAT, REPLACED, FREES, 0},
    {INFERS, MARKED, BLOCK, STAYS, LOADS},
    {INFERS, MARKED, ALMOST, STAYS, 0},
    {REQUESTS, MARKED, BLOCK, STAYS, SLEEPS},
    {REQUESTS, MARKED, REPLACED, FREES, 0},
    {INFERS, CALLED, BLOCK, STAYS, LOADS},
    {INFERS, CALLED, ALMOST, STAYS, 0},
    {REQUESTS, CALLED, BLOCK, STAYS, SLEEPS},
    {REQUESTS, CALLED, REPLACED, FREES, 0},
    {INFERS, FLAT, ALMOST, FREES, LOADS},
    {INFERS, FLAT, BRANCH, KILLED, LOADS | SLEEPS},
    {INFERS, FLAT, REPLACED, FAILED, 0},
    {REQUESTS, FLAT, SMALL, STAYS, SLEEPS | RINGS},
    {REQUESTS, FLAT, MANY, KILLED, CACHES},
    {REQUESTS, FLAT, BRANCH, FREES, SLEEPS},
    {REQUESTS, RANGED, BLOCK, FREES, CACHES | SLEEPS},
    {STEPS, FLAT, NOTHING, STAYS, LOADS},
    {STEPS, FLAT, NOTHING, FREES, LOADS | TUNES | STATES},
    {STEPS, FLAT, NOTHING, KILLED, LOADS | CACHES | VARIES},
    {STEPS, FLAT, NOTHING, FAILED, LOADS | EVALUATES},
    {STEPS, FLAT, NOTHING, STAYS, LOADS | ACCUMULATES | STATES},
    {STEPS, FLAT, NOTHING, FREES, LOADS | RINGS | DOUBLES | VARIES},
    {STEPS, FLAT, NOTHING, KILLED, LOADS | EPOCHS},
    {STEPS, FLAT, NOTHING, FAILED, LOADS | COLLECTS | VARIES},
    {STEPS, MARKED, NOTHING, FREES, LOADS},
    {STEPS, MARKED, NOTHING, KILLED, LOADS | TUNES | STATES},
    {STEPS, MARKED, NOTHING, FAILED, LOADS | CACHES | VARIES},
    {STEPS, MARKED, NOTHING, STAYS, LOADS | EVALUATES},
    {STEPS, MARKED, NOTHING, FREES, LOADS | ACCUMULATES | STATES},
    {STEPS, MARKED, NOTHING, KILLED, LOADS | RINGS | DOUBLES | VARIES},
    {STEPS, MARKED, NOTHING, FAILED, LOADS | EPOCHS},
    {STEPS, MARKED, NOTHING, STAYS, LOADS | COLLECTS | VARIES},
    {STEPS, RANGED, NOTHING, KILLED, LOADS},
    {STEPS, RANGED, NOTHING, FAILED, LOADS | TUNES | STATES},
    {STEPS, RANGED, NOTHING, STAYS, LOADS | CACHES | VARIES},
    {STEPS, RANGED, NOTHING, FREES, LOADS | EVALUATES},
    {STEPS, RANGED, NOTHING, KILLED, LOADS | ACCUMULATES | STATES},
    {STEPS, RANGED, NOTHING, FAILED, LOADS | RINGS | DOUBLES | VARIES},
    {STEPS, RANGED, NOTHING, STAYS, LOADS | EPOCHS},
    {STEPS, RANGED, NOTHING, FREES, LOADS | COLLECTS | VARIES},
    {STEPS, WORDLESS, NOTHING, FAILED, LOADS},
    {STEPS, WORDLESS, NOTHING, FREES, LOADS | CACHES | VARIES},
    {STEPS, WORDLESS, NOTHING, FAILED, LOADS | ACCUMULATES | STATES},
    {STEPS, WORDLESS, NOTHING, FREES, LOADS | EPOCHS},
    {STEPS, OPTIMIZED, NOTHING, STAYS, LOADS},
    {STEPS, OPTIMIZED, NOTHING, FREES, LOADS | TUNES | STATES},
    {STEPS, OPTIMIZED, NOTHING, KILLED, LOADS | CACHES | VARIES},
    {STEPS, OPTIMIZED, NOTHING, FAILED, LOADS | EVALUATES},
    {STEPS, OPTIMIZED, NOTHING, STAYS, LOADS | ACCUMULATES | STATES},
    {STEPS, OPTIMIZED, NOTHING, FREES, LOADS | RINGS | DOUBLES | VARIES},
    {STEPS, OPTIMIZED, NOTHING, KILLED, LOADS | EPOCHS},
    {STEPS, OPTIMIZED, NOTHING, FAILED, LOADS | COLLECTS | VARIES},
    {STEPS, CALLED, NOTHING, FREES, LOADS},
    {STEPS, CALLED, NOTHING, KILLED, LOADS | TUNES | STATES},
    {STEPS, CALLED, NOTHING, FAILED, LOADS | CACHES | VARIES},
    {STEPS, CALLED, NOTHING, STAYS, LOADS | EVALUATES},
    {STEPS, CALLED, NOTHING, FREES, LOADS | ACCUMULATES | STATES},
    {STEPS, CALLED, NOTHING, KILLED, LOADS | RINGS | DOUBLES | VARIES},
    {STEPS, CALLED, NOTHING, FAILED, LOADS | EPOCHS},
    {STEPS, CALLED, NOTHING, STAYS, LOADS | COLLECTS | VARIES},
    {INFERS, FLAT, NOTHING, STAYS, LOADS},
    {INFERS, FLAT, NOTHING, FREES, LOADS | SLEEPS | VARIES},
    {INFERS, FLAT, NOTHING, KILLED, LOADS | CACHES | FETCHES},
    {INFERS, FLAT, NOTHING, FAILED, RINGS | COLLECTS},
    {REQUESTS, FLAT, NOTHING, STAYS, SLEEPS},
    {REQUESTS, FLAT, NOTHING, FREES, CACHES},
    {REQUESTS, FLAT, NOTHING, KILLED, RINGS | VARIES},
    {INFERS, MARKED, NOTHING, FREES, LOADS},
    {INFERS, MARKED, NOTHING, KILLED, LOADS | SLEEPS | VARIES},
    {INFERS, MARKED, NOTHING, FAILED, LOADS | CACHES | FETCHES},
    {INFERS, MARKED, NOTHING, STAYS, RINGS | COLLECTS},
    {REQUESTS, MARKED, NOTHING, FREES, SLEEPS},
    {REQUESTS, MARKED, NOTHING, KILLED, CACHES},
    {REQUESTS, MARKED, NOTHING, STAYS, RINGS | VARIES},
    {INFERS, CALLED, NOTHING, KILLED, LOADS},
    {INFERS, CALLED, NOTHING, FAILED, LOADS | SLEEPS | VARIES},
    {INFERS, CALLED, NOTHING, STAYS, LOADS | CACHES | FETCHES},
    {INFERS, CALLED, NOTHING, FREES, RINGS | COLLECTS},
    {REQUESTS, CALLED, NOTHING, KILLED, SLEEPS},
    {REQUESTS, CALLED, NOTHING, STAYS, CACHES},
    {REQUESTS, CALLED, NOTHING, FREES, RINGS | VARIES},
    {PASS, FLAT, NOTHING, FREES, PLAIN},
    {PASS, CALLED, NOTHING, STAYS, PLAIN},
    {PASS, FLAT, NOTHING, KILLED, PLAIN | BACK},
    {PASS, CALLED, NOTHING, FREES, PLAIN | BACK},
    {PASS, FLAT, NOTHING, FAILED, CHECKPOINTED},
    {PASS, CALLED, NOTHING, KILLED, CHECKPOINTED},
    {PASS, FLAT, NOTHING, STAYS, CHECKPOINTED | BACK},
    {PASS, CALLED, NOTHING, FAILED, CHECKPOINTED | BACK},
    {PASS, FLAT, NOTHING, FREES, PLAIN | LAYER_RANGES},
    {PASS, CALLED, NOTHING, STAYS, PLAIN | LAYER_RANGES},
    {PASS, FLAT, NOTHING, KILLED, CHECKPOINTED | LAYER_RANGES},
    {PASS, CALLED, NOTHING, FREES, CHECKPOINTED | LAYER_RANGES},
    {PASS, FLAT, NOTHING, FAILED, CHECKPOINTED | EXPERTS},
    {PASS, CALLED, NOTHING, KILLED, CHECKPOINTED | EXPERTS},
    {LOADING, FLAT, NOTHING, STAYS, 0},
    {LOADING, CALLED, NOTHING, STAYS, 0},
    {LOADING, FLAT, NOTHING, FREES, STAGED},
    {LOADING, CALLED, NOTHING, FREES, STAGED},
    {LOADING, FLAT, NOTHING, KILLED, STAGED | THEN_WORKS},
    {LOADING, CALLED, NOTHING, KILLED, STAGED | THEN_WORKS},
    {LOADING, FLAT, NOTHING, STAYS, THEN_WORKS},
    {LOADING, CALLED, NOTHING, STAYS, THEN_WORKS},
    {LOADING, FLAT, NOTHING, FREES, SHARDS | STAGED | VARIES},
    {LOADING, CALLED, NOTHING, FREES, SHARDS | STAGED | VARIES},
    {GENERATE, CALLED, NOTHING, FREES, 1},
    {GENERATE, CALLED, NOTHING, KILLED, 2},
    {GENERATE, CALLED, NOTHING, KILLED, 5},
    {GROWING, FLAT, NOTHING, STAYS, LOADS},
    {GROWING, OPTIMIZED, NOTHING, STAYS, LOADS},
    {GROWING, MARKED, NOTHING, STAYS, LOADS},
};

uint32_t leak_corpus_count(void)
{
    return sizeof(table) / sizeof(table[0]);
}

struct leak_program leak_corpus_program(uint32_t i)
{
    static const char *const families[] = {"steps", "infers", "requests", "pass", "loading", "generate", "growing"};
    const struct row *row = &table[i];
    struct leak_program program = {.is_leaking = row->keeps != NOTHING};
    snprintf(program.name, sizeof(program.name), "%u %s/%s/%s/%s/%u", i, families[row->family], shows_names[row->shows],
             keeps_names[row->keeps], ends_names[row->ends], row->does);
    return program;
}

static void corpus_draw(struct corpus *p)
{
    static const uint64_t units[] = {4 * KIB, 64 * KIB, MIB, 4 * MIB}, paces[] = {20 * US, 300 * US, 2 * MS};
    p->sites = p->keeps == FOUNDING ? 300 : p->keeps == ALMOST ? (unsigned)draw(p, 1, 6) : (unsigned)draw(p, 4, 90);
    p->steps = p->keeps == FOUNDING && draw(p, 0, 1) ? 100 : (unsigned)draw(p, 20, 60);
    p->repeats = p->keeps == FOUNDING ? 1 : (unsigned)draw(p, 1, 3);
    p->unit = p->keeps == FOUNDING ? draw(p, 50, 600) * KIB : units[draw(p, 0, 3)];
    p->pace_ns = paces[draw(p, 0, 2)];
}

struct gp_recording *leak_corpus_make(uint32_t i, uint64_t seed, struct leak_truth *truth)
{
    const struct row *row = &table[i];
    struct corpus p = {.truth = truth,
                       .seed = (seed + 1) * 0x9e3779b97f4a7c15ull ^ (i + 1ull) * 0xbf58476d1ce4e5b9ull,
                       .shows = row->shows,
                       .keeps = row->keeps,
                       .ends = row->ends,
                       .does = row->does,
                       .now_ns = 1000 * MS,
                       .address = 0x7f0000000000ull,
                       .total = 80 * GIB};
    p.seed = p.seed ? random_mix(&p.seed) | 1 : 1;
    *truth = (struct leak_truth){0};
    p.make = recmake_new((int64_t)p.total);
    corpus_draw(&p);
    corpus_sites(&p);
    switch (row->family) {
    case STEPS:
        run_steps(&p, true);
        break;
    case INFERS:
        run_steps(&p, false);
        break;
    case REQUESTS:
        run_requests(&p);
        break;
    case PASS:
        run_pass(&p, row->does);
        break;
    case LOADING:
        run_loading(&p, row->does);
        break;
    case GENERATE:
        run_generate(&p, row->does);
        break;
    case GROWING:
        run_growing(&p);
        break;
    }
    free(p.live);
    struct gp_recording *recording = recmake_done(p.make);
    recording->complete = row->ends != KILLED;
    return recording;
}
