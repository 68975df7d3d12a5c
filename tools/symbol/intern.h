/* SPDX-License-Identifier: MIT
 * intern.h: texts that live as long as a struct gp_symbols, each kept once and made harmless.  Used inside symbol/. */
#ifndef GP_SYMBOL_INTERN_H
#define GP_SYMBOL_INTERN_H

#include <stddef.h>
#include <stdint.h>

#define GP_SYMBOL_TEXT 1024u /* longest text kept: C++ names of template libraries are cut there */

struct gp_intern {
    struct gp_intern_page *pages;
    size_t left;        /* in the newest page */
    const char **slots; /* open addressing; a power of two */
    uint32_t slot_count, used;
};

/* A cleaned copy: printable UTF-8, cut to GP_SYMBOL_TEXT.  Never NULL: without memory it is "?". */
const char *gp_intern(struct gp_intern *intern, const char *text);
/* Memory that is freed with the rest; aligned for pointers; NULL: none. */
void *gp_intern_room(struct gp_intern *intern, size_t bytes);
void gp_intern_free(struct gp_intern *intern);

#endif
