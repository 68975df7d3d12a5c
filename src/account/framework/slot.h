/* SPDX-License-Identifier: MIT
 *
 * slot.h: replaces a function that loaded objects import from another one, by writing into the
 * slots (global offset table) through which they call it.
 *
 * A slot holds the function's address, if it was bound when its object was loaded or has been
 * called since; or an address inside its own object, which resolves it at the first call; or a
 * small number, while another thread relocates the object. The last kind is left alone until the
 * next call, and so is a slot that will be made read-only and is not yet: the loader may be
 * relocating the rest. Of an object whose code is on the caller's stack this is over: another tool
 * has made the page writable and left it so. A thread inside the resolver
 * may overwrite a replaced slot with the original, so each call checks all slots again.
 */
#ifndef GP_FRAMEWORK_SLOT_H
#define GP_FRAMEWORK_SLOT_H

#include <stdbool.h>
#include <stdint.h>

struct gp_slot_import {
    const char *name;               /* of the symbol */
    void *replacement;              /* our function */
    const char *definer, *importer; /* file names of the objects that define it and import it start so */
    const char *user;               /* if not NULL: so do objects that are linked to one whose name starts so */
    void *x_original;               /* the definition; set before the first slot is replaced */
    uint32_t slots, refused;        /* slots that were found by the last call; slots that could not be written */
    uint32_t copies;                /* objects that define it, in the last call */
    uint32_t early;                 /* that must be looked at again, whether or not objects change */
    uint64_t early_ns;              /* private: since when such a page is writable */
    bool found;                     /* private: during a look */
};

/* The return addresses of the calling thread. */
struct gp_slot_caller {
    const uint64_t *pcs;
    unsigned count;
};

/* Looks through all loaded objects for each import, whose definition may have moved since the last
 * look, and replaces its slots. Runs under the loader's
 * lock, so that no object is unmapped meanwhile; calls mprotect for slots that were made read-only,
 * and makes them read-only again. False: the process is forking, and nothing was
 * done. One thread at a time; inside gp_loader_with if it holds a lock. caller: NULL if it is not known. */
bool gp_slots_replace(struct gp_slot_import *imports, unsigned count, const struct gp_slot_caller *caller);

/* Puts the definitions back where the replacement still is: another tool may have replaced it in turn.
 * Everything else as above. */
bool gp_slots_restore(struct gp_slot_import *imports, unsigned count);

/* Whether the program could write there now. */
bool gp_slot_writable(uint64_t *slot);

#endif
