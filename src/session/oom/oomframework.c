/* SPDX-License-Identifier: MIT
 *
 * oomframework.c: the page about PyTorch's own allocator, and the advice about it. Replays of its requests say what a
 * setting would have done (allocator/replay.c). Where nothing could be replayed, sums bound it: no order of the blocks
 * lets a request fit that is larger than all idle and free memory. Everything between is not known, and so it is said.
 */
#include "session/oom/oompage.h"
#include <string.h>

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

static enum gp_oom_answer replayed(const struct gp_oom_case *c, enum gp_wire_oom_try bit)
{
    if (!has(c, GP_OOM_REPLAYED))
        return GP_OOM_UNKNOWN;
    return c->framework->helps >> bit & 1   ? GP_OOM_HELPS
           : c->framework->fails >> bit & 1 ? GP_OOM_FAILS
                                            : GP_OOM_UNKNOWN;
}

/* However the blocks lie, what is idle and free is too little. */
static bool cannot_fit(const struct gp_oom_case *c)
{
    int64_t unsplit, all;
    if (free_bytes(c) < 0 || has(c, GP_OOM_REFUSED))
        return false;
    if (__builtin_mul_overflow(positive(c->framework->blocks), GP_OOM_UNSPLIT, &unsplit))
        return false;
    all = positive(c->oom->idle_bytes) + free_bytes(c);
    return !__builtin_add_overflow(all, unsplit, &all) && c->asked > all;
}

/* ---- conditions --------------------------------------------------------------------------------------------------- */

enum gp_oom_answer gp_oom_fraction(const struct gp_oom_case *c)
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
enum gp_oom_answer gp_oom_empty(const struct gp_oom_case *c)
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

enum gp_oom_answer gp_oom_less_cache(const struct gp_oom_case *c)
{
    if (!has(c, GP_OOM_FRAMEWORK | GP_OOM_BESIDE) || c->oom->idle_bytes <= 0 || c->sums->missing_bytes == 0)
        return GP_OOM_NOT;
    if (cannot_fit(c))
        return GP_OOM_FAILS;
    return has(c, GP_OOM_REPLAYED) && replayed(c, GP_OOM_TRY_FRACTION) != GP_OOM_HELPS
               ? GP_OOM_NOT
               : replayed(c, GP_OOM_TRY_FRACTION);
}

enum gp_oom_answer gp_oom_torch_expandable(const struct gp_oom_case *c)
{
    bool full = c->sums->missing_bytes != 0 || has(c, GP_OOM_REFUSED);
    if (!has(c, GP_OOM_FRAMEWORK) || !full || c->oom->idle_bytes <= 0 ||
        strstr(c->oom->conf, "expandable_segments:True"))
        return GP_OOM_NOT;
    return cannot_fit(c) ? GP_OOM_FAILS : replayed(c, GP_OOM_TRY_EXPANDABLE);
}

/* Other sizes than those that were tried may help, so it is never denied. */
enum gp_oom_answer gp_oom_torch_split(const struct gp_oom_case *c)
{
    enum gp_oom_answer answer = replayed(c, GP_OOM_TRY_SPLIT);
    return has(c, GP_OOM_FRAMEWORK) && answer == GP_OOM_HELPS && c->framework->split_bytes > 0 ? GP_OOM_HELPS
                                                                                               : GP_OOM_NOT;
}

/* ---- words -------------------------------------------------------------------------------------------------------- */

void gp_oom_say_fraction(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    char most[GP_OOM_SIZE];
    int64_t bytes = positive(c->framework->segment_bytes) + gp_oom_needed(c->oom, c->framework);
    gp_oom_say(page, NULL,
               "- a larger torch.cuda.set_per_process_memory_fraction(): PyTorch's own limit refused this, not the "
               "device; it takes at least %s%s",
               gp_oom_size(most, bytes),
               sure ? "" : "; whether the device has enough for the whole program is not known");
}

void gp_oom_say_empty(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    char bytes[GP_OOM_SIZE];
    gp_oom_say(page, NULL, "- torch.cuda.empty_cache() before it: PyTorch gives %s%s back%s", sure ? "" : "up to ",
               gp_oom_size(bytes, returns(c)),
               sure ? "" : "; what CUDA graphs and MemPools hold of it stays, and how much that is, is not known");
}

void gp_oom_say_less_cache(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
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

void gp_oom_say_torch_expandable(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
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

void gp_oom_say_torch_split(struct gp_oom_page *page, const struct gp_oom_case *c, bool sure)
{
    (void)sure;
    gp_oom_say(page, NULL,
               "- PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:%lld" GP_OOM_NEW_NAME
               ": in a replay of PyTorch's requests, larger blocks stay whole for this one",
               (long long)(c->framework->split_bytes >> 20));
}

const char *gp_oom_framework_settings(const struct gp_oom_case *c)
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

/* Whose the segments without a block are. */
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
