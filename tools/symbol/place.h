/* SPDX-License-Identifier: MIT
 *
 * place.h: the steps by which place.c finds the frame that names a site. Only symbol/ and tests include it.
 */
#ifndef GP_SYMBOL_PLACE_H
#define GP_SYMBOL_PLACE_H

#include <stdbool.h>
#include <stdint.h>
#include <symbol/internal.h>

/* One behind the last frame that tells the named one from others. */
uint32_t gp_place_end(const struct gp_frame_text *frames, uint32_t count, uint32_t name);

/* ---- twins.c ----------------------------------------------------------------------------------------------------- */

struct gp_place_text { /* a site by the hash of its stack's text */
    uint64_t hash;
    uint32_t site;
};

/* Orders struct gp_place_text by hash, then by site. */
int gp_place_by_hash(const void *one, const void *other);
/* Where no line is known, two calls in one function differ by their addresses alone. */
uint64_t gp_place_line(const struct gp_frame_text *frame);
/* A hash of the function of a frame, in its file. */
uint64_t gp_place_function(const struct gp_frame_text *frame);
/* One source in two libraries has two owners. */
bool gp_place_same_frame(const struct gp_frame_text *a, const struct gp_frame_text *b);
/* Fills in `twin` of these sites: the first whose stack has equal text. */
void gp_place_twins(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count);

/* ---- wrappers.c, shortfile.c ------------------------------------------------------------------------------------- */

/* Fills in `name` of these sites.  Only sites without a lower twin count, so that what a compiler did has no influence. */
void gp_place_names(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count);
/* Fills in short_file of all frames of these sites. */
void gp_place_shorten(struct gp_symbols *symbols, const uint32_t *sites, uint32_t count);

#endif
