/* SPDX-License-Identifier: MIT
 *
 * grid.h: a picture of the terminal in memory: cells with one character and one style.  draw fills it, term shows it,
 * tests read it.  Everything is clipped to a rectangle; no call can write outside of the grid.
 */
#ifndef GP_VIEW_GRID_H
#define GP_VIEW_GRID_H

#include <base/compiler.h>
#include <stdbool.h>
#include <stddef.h>

struct gp_rect {
    int y, x, h, w;
};

enum gp_style {
    GP_STYLE_NORMAL,
    GP_STYLE_DIM,
    GP_STYLE_BOLD,
    GP_STYLE_HEADER,
    GP_STYLE_SELECTED,
    GP_STYLE_TAGGED,
    GP_STYLE_ALLOCATED,
    GP_STYLE_RESERVED,
    GP_STYLE_OTHER,
    GP_STYLE_PEAK,
    GP_STYLE_SPARK,
    GP_STYLE_WARN,
    GP_STYLE_ERROR,
    GP_STYLE_KEY,
    GP_STYLE_LABEL,
    GP_STYLES
};

/* A character and what combines with it; longer piles of accents are cut. */
#define GP_CELL_BYTES 16

struct gp_cell {
    char glyph[GP_CELL_BYTES]; /* NUL-terminated UTF-8 (or ASCII); "" on the right half of a wide character */
    unsigned char width;       /* 1 or 2; 0: right half */
    unsigned char style;       /* enum gp_style */
};

struct gp_grid {
    int rows, cols;
    bool ascii; /* nothing but ASCII may be put: other characters become '?' */
    struct gp_cell *cells;
};

/* 0 or -ENOMEM; sizes below zero count as zero. */
int gp_grid_init(struct gp_grid *grid, int rows, int cols, bool ascii);
void gp_grid_fini(struct gp_grid *grid);
struct gp_cell *gp_grid_at(const struct gp_grid *grid, int y, int x);
struct gp_rect gp_grid_rect(const struct gp_grid *grid);

/* Text at (y, x) of the rectangle, cut at its right edge.  Returns the column after the text, in the rectangle's
 * coordinates, also where it was cut. */
int gp_grid_put(struct gp_grid *grid, struct gp_rect rect, int y, int x, enum gp_style style, const char *text);
int gp_grid_printf(struct gp_grid *grid, struct gp_rect rect, int y, int x, enum gp_style style, const char *format,
                   ...) GP_PRINTF(6, 7);
/* `count` times one character. */
int gp_grid_fill(struct gp_grid *grid, struct gp_rect rect, int y, int x, int count, enum gp_style style,
                 const char *glyph);
/* Gives a whole line of the rectangle one style, keeping its characters. */
void gp_grid_paint(struct gp_grid *grid, struct gp_rect rect, int y, enum gp_style style);
void gp_grid_clear(struct gp_grid *grid, struct gp_rect rect);
/* Line y as text without trailing blanks.  Bytes needed, as snprintf. */
size_t gp_grid_line(const struct gp_grid *grid, int y, char *out, size_t out_bytes);

#endif
