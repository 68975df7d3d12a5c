/* SPDX-License-Identifier: MIT
 *
 * object.h: object files and their debug information. Only symbol/ and tests include it.
 */
#ifndef GP_SYMBOL_OBJECT_H
#define GP_SYMBOL_OBJECT_H

#include <elfutils/libdwfl.h>
#include <read/common/elfimage.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <symbol/intern.h>

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
    const char *name;    /* in the file's string table; NULL: at name_at of the strings that were not copied */
    uint32_t name_at;
    uint8_t rank; /* for one address the symbol of the highest rank is used */
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
    const char *symfs; /* the caller's */
    const char *path;  /* the caller's */
    int fd, debug_fd;  /* elfutils owns them; -1 none.  Private copies (elfimage.h) */
    int names_fd;      /* the file itself, in which the names of symbols were left; -1 none */
    struct gp_elf_strings names;
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

/* ---- files of debug information ---------------------------------------------------------------------------------- */
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

#endif
