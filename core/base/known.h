/* SPDX-License-Identifier: MIT
 *
 * known.h: which library a loaded object belongs to, by the name of its file alone. The library
 * (stack/object.c) and the command (analyze/siteowner.c) share it, so both know the same owners. Any
 * thread; no memory is taken.
 */
#ifndef GP_BASE_KNOWN_H
#define GP_BASE_KNOWN_H

#include <stddef.h>

/* path: of the object; "" for the program itself. Returns constant text; NULL: the object passes
 * requests on; "": known by its own name (gp_known_name). */
const char *gp_known_owner(const char *path);
/* The owner of memory that code asked for which no file has, on behalf of the program: it was compiled at run time. */
#define GP_KNOWN_PROGRAM "program"
#define GP_KNOWN_JIT     "jit"
/* The name of the file without its folders. */
const char *gp_known_base(const char *path);
/* The owner that an object without another name is: its file name up to ".so". */
void gp_known_name(const char *base, char *name, size_t bytes);

#endif
