/* SPDX-License-Identifier: MIT
 *
 * elfimage.h: a private copy of what elfutils needs of an ELF file that somebody else may change.
 * elfutils maps files, and a mapped file that is cut short raises SIGBUS. It also unpacks sections
 * without a limit. The copy has the same size and segments, and of the contents only the chosen
 * sections; the rest is a hole that takes no memory. Called by symbol/ and attach/.
 */
#ifndef GP_COMMON_ELFIMAGE_H
#define GP_COMMON_ELFIMAGE_H

#include <stdbool.h>
#include <stdint.h>

enum gp_elf_use {
    GP_ELF_NAMES,  /* symbols, notes and debug information */
    GP_ELF_FRAMES, /* symbols, notes and unwind tables */
};

/* Bytes that the files of one viewer may take together. */
uint64_t gp_elf_room(void);

/* Copies from fd, which stays the caller's. *room: bytes that may still be used, in the copy and by
 * what is unpacked from it; what is used is subtracted. *is_cut is set if debug information was left
 * out, because it needs more than the room, or unpacks to far more than its size. A descriptor;
 * -ENOEXEC: it is no 64-bit ELF file, or it changed meanwhile; -EFBIG: even the symbols need more
 * than the room; -errno. Any thread. */
int gp_elf_image(int fd, enum gp_elf_use use, uint64_t *room, bool *is_cut);

/* Where the names of .symtab lie in the file, if they were left out of the copy. */
struct gp_elf_strings {
    uint64_t offset, bytes; /* bytes 0: they are in the copy */
};
/* The same, but the names of .symtab may be left out if they are large: those of PyTorch's libraries have 150 MiB, of which
 * a program's call sites need some hundred.  In the copy they are empty, and the caller reads them from its fd. */
int gp_elf_image_lean(int fd, enum gp_elf_use use, uint64_t *room, bool *is_cut, struct gp_elf_strings *strings);
/* The name at that place of the strings, which the caller frees; NULL: none, or no memory. */
char *gp_elf_string(int fd, const struct gp_elf_strings *strings, uint64_t at);

#endif
