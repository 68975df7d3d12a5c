/* SPDX-License-Identifier: MIT
 *
 * soname.h: takes the name of a library that only gpuprof asked for away from the loader.
 *
 * The loader answers dlopen("libcupti.so.12"), and a library that needs libcupti.so.12, with any
 * loaded object of that soname.  A copy of CUPTI that gpuprof loads early would so be given to
 * programs that bring their own copy, which may have symbols that ours lacks.
 */
#ifndef GP_SOURCE_SONAME_H
#define GP_SOURCE_SONAME_H

#include <stdbool.h>

/* Shortens the soname of a loaded library by its "lib", in memory: libcupti.so.12 becomes
 * cupti.so.12.  The file, its path in /proc and what it finds by $ORIGIN stay.  A later
 * dlopen of the same file gets this copy, under the name that it asked for.  handle: of dlopen with a
 * path that has a slash, since dlopen remembers a bare name.  False: the name could not be
 * changed. */
bool gp_soname_hide(void *handle);

#endif
