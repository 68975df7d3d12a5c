/* SPDX-License-Identifier: MIT
 *
 * cfi.h: looks up one code address in an object's unwind table (x86-64). It is independent of any
 * process: the caller passes the bytes and their bounds, nothing outside them is read, and no byte
 * in them is trusted.
 *
 * A rule says how to get from a frame to its caller's frame. sp and bp are the registers in the
 * frame:
 *
 *      CFA = base + offset            or, behind a realigned stack,    CFA = *(base + offset) + add
 *
 * where base is sp or bp. The caller's sp is the CFA; the places say where its bp and its pc are.
 */
#ifndef GP_STACK_CFI_H
#define GP_STACK_CFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
