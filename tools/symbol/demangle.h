/* SPDX-License-Identifier: MIT
 * demangle.h: converts mangled C++ and Rust names to source names. Called by intern.c. */
#ifndef GP_SYMBOL_DEMANGLE_H
#define GP_SYMBOL_DEMANGLE_H

#include <stdbool.h>
#include <stddef.h>

/* The name has no parameters: file and line tell overloads apart, and labels stay short. False: not
 * a mangled name; out is unchanged. */
bool gp_demangle(const char *name, char *out, size_t out_bytes);

#endif
