/* SPDX-License-Identifier: MIT
 *
 * intern.h: strings, and names as in the source. Only symbol/ and tests include it.
 */
#ifndef GP_SYMBOL_INTERN_H
#define GP_SYMBOL_INTERN_H

#include <read/common/hash.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Strings that live as long as their struct gp_symbols, each stored once and cleaned for output.
 * Used inside symbol/. */

#define GP_SYMBOL_TEXT 1024u /* longest text kept: C++ names of template libraries are cut there */

struct gp_intern {
    struct gp_intern_page *pages;
    size_t left;        /* in the newest page */
    struct gp_hash map; /* text -> index in texts */
    const char **texts;
    uint32_t room; /* of texts; their count is that of the map */
};

/* A cleaned copy: printable UTF-8, cut to GP_SYMBOL_TEXT. Never NULL; "?" when out of memory. */
const char *gp_intern(struct gp_intern *intern, const char *text);
/* Memory that gp_intern_free frees, aligned for pointers; NULL: out of memory. */
void *gp_intern_room(struct gp_intern *intern, size_t bytes);
/* As gp_intern, demangled if the name is mangled. */
const char *gp_intern_name(struct gp_intern *intern, const char *name);
void gp_intern_free(struct gp_intern *intern);

/* ---- names as in the source -------------------------------------------------------------------------------------- */
/* Converts mangled C++ and Rust names to source names. Called by intern.c. */

/* The name has no parameters: file and line tell overloads apart, and labels stay short. False: not
 * a mangled name; out is unchanged. */
bool gp_demangle(const char *name, char *out, size_t out_bytes);

#endif
