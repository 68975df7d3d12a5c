/* SPDX-License-Identifier: MIT
 *
 * oomadvice.c: the advice on the page, each piece with its condition. A hint that does not help
 * costs its reader a day, so each one is computed: it is given only if the numbers of this failure
 * show that the request would then have succeeded.
 */
#include "oom/oom.h"
#include <stdio.h>
#include <string.h>

/* ==== PyTorch's allocator ========================================================================================= */
/* The page about PyTorch's own allocator, and the advice about it. Replays of its requests say what
 * a setting would have done (allocator/replay.c). Where nothing could be replayed, sums bound it: no
 * order of the blocks lets a request fit that is larger than all idle and free memory. In all other
 * cases the effect is not known, and the page says so. */

/* PyTorch leaves at most as much at the end of a block that it does not split. */
#define GP_OOM_UNSPLIT (1ll << 20)

static int64_t positive(int64_t bytes)
{
    return bytes > 0 ? bytes : 0;
}

static bool has(const struct gp_oom_case *c, unsigned flags)
{
    return (c->framework->flags & flags) == flags;
}

static int64_t free_bytes(const struct gp_oom_case *c)
{
    return c->oom->flags & GP_OOM_DRIVER ? positive(c->oom->free_bytes) : -1;
}

/* What a piece of advice does about a failure; GP_OOM_NOT: it does not apply. */
enum gp_oom_answer { GP_OOM_NOT, GP_OOM_HELPS, GP_OOM_FAILS, GP_OOM_UNKNOWN };

static enum gp_oom_answer replayed(const struct gp_oom_case *c, enum gp_wire_oom_try bit)
{
    if (!has(c, GP_OOM_REPLAYED))
        return GP_OOM_UNKNOWN;
    return c->framework->helps >> bit & 1   ? GP_OOM_HELPS
           : c->framework->fails >> bit & 1 ? GP_OOM_FAILS
                                            : GP_OOM_UNKNOWN;
}

/* More was asked for than is idle and free and these bytes together. */
static bool is_beyond(const struct gp_oom_case *c, int64_t bytes)
{
    int64_t all = positive(c->oom->idle_bytes) + free_bytes(c);
    if (free_bytes(c) < 0 || has(c, GP_OOM_REFUSED))
        return false;
    return !__builtin_add_overflow(all, bytes, &all) && c->asked > all;
}

/* However the blocks lie, what is idle and free is too little. */
static bool cannot_fit(const struct gp_oom_case *c)
{
    int64_t unsplit;
    return !__builtin_mul_overflow(positive(c->framework->blocks), GP_OOM_UNSPLIT, &unsplit) && is_beyond(c, unsplit);
}

/* To put together what is idle and free is not enough.  That it could be with what lies unused in the blocks is no reason
 * to advise it, and no reason to deny it. */
static enum gp_oom_answer together(const struct gp_oom_case *c, enum gp_oom_answer answer)
{
    return answer == GP_OOM_UNKNOWN && is_beyond(c, 0) ? GP_OOM_NOT : answer;
}

/* ---- conditions --------------------------------------------------------------------------------------------------- */

static enum gp_oom_answer oom_torch_fraction(const struct gp_oom_case *c)
{
    if (!has(c, GP_OOM_REFUSED))
        return GP_OOM_NOT;
    return replayed(c, GP_OOM_TRY_FRACTION);
}

/* Segments without a block that may go back: those that are known to be of private pools do not. */
static int64_t returns(const struct gp_oom_case *c)
{
    return positive(positive(c->oom->releasable_bytes) - positive(c->framework->private_bytes));
}

/* The framework does so itself before it fails, but not for others, and not for a request of a private pool. */
static enum gp_oom_answer oom_torch_empty(const struct gp_oom_case *c)
{
    bool beside = has(c, GP_OOM_BESIDE);
    if (!has(c, GP_OOM_FRAMEWORK) || (!beside && !has(c, GP_OOM_KEPT)) || c->sums->missing_bytes == 0)
        return GP_OOM_NOT;
    if (free_bytes(c) < 0)
        return c->oom->releasable_bytes > 0 ? GP_OOM_UNKNOWN : GP_OOM_FAILS;
    if (gp_oom_needed(c->oom, c->framework) > free_bytes(c) + positive(c->oom->releasable_bytes))
        return GP_OOM_FAILS;
    if (gp_oom_needed(c->oom, c->framework) > free_bytes(c) + returns(c))
        return has(c, GP_OOM_KEPT) ? GP_OOM_UNKNOWN : GP_OOM_FAILS;
    return beside && has(c, GP_OOM_NO_POOLS) ? GP_OOM_HELPS : GP_OOM_UNKNOWN;
}

static enum gp_oom_answer oom_less_cache(const struct gp_oom_case *c)
{
    if (!has(c, GP_OOM_FRAMEWORK | GP_OOM_BESIDE) || c->oom->idle_bytes <= 0 || c->sums->missing_bytes == 0)
        return GP_OOM_NOT;
    if (cannot_fit(c))
        return GP_OOM_FAILS;
    return has(c, GP_OOM_REPLAYED) && replayed(c, GP_OOM_TRY_FRACTION) != GP_OOM_HELPS
               ? GP_OOM_NOT
               : together(c, replayed(c, GP_OOM_TRY_FRACTION));
}

static enum gp_oom_answer oom_torch_expandable(const struct gp_oom_case *c)
{
    bool full = c->sums->missing_bytes != 0 || has(c, GP_OOM_REFUSED);
    if (!has(c, GP_OOM_FRAMEWORK) || !full || c->oom->idle_bytes <= 0 ||
        strstr(c->oom->conf, "expandable_segments:True"))
        return GP_OOM_NOT;
    return cannot_fit(c) ? GP_OOM_FAILS : together(c, replayed(c, GP_OOM_TRY_EXPANDABLE));
}

/* Other sizes than those that were tried may help, so it is never denied. */
static enum gp_oom_answer oom_torch_split(const struct gp_oom_case *c)
{
    enum gp_oom_answer answer = replayed(c, GP_OOM_TRY_SPLIT);
    return has(c, GP_OOM_FRAMEWORK) && answer == GP_OOM_HELPS && c->framework->split_bytes > 0 ? GP_OOM_HELPS
                                                                                               : GP_OOM_NOT;
}

/* ---- words -------------------------------------------------------------------------------------------------------- */

static void oom_say_torch_fraction(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    char most[GP_OOM_SIZE];
    int64_t bytes = positive(c->framework->segment_bytes) + gp_oom_needed(c->oom, c->framework);
    gp_oom_say(page, NULL,
               "- a larger torch.cuda.set_per_process_memory_fraction(): PyTorch's own limit refused this, not the "
               "device; it takes at least %s%s",
               gp_oom_size(most, bytes),
               sure ? "" : "; whether the device has enough for the whole program is not known");
}

static void oom_say_torch_empty(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    char bytes[GP_OOM_SIZE];
    gp_oom_say(page, NULL, "- torch.cuda.empty_cache() before it: PyTorch gives %s%s back%s", sure ? "" : "up to ",
               gp_oom_size(bytes, returns(c)),
               sure ? "" : "; what CUDA graphs and MemPools hold of it stays, and how much that is, is not known");
}

static void oom_say_less_cache(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    int64_t most = free_bytes(c) + positive(c->framework->segment_bytes) - c->asked;
    if (sure && c->sums->total_bytes > 0) /* rounded down to thousandths */
        gp_oom_say(page, NULL,
                   "- torch.cuda.set_per_process_memory_fraction(0.%03lld): in a replay, PyTorch's requests fit into "
                   "what this one leaves",
                   (long long)(positive(most) / (c->sums->total_bytes / 1000 + 1)));
    else
        gp_oom_say(
            page, NULL,
            "- a smaller torch.cuda.set_per_process_memory_fraction() may help: what PyTorch can do with less is "
            "not known");
}

/* Every version reads the older name. */
#define GP_OOM_NEW_NAME " (in newer PyTorch also PYTORCH_ALLOC_CONF)"

static void oom_say_torch_expandable(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    char idle[GP_OOM_SIZE];
    gp_oom_size(idle, c->oom->idle_bytes);
    if (sure)
        gp_oom_say(page, NULL,
                   "- PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" GP_OOM_NEW_NAME
                   ": a replay of PyTorch's requests ends with enough of the %s idle memory in one piece",
                   idle);
    else
        gp_oom_say(page, NULL,
                   "- PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may help" GP_OOM_NEW_NAME
                   ": how much of the %s idle memory it puts together is not known",
                   idle);
}

static void oom_say_torch_split(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    (void)sure;
    gp_oom_say(page, NULL,
               "- PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:%lld" GP_OOM_NEW_NAME
               ": in a replay of PyTorch's requests, larger blocks stay whole for this one",
               (long long)(c->framework->split_bytes >> 20));
}

/* Whether a setting would have helped: "" where advice above it says so. */
static const char *oom_framework_settings(const struct gp_oom_case *c)
{
    if (!has(c, GP_OOM_FRAMEWORK) && c->framework->flags)
        return "whether a setting of PyTorch's would have helped is not known";
    if (!has(c, GP_OOM_FRAMEWORK))
        return "no setting would have helped";
    if (cannot_fit(c))
        return "no setting would have helped";
    bool expandable = strstr(c->oom->conf, "expandable_segments:True") != NULL;
    if (has(c, GP_OOM_REPLAYED) && (expandable || c->framework->fails >> GP_OOM_TRY_EXPANDABLE & 1))
        return expandable ? "no other setting is known that would have helped"
                          : "expandable_segments:True would not have helped";
    return "";
}

/* ---- the page ----------------------------------------------------------------------------------------------------- */

void gp_oom_framework_limit(struct gp_oom_page *page, const struct gp_wire_oom *oom,
                            const struct gp_wire_oom_framework *of)
{
    char least[GP_OOM_SIZE], most[GP_OOM_SIZE];
    if (!(of->flags & GP_OOM_REFUSED))
        return;
    if (of->flags & GP_OOM_FRAMEWORK)
        gp_oom_say(
            page, "limit",
            "PyTorch's own (set_per_process_memory_fraction) refused this, before the driver was asked: it is at "
            "least %s and less than %s",
            gp_oom_size(least, of->segment_bytes), gp_oom_size(most, of->segment_bytes + gp_oom_needed(oom, of)));
    else
        gp_oom_say(page, "limit",
                   "PyTorch's own (set_per_process_memory_fraction) refused this, before the driver was asked");
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* The owner of the segments without a block. */
static void say_empty_segments(struct gp_oom_page *page, const struct gp_wire_oom *oom,
                               const struct gp_wire_oom_framework *of)
{
    char empty[GP_OOM_SIZE], of_pools[GP_OOM_SIZE];
    int64_t rest = positive(oom->releasable_bytes) - positive(of->private_bytes);
    const char *why = "CUDA graphs and MemPools hold it, since PyTorch gave its cache back before it failed";
    if (of->flags & GP_OOM_NO_POOLS)
        why = "torch.cuda.empty_cache() gives it back";
    else if (of->flags & GP_OOM_KEPT)
        why = "PyTorch did not give it back, as it asked for a CUDA graph or a MemPool; it is cached, or "
              "held by other CUDA graphs and MemPools";
    else if (of->flags & (GP_OOM_BESIDE | GP_OOM_REFUSED))
        why = "it is cached, which torch.cuda.empty_cache() gives back, or held by CUDA graphs and MemPools";
    if (of->private_bytes > 0 && !(of->flags & GP_OOM_NO_POOLS))
        gp_oom_say(page, "", "%s of it is in segments of CUDA graphs and MemPools, and stays there",
                   gp_oom_size(of_pools, of->private_bytes));
    if (rest > 0)
        gp_oom_say(page, "", "%s of it is in segments without a live block: %s", gp_oom_size(empty, rest), why);
}

void gp_oom_framework_idle(struct gp_oom_page *page, const struct gp_wire_oom *oom,
                           const struct gp_wire_oom_framework *of)
{
    char idle[GP_OOM_SIZE], largest[GP_OOM_SIZE], all[GP_OOM_SIZE];
    if (!(of->flags & GP_OOM_FRAMEWORK))
        return;
    gp_oom_say(page, "allocator", "PyTorch's own%s%s%s: %lld live block%s in %s of segments", oom->conf[0] ? " (" : "",
               oom->conf, oom->conf[0] ? ")" : "", (long long)positive(of->blocks), plural(of->blocks),
               gp_oom_size(all, of->segment_bytes));
    if (oom->idle_bytes <= 0)
        return;
    gp_oom_say(page, "cached", "%s idle in %lld piece%s, largest %s, beside %lld live block%s in the same segments",
               gp_oom_size(idle, oom->idle_bytes), (long long)positive(oom->idle_pieces), plural(oom->idle_pieces),
               gp_oom_size(largest, oom->largest_idle_bytes), (long long)positive(oom->pinning_blocks),
               plural(oom->pinning_blocks));
    say_empty_segments(page, oom, of);
}

/* ==== the advice ================================================================================================== */

/* A context with its kernels loaded takes 0.2 to 0.8 GiB, which the driver counts and the
 * library cannot see. Memory that may be our own context is not attributed to others. */
#define GP_OOM_CONTEXT_BYTES (1ll << 30)
/* A page of device memory: the granularity of cuMemCreate. */
#define GP_OOM_PAGE (2ll << 20)
/* PyTorch's smallest max_split_size_mb. */
#define GP_OOM_SPLIT_LEAST (20ll << 20)

static int64_t oom_positive(int64_t bytes)
{
    return bytes > 0 ? bytes : 0;
}

static bool oom_on_gpu(const struct gp_wire_oom *oom)
{
    return oom->device >= 0 && oom->device < (int)GP_WIRE_GPUS;
}

static bool oom_has_limit(const struct gp_wire_oom *oom)
{
    return oom->flags & GP_OOM_CACHE && oom->limit_bytes > 0;
}

/* In a cgroup with a limit, a driver of CUDA 13.4 answers cuMemGetInfo with the limit, as under MPS.
 * Elsewhere that total and the device's may differ by what the driver keeps: less than a 64th. */
static bool oom_is_capped(int64_t told, int64_t device)
{
    return told < device - device / 64;
}

void gp_oom_sum(struct gp_oom_sums *out, const struct gp_oom_facts *facts)
{
    const struct gp_wire_oom *oom = facts->oom;
    bool driver = oom_on_gpu(oom) && oom->flags & GP_OOM_DRIVER && oom->free_bytes >= 0;
    *out = (struct gp_oom_sums){.total_bytes = -1, .room_bytes = -1, .missing_bytes = -1, .other_bytes = -1};
    if (!oom_on_gpu(oom))
        return;
    bool told = driver && oom->total_bytes > 0;
    out->total_bytes = facts->total_bytes > 0 ? facts->total_bytes : told ? oom->total_bytes : -1;
    if (told && oom_is_capped(oom->total_bytes, out->total_bytes))
        out->capped_bytes = oom->total_bytes;
    if (driver) {
        out->room_bytes = oom->free_bytes;
        /* Only our own cache gives its idle memory to any library that asks. */
        const struct gp_wire_oom_framework *framework = gp_oom_framework_of(facts);
        int64_t gives = framework->flags & GP_OOM_FRAMEWORK ? 0 : oom_positive(oom->releasable_bytes);
        out->missing_bytes = oom_positive(gp_oom_needed(oom, framework) - oom->free_bytes - gives);
    }
    if (oom_has_limit(oom)) {
        int64_t left = oom_positive(oom->limit_bytes - oom_positive(oom->reserved_bytes));
        if (out->room_bytes < 0 || left < out->room_bytes)
            out->room_bytes = left;
    }
    if (driver && out->total_bytes >= 0 && oom->reserved_bytes >= 0) {
        out->others_are_sure = facts->untracked_bytes >= 0;
        out->other_bytes = oom_positive((told ? oom->total_bytes : out->total_bytes) - oom->free_bytes -
                                        oom->reserved_bytes - oom_positive(facts->untracked_bytes));
    }
    out->pool_idle_bytes =
        oom_positive(oom_positive(oom->pool_reserved_bytes) - oom_positive(oom->kinds[GP_KIND_POOL]));
    out->graph_idle_bytes = oom_positive(oom_positive(oom->graph_reserved_bytes) - oom_positive(oom->graph_used_bytes));
}

/* ---- conditions ----------------------------------------------------------------------------------------------- */

static bool advice_too_large(const struct gp_oom_case *c)
{
    return c->sums->total_bytes > 0 && c->asked > c->sums->total_bytes;
}

/* The limit refused the request, and the driver would not have. */
static bool advice_limit(const struct gp_oom_case *c)
{
    const struct gp_wire_oom *oom = c->oom;
    return oom_has_limit(oom) && oom->reserved_bytes >= 0 &&
           oom->reserved_bytes - oom_positive(oom->releasable_bytes) + c->asked > oom->limit_bytes &&
           c->sums->missing_bytes <= 0;
}

/* The cap refused the request, and the device has more. */
static bool advice_cap(const struct gp_oom_case *c)
{
    return c->sums->capped_bytes > 0 && c->sums->missing_bytes > 0 &&
           c->sums->total_bytes - c->sums->capped_bytes >= c->sums->missing_bytes;
}

/* Physical memory can be taken out of the middle of a segment only in whole pages. In every idle
 * piece, all pages but the two at its ends are certain. Idle memory within a page that holds a live
 * block cannot move. */
static int64_t oom_movable(const struct gp_wire_oom *oom)
{
    int64_t loss, pieces = oom_positive(oom->idle_pieces);
    if (__builtin_mul_overflow(pieces, 2 * GP_OOM_PAGE, &loss))
        return 0;
    int64_t all = oom->idle_bytes - loss, one = oom->largest_idle_bytes - 2 * GP_OOM_PAGE;
    return oom_positive(all > one ? all : one);
}

/* Idle memory, together with the driver's free memory, would have covered the request if its
 * pages had been adjacent. */
static bool oom_is_fragmented(const struct gp_oom_case *c)
{
    const struct gp_wire_oom *oom = c->oom;
    int64_t room = oom_positive(c->sums->room_bytes), movable = oom_movable(oom);
    return oom->flags & GP_OOM_CACHE && oom->largest_idle_bytes < c->asked && room < c->asked &&
           movable >= c->asked - room;
}

static bool oom_is_expandable(const struct gp_wire_oom *oom)
{
    return strstr(oom->conf, "expandable_segments:True") != NULL;
}

static bool advice_expandable(const struct gp_oom_case *c)
{
    bool knows = strcmp(c->oom->policy, "caching") == 0 || strcmp(c->oom->policy, "pytorch") == 0;
    return oom_is_fragmented(c) && knows && !oom_is_expandable(c->oom);
}

/* For allocators whose segments cannot grow, or if growing was not enough. */
static bool advice_caching(const struct gp_oom_case *c)
{
    return oom_is_fragmented(c) && strcmp(c->oom->policy, "caching") != 0 && !advice_expandable(c);
}

/* Blocks of at least half the request stay whole. */
static int64_t oom_split_bytes(const struct gp_oom_case *c)
{
    return c->asked / 2 >> 20 << 20;
}

static bool advice_max_split(const struct gp_oom_case *c)
{
    return oom_is_fragmented(c) && strcmp(c->oom->policy, "pytorch") == 0 && !oom_is_expandable(c->oom) &&
           !strstr(c->oom->conf, "max_split_size_mb") && oom_split_bytes(c) >= GP_OOM_SPLIT_LEAST;
}

static bool oom_would_do(const struct gp_oom_case *c, int64_t bytes)
{
    return c->sums->missing_bytes > 0 && bytes >= c->sums->missing_bytes;
}

static bool advice_pool(const struct gp_oom_case *c)
{
    return oom_would_do(c, c->sums->pool_idle_bytes);
}

static bool advice_graph(const struct gp_oom_case *c)
{
    return oom_would_do(c, c->sums->graph_idle_bytes);
}

static bool advice_others(const struct gp_oom_case *c)
{
    int64_t ours = c->sums->others_are_sure ? 0 : GP_OOM_CONTEXT_BYTES;
    return oom_would_do(c, c->sums->other_bytes - ours);
}

static bool advice_again(const struct gp_oom_case *c)
{
    return c->asked > 0 && c->sums->missing_bytes == 0 && !(c->framework->flags & GP_OOM_REFUSED);
}

static bool advice_less(const struct gp_oom_case *c)
{
    (void)c;
    return true;
}

/* ---- words ---------------------------------------------------------------------------------------------------- */

static void say_too_large(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    (void)sure;
    char asked[GP_OOM_SIZE], total[GP_OOM_SIZE];
    gp_oom_say(page, NULL, "- ask for less: %s is more than the whole device has (%s)", gp_oom_size(asked, c->asked),
               gp_oom_size(total, c->sums->total_bytes));
}

static void say_limit(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    (void)sure;
    char limit[GP_OOM_SIZE], needed[GP_OOM_SIZE];
    int64_t bytes = c->oom->reserved_bytes - oom_positive(c->oom->releasable_bytes) + c->asked;
    gp_oom_say(
        page, NULL,
        "- raise the limit: %s refused this request, not the device; it takes %s (--limit, GPUPROF_MEMORY_LIMIT)",
        gp_oom_size(limit, c->oom->limit_bytes), gp_oom_size(needed, bytes));
}

static void say_cap(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    (void)sure;
    char cap[GP_OOM_SIZE], total[GP_OOM_SIZE], needed[GP_OOM_SIZE];
    gp_oom_say(page, NULL,
               "- raise the cgroup's limit (dmem.max, nvidia-smi, NVIDIA_GPU_MEMORY_LIMIT) or MPS's: the driver lets "
               "this process use %s of the device's %s, and this takes %s",
               gp_oom_size(cap, c->sums->capped_bytes), gp_oom_size(total, c->sums->total_bytes),
               gp_oom_size(needed, c->sums->capped_bytes + c->sums->missing_bytes));
}

static void say_expandable(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    (void)sure;
    char movable[GP_OOM_SIZE];
    gp_oom_say(page, NULL,
               "- --alloc-conf=expandable_segments:True (or GPUPROF_ALLOC_CONF): whole pages of idle memory, %s "
               "at least, can then be put together",
               gp_oom_size(movable, oom_movable(c->oom)));
}

static void say_caching(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    (void)sure;
    char movable[GP_OOM_SIZE];
    gp_oom_say(page, NULL,
               "- --allocator=caching --alloc-conf=expandable_segments:True: whole pages of idle memory, %s at "
               "least, can then be put together",
               gp_oom_size(movable, oom_movable(c->oom)));
}

static void say_max_split(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    (void)sure;
    gp_oom_say(page, NULL,
               "- --alloc-conf=max_split_size_mb:%lld: larger blocks stay whole for requests like this one, "
               "where small ones took from them",
               (long long)(oom_split_bytes(c) >> 20));
}

static void say_pool(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    (void)sure;
    char idle[GP_OOM_SIZE];
    gp_oom_say(page, NULL,
               "- trim the memory pools (cuMemPoolTrimTo, or a lower release threshold): %s would come back",
               gp_oom_size(idle, c->sums->pool_idle_bytes));
}

static void say_graph(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    (void)sure;
    char idle[GP_OOM_SIZE];
    gp_oom_say(page, NULL, "- trim the graphs' memory (cuDeviceGraphMemTrim): %s would come back",
               gp_oom_size(idle, c->sums->graph_idle_bytes));
}

static void say_others(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    (void)sure;
    char others[GP_OOM_SIZE], missing[GP_OOM_SIZE];
    gp_oom_say(page, NULL, "- stop or move other processes %s%s: they hold %s%s, and %s is missing",
               c->sums->capped_bytes ? "under this limit" : "on this device",
               c->sums->others_are_sure ? "" : " (see nvidia-smi)", c->sums->others_are_sure ? "" : "up to ",
               gp_oom_size(others, c->sums->other_bytes), gp_oom_size(missing, c->sums->missing_bytes));
}

static void say_again(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    (void)sure;
    char room[GP_OOM_SIZE];
    gp_oom_say(page, NULL,
               "- try again: right after the failure %s was free, as if another program had just given memory back",
               gp_oom_size(room, c->oom->free_bytes));
}

static void say_less(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    (void)sure;
    char missing[GP_OOM_SIZE];
    bool limited = c->framework->flags & GP_OOM_REFUSED;
    int64_t gives = c->framework->flags & GP_OOM_FRAMEWORK ? 0 : oom_positive(c->oom->releasable_bytes);
    int64_t bytes = limited ? 0 : gp_oom_needed(c->oom, c->framework) - c->sums->room_bytes - gives;
    const char *settings = oom_framework_settings(c);
    if (c->sums->room_bytes >= 0 && bytes > 0)
        gp_oom_say(page, NULL, "- free %s more, or ask for less%s%s", gp_oom_size(missing, bytes),
                   *settings ? ": " : "", settings);
    else
        gp_oom_say(page, NULL, "- free more, or ask for less%s",
                   limited ? "" : ": no setting is known that would have helped");
}

static const struct {
    const char *name;
    bool alone;                                                /* advice after it adds nothing */
    bool last;                                                 /* only if no advice before it helps */
    bool (*applies)(const struct gp_oom_case *c);              /* it helps, or it does not */
    enum gp_oom_answer (*answer)(const struct gp_oom_case *c); /* the same where it may not be known */
    void (*say)(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure);
} gp_advices[GP_ADVICES] = {
    [GP_ADVICE_TOO_LARGE] = {.name = "ask_for_less_than_the_device",
                             .alone = true,
                             .applies = advice_too_large,
                             .say = say_too_large},
    [GP_ADVICE_LIMIT] = {.name = "raise_limit", .applies = advice_limit, .say = say_limit},
    [GP_ADVICE_CAP] = {.name = "raise_driver_limit", .applies = advice_cap, .say = say_cap},
    [GP_ADVICE_EXPANDABLE] = {.name = "expandable_segments", .applies = advice_expandable, .say = say_expandable},
    [GP_ADVICE_CACHING] = {.name = "allocator_caching", .applies = advice_caching, .say = say_caching},
    [GP_ADVICE_MAX_SPLIT] = {.name = "max_split_size", .applies = advice_max_split, .say = say_max_split},
    [GP_ADVICE_FRACTION] = {.name = "raise_memory_fraction",
                            .answer = oom_torch_fraction,
                            .say = oom_say_torch_fraction},
    [GP_ADVICE_EMPTY] = {.name = "empty_cache", .answer = oom_torch_empty, .say = oom_say_torch_empty},
    [GP_ADVICE_LESS_CACHE] = {.name = "lower_memory_fraction", .answer = oom_less_cache, .say = oom_say_less_cache},
    [GP_ADVICE_TORCH_EXPANDABLE] = {.name = "pytorch_expandable_segments",
                                    .answer = oom_torch_expandable,
                                    .say = oom_say_torch_expandable},
    [GP_ADVICE_TORCH_SPLIT] = {.name = "pytorch_max_split_size", .answer = oom_torch_split, .say = oom_say_torch_split},
    [GP_ADVICE_POOL] = {.name = "trim_pools", .applies = advice_pool, .say = say_pool},
    [GP_ADVICE_GRAPH] = {.name = "trim_graphs", .applies = advice_graph, .say = say_graph},
    [GP_ADVICE_OTHERS] = {.name = "other_processes", .applies = advice_others, .say = say_others},
    [GP_ADVICE_AGAIN] = {.name = "try_again", .last = true, .applies = advice_again, .say = say_again},
    [GP_ADVICE_LESS] = {.name = "free_or_ask_for_less", .last = true, .applies = advice_less, .say = say_less},
};

const char *gp_oom_advice_name(enum gp_oom_advice advice)
{
    return (unsigned)advice < GP_ADVICES ? gp_advices[advice].name : NULL;
}

static enum gp_oom_answer oom_answer(unsigned advice, const struct gp_oom_case *c)
{
    if (gp_advices[advice].answer)
        return gp_advices[advice].answer(c);
    return gp_advices[advice].applies(c) ? GP_OOM_HELPS : GP_OOM_FAILS;
}

static struct gp_oom_advised oom_advised(const struct gp_oom_case *c)
{
    struct gp_oom_advised advised = {0};
    for (unsigned i = 0; i < GP_ADVICES; i++) {
        if (gp_advices[i].last && advised.helps)
            continue;
        enum gp_oom_answer answer = oom_answer(i, c);
        advised.helps |= (unsigned)(answer == GP_OOM_HELPS) << i;
        advised.unknown |= (unsigned)(answer == GP_OOM_UNKNOWN) << i;
        advised.fails |= (unsigned)(answer == GP_OOM_FAILS && gp_advices[i].answer) << i;
        if (gp_advices[i].alone && answer == GP_OOM_HELPS)
            return (struct gp_oom_advised){.helps = 1u << i};
    }
    return advised;
}

struct gp_oom_advised gp_oom_advise(const struct gp_oom_facts *facts)
{
    struct gp_oom_sums sums;
    gp_oom_sum(&sums, facts);
    return oom_advised(&(struct gp_oom_case){facts->oom, gp_oom_framework_of(facts), &sums, gp_oom_asked(facts->oom)});
}

/* What is sure comes first. */
void gp_oom_advice_say(struct gp_oom_page *page, const struct gp_oom_facts *facts, const struct gp_oom_sums *sums)
{
    struct gp_oom_case c = {facts->oom, gp_oom_framework_of(facts), sums, gp_oom_asked(facts->oom)};
    struct gp_oom_advised advised = oom_advised(&c);
    page->label = "what helps";
    for (unsigned i = 0; i < GP_ADVICES; i++)
        if (advised.helps >> i & 1)
            gp_advices[i].say(page, &c, true);
    for (unsigned i = 0; i < GP_ADVICES; i++)
        if (advised.unknown >> i & 1)
            gp_advices[i].say(page, &c, false);
}
