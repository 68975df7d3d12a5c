/* SPDX-License-Identifier: MIT
 *
 * object.h: one ELF file and its debug information.  object.c opens and checks it and knows its symbol tables, dwarf.c
 * its DWARF.  Its bytes are hostile: elfutils checks what it reads; what is made of it here is bounded.
 */
#ifndef GP_SYMBOL_OBJECT_H
#define GP_SYMBOL_OBJECT_H

#include <elfutils/libdwfl.h>
#include <stdbool.h>
#include <stdint.h>
#include <symbol/intern.h>

/* Calls inlined into one another at one address; LLVM and GCC reach about 30 in template code. */
#define GP_INLINES 64u

struct gp_object_frame { /* texts are interned */
    const char *function, *file;
    uint32_t line;
    bool inlined;
};

struct gp_object_symbol {
    uint64_t start, end; /* [start, end) */
    const char *name;    /* the file's */
    uint8_t rank;        /* of names for one address the best is taken */
};

struct gp_dwarf;

struct gp_object { /* stays where it was opened */
    Dwfl *dwfl;
    Dwfl_Module *module;
    struct gp_intern *intern;
    Dwfl_Callbacks callbacks;
    char *debug_path;
    bool has_symbols, has_dwarf; /* were looked for */
    struct gp_object_symbol *symbols;
    uint32_t symbol_count;
    struct gp_dwarf *dwarf; /* NULL: none */
};

enum gp_object_problem {
    GP_OBJECT_FINE,
    GP_OBJECT_UNCHECKED, /* neither the recording nor the file has a build id: names may be another build's */
    GP_OBJECT_MISSING,
    GP_OBJECT_OTHER, /* another build than the one that ran */
    GP_OBJECT_BAD,   /* not a file, or no ELF */
};

/* build_id: hex digits, "" none recorded.  The object is open after FINE and UNCHECKED alone. */
enum gp_object_problem gp_object_open(struct gp_object *object, struct gp_intern *intern, const char *root,
                                      const char *path, const char *build_id);
void gp_object_close(struct gp_object *object);

/* Frames at an offset in the file, the innermost first; 0: nothing is known there. */
uint32_t gp_object_lookup(struct gp_object *object, uint64_t offset, struct gp_object_frame frames[GP_INLINES]);

/* ---- dwarf.c --------------------------------------------------------------------------------------------------- */

/* NULL: the object has none, or no memory. */
struct gp_dwarf *gp_dwarf_new(Dwfl_Module *module, struct gp_intern *intern);
void gp_dwarf_free(struct gp_dwarf *dwarf);
/* address: as Dwfl sees it.  A frame without a name (""): the caller has a symbol for it.  0: not described. */
uint32_t gp_dwarf_lookup(struct gp_dwarf *dwarf, uint64_t address, struct gp_object_frame frames[GP_INLINES]);

/* Interned; demangled if it can be. */
const char *gp_object_name(struct gp_intern *intern, const char *name);

#endif
