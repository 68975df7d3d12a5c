/* SPDX-License-Identifier: MIT
 *
 * native.c: the return addresses of the calling thread. x86-64: by the objects' unwind tables, with
 * one word per return address (internal.h), or by the frame pointer where no table describes the
 * code. AArch64: by frame pointers, which the platform's procedure call standard keeps.
 *
 * Whatever the tables say, only aligned words between the innermost frame and the stack's end are
 * read, and every caller's frame lies above the frame it called: the walk ends, and it cannot
 * fault.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr */
#endif
#include "base/loader.h"
#include "base/thread.h"
#include "stack/internal.h"
#include "stack/stack.h"
#include <stddef.h>
#include <string.h>
#include <sys/auxv.h>

/* A stack that is not the thread's own has no known end; the stacks of coroutines are smaller. */
#define FOREIGN_BYTES (8ull << 20)

struct walk {
    uint64_t pc, sp, bp; /* of the current frame */
    uint64_t low, high;  /* the readable range */
    struct gp_peek *peek;
};

/* These functions read other functions' frames, which sanitizers report as errors. */
#define UNCHECKED __attribute__((no_sanitize("address", "thread", "undefined")))

/* Where the compiler sees that peek is NULL, it drops the branch. */
UNCHECKED static inline bool walk_word(const struct walk *walk, uint64_t address, uint64_t *word)
{
    if (address - walk->low >= walk->high - walk->low || address % 8)
        return false;
    if (walk->peek)
        return gp_ownstack_word(walk->peek, address, word);
    *word = *(const uint64_t *)address;
    return true;
}

/* Steps to the caller of code that keeps a frame pointer. */
UNCHECKED static inline bool walk_chain(struct walk *walk)
{
    uint64_t bp = walk->bp;
    if (bp < walk->sp || !walk_word(walk, bp + 8, &walk->pc) || !walk_word(walk, bp, &walk->bp))
        return false;
    walk->sp = bp + 16;
    return true;
}

#if defined(__x86_64__)

static bool walk_place(const struct walk *walk, enum gp_cfi_place place, int32_t offset, uint64_t cfa, uint64_t *value)
{
    uint64_t from = place == GP_CFI_CFA ? cfa : place == GP_CFI_BP ? walk->bp : walk->sp;
    return walk_word(walk, from + (uint64_t)(int64_t)offset, value);
}

static GP_COLD bool walk_wide(struct walk *walk, const struct gp_cfi_rule *rule)
{
    uint64_t cfa = (rule->base == GP_CFI_BP ? walk->bp : walk->sp) + (uint64_t)(int64_t)rule->offset, pc, bp = walk->bp;
    if (rule->deref) {
        if (!walk_word(walk, cfa, &cfa))
            return false;
        cfa += (uint64_t)(int64_t)rule->add;
    }
    if (cfa <= walk->sp || cfa >= walk->high || cfa % 8 || !walk_place(walk, rule->ra, rule->ra_offset, cfa, &pc))
        return false;
    if (rule->bp == GP_CFI_LOST)
        bp = 0;
    else if (rule->bp != GP_CFI_SAME && !walk_place(walk, rule->bp, rule->bp_offset, cfa, &bp))
        return false;
    walk->sp = cfa;
    walk->bp = bp;
    walk->pc = pc;
    return true;
}

/* Steps one frame up in the common case. false: another rule is needed, and nothing changed. Each
 * frame depends on the one before it, so speed is bound by the chain from one return address to the
 * next: its word, the CFA, the next address. */
UNCHECKED static inline __attribute__((always_inline)) bool walk_fast(struct walk *walk,
                                                                      uint64_t (*rules)[GP_RULE_WAYS])
{
    /* Relaxed is enough: the slow path loads the word of a wide rule again, with acquire. */
    uint64_t word = __atomic_load_n(gp_rule_place(rules, walk->pc, 0), __ATOMIC_RELAXED);
    uint64_t back = gp_rule_back(word);
    enum gp_rule_way way = gp_rule_way(word);
    if (GP_UNLIKELY((word >> 28 << 28) != gp_rule_tag(walk->pc) || walk->pc >> GP_RULE_PC_BITS))
        return false;
    if (GP_UNLIKELY(way != GP_RULE_SP && way != GP_RULE_BP))
        return false;
    uint64_t cfa = (way == GP_RULE_BP ? walk->bp : walk->sp) + gp_rule_offset(word);
    /* low < cfa - back holds, too: the two are at most 16 KiB apart, and no stack is mapped so
     * low. */
    if (GP_UNLIKELY(cfa <= walk->sp || cfa >= walk->high || cfa - back < walk->low || cfa % 8))
        return false;
    uint64_t saved = *(const uint64_t *)(cfa - back);
    walk->bp = back ? saved : walk->bp;
    walk->pc = *(const uint64_t *)(cfa - 8);
    walk->sp = cfa;
    return true;
}

static GP_COLD bool walk_up(struct walk *walk, bool *data, bool *more)
{
    uint64_t word = gp_rule_look(walk->pc), back, cfa;
    struct gp_cfi_rule rule;
    if (!word)
        word = gp_rule_learn(walk->pc, &rule);
    back = gp_rule_back(word);
    cfa = gp_rule_offset(word);
    *data = false;
    switch (gp_rule_way(word)) {
    case GP_RULE_DATA:
        *data = true;
        return false;
    case GP_RULE_NONE:
        *more = true;
        return false;
    case GP_RULE_END:
        return false;
    case GP_RULE_CHAIN:
        return walk_chain(walk);
    case GP_RULE_WIDE:
        if (gp_rule_offset(word) != 8 * GP_RULE_NO_INDEX)
            return walk_wide(walk, &gp_rule_wides[gp_rule_offset(word) / 8]);
        gp_rule_learn(walk->pc, &rule);
        return walk_wide(walk, &rule);
    case GP_RULE_BP:
        cfa += walk->bp;
        break;
    case GP_RULE_SP:
        cfa += walk->sp;
        break;
    }
    if (cfa <= walk->sp || cfa >= walk->high || cfa % 8 || !walk_word(walk, cfa - 8, &walk->pc))
        return false;
    if (back && !walk_word(walk, cfa - back, &walk->bp))
        return false;
    walk->sp = cfa;
    return true;
}

#else

static inline bool walk_fast(struct walk *walk, uint64_t (*rules)[GP_RULE_WAYS])
{
    (void)walk;
    (void)rules;
    return false;
}

static bool walk_up(struct walk *walk, bool *data, bool *more)
{
    (void)more;
    *data = false;
    if (!walk_chain(walk))
        return false;
#if defined(__aarch64__)
    /* Return addresses may be signed. XPACLRI strips the signature from x30; older processors
     * execute it as a no-op. */
    register uint64_t lr __asm__("x30") = walk->pc;
    __asm__("hint #7" : "+r"(lr));
    walk->pc = lr;
#endif
    return true;
}

#endif

/* walk_up gets a copy, so that the fields of `walk` can stay in registers. */
UNCHECKED static inline __attribute__((always_inline)) bool
walk_step(struct walk *walk, bool own, uint64_t (*rules)[GP_RULE_WAYS], bool *data, bool *more)
{
    if (own && GP_LIKELY(walk_fast(walk, rules)))
        return walk->pc;
    struct walk copy = *walk;
    if (!walk_up(&copy, data, more))
        return false;
    *walk = copy;
    return walk->pc;
}

UNCHECKED static inline __attribute__((always_inline)) unsigned walk_all(struct walk walk, bool own, uint64_t *pcs,
                                                                         unsigned room, bool *more)
{
    uint64_t(*const rules)[GP_RULE_WAYS] = gp_rules;
    unsigned n = 0;
    bool data = false;
    for (bool has = walk.pc; has; has = walk_step(&walk, own, rules, &data, more)) {
        if (n == room) {
            *more = true;
            break;
        }
        pcs[n++] = walk.pc;
    }
    return n - (data && n);
}

/* The frames after the walk's, of which the last becomes the place. */
UNCHECKED static inline __attribute__((always_inline)) unsigned walk_part(struct walk walk, bool own, uint64_t *pcs,
                                                                          unsigned room, struct gp_stack_place *place)
{
    uint64_t(*const rules)[GP_RULE_WAYS] = gp_rules;
    unsigned n = 0;
    bool data = false, more, has = true;
    while (n < room && (has = walk_step(&walk, own, rules, &data, &more)))
        pcs[n++] = walk.pc;
    *place = (struct gp_stack_place){has ? walk.pc : 0, walk.sp, walk.bp};
    return n - (data && n);
}

static GP_COLD unsigned walk_foreign(struct walk walk, uint64_t *pcs, unsigned room, bool *more,
                                     struct gp_stack_place *place)
{
    struct gp_peek peek = {0};
    walk.high = walk.low + FOREIGN_BYTES;
    walk.peek = &peek;
    return place ? walk_part(walk, false, pcs, room, place) : walk_all(walk, false, pcs, room, more);
}

/* Without the loader, by the thread that starts the library. */
static int native_prepare(void)
{
    static int prepared = -1;
    if (prepared == 0)
        return 0;
    gp_own_stack_start();
#if defined(__x86_64__)
    prepared = gp_rules_start();
#else
    prepared = 0;
#endif
    return prepared;
}

int gp_native_start(void)
{
    static bool started;
    int error = native_prepare();
#if defined(__x86_64__)
    if (!error && !started)
        gp_rules_watch();
#endif
    started = !error;
    return error;
}

/* A start is some twenty calls below a constructor. */
#define LOADER_FRAMES 128u

struct native_search {
    uint64_t pcs[LOADER_FRAMES];
    unsigned count;
    bool found;
};

static int native_in_loader(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct native_search *search = arg;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    (void)size;
    /* Started by name, the loader has no AT_BASE. */
    if (info->dlpi_addr != getauxval(AT_BASE) && (!slash || strncmp(slash, "/ld-", 4) != 0))
        return 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        for (unsigned n = 0; n < search->count && part->p_type == PT_LOAD && part->p_flags & PF_X; n++)
            search->found |= search->pcs[n] - 1 - (info->dlpi_addr + part->p_vaddr) < part->p_memsz;
    }
    return search->found;
}

bool gp_native_is_in_loader(void)
{
    struct native_search search;
    bool more;
    if (native_prepare() != 0)
        return false;
    search.found = false;
    search.count = gp_stack_native(search.pcs, LOADER_FRAMES, &more);
    return gp_loader_look(native_in_loader, &search) && search.found;
}

#if defined(__x86_64__)

uint64_t gp_stack_generation(void)
{
    return gp_rules_changes();
}

#else

static int native_count(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(uint64_t *)arg = info->dlpi_adds + info->dlpi_subs;
    return 1;
}

uint64_t gp_stack_generation(void)
{
    uint64_t changes = 0;
    gp_loader_look(native_count, &changes);
    return changes;
}

#endif

static inline bool native_is_own(struct walk *walk)
{
    bool own = GP_LIKELY(walk->low >= gp_own_stack_bounds.low && walk->low < gp_own_stack_bounds.high) ||
               gp_own_stack_widen(walk->low);
    walk->high = gp_own_stack_bounds.high;
    return own;
}

static inline bool native_is_fresh(void)
{
#if defined(__x86_64__)
    return GP_LIKELY(gp_rules_fresh());
#else
    return true;
#endif
}

/* The frame of a function that has not returned and keeps a frame pointer: as one does that uses
 * __builtin_frame_address. */
static inline struct walk native_from(const uint64_t *frame)
{
    return (struct walk){frame[1], (uint64_t)(frame + 2), frame[0], (uint64_t)frame, 0, NULL};
}

UNCHECKED __attribute__((noinline)) unsigned gp_stack_native(uint64_t *pcs, unsigned room, bool *more)
{
    struct walk walk = native_from(__builtin_frame_address(0));
    *more = !native_is_fresh();
    if (GP_UNLIKELY(*more))
        return 0;
    return native_is_own(&walk) ? walk_all(walk, true, pcs, room, more) : walk_foreign(walk, pcs, room, more, NULL);
}

UNCHECKED __attribute__((noinline)) bool gp_stack_begin(struct gp_stack_place *place)
{
    const uint64_t *own = __builtin_frame_address(0);
    const uint64_t *entered = gp_thread_frame();
    struct walk walk = native_from(entered ? entered : own);
    *place = (struct gp_stack_place){walk.pc, walk.sp, walk.bp};
    return native_is_fresh();
}

UNCHECKED unsigned gp_stack_more(struct gp_stack_place *place, uint64_t *pcs, unsigned room)
{
    struct walk walk = {place->pc, place->sp, place->bp, place->sp, 0, NULL};
    if (!place->pc)
        return 0;
    return native_is_own(&walk) ? walk_part(walk, true, pcs, room, place) : walk_foreign(walk, pcs, room, NULL, place);
}
