/* SPDX-License-Identifier: MIT
 *
 * rules.c: learns rules from the unwind tables of the loaded objects, and forgets them when
 * the loader changed its list of objects.
 *
 * Both happen inside dl_iterate_phdr, under the loader's own lock: no object can be unmapped while
 * its table is read, and a rule never enters the table after its object was unloaded. That lock is
 * recursive, and no lock of gpuprof is held when it is taken (base/loader.h).
 *
 * To detect a change, dl_iterate_phdr would report dlpi_adds and dlpi_subs, but it takes a mutex
 * that all threads share. Its numbers are words of the loader's own state, _rtld_global, whose
 * layout is private. So every word of that state that equals one of the numbers is watched, and
 * whenever rules are learned the watched words are compared with dl_iterate_phdr itself. If they
 * ever missed a change, or if no word can be watched, dl_iterate_phdr is called each time.
 */
#include "base/kept.h"
#include "base/loader.h"
#include "base/opener.h"
#include "stack/internal.h"
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

/* adds, and the number of loaded objects in the first namespace, which often equals adds - subs:
 * two or three words match. */
#define WATCHES 16u
/* struct rtld_global has about 4 KiB; a larger symbol is something else. */
#define LOADER_BYTES (1u << 16)
/* Nothing is mapped below this address (vm.mmap_min_addr). */
#define LOWEST_CODE 0x10000u

uint64_t (*gp_rules)[GP_RULE_WAYS];
struct gp_cfi_rule *gp_rule_wides;

static const uint64_t *loader;
static uint32_t loader_words;

/* The watched words and their values. Written under the loader's lock, read by all threads: see
 * gp_rules_fresh. */
static uint32_t x_watches; /* 0: call dl_iterate_phdr instead */
static const uint64_t *x_watch[WATCHES];
static uint64_t x_watched[WATCHES];
/* Under the loader's lock: */
static uint64_t known_adds, known_subs;
static bool known, unwatchable;
static uint32_t wides;
static uint64_t x_changes;

/* ---- detecting a change ------------------------------------------------------------------------------------------ */

/* The loader writes these words under its lock. A stale value only means that the stack is read as
 * of a moment ago. */
static uint64_t loader_word(const uint64_t *at)
{
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}

static bool watch_moved(void)
{
    /* [watch.A1] acquire pairs with [watch.R1]: the words that belong to that count. [watch.A2]
     * acquire pairs with [watch.R2]: a thread that sees a new value also sees that the rules of the
     * old one were forgotten. */
    uint32_t n = __atomic_load_n(&x_watches, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < n; i++)
        if (loader_word(__atomic_load_n(&x_watch[i], __ATOMIC_RELAXED)) !=
            __atomic_load_n(&x_watched[i], __ATOMIC_ACQUIRE))
            return true;
    return n == 0;
}

static void watch_begin(void)
{
    uint32_t n = 0;
    __atomic_store_n(&x_watches, 0, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < loader_words && !unwatchable; i++) {
        uint64_t value = loader_word(&loader[i]);
        if (value != known_adds && value != known_adds - known_subs)
            continue;
        if (n == WATCHES) {
            unwatchable = true;
            return;
        }
        __atomic_store_n(&x_watch[n], &loader[i], __ATOMIC_RELAXED);
        __atomic_store_n(&x_watched[n++], value, __ATOMIC_RELEASE); /* [watch.R2] pairs with [watch.A2] */
    }
    /* [watch.R1] release pairs with [watch.A1]. */
    __atomic_store_n(&x_watches, n, __ATOMIC_RELEASE);
}

static void rules_forget(void)
{
    for (uint32_t line = 0; line < GP_RULE_LINES; line++)
        for (uint32_t way = 0; way < GP_RULE_WAYS; way++)
            if (__atomic_load_n(&gp_rules[line][way], __ATOMIC_RELAXED))
                __atomic_store_n(&gp_rules[line][way], 0, __ATOMIC_RELAXED);
}

/* Called under the loader's lock, with its current numbers. */
static void rules_check(const struct dl_phdr_info *info)
{
    bool changed = !known || info->dlpi_adds != known_adds || info->dlpi_subs != known_subs;
    bool moved = watch_moved();
    if (known && changed && !moved)
        unwatchable = true; /* the watched words missed a change */
    if (changed) {
        rules_forget();
        __atomic_fetch_add(&x_changes, 1, __ATOMIC_RELAXED); /* before the watches tell that all is fresh */
    }
    known = true;
    known_adds = info->dlpi_adds;
    known_subs = info->dlpi_subs;
    if (changed || (moved && x_watches)) /* or a watched word matched only by chance */
        watch_begin();
}

static int rules_fresh_visit(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    (void)argument;
    rules_check(info);
    return 1;
}

/* An object whose code is on this thread's stack was loaded before that code ran, so this thread
 * sees the loader's words as of that load or later. */
bool gp_rules_fresh(void)
{
    return GP_LIKELY(!watch_moved()) || gp_loader_look(rules_fresh_visit, NULL);
}

uint64_t gp_rules_changes(void)
{
    return __atomic_load_n(&x_changes, __ATOMIC_RELAXED);
}

/* ---- learning ---------------------------------------------------------------------------------------------------- */

struct learn {
    uint64_t pc;
    enum gp_cfi_answer answer;
    bool checked, is_data, found;
    uint64_t word, adds;
    struct gp_cfi_rule rule;
};

static bool fits(const struct gp_cfi_rule *rule)
{
    return !rule->deref && rule->offset > 0 && rule->offset % 8 == 0 && rule->ra == GP_CFI_CFA &&
           rule->ra_offset == -8 && rule->offset / 8 < (int32_t)GP_RULE_OFFSETS &&
           (rule->bp == GP_CFI_SAME || (rule->bp == GP_CFI_CFA && rule->bp_offset < 0 && rule->bp_offset % 8 == 0 &&
                                        rule->bp_offset > -8 * (int32_t)GP_RULE_BPS));
}

/* Equal rules share one place, which is never reused: a rule that a reader has found does not
 * change. */
static uint32_t wide_index(const struct gp_cfi_rule *rule)
{
    for (uint32_t i = 0; i < wides; i++)
        if (memcmp(&gp_rule_wides[i], rule, sizeof *rule) == 0)
            return i;
    if (wides == GP_RULE_WIDES)
        return GP_RULE_NO_INDEX;
    gp_rule_wides[wides] = *rule;
    return wides++;
}

static uint64_t word_of(enum gp_rule_way way, uint64_t offset, uint64_t back)
{
    return back << 14 | offset | way;
}

static uint64_t learn_word(const struct learn *learn)
{
    const struct gp_cfi_rule *rule = &learn->rule;
    if (learn->is_data)
        return word_of(GP_RULE_DATA, 0, 0);
    if (learn->answer != GP_CFI_RULE)
        return word_of(learn->answer == GP_CFI_END ? GP_RULE_END : GP_RULE_CHAIN, 0, 0);
    if (!fits(rule))
        return word_of(GP_RULE_WIDE, 8ull * wide_index(rule), 0);
    uint64_t back = rule->bp == GP_CFI_SAME ? 0 : (uint64_t)-rule->bp_offset;
    return word_of(rule->base == GP_CFI_BP ? GP_RULE_BP : GP_RULE_SP, (uint64_t)rule->offset, back);
}

static void learn_keep(const struct learn *learn)
{
    bool unindexed = gp_rule_way(learn->word) == GP_RULE_WIDE && gp_rule_offset(learn->word) == 8 * GP_RULE_NO_INDEX;
    if (learn->pc >> GP_RULE_PC_BITS || unindexed)
        return;
    uint64_t tag = gp_rule_tag(learn->pc), *at = gp_rule_place(gp_rules, learn->pc, 0);
    for (unsigned i = 0; i < GP_RULE_WAYS; i++) {
        uint64_t *next = gp_rule_place(gp_rules, learn->pc, i), word = __atomic_load_n(next, __ATOMIC_RELAXED);
        if (word == 0 || word >> 28 << 28 == tag) {
            at = next;
            break;
        }
    }
    /* [rules.R] release pairs with [rules.A]. */
    __atomic_store_n(at, tag | learn->word, __ATOMIC_RELEASE);
}

static const ElfW(Phdr) * segment_of(const struct dl_phdr_info *info, uint64_t address)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && address - (info->dlpi_addr + segment->p_vaddr) < segment->p_memsz)
            return segment;
    }
    return NULL;
}

static void learn_from(const struct dl_phdr_info *info, struct learn *learn)
{
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type != PT_GNU_EH_FRAME)
            continue;
        uint64_t address = info->dlpi_addr + header->p_vaddr;
        const ElfW(Phdr) *segment = segment_of(info, address);
        if (!segment || !(segment->p_flags & PF_R))
            return;
        /* Only the part of the segment that comes from the file: the pages behind it may be
         * missing. */
        uint64_t begin = info->dlpi_addr + segment->p_vaddr;
        struct gp_cfi_table table = {(const uint8_t *)begin, (const uint8_t *)(begin + segment->p_filesz),
                                     (const uint8_t *)address};
        learn->answer = gp_cfi_find(&table, learn->pc, &learn->rule);
        return;
    }
}

static int learn_visit(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct learn *learn = argument;
    (void)size;
    if (!learn->checked) {
        rules_check(info);
        learn->adds = info->dlpi_adds;
    }
    learn->checked = true;
    const ElfW(Phdr) *segment = segment_of(info, learn->pc - 1);
    if (!segment)
        return 0;
    learn->is_data = !(segment->p_flags & PF_X);
    if (!learn->is_data)
        learn_from(info, learn);
    learn->word = learn_word(learn);
    learn->found = true;
    learn_keep(learn);
    return 1;
}

/* Keeps the rule of code outside all objects, unless an object was loaded meanwhile. */
static int learn_none(struct dl_phdr_info *info, size_t size, void *argument)
{
    const struct learn *learn = argument;
    (void)size;
    rules_check(info);
    if (info->dlpi_adds == learn->adds)
        learn_keep(learn);
    return 1;
}

uint64_t gp_rule_learn(uint64_t pc, struct gp_cfi_rule *wide)
{
    struct learn learn = {.pc = pc, .answer = GP_CFI_NONE, .is_data = pc < LOWEST_CODE || pc >> GP_RULE_PC_BITS};
    learn.word = learn_word(&learn);
    *wide = learn.rule;
    if (!learn.is_data && !gp_loader_look(learn_visit, &learn))
        return 0;
    if (!learn.is_data && !learn.found)
        gp_loader_look(learn_none, &learn);
    *wide = learn.rule;
    return learn.word;
}

int gp_rules_start(void)
{
    size_t bytes = GP_RULE_LINES * sizeof *gp_rules + GP_RULE_WIDES * sizeof *gp_rule_wides;
    char *memory = gp_kept_map(bytes, MAP_NORESERVE);
    if (!memory)
        return -errno;
    gp_rule_wides = (struct gp_cfi_rule *)(void *)(memory + GP_RULE_LINES * sizeof *gp_rules);
    gp_rules = (uint64_t(*)[GP_RULE_WAYS])(void *)memory;
    return 0;
}

void gp_rules_watch(void)
{
    void *state = gp_opener_symbol(RTLD_DEFAULT, "_rtld_global");
    const ElfW(Sym) *symbol = NULL;
    Dl_info where;
    if (state && dladdr1 && gp_opener_is_free() &&
        GP_LOADER(dladdr1(state, &where, (void **)&symbol, RTLD_DL_SYMENT)) && symbol && where.dli_saddr == state &&
        symbol->st_size <= LOADER_BYTES) {
        loader = state;
        loader_words = (uint32_t)(symbol->st_size / 8);
    }
    known = false; /* the next look begins to watch */
}
