/* SPDX-License-Identifier: MIT
 *
 * internal.h: declarations that the files of stack/ share. No other folder includes it; python.h has
 * those of the files that read Python.
 */
#ifndef GP_STACK_INTERNAL_H
#define GP_STACK_INTERNAL_H

#include "base/compiler.h"
#include "stack/stack.h"
#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ==== stacks ====================================================================================================== */
/* How a stack is read. site.c stores the stacks that native.c and python.c read; owner.c looks for
 * the library that asked for memory. */

/* Return addresses of the calling thread, innermost first, at most `room`. The caller's own frames
 * in libgpuprof may be among them; viewers leave them out. Reads only the thread's own stack and
 * the loaded objects' unwind tables; a frame that cannot be followed ends the stack. *more: there
 * was not enough room. */
unsigned gp_stack_native(uint64_t *pcs, unsigned room, bool *more);
/* The same in parts, without the frames of ours that are known to be innermost (gp_thread_entered). begin: the place of the
 * first return address; false: it cannot be told. more: those that follow; fewer than `room`: there are no others. The
 * function that calls begin may not return before the last more. */
struct gp_stack_place {
    uint64_t pc, sp, bp; /* pc 0: the end */
};
bool gp_stack_begin(struct gp_stack_place *place);
unsigned gp_stack_more(struct gp_stack_place *place, uint64_t *pcs, unsigned room);

/* A number that differs from the last one if gp_stack_native noticed since that objects were loaded
 * or unloaded. */
uint64_t gp_stack_generation(void);

/* The Python frames of the calling thread, innermost first, whether or not it holds the GIL; 0 if
 * it is not a Python thread, or the version is unknown. Calls five functions of the interpreter
 * that read one variable each; runs none of its code that waits or allocates, takes no reference
 * and writes nothing there. The strings are not NUL-terminated, and valid until gp_stack_python's
 * caller returns. */
struct gp_python_text {
    const char *bytes;
    uint32_t length; /* UTF-8 */
};
struct gp_python_frame {
    uint64_t code;                        /* address of the code object: identifies it as long as it lives */
    struct gp_python_text function, file; /* qualified name where the version has one */
    uint32_t line;
};
unsigned gp_stack_python(struct gp_python_frame *frames, unsigned room, bool *more);

/* Whether the calling thread has Python frames that gp_stack_python can read; otherwise its caller saves
 * the arrays for them, which a small stack has no room for. *more: it has some, and the stack is too
 * small to read them. */
bool gp_stack_has_python(bool *more);

/* At most this many bytes of a text are kept. */
#define GP_STACK_TEXT 512u

/* ==== hashes ====================================================================================================== */
/* Hashes for tables in memory. Equal hashes do not prove equality: callers must compare the hashed
 * values too. */

/* Combines both halves of a product, so that every bit of a and b affects the result. */
static inline uint64_t gp_mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)(a ^ 0x9e3779b97f4a7c15ull) * (b ^ 0xbf58476d1ce4e5b9ull);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t gp_mix_more(uint64_t hash, uint64_t word)
{
    return (hash << 9 | hash >> 55) ^ gp_mix(word, 0x94d049bb133111ebull);
}

static inline uint64_t gp_mix_bytes(const void *bytes, uint64_t n)
{
    const char *at = bytes;
    uint64_t hash = n, word;
    for (; n >= 8; n -= 8, at += 8) {
        memcpy(&word, at, 8);
        hash = gp_mix(hash, word);
    }
    word = 0;
    memcpy(&word, at, n);
    return gp_mix(hash, word);
}

/* ==== names of Python frames ====================================================================================== */
/* Stores the names of Python frames, each once. A name is its offset in the strings; 0 is "". Called
 * by site.c on any thread. */

/* Once, at start. limit: bytes of `strings`, which lie in the session. 0 or -errno. */
int gp_names_start(struct gp_wire_sites *head, char *strings, uint32_t limit);

/* Fills in *to. *full is set if a name had no room; it is "" then. */
void gp_names_frame(const struct gp_python_frame *from, struct gp_wire_frame *to, bool *full);

/* ==== live bytes ================================================================================================== */
/* The live bytes of each site and its bytes at the device's peak. Used by site.c, which implements
 * the rest of stack.h. */

/* Call once at start, before any site is handed out. The numbers of the sites are kept in rows[0 ..
 * limit); the caller writes the identities of the sites into the same rows. */
void gp_live_start(struct gp_wire_sites *head, struct gp_wire_site *rows, uint32_t limit);

/* Changes the site so that all summed sites of its device hold `bytes`; counts: and `count` blocks. */
void gp_live_settle(uint32_t site, int64_t bytes, int64_t count, bool counts);

/* ==== loaded objects ============================================================================================== */
/* The loaded objects by address, for owner.c. */

/* Large Python programs load 500 objects. Further objects have no entry, and the owner of memory
 * that they request is unknown. */
#define GP_OBJECTS       2048u
#define GP_OBJECT_NAME   48u
#define GP_OBJECT_NO_ROW UINT8_MAX

/* owner.c reads the fields with an x_ without a lock. */
struct gp_owner_object {
    uint64_t x_low, x_high;    /* executable addresses */
    const char *x_owner;       /* as gp_known_owner; NULL: an intermediary; "": use the file name */
    uint8_t x_row;             /* its row in the table of owners */
    bool x_segment;            /* gp_owner_segments_of names it */
    char name[GP_OBJECT_NAME]; /* of its file, without the folder */
};

/* Reads the loader's list again into `objects`, by falling address. Returns their number, or -1 if
 * the process is forking. Called by one thread at a time, inside gp_loader_with if it holds a lock. */
int gp_object_list(struct gp_owner_object objects[GP_OBJECTS]);

/* The object of an address among `count` ones in falling order, or -1. Loads with acquire, and ends
 * whatever it finds: another thread may write the list meanwhile. */
int gp_object_find(const struct gp_owner_object *objects, unsigned count, uint64_t pc);

static inline bool gp_object_has(const struct gp_owner_object *object, uint64_t pc)
{
    return __atomic_load_n(&object->x_low, __ATOMIC_ACQUIRE) <= pc &&
           pc < __atomic_load_n(&object->x_high, __ATOMIC_ACQUIRE);
}

/* ==== the thread's own stack ====================================================================================== */
/* The bounds of the calling thread's own stack. Called by native.c and python.c. */

/* [low, high) was probed page by page once and stays mapped as long as the thread lives. Empty: not
 * probed yet. */
struct gp_own_stack {
    uint64_t low, high;
};
extern __thread struct gp_own_stack gp_own_stack_bounds __attribute__((tls_model("initial-exec")));

/* Call once, before the first stack is walked. */
void gp_own_stack_start(void);

/* Extends the bounds of the calling thread down to sp. false: sp lies on another stack (a
 * coroutine's, a signal's). */
GP_COLD bool gp_own_stack_widen(uint64_t sp);

/* A buffer through which a stack that is not the thread's own is read: the kernel copies, and fails
 * where no page is mapped. */
struct gp_peek {
    uint64_t at, bytes;
    uint64_t words[64];
};
/* One word at `address`; false: it is not mapped. */
bool gp_ownstack_word(struct gp_peek *peek, uint64_t address, uint64_t *word);

/* ==== unwind tables =============================================================================================== */
/* Looks up one code address in an object's unwind table (x86-64). It is independent of any process:
 * the caller passes the bytes and their bounds, nothing outside them is read, and no byte in them is
 * trusted.
 *
 * A rule says how to get from a frame to its caller's frame. sp and bp are the registers in the
 * frame:
 *
 *      CFA = base + offset            or, behind a realigned stack,    CFA = *(base + offset) + add
 *
 * where base is sp or bp. The caller's sp is the CFA; the places say where its bp and its pc are. */

enum gp_cfi_place {
    GP_CFI_LOST, /* unknown */
    GP_CFI_SAME, /* unchanged */
    GP_CFI_CFA,  /* saved in memory, at an offset from the CFA ... */
    GP_CFI_BP,   /* ... from the frame's bp ... */
    GP_CFI_SP,   /* ... from its sp */
};

struct gp_cfi_rule {
    uint8_t base; /* GP_CFI_BP, GP_CFI_SP */
    uint8_t deref;
    uint8_t bp, ra; /* places */
    int32_t offset, add, bp_offset, ra_offset;
};

enum gp_cfi_answer {
    GP_CFI_NONE, /* the table does not describe this address */
    GP_CFI_RULE,
    GP_CFI_END, /* the outermost frame, or one that cannot be followed */
};

struct gp_cfi_table {
    const uint8_t *begin, *end; /* the readable segment that contains both sections */
    const uint8_t *header;      /* .eh_frame_hdr in it */
};

/* pc: a return address. The lookup uses pc - 1, which lies in the call before it. */
enum gp_cfi_answer gp_cfi_find(const struct gp_cfi_table *table, uint64_t pc, struct gp_cfi_rule *rule);

/* ==== unwind rules ================================================================================================ */
/* The unwind rules of return addresses, for native.c. Each is learned once from the loaded objects
 * and kept in a table that is read without a lock. */

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
