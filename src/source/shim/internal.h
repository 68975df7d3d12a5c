/* SPDX-License-Identifier: MIT
 * internal.h: shared by the files of src/source/shim alone. */
#ifndef GP_SHIM_INTERNAL_H
#define GP_SHIM_INTERNAL_H

/* libc's function of that name in a C library whose symbols have no versions, or NULL.  Any thread;
 * takes the loader's lock, as dlsym does. */
void *gp_shim_plain(const char *name);

#endif
