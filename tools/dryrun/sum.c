/* SPDX-License-Identifier: MIT
 * sum.c: what the processes of one device need of it together: see dryrun.h.
 *
 * To be sure: a process starts after what went on before it, and from then on any order of its requests and those of the
 * others is possible.  So when the last of some processes starts, each counts with the most that it holds from then on.
 * At least: what they held at one time, as it went. */
#include <analyze/fit.h>
#include <dryrun/dryrun.h>
#include <read/common/hash.h>
#include <stdlib.h>
#include <string.h>

/* ---- lives ------------------------------------------------------------------------------------------------------- */

static int lives_compare(const void *one, const void *other)
{
    const struct gp_need *a = *(struct gp_need *const *)one, *b = *(struct gp_need *const *)other;
    return a->pid != b->pid ? GP_ORDER(a->pid, b->pid) : GP_ORDER(a->begin_ns, b->begin_ns);
}

/* An image of a process ends where the next one begins (execve), and did not start with the process. */
void gp_dryrun_lives(struct gp_dryrun_run *run, const struct gp_dryrun_life *lives, uint32_t count)
{
    struct gp_need **needs = calloc(run->need_count + 1ul, sizeof(struct gp_need *));
    for (uint32_t i = 0; i < run->need_count; i++) {
        struct gp_need *need = &run->needs[i];
        for (uint32_t k = 0; k < count; k++) {
            if (lives[k].pid != need->pid)
                continue;
            GP_LOWER(need->start_ns, lives[k].start_ns);
            if (!need->exits)
                GP_RAISE(need->end_ns, lives[k].alive_ns);
        }
        if (needs)
            needs[i] = need;
    }
    if (needs)
        qsort(needs, run->need_count, sizeof(struct gp_need *), lives_compare);
    for (uint32_t i = 0; needs && i + 1 < run->need_count; i++) {
        struct gp_need *need = needs[i];
        for (uint32_t k = i + 1; k < run->need_count && needs[k]->pid == need->pid; k++) {
            if (needs[k]->begin_ns <= need->begin_ns)
                continue; /* another device of the same image */
            needs[k]->start_ns = needs[k]->begin_ns;
            GP_LOWER(need->end_ns, needs[k]->begin_ns);
        }
    }
    free(needs);
}

/* ---- the processes of a device ----------------------------------------------------------------------------------- */

/* A short program ends before its device's UUID is asked for; then the numbers count. */
static bool sum_same(const struct gp_dryrun_run *run, const struct gp_need *one, const struct gp_need *other)
{
    if (run->node_ranks > 0 && one->rank >= 0 && other->rank >= 0 &&
        one->rank / run->node_ranks != other->rank / run->node_ranks)
        return false;
    if (one->uuid[0] && other->uuid[0])
        return strcmp(one->uuid, other->uuid) == 0;
    return one->device == other->device;
}

/* The most that the process holds from that time on. */
static int64_t sum_after(const struct gp_need *need, uint64_t time_ns)
{
    uint32_t low = 0, high = need->level_count;
    while (low < high) { /* the first level that begins later */
        uint32_t middle = low + (high - low) / 2;
        if (need->levels[middle].time_ns <= time_ns)
            low = middle + 1;
        else
            high = middle;
    }
    /* An allocator may have needed more than its requests in the driver's pages. */
    if (!low || need->levels[low - 1].after_bytes >= need->levels[0].after_bytes)
        return need->memory_bytes;
    return need->levels[low - 1].after_bytes;
}

static int64_t sum_sure(struct gp_need *const *needs, uint32_t count, int64_t threads)
{
    const uint64_t bare = gp_fit_context_of((uint64_t)threads);
    int64_t most = -1;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t start_ns = needs[i]->start_ns;
        int64_t sum = 0;
        for (uint32_t k = 0; k < count; k++)
            if (k == i || (needs[k]->start_ns <= start_ns && start_ns < needs[k]->end_ns))
                sum += sum_after(needs[k], start_ns) + (int64_t)gp_fit_context_with(bare, needs[k]->stack);
        GP_RAISE(most, sum);
    }
    return most;
}

/* ---- as it went -------------------------------------------------------------------------------------------------- */

struct sum_change {
    uint64_t time_ns;
    uint32_t process;
    int64_t bytes; /* -1: it ends */
};

static int change_compare(const void *one, const void *other)
{
    const struct sum_change *a = one, *b = other;
    int order = GP_ORDER(a->time_ns, b->time_ns);
    return order ? order : GP_ORDER(a->bytes >= 0, b->bytes >= 0);
}

static uint32_t sum_changes(struct gp_need *const *needs, uint32_t count, struct sum_change *changes)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct gp_need *need = needs[i];
        changes[n++] = (struct sum_change){need->begin_ns, i, 0};
        for (uint32_t k = 0; k < need->level_count; k++) {
            const uint64_t at = need->levels[k].time_ns;
            int64_t bytes = need->levels[k].least_bytes;
            GP_LOWER(bytes, need->least_bytes);
            if (at < need->end_ns)
                changes[n++] = (struct sum_change){at > need->begin_ns ? at : need->begin_ns, i, bytes};
        }
        changes[n++] = (struct sum_change){need->end_ns, i, -1};
    }
    qsort(changes, n, sizeof(*changes), change_compare);
    return n;
}

struct sum_state {
    int64_t bytes;
    bool there;
};

/* False: out of memory. */
static bool sum_least(struct gp_need *const *needs, uint32_t count, int64_t threads, int64_t *least)
{
    const uint64_t bare = gp_fit_context_of((uint64_t)threads);
    size_t room = 2ul * count;
    for (uint32_t i = 0; i < count; i++)
        room += needs[i]->level_count;
    struct sum_change *changes = malloc(room * sizeof(*changes));
    struct sum_state *now = calloc(count + 1ul, sizeof(*now));
    uint32_t n = changes && now ? sum_changes(needs, count, changes) : 0;
    uint64_t sum = 0;
    uint32_t stack = 0;
    unsigned contexts[2] = {0}; /* without kernels, with */
    for (uint32_t i = 0; i < count; i++)
        GP_RAISE(stack, needs[i]->stack);
    for (uint32_t i = 0; i < n; i++) {
        const struct sum_change *change = &changes[i];
        struct sum_state *its = &now[change->process];
        const int64_t bytes = change->bytes < 0 ? 0 : change->bytes;
        const bool there = change->bytes >= 0;
        contexts[needs[change->process]->stack != 0] += (unsigned)there - its->there;
        sum += (uint64_t)bytes - (uint64_t)its->bytes;
        *its = (struct sum_state){bytes, there};
        if (there)
            GP_RAISE(*least, (int64_t)gp_fit_context_device(sum, bare, contexts[0], contexts[1], stack));
    }
    free(changes);
    free(now);
    return n;
}

/* ---- the fullest device ------------------------------------------------------------------------------------------ */

static bool sum_device(struct gp_need *const *needs, uint32_t count, int64_t threads, int64_t *needed, int64_t *least)
{
    int64_t sure = sum_sure(needs, count, threads), low = -1;
    if (count == 1)
        low = (int64_t)gp_fit_context_device((uint64_t)needs[0]->least_bytes, gp_fit_context_of((uint64_t)threads),
                                             !needs[0]->stack, needs[0]->stack != 0, needs[0]->stack);
    else if (!sum_least(needs, count, threads, &low))
        return false;
    if (sure > *needed) {
        *needed = sure;
        *least = low < sure ? low : sure;
    }
    return true;
}

bool gp_dryrun_sum(const struct gp_dryrun_run *run, int64_t threads, int64_t *needed, int64_t *least)
{
    struct gp_need **needs = calloc(run->need_count + 1ul, sizeof(struct gp_need *));
    bool ok = needs;
    *needed = *least = -1;
    for (uint32_t i = 0; ok && i < run->need_count; i++) {
        uint32_t count = 0;
        bool first = true;
        for (uint32_t k = 0; k < run->need_count; k++)
            if (sum_same(run, &run->needs[i], &run->needs[k])) {
                first &= k >= i;
                needs[count++] = &run->needs[k];
            }
        ok = !first || sum_device(needs, count, threads, needed, least);
    }
    free(needs);
    return ok;
}
