/* SPDX-License-Identifier: MIT
 * demangle.h: C++ and Rust names as people write them.  Called by object.c. */
#ifndef GP_SYMBOL_DEMANGLE_H
#define GP_SYMBOL_DEMANGLE_H

#include <stdbool.h>
#include <stddef.h>

/* Without parameters: file and line tell overloads apart, and labels stay short.  False: not a mangled name, out is
 * not touched. */
bool gp_demangle(const char *name, char *out, size_t out_bytes);

#endif
