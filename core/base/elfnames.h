/* SPDX-License-Identifier: MIT
 *
 * elfnames.h: which symbols an object defines, by its hash tables: of one that is loaded, and of a
 * file that the loader is about to load.
 */
#ifndef GP_BASE_ELFNAMES_H
#define GP_BASE_ELFNAMES_H

#include "base/image.h"
#include <link.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_elf_names { /* each table with the room that it has at most */
    const ElfW(Sym) * symbols;
    uint64_t symbol_count;
    const char *strings;
    uint64_t string_bytes;
    const uint32_t *gnu, *sysv; /* DT_GNU_HASH, DT_HASH; NULL: the object has none */
    uint64_t gnu_words, sysv_words;
};

/* DT_GNU_HASH's function. */
uint32_t gp_elf_hash(const char *name);
/* The object's definition of the name that others can use; NULL: none. */
const ElfW(Sym) * gp_elf_find(const struct gp_elf_names *names, const char *name, uint32_t hash);
/* Whether a definition is of data, and not of a function. */
bool gp_elf_is_variable(const ElfW(Sym) * symbol);

/* Of an object that is loaded. */
void gp_elf_of_image(struct gp_elf_names *names, const struct gp_image *image);

struct gp_elf_file {
    const char *map;
    uint64_t bytes;
    const ElfW(Dyn) * dynamic;
    uint64_t dynamic_count;
    struct gp_elf_names names;
};

/* Maps the file of a library of this processor. Nothing in it is trusted; a file that becomes shorter
 * meanwhile raises SIGBUS, in the loader too. False: no such file, or it has no dynamic section. */
bool gp_elf_open(struct gp_elf_file *file, const char *path);
void gp_elf_close(struct gp_elf_file *file);
/* The text of the next entry with this tag, from entry *at on; NULL: there is no more. */
const char *gp_elf_text(const struct gp_elf_file *file, int64_t tag, uint64_t *at);

#endif
