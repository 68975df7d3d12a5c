/* SPDX-License-Identifier: MIT
 *
 * internal.h: declarations that the files of symbol/ share. No other folder includes it.
 */
#ifndef GP_SYMBOL_INTERNAL_H
#define GP_SYMBOL_INTERNAL_H

#include <elfutils/libdwfl.h>
#include <read/common/hash.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <symbol/symbol.h>

/* ==== strings ===================================================================================================== */
/* Strings that live as long as their struct gp_symbols, each stored once and cleaned for output.
 * Used inside symbol/. */

#define GP_SYMBOL_TEXT 1024u /* longest text kept: C++ names of template libraries are cut there */

struct gp_intern {
    struct gp_intern_page *pages;
    size_t left;        /* in the newest page */
    struct gp_hash map; /* text -> index in texts */
    const char **texts;
    uint32_t room; /* of texts; their count is that of the map */
};

/* A cleaned copy: printable UTF-8, cut to GP_SYMBOL_TEXT. Never NULL; "?" when out of memory. */
const char *gp_intern(struct gp_intern *intern, const char *text);
/* Memory that gp_intern_free frees, aligned for pointers; NULL: out of memory. */
void *gp_intern_room(struct gp_intern *intern, size_t bytes);
/* As gp_intern, demangled if the name is mangled. */
const char *gp_intern_name(struct gp_intern *intern, const char *name);
void gp_intern_free(struct gp_intern *intern);

/* ---- names as in the source -------------------------------------------------------------------------------------- */
/* Converts mangled C++ and Rust names to source names. Called by intern.c. */

/* The name has no parameters: file and line tell overloads apart, and labels stay short. False: not
 * a mangled name; out is unchanged. */
bool gp_demangle(const char *name, char *out, size_t out_bytes);

/* ==== objects ===================================================================================================== */
/* One ELF file and its debug information. object.c opens and checks the file and reads its symbol
 * tables; dwarf.c reads its DWARF. The file may be hostile: elfutils checks the bytes, and the
 * amount of data taken from it is bounded here. */

/* The most nested inlined calls at one address; LLVM and GCC reach about 30 in template code. */
#define GP_INLINES 64u

struct gp_object_frame { /* the strings are interned */
    const char *function, *file;
    uint32_t line;
    bool inlined;
};

struct gp_object_symbol {
    uint64_t start, end; /* [start, end) */
    const char *name;    /* in the file's string table */
    uint8_t rank;        /* for one address the symbol of the highest rank is used */
};

struct gp_dwarf;

struct gp_object_source { /* where to look for a file */
    const char *root;     /* "", or /proc/PID/root of a living process that maps it at [start, end) */
    const char *symfs;    /* a folder with the files of where it ran; NULL: none. It is tried first */
    const char *path;
    const char *build_id; /* hex digits, "" if none was recorded */
    uint64_t start, end;
    uint64_t *room; /* bytes that all files of the viewer may still take */
};

struct gp_object { /* must not be moved while open */
    Dwfl *dwfl;
    Dwfl_Module *module;
    struct gp_intern *intern;
    Dwfl_Callbacks callbacks;
    char *debug_path;
    char root[32];
    const char *symfs;           /* the caller's */
    const char *path;            /* the caller's */
    int fd, debug_fd;            /* elfutils owns them; -1 none.  Private copies (elfimage.h) */
    uint64_t *room;              /* the caller's: bytes that files may still take */
    bool is_cut;                 /* debug information was left out, because it takes too much memory */
    char *refused;               /* the first debug file that was found and not used; NULL: none */
    bool has_symbols, has_dwarf; /* whether they were loaded */
    struct gp_object_symbol *symbols;
    uint32_t symbol_count;
    struct gp_dwarf *dwarf; /* NULL: no debug information */
};

enum gp_object_problem {
    GP_OBJECT_FINE,
    GP_OBJECT_UNCHECKED, /* without build IDs to compare: names may be those of another build */
    GP_OBJECT_MISSING,
    GP_OBJECT_OTHER, /* another build than the one that ran */
    GP_OBJECT_BAD,   /* not a regular file, or not a 64-bit ELF file */
    GP_OBJECT_LARGE, /* its symbols take more memory than may be used */
};

/* Tries the mapping itself, then the path below the root, then, if the build id is known, the path
 * in our own root (a process in a chroot is shown with such paths). The source's path must stay
 * valid. The object is open only after FINE and UNCHECKED. */
enum gp_object_problem gp_object_open(struct gp_object *object, struct gp_intern *intern,
                                      const struct gp_object_source *source);
void gp_object_close(struct gp_object *object);

/* The frames at an offset in the file, innermost first; 0: nothing is known. */
uint32_t gp_object_lookup(struct gp_object *object, uint64_t offset, struct gp_object_frame frames[GP_INLINES]);

/* ---- dwarf.c --------------------------------------------------------------------------------------------------- */

/* NULL: the object has no DWARF, or out of memory. */
struct gp_dwarf *gp_dwarf_new(struct gp_object *object);
void gp_dwarf_free(struct gp_dwarf *dwarf);
/* address: in Dwfl's address space. A frame without a name ("") is filled in by the caller from the
 * symbol table. 0: not described. */
uint32_t gp_dwarf_lookup(struct gp_dwarf *dwarf, uint64_t address, struct gp_object_frame frames[GP_INLINES]);

/* ==== files of debug information ================================================================================== */
/* Finds the files that belong to an object: its separate debug information, the file shared by
 * several of those (dwz), and split DWARF. elfutils opens the first two by names from the object,
 * which may be hostile, without looking what they are; so they are found here and given to it as
 * descriptors. object.c and dwarf.c call this. */

/* A Dwfl callback; *userdata is the gp_object. */
int gp_debugfile_find(Dwfl_Module *module, void **userdata, const char *name, Dwarf_Addr base, const char *file,
                      const char *link, GElf_Word crc, char **found);

/* The file that a .gnu_debugaltlink names; beside: the path of the file that has it. A descriptor or
 * -1. */
int gp_debugfile_shared(struct gp_object *object, const char *beside, const char *name, const void *id,
                        size_t id_bytes);

/* Whether a package of split DWARF (FILE.dwp) lies beside the file, and no other user can change
 * either. libdw finds it by the name of the file alone, so such a file is not copied. */
bool gp_debugfile_is_package(int fd);

/* Whether libdw may look for the split DWARF of this unit. It opens the file by its name and would
 * wait for a pipe, so only names that no other user can change are allowed: root's and our own. */
bool gp_debugfile_split(const struct gp_object *object, Dwarf_Die *unit);

/* ==== the state =================================================================================================== */
/* Struct gp_symbols, shared by symbol.c (names of single addresses, and stacks of sites) and
 * place.c, which calls it. */

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
    uint32_t count, own, name, twin; /* own: as symbol.c names it */
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
    struct gp_hash rules;            /* of operation.c, by function and file */
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

/* place.c. One behind the last frame that tells the named one from others. */
uint32_t gp_place_end(const struct gp_frame_text *frames, uint32_t count, uint32_t name);

/* symbol.c. The stack of a site, built once; NULL: site 0, not known, or out of memory. Its name is
 * the innermost frame of the user's own code; place.c looks further. */
struct gp_symbol_site *gp_symbols_stack(struct gp_symbols *symbols, uint32_t site);

/* Longest stack that is shown: every native frame may stand for many inlined ones. */
#define GP_SYMBOL_STACK 2048u

/* ==== what a framework does ======================================================================================= */
/* The rules by which operation.c names what a framework does, and the call of place.c. */

enum gp_operation_role {
    GP_OP_OPERATOR,  /* an operator of the framework */
    GP_OP_KERNEL,    /* the same, known by the function of its kernel: where no operator is on the stack */
    GP_OP_PUBLIC,    /* a function that users call */
    GP_OP_MODULE,    /* a layer of the framework, whose name is its operator's */
    GP_OP_LAYER,     /* a layer of a package with models: stands before the operation */
    GP_OP_NODE,      /* of a backward pass */
    GP_OP_ENGINE,    /* runs the backward pass */
    GP_OP_RECOMPUTE, /* runs a forward pass again in the backward pass */
    GP_OP_OPTIMIZER, /* a step of an optimizer */
    GP_OP_WHOLE,     /* says all: what is inside of it does not matter; the outermost */
    GP_OP_WORKSPACE, /* the same for memory that a library keeps: the innermost */
    GP_OP_PART       /* tells only the part */
};

struct gp_operation_rule {
    const char *framework;
    const char *where;    /* parts of a Python file's path, separated by '|'; NULL: a native frame */
    const char *function; /* patterns of fnmatch, separated by '|' */
    enum gp_operation_role role;
    const char *text; /* "{}" is what the pattern's only star stands for, or the whole function */
    enum gp_operation_part part;
};
/* frames[name] names the site. *operator: the outermost on its stack; NULL: not known. */
struct gp_operation gp_operation_find(struct gp_symbols *symbols, const struct gp_frame_text *frames, uint32_t count,
                                      uint32_t name, const char **operator);
/* Adds which state of the optimizer it is: "optimizer: AdamW.step (exp_avg)". Call it for all
 * sites of a program together. */
void gp_operation_states(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count);

#endif
