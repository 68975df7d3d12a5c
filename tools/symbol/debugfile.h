/* SPDX-License-Identifier: MIT
 *
 * debugfile.h: finds the files that belong to an object: its separate debug information, the file
 * shared by several of those (dwz), and split DWARF. elfutils opens the first two by names from the
 * object, which may be hostile, without looking what they are; so they are found here and given to
 * it as descriptors. object.c and dwarf.c call this.
 */
#ifndef GP_SYMBOL_DEBUGFILE_H
#define GP_SYMBOL_DEBUGFILE_H

#include <elfutils/libdwfl.h>
#include <stdbool.h>
#include <symbol/object.h>

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
