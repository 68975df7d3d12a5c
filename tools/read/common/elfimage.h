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

#endif
