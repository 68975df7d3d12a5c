/* SPDX-License-Identifier: MIT
 *
 * cfi.h: what an object's unwind table says about one place in its code (x86-64).  Knows no process: it is given the
 * bytes and their bounds, reads nothing outside them, and trusts nothing in them.
 *
 * A rule says how to get from a frame to its caller's: sp and bp are the registers in the frame,
 *
 *      CFA = base + offset            or, behind a realigned stack,    CFA = *(base + offset) + add
 *
 * where base is sp or bp; the caller's sp is the CFA, its bp and its pc lie where the places say.
 */
#ifndef GP_SITE_CFI_H
#define GP_SITE_CFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gp_cfi_place {
    GP_CFI_LOST, /* nobody knows */
    GP_CFI_SAME, /* unchanged */
    GP_CFI_CFA,  /* in memory, this far from the CFA ... */
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
    GP_CFI_NONE, /* the table has nothing about this place */
    GP_CFI_RULE,
    GP_CFI_END, /* the outermost frame, or one that cannot be followed */
};

struct gp_cfi_table {
    const uint8_t *begin, *end; /* memory that may be read: the segment with both sections */
    const uint8_t *header;      /* .eh_frame_hdr in it */
};

/* pc: a return address; looked up is the call before it. */
enum gp_cfi_answer gp_cfi_find(const struct gp_cfi_table *table, uint64_t pc, struct gp_cfi_rule *rule);

#endif
