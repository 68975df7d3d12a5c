/* SPDX-License-Identifier: MIT
 *
 * vmm.h: virtual memory: what vmm.c, vmmshare.c and memory.c share.
 */
#ifndef GP_ACCOUNT_VMM_H
#define GP_ACCOUNT_VMM_H

#include "base/counter.h"
#include "base/map.h"
#include <stdbool.h>
#include <stdint.h>

static inline int64_t gp_vmm_share(const struct gp_record *handle)
{
    return (int64_t)(handle->handle.mapped < handle->bytes ? handle->handle.mapped : handle->bytes);
}

/* The effect on the totals of a change of a handle's mappings. */
struct gp_vmm_change {
    /* in */
    uint64_t bytes;  /* of the mapping; 0: a multicast binding, which adds no allocated bytes */
    uint64_t extent; /* offset + bytes: a lower bound of an imported handle's size */
    bool heap;       /* the mapping was a heap's segment */
    uint8_t want;    /* GP_SEGMENT_*: what the mapping is to be */
    uint8_t owner;   /* of a framework's segment */
    uint8_t device;  /* on which it is one */
    /* out */
    struct gp_record before;
    struct gp_record after;
    bool turned;      /* the handle became a segment */
    int64_t share;    /* allocated bytes that are added or removed, >= 0 */
    bool crossed;     /* the first mapping was added, or the last one removed */
    bool died;        /* the record left the map: memory is free */
    int64_t imported; /* bytes by which an imported handle grew or shrank */
};

void gp_vmm_count_unmapped(int device, enum gp_counter_op op, int64_t bytes);
/* Returns the time of the change, as gp_account_move. */
uint64_t gp_vmm_move_share(const struct gp_vmm_change *change, enum gp_counter_op op);
/* The driver refused the unmap that moved it then. */
void gp_vmm_putback_share(const struct gp_vmm_change *change, uint64_t since_ns);

/* A mapping that added `added` bytes is gone. The handle's other mappings take over the bytes that
 * they still show, so that the parts of all mappings add up to the handle's share. */
void gp_vmm_hand_on(const struct gp_vmm_change *change, uint64_t added);

/* Makes the handle the segment that is wanted, if it can be one: as a whole, in its only mapping. */
void gp_vmm_turn(struct gp_record *handle, struct gp_vmm_change *change);
/* Notes where the peaks are before the mapping (gp_account_retract). */
void gp_vmm_raises(struct gp_record *mapping);
/* The handle became a segment: in recordings, its mapping stands for it from now on. */
void gp_vmm_turned(const struct gp_vmm_change *change);
/* The handle is no longer a segment: the bytes that its mappings share are allocated. */
void gp_vmm_turned_back(const struct gp_record *handle);
/* The same if the mapping that was the segment is gone. Another one has the memory from now on,
 * which asked for nothing when it was made. */
void gp_vmm_pass_on(const struct gp_record *handle);

#endif
