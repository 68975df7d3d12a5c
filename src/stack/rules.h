/* SPDX-License-Identifier: MIT
 *
 * rules.h: the unwind rules of return addresses, for native.c. Each is learned once from the
 * loaded objects and kept in a table that is read without a lock.
 */
#ifndef GP_STACK_RULES_H
#define GP_STACK_RULES_H

#include "base/compiler.h"
#include "cfi.h"
#include <stdbool.h>
#include <stdint.h>

/* A word of the table is tag | rule. User-space return addresses have 47 bits: the lowest 14 say
 * where the word is looked for first, and 11 of them select the cache line where it must be; the
 * others are the tag, so that a hit never belongs to another address. The lowest bits vary most,
 * neighbouring code shares lines, and no multiplication stands between an address and its word.
 *
 *      63        28 27      17 16 15        3 2   0
 *      |    tag    |  bp / 8  | 0 | offset / 8 | way |
 *
 * bp: 0: unchanged; n: saved at CFA - 8 n. */
#define GP_RULE_PC_BITS   47
#define GP_RULE_LINE_BITS 11
#define GP_RULE_LINES     (1u << GP_RULE_LINE_BITS)
#define GP_RULE_WAYS      8u /* words of a cache line */
#define GP_RULE_OFFSETS   (1u << 13)
#define GP_RULE_BPS       (1u << 11)
#define GP_RULE_WIDES     1024u

enum gp_rule_way {
    GP_RULE_NONE,  /* an empty word */
    GP_RULE_SP,    /* CFA = sp + offset */
    GP_RULE_BP,    /* CFA = bp + offset */
    GP_RULE_END,   /* outermost frame, or cannot be followed */
    GP_RULE_CHAIN, /* no table describes this code: follow its frame pointer */
    GP_RULE_WIDE,  /* offset / 8 is an index in gp_rule_wides */
    GP_RULE_DATA,  /* not code: an earlier step was wrong */
};

extern uint64_t (*gp_rules)[GP_RULE_WAYS];
extern struct gp_cfi_rule *gp_rule_wides;

/* Allocates the table, once, at start. 0 or -errno. */
int gp_rules_start(void);
/* Finds the words that show a change of the loader's list (rules.c). Once, at start, after
 * gp_rules_start: asks the loader through base/opener.h. Until then each stack asks dl_iterate_phdr. */
void gp_rules_watch(void);

/* Forgets the rules if objects were loaded or unloaded since they were learned. Call before each
 * stack. false: the loader could not be asked (the process forks), and rules may be those of
 * unloaded objects. */
bool gp_rules_fresh(void);
/* How often gp_rules_fresh noticed a change, its first look included. */
uint64_t gp_rules_changes(void);

/* Learns the word of a pc that is not in the table. *wide receives its rule if the table of wide
 * rules is full. 0: the loader could not be asked. */
GP_COLD uint64_t gp_rule_learn(uint64_t pc, struct gp_cfi_rule *wide);

static inline enum gp_rule_way gp_rule_way(uint64_t word)
{
    return (enum gp_rule_way)(word & 7);
}
static inline uint64_t gp_rule_offset(uint64_t word) /* in bytes */
{
    return word & 8 * (GP_RULE_OFFSETS - 1);
}
static inline uint64_t gp_rule_back(uint64_t word) /* how far below the CFA bp is saved, in bytes */
{
    return word >> 14 & 8 * (GP_RULE_BPS - 1);
}
#define GP_RULE_NO_INDEX (GP_RULE_OFFSETS - 1) /* a wide rule that only the caller has */

static inline uint64_t gp_rule_tag(uint64_t pc)
{
    return pc >> (GP_RULE_LINE_BITS + 3) << 31 | (pc & 7) << 28;
}
/* The i-th place where the word of pc may be. */
static inline uint64_t *gp_rule_place(uint64_t (*rules)[GP_RULE_WAYS], uint64_t pc, unsigned i)
{
    return &rules[pc / GP_RULE_WAYS % GP_RULE_LINES][(pc + i) % GP_RULE_WAYS];
}

/* The word of pc; 0: not in the table. */
static inline uint64_t gp_rule_look(uint64_t pc)
{
    if (pc >> GP_RULE_PC_BITS)
        return 0;
    for (unsigned i = 0; i < GP_RULE_WAYS; i++) {
        /* [rules.A] acquire pairs with [rules.R]: a wide rule is complete when its word is
         * visible. */
        uint64_t word = __atomic_load_n(gp_rule_place(gp_rules, pc, i), __ATOMIC_ACQUIRE);
        if (word >> 28 << 28 == gp_rule_tag(pc) && word)
            return word;
    }
    return 0;
}

#endif
