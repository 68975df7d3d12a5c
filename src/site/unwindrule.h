/* SPDX-License-Identifier: MIT
 *
 * unwindrule.h: what native.c knows about return addresses, learned once each from the loaded objects and kept in a table
 * that is read without a lock.
 */
#ifndef GP_SITE_UNWINDRULE_H
#define GP_SITE_UNWINDRULE_H

#include "base/compiler.h"
#include "cfi.h"
#include <stdbool.h>
#include <stdint.h>

/* One word: tag | rule.  Of a return address of user space, 47 bits, the lowest 14 say where its word is looked for
 * first, and 11 of them the cache line where it must be; the others are the tag, so that a hit is never another
 * address's.  The lowest bits differ well, neighbours in the code share lines, and no product stands between an address
 * and its word.
 *
 *      63        28 27      17 16 15        3 2   0
 *      |    tag    |  bp / 8  | 0 | offset / 8 | way |
 *
 * bp: 0 unchanged, n: saved at CFA - 8 n. */
#define GP_RULE_PC_BITS   47
#define GP_RULE_LINE_BITS 11
#define GP_RULE_LINES     (1u << GP_RULE_LINE_BITS)
#define GP_RULE_WAYS      8u /* words of a cache line */
#define GP_RULE_OFFSETS   (1u << 13)
#define GP_RULE_BPS       (1u << 11)
#define GP_RULE_WIDES     1024u

enum gp_rule_way {
    GP_RULE_NONE,  /* the word of nothing */
    GP_RULE_SP,    /* CFA = sp + offset */
    GP_RULE_BP,    /* CFA = bp + offset */
    GP_RULE_END,   /* outermost, or cannot be followed */
    GP_RULE_CHAIN, /* no table knows this code: its frame pointer */
    GP_RULE_WIDE,  /* offset / 8 is an index of wides */
    GP_RULE_DATA,  /* no code at all: the way here was wrong */
};

extern uint64_t (*gp_rules)[GP_RULE_WAYS];
extern struct gp_cfi_rule *gp_rule_wides;

/* Room for the table; 0 or -errno. */
int gp_rules_start(void);

/* Did objects come or go since the rules were learned?  Then forgets them.  Before each stack.  False: the loader could
 * not be asked (the process forks), and the rules may be those of objects that are gone. */
bool gp_rules_fresh(void);

/* Not in the table.  The word for pc; *wide if its rule has no room in the table.  0: the loader could not be asked. */
GP_COLD uint64_t gp_rule_learn(uint64_t pc, struct gp_cfi_rule *wide);

static inline enum gp_rule_way gp_rule_way(uint64_t word)
{
    return (enum gp_rule_way)(word & 7);
}
static inline uint64_t gp_rule_offset(uint64_t word) /* in bytes */
{
    return word & 8 * (GP_RULE_OFFSETS - 1);
}
static inline uint64_t gp_rule_back(uint64_t word) /* of bp, in bytes */
{
    return word >> 14 & 8 * (GP_RULE_BPS - 1);
}
#define GP_RULE_NO_INDEX (GP_RULE_OFFSETS - 1) /* a wide rule that is in the caller's hands alone */

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
        /* [rules.A] acquire pairs with [rules.R]: a wide rule is whole when its word is seen. */
        uint64_t word = __atomic_load_n(gp_rule_place(gp_rules, pc, i), __ATOMIC_ACQUIRE);
        if (word >> 28 << 28 == gp_rule_tag(pc) && word)
            return word;
    }
    return 0;
}

#endif
