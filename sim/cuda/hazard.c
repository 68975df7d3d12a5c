/* SPDX-License-Identifier: MIT
 * Hazards: uses of memory that the program's order does not protect.
 *
 * Happens-before is kept in vector clocks.  Every stream owns a slot and an epoch that each of its
 * operations raises; the host has a clock of its own.  Host threads count as one: the simulator's
 * lock puts their calls in an order, and a program that hands work from thread to thread is assumed
 * to synchronise.
 *
 * Each byte range remembers its last write and the reads since (FastTrack's scheme, Flanagan and
 * Freund, PLDI 2009, on intervals instead of words).  A caching allocator hands a block to another
 * stream without telling the driver, so conflicts are found from accesses alone.  Called by the
 * stream, pool, VMM and graph parts and by the copy engine, all with the simulator's lock held;
 * never calls back into them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/sim.h"
#include "cuda/stream.h"

struct read_mark {
    uint32_t slot;
    uint64_t epoch;
    const char *api;
};

/* Treap node: ranges never overlap, ordered by start. */
struct range {
    struct range *left, *right;
    uint64_t start, end;
    uint32_t priority;
    uint32_t write_slot;
    uint64_t write_epoch; /* 0: no write yet, since epochs start at 1 */
    const char *write_api;
    uint32_t read_count, read_room;
    struct read_mark *reads;
};

struct slot {
    uint64_t last; /* epoch reached */
    bool retired;
};

static struct range *sim_ranges;
static struct slot *sim_slots;
static uint32_t sim_slot_count;
static struct sim_vector sim_host_vector;
static int sim_hazard_talk = -1;

/* ---- vectors ----------------------------------------------------------------------------------------------------- */
uint64_t sim_vector_get(const struct sim_vector *v, uint32_t slot)
{
    return slot < v->count ? v->at[slot] : 0;
}

void sim_vector_set(struct sim_vector *v, uint32_t slot, uint64_t epoch)
{
    if (slot >= v->count) {
        v->at = sim_grow(v->at, (slot + 1) * sizeof v->at[0]);
        memset(v->at + v->count, 0, (slot + 1 - v->count) * sizeof v->at[0]);
        v->count = slot + 1;
    }
    v->at[slot] = epoch;
}

void sim_vector_join(struct sim_vector *into, const struct sim_vector *from)
{
    for (uint32_t i = from->count; i-- > 0;)
        if (from->at[i] > sim_vector_get(into, i))
            sim_vector_set(into, i, from->at[i]);
}

bool sim_vector_covers(const struct sim_vector *v, const struct sim_vector *past)
{
    for (uint32_t i = 0; i < past->count; i++)
        if (past->at[i] > sim_vector_get(v, i))
            return false;
    return true;
}

void sim_vector_drop(struct sim_vector *v)
{
    free(v->at);
    *v = (struct sim_vector){0};
}

struct sim_vector *sim_host(void)
{
    return &sim_host_vector;
}

/* A retired slot is given out again once the host has seen its last epoch: whatever starts later is
 * ordered after it. */
uint32_t sim_slot_take(void)
{
    for (uint32_t i = 0; i < sim_slot_count; i++)
        if (sim_slots[i].retired && sim_vector_get(&sim_host_vector, i) >= sim_slots[i].last) {
            sim_slots[i].retired = false;
            return i;
        }
    sim_slots = sim_grow(sim_slots, (sim_slot_count + 1) * sizeof sim_slots[0]);
    sim_slots[sim_slot_count] = (struct slot){0};
    return sim_slot_count++;
}

void sim_slot_retire(uint32_t slot)
{
    sim_slots[slot].retired = true;
}

uint64_t sim_slot_tick(uint32_t slot)
{
    return ++sim_slots[slot].last;
}

/* ---- the ordered map --------------------------------------------------------------------------------------------- */
static struct range *sim_range_new(uint64_t start, uint64_t end)
{
    static uint32_t seed = 2463534242u; /* xorshift32's customary start; the order needs no secrecy */
    struct range *r = sim_grow(NULL, sizeof *r);

    seed ^= seed << 13;
    seed ^= seed >> 17;
    seed ^= seed << 5;
    *r = (struct range){.start = start, .end = end, .priority = seed};
    return r;
}

static void sim_range_free(struct range *r)
{
    free(r->reads);
    free(r);
}

static void sim_tree_free(struct range *t)
{
    if (!t)
        return;
    sim_tree_free(t->left);
    sim_tree_free(t->right);
    sim_range_free(t);
}

/* low: ranges that start before `at`; high: the others. */
static void sim_tree_split(struct range *t, uint64_t at, struct range **low, struct range **high)
{
    if (!t) {
        *low = *high = NULL;
    } else if (t->start < at) {
        *low = t;
        sim_tree_split(t->right, at, &t->right, high);
    } else {
        *high = t;
        sim_tree_split(t->left, at, low, &t->left);
    }
}

static struct range *sim_tree_merge(struct range *low, struct range *high)
{
    if (!low || !high)
        return low ? low : high;
    if (low->priority > high->priority) {
        low->right = sim_tree_merge(low->right, high);
        return low;
    }
    high->left = sim_tree_merge(low, high->left);
    return high;
}

static struct range *sim_tree_last(struct range *t)
{
    while (t && t->right)
        t = t->right;
    return t;
}

/* Takes [start,end) out of the tree, cutting the ranges that cross its ends. */
static struct range *sim_tree_take(uint64_t start, uint64_t end, struct range **low, struct range **high)
{
    const uint64_t cuts[2] = {start, end};
    struct range *middle;

    for (int i = 0; i < 2; i++) {
        struct range *last, *a, *b;

        sim_tree_split(sim_ranges, cuts[i], &a, &b);
        last = sim_tree_last(a);
        if (last && last->end > cuts[i]) {
            struct range *tail = sim_range_new(cuts[i], last->end);

            tail->write_slot = last->write_slot;
            tail->write_epoch = last->write_epoch;
            tail->write_api = last->write_api;
            if (last->read_count) {
                tail->reads = sim_grow(NULL, last->read_count * sizeof tail->reads[0]);
                memcpy(tail->reads, last->reads, last->read_count * sizeof tail->reads[0]);
                tail->read_count = tail->read_room = last->read_count;
            }
            last->end = cuts[i];
            b = sim_tree_merge(tail, b);
        }
        sim_ranges = sim_tree_merge(a, b);
    }
    sim_tree_split(sim_ranges, start, low, &middle);
    sim_tree_split(middle, end, &middle, high);
    sim_ranges = NULL;
    return middle;
}

/* ---- conflicts --------------------------------------------------------------------------------------------------- */
struct actor {
    const struct sim_vector *clock;
    uint32_t slot;
    uint64_t epoch;
    const char *api;
    bool write;
    /* The first conflict found. */
    bool conflict, other_wrote;
    uint32_t other_slot;
    const char *other_api;
    uint64_t where;
};

static void sim_conflict(struct actor *a, const struct range *r, uint32_t slot, const char *api, bool wrote)
{
    if (a->conflict)
        return;
    a->conflict = true;
    a->other_slot = slot;
    a->other_api = api;
    a->other_wrote = wrote;
    a->where = r->start;
}

static void sim_range_check(const struct range *r, struct actor *a)
{
    if (r->write_epoch > sim_vector_get(a->clock, r->write_slot))
        sim_conflict(a, r, r->write_slot, r->write_api, true);
    for (uint32_t i = 0; a->write && i < r->read_count; i++)
        if (r->reads[i].epoch > sim_vector_get(a->clock, r->reads[i].slot))
            sim_conflict(a, r, r->reads[i].slot, r->reads[i].api, false);
}

static void sim_tree_check(const struct range *t, struct actor *a)
{
    if (!t)
        return;
    sim_tree_check(t->left, a);
    sim_range_check(t, a);
    sim_tree_check(t->right, a);
}

/* Reads that happen before this one need no mark: work ordered after this read is ordered after
 * them. */
static void sim_range_read(struct range *r, const struct actor *a)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < r->read_count; i++)
        if (r->reads[i].epoch > sim_vector_get(a->clock, r->reads[i].slot))
            r->reads[kept++] = r->reads[i];
    if (kept == r->read_room) {
        r->read_room = kept ? 2 * kept : 2;
        r->reads = sim_grow(r->reads, r->read_room * sizeof r->reads[0]);
    }
    r->reads[kept++] = (struct read_mark){a->slot, a->epoch, a->api};
    r->read_count = kept;
}

/* Marks each known range in [*at,end) as read and fills the gaps between them; returns the rebuilt
 * tree. */
static struct range *sim_tree_read(struct range *t, uint64_t *at, const struct actor *a)
{
    struct range *left, *right, *fill = NULL;

    if (!t)
        return NULL;
    left = sim_tree_read(t->left, at, a);
    right = t->right;
    t->left = t->right = NULL;
    if (*at < t->start) {
        fill = sim_range_new(*at, t->start);
        sim_range_read(fill, a);
    }
    sim_range_read(t, a);
    *at = t->end;
    right = sim_tree_read(right, at, a);
    return sim_tree_merge(sim_tree_merge(sim_tree_merge(left, fill), t), right);
}

static bool sim_talks(void)
{
    if (sim_hazard_talk < 0) {
        const char *e = secure_getenv("GPUPROF_SIM_HAZARDS");

        sim_hazard_talk = e && strcmp(e, "0") && *e;
    }
    return sim_hazard_talk;
}

void sim_hazard_report(int device, CUdeviceptr at, size_t bytes, const char *api, const char *why)
{
    sim_ledger_hazard(device);
    if (sim_talks())
        fprintf(stderr, "simulated GPU: hazard: %s on [0x%llx,+%zu): %s\n", api, at, bytes, why);
}

static void sim_conflict_report(const struct actor *a, int device, uint64_t start, size_t bytes)
{
    char why[200];

    snprintf(why, sizeof why, "%s in slot %u %s 0x%llx and is not ordered before this %s in slot %u", a->other_api,
             a->other_slot, a->other_wrote ? "writes" : "reads", (unsigned long long)a->where,
             a->write ? "write" : "read", a->slot);
    sim_hazard_report(device, start, bytes, a->api, why);
}

/* One access: at most one hazard is counted, however many ranges conflict. */
void sim_shadow_access(int device, uint32_t slot, uint64_t epoch, const struct sim_vector *clock, CUdeviceptr p,
                       size_t bytes, bool write, const char *api)
{
    struct actor a = {.clock = clock, .slot = slot, .epoch = epoch, .api = api, .write = write};
    struct range *low, *high, *middle;
    uint64_t at = p;

    if (!bytes)
        return;
    middle = sim_tree_take(p, p + bytes, &low, &high);
    sim_tree_check(middle, &a);
    if (write) {
        sim_tree_free(middle);
        middle = sim_range_new(p, p + bytes);
        middle->write_slot = slot;
        middle->write_epoch = epoch;
        middle->write_api = api;
    } else {
        middle = sim_tree_read(middle, &at, &a);
        if (at < p + bytes) {
            struct range *fill = sim_range_new(at, p + bytes);

            sim_range_read(fill, &a);
            middle = sim_tree_merge(middle, fill);
        }
    }
    sim_ranges = sim_tree_merge(sim_tree_merge(low, middle), high);
    if (a.conflict)
        sim_conflict_report(&a, device, p, bytes);
}

/* The host takes the range away at once (unmap, free without synchronisation): work that it has not
 * waited for may still use it. */
void sim_shadow_host(int device, CUdeviceptr p, size_t bytes, const char *api)
{
    struct actor a = {.clock = &sim_host_vector, .slot = UINT32_MAX, .api = api, .write = true};
    struct range *low, *high, *middle = sim_tree_take(p, p + bytes, &low, &high);

    sim_tree_check(middle, &a);
    sim_tree_free(middle);
    sim_ranges = sim_tree_merge(low, high);
    if (a.conflict)
        sim_conflict_report(&a, device, p, bytes);
}

void sim_shadow_forget(CUdeviceptr p, size_t bytes)
{
    struct range *low, *high;

    sim_tree_free(sim_tree_take(p, p + bytes, &low, &high));
    sim_ranges = sim_tree_merge(low, high);
}

void sim_hazard_born(struct sim_memory *memory)
{
    sim_shadow_forget(memory->base, memory->size);
}

void sim_hazard_dying(struct sim_memory *memory)
{
    /* A pool's block ends in stream order: cuMemFreeAsync stands in the history as an access of its
     * stream, and the next owner must come after that. */
    if (memory->kind == SIM_POOL)
        return;
    if (sim_memory_on_device(memory))
        sim_shadow_host(memory->device == SIM_HOST ? 0 : memory->device, memory->base, memory->size, "free");
    else
        sim_shadow_forget(memory->base, memory->size);
}
