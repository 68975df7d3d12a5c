/* SPDX-License-Identifier: MIT
 *
 * internal.h: the state, struct gp_symbols, and what the files that name addresses and sites share.
 * Only symbol/ and tests include it.
 */
#ifndef GP_SYMBOL_INTERNAL_H
#define GP_SYMBOL_INTERNAL_H

#include <read/common/hash.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <symbol/intern.h>
#include <symbol/object.h>
#include <symbol/symbol.h>

struct gp_symbol_module {     /* parallel to source.modules */
    const char *path, *name;  /* without " (deleted)"; base name */
    struct gp_object *object; /* NULL: not open.  Shared by the mappings of one file */
    bool tried, deleted, owner;
    bool noted; /* a note says what of its debug information was not read */
};

struct gp_symbol_pc { /* an answer */
    uint64_t pc;
    uint32_t module, count;
    bool known;                         /* it has a name */
    const struct gp_frame_text *frames; /* NULL: slot not in use */
};

struct gp_symbol_site {
    struct gp_frame_text *frames;    /* NULL: not built yet */
    uint32_t count, own, name, twin; /* own: as stack.c names it */
    uint32_t row;
    const char *operator; /* the outermost of a framework; NULL: not known */
    struct gp_operation operation;
};

struct gp_symbols {
    struct gp_symbol_source source;
    const char *symfs; /* NULL: none */
    struct gp_intern intern;
    uint64_t room; /* bytes that files may still take */
    struct gp_symbol_module *modules;
    struct gp_symbol_pc *pcs; /* open addressing; a power of two */
    uint32_t pc_slots, pc_count;
    struct gp_symbol_site *sites;
    uint32_t site_room, module_room; /* slots of sites; of modules and notes */
    uint32_t placed;                 /* sites whose names place.c has compared; 0: none */
    struct gp_hash rules;            /* of operationrules.c, by function and file */
    const char **notes;
    uint32_t note_count;
    uint32_t missing, missing_note; /* objects that cannot be opened, and their common note */
    const char *missing_path;       /* of the first */
    /* Buffers of GP_SYMBOL_STACK frames for the stack that is being built. */
    struct gp_frame_text *work, *native, *python;
};

/* The frame shown where nothing is known. */
extern const struct gp_frame_text gp_symbols_unknown;

/* role.c. gp_role_set fills in role, folded and plain; the rest of the frame must be there. */
void gp_role_set(struct gp_symbols *symbols, struct gp_frame_text *frame);
/* A stack without code of the user's other than a launcher: its packages are the program, so their
 * frames become the user's own. */
void gp_role_of_program(struct gp_frame_text *frames, uint32_t count);
bool gp_role_is_python(const char *module);
bool gp_role_is_eval(const struct gp_frame_text *frame);
bool gp_role_is_start(const struct gp_frame_text *frame);

/* stack.c. The stack of a site, built once; NULL: site 0, not known, or out of memory. Its name is
 * the innermost frame of the user's own code; place.c looks further. */
struct gp_symbol_site *gp_symbols_stack(struct gp_symbols *symbols, uint32_t site);

/* address.c. The frames of a native frame, inlined calls first; at least one. Out of memory:
 * gp_symbols_unknown. */
uint32_t gp_symbols_native(struct gp_symbols *symbols, const struct gp_rec_frame *frame,
                           const struct gp_frame_text **frames);

/* modules.c. The open file of a module; NULL: none.  A note says why. */
struct gp_object *gp_symbols_object(struct gp_symbols *symbols, uint32_t index);
/* Its debug information is read when it is first needed; then this adds a note if some was not read. */
void gp_symbols_note_debug(struct gp_symbols *symbols, uint32_t index);

/* Longest stack that is shown: every native frame may stand for many inlined ones. */
#define GP_SYMBOL_STACK 2048u

#endif
