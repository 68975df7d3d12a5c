/* SPDX-License-Identifier: MIT
 * gen.c: what the generators share: operations, chance, stacks of tensors; see gen.h. */
#include "convert/replay/gen.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- operations -------------------------------------------------------------------------------------------------- */

uint64_t gp_gen_alloc(struct gp_gen *g, uint64_t bytes)
{
    if (g->rc || bytes == 0)
        return 0;
    g->rc = gp_replay_alloc(&g->builder, g->names + 1, bytes, g->stream, g->thread, 0);
    return ++g->names;
}

void gp_gen_free(struct gp_gen *g, uint64_t name)
{
    if (!g->rc && name)
        g->rc = gp_replay_free(&g->builder, name, GP_REPLAY_ANY, g->thread);
}

void gp_gen_record(struct gp_gen *g, uint64_t name, uint32_t stream)
{
    if (!g->rc && name)
        g->rc = gp_replay_record(&g->builder, name, stream, g->thread);
}

void gp_gen_other(struct gp_gen *g, enum gp_replay_kind kind, uint64_t number)
{
    if (!g->rc)
        g->rc = gp_replay_other(&g->builder, kind, number, GP_REPLAY_ANY, g->thread, 0);
}

void gp_gen_mark(struct gp_gen *g, const char *name)
{
    if (!g->rc)
        g->rc = gp_replay_mark(&g->builder, name, strlen(name), g->thread);
}

void gp_gen_temporary(struct gp_gen *g, uint64_t bytes)
{
    gp_gen_free(g, gp_gen_alloc(g, bytes));
}

uint32_t gp_gen_scaled(const struct gp_gen *g, uint32_t count, uint32_t least)
{
    uint64_t scaled = ((uint64_t)count * g->scale_milli + 500) / 1000;
    return scaled < least ? least : scaled > UINT32_MAX ? UINT32_MAX : (uint32_t)scaled;
}

/* ---- chance ------------------------------------------------------------------------------------------------------ */

uint64_t gp_gen_random(struct gp_gen *g)
{
    /* splitmix64 (Steele, Lea, Flood, OOPSLA 2014) */
    uint64_t z = g->random += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

uint64_t gp_gen_below(struct gp_gen *g, uint64_t limit)
{
    return (uint64_t)((unsigned __int128)gp_gen_random(g) * limit >> 64);
}

uint64_t gp_gen_between(struct gp_gen *g, uint64_t low, uint64_t high)
{
    return low + gp_gen_below(g, high - low + 1);
}

bool gp_gen_chance(struct gp_gen *g, uint32_t of_1000)
{
    return gp_gen_below(g, 1000) < of_1000;
}

/* 2^x; x and the result in 16 binary digits behind the point.  The cubic is right to 1e-4 between 0
 * and 1. */
static uint64_t gen_exp2(int64_t x)
{
    int64_t whole = x >> 16, part = x & 0xffff, sum = 5065;
    sum = 14917 + (sum * part >> 16);
    sum = 45554 + (sum * part >> 16);
    sum = 65536 + (sum * part >> 16);
    return whole >= 0 ? (uint64_t)sum << (whole > 40 ? 40 : whole) : (uint64_t)sum >> (whole < -32 ? 32 : -whole);
}

uint64_t gp_gen_lognormal(struct gp_gen *g, uint64_t median, uint32_t sigma_milli)
{
    /* Twelve uniform numbers make a normal one (Irwin and Hall); its tails end at six sigma. */
    int64_t normal = -6 * 65536;
    for (int i = 0; i < 12; i++)
        normal += (int64_t)(gp_gen_random(g) >> 48);
    int64_t exponent = normal * (int64_t)sigma_milli / 1000 * 94548 / 65536; /* log2(e) = 94548 / 65536 */
    return (uint64_t)((unsigned __int128)median * gen_exp2(exponent) >> 16);
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

void gp_gen_keep(struct gp_gen *g, struct gp_gen_stack *stack, uint64_t name, uint64_t bytes)
{
    if (g->rc || !name)
        return;
    if (stack->count == stack->room) {
        uint32_t room = stack->room ? 2 * stack->room : 256;
        struct gp_gen_tensor *bigger = realloc(stack->at, room * sizeof(bigger[0]));
        if (!bigger) {
            gp_replay_say(&g->builder.problem, "out of memory");
            g->rc = -ENOMEM;
            return;
        }
        stack->at = bigger;
        stack->room = room;
    }
    stack->at[stack->count++] = (struct gp_gen_tensor){name, bytes};
}

void gp_gen_push(struct gp_gen *g, struct gp_gen_stack *stack, uint64_t bytes)
{
    gp_gen_keep(g, stack, gp_gen_alloc(g, bytes), bytes);
}

struct gp_gen_tensor gp_gen_pop(struct gp_gen_stack *stack)
{
    return stack->count ? stack->at[--stack->count] : (struct gp_gen_tensor){0};
}

void gp_gen_drop(struct gp_gen *g, struct gp_gen_stack *stack)
{
    for (uint32_t i = 0; i < stack->count; i++)
        gp_gen_free(g, stack->at[i].name);
    free(stack->at);
    memset(stack, 0, sizeof(*stack));
}
