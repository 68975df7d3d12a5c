/* SPDX-License-Identifier: MIT
 * leakprograms.c: programs that leak and programs that do not; see leakprograms.h. */
#include <lib/leakprograms.h>
#include <lib/random.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t leak_draw_from(struct corpus *p, uint64_t from, uint64_t to)
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
    pass_time(p, leak_draw_from(p, p->pace_ns / 2, p->pace_ns * 3 / 2) + 1);
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

void leak_make_sites(struct corpus *p)
{
    for (unsigned i = 0; i < p->sites; i++)
        p->ops[i] = net_site(p, "operation", 100 + i);
    p->leaky[0] = p->keeps == HOOKED ? net_site(p, "hook", 500) : main_site(p, "remember", 500);
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
    return does(p, VARIES) ? leak_draw_from(p, usual / 2 + 512, usual * 2 + 512) : usual + 512;
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
    case EPOCHLY:
        if (step % (p->steps / 5) != p->steps / 5 - 1)
            return;
        break;
    case BRANCH:
        if (leak_draw_from(p, 0, 2) == 0)
            return;
        break;
    default:
        break;
    }
    if (p->keeps == REPLACED)
        leak_replaced(p, usual);
    else if (p->keeps == SMALL)
        leak_block(p, 0, leak_draw_from(p, 1, 8) * KIB);
    else if (p->keeps == FOUNDING)
        leak_block(p, 0, leak_draw_from(p, 96, 124) * MIB);
    else if (p->keeps == ALMOST)
        leak_block(p, 0, p->unit * p->sites * 16);
    else if (p->keeps == MANY)
        for (unsigned i = 0; i < 6; i++)
            leak_block(p, 0, leak_draw_from(p, usual / 2, usual * 3 / 2));
    else if (p->keeps != NOTHING)
        leak_block(p, 0, does(p, VARIES) ? leak_draw_from(p, usual / 2, usual * 3 / 2) : usual);
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
        drop(p, take(p, p->tunes, p->unit * leak_draw_from(p, 1, 60)));
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
        pass_time(p, leak_draw_from(p, 1, leak_draw_from(p, 0, 9) ? 20 : 900) * MS);
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
    bool backwards = leak_draw_from(p, 0, 1);
    while (p->ends == FREES && p->live_count)
        drop(p, p->live[backwards ? p->live_count - 1 : 0].address);
    if (p->ends == FREES)
        pass_time(p, leak_draw_from(p, 1, 300) * MS);
}

void leak_run_steps(struct corpus *p, bool trains)
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
void leak_run_requests(struct corpus *p)
{
    uint32_t cache = net_site(p, "append_to_cache", 90);
    for (unsigned i = 0; i < 40; i++)
        take(p, p->loads, p->unit * (1 + i % 9));
    for (unsigned request = 0; request < p->steps; request++) {
        unsigned tokens = (unsigned)leak_draw_from(p, 2, 24);
        uint64_t rows = 0, prompt = take(p, p->batch, leak_draw_from(p, 1, 40) * p->unit);
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
            pass_time(p, leak_draw_from(p, 1, leak_draw_from(p, 0, 9) ? 20 : 2000) * MS);
    }
    end_program(p);
}

/* ---- one pass of a net ------------------------------------------------------------------------------------------- */

/* Layers that keep what the backward half needs; of a checkpointed one that is its input alone. */
void leak_run_pass(struct corpus *p, unsigned how)
{
    struct recmake_frame again[] = {{"operation", "net.py", 100},
                                    {"Module._call_impl", NET, 1750},
                                    {"unpack_hook", "/usr/lib/python3/dist-packages/torch/utils/checkpoint.py", 1100},
                                    {NULL, NULL, 0}};
    uint32_t recomputes = p->shows >= OPTIMIZED ? recmake_site(p->make, GP_KIND_LINEAR, again) : p->tunes;
    p->pace_ns = p->pace_ns > MS ? 80 * US : p->pace_ns / 5; /* the CPU only starts the kernels of a layer */
    uint64_t kept[4096];
    unsigned count = 0, layers = (unsigned)leak_draw_from(p, 12, 64),
             temporary = how & EXPERTS ? 40 : (unsigned)leak_draw_from(p, 3, 16);
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

void leak_run_loading(struct corpus *p, unsigned how)
{
    unsigned tensors = (unsigned)leak_draw_from(p, 40, 300);
    for (unsigned i = 0; i < tensors; i++) {
        uint64_t bytes = how & VARIES ? leak_draw_from(p, p->unit, p->unit * 20) : p->unit * (1 + i % 5);
        uint64_t staging = how & STAGED ? take(p, p->tunes, bytes) : 0;
        take(p, p->loads, bytes);
        drop(p, staging);
        if (how & SHARDS && i % 20 == 19)
            pass_time(p, leak_draw_from(p, 100, 2000) * MS);
    }
    p->steps = how & THEN_WORKS ? (unsigned)leak_draw_from(p, 20, 60) : 0;
    p->does = 0;
    leak_run_steps(p, false);
}

/* Each token makes the cache of its generation longer; `times` generations. */
void leak_run_generate(struct corpus *p, unsigned times)
{
    p->steps = times;
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
        unsigned tokens = (unsigned)leak_draw_from(p, 16, 80);
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
        leak(p, time);
    }
    end_program(p);
}

/* Steps over one net, each longer than the one before: batches grow, and each step frees all. */
void leak_run_growing(struct corpus *p)
{
    uint64_t unit = p->unit;
    for (unsigned step = 0; step < p->steps; step++) {
        p->unit = unit * (step + 1);
        one_step(p, step, true);
    }
    end_program(p);
}

/* A service without a rhythm: each request works at other call sites, in another order, and for another time. */
void leak_run_mixed(struct corpus *p)
{
    for (unsigned i = 0; i < 40; i++)
        take(p, p->loads, p->unit * (1 + i % 9));
    for (unsigned request = 0; request < p->steps; request++) {
        uint64_t held[64];
        unsigned blocks = (unsigned)leak_draw_from(p, 3, 63), count = 0;
        mark_step(p, request);
        for (unsigned i = 0; i < blocks; i++) {
            held[count++] = take(p, p->ops[leak_draw_from(p, 0, p->sites - 1)], leak_draw_from(p, 1, 20) * p->unit);
            if (leak_draw_from(p, 0, 1))
                drop(p, held[--count]);
        }
        leak(p, request);
        hold_for_a_while(p, request);
        while (count > 0)
            drop(p, held[--count]);
        if (does(p, SLEEPS))
            pass_time(p, leak_draw_from(p, 1, leak_draw_from(p, 0, 9) ? 20 : 2000) * MS);
    }
    end_program(p);
}
