/* SPDX-License-Identifier: MIT
 *
 * grid.h: an image of the terminal in memory, made of cells with a character and a style.  draw.c
 * fills it, term.c shows it, tests read it.  Every call is clipped to a rectangle, and none can
 * write outside of the grid.
 */
#ifndef GP_SHOW_TERMINAL_GRID_H
#define GP_SHOW_TERMINAL_GRID_H

#include <base/compiler.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Room for a character and the marks that combine with it; further marks are dropped. */
#define GP_CELL_BYTES 16

struct gp_cell {
    char glyph[GP_CELL_BYTES]; /* NUL-terminated UTF-8 (or ASCII); "" on the right half of a wide character */
    unsigned char width;       /* 1 or 2; 0: right half */
    unsigned char style;       /* enum gp_style */
};

struct gp_grid {
    int rows, cols;
    bool ascii; /* characters outside ASCII become '?' */
    struct gp_cell *cells;
};

/* 0 or -ENOMEM; sizes below zero count as zero. */
int gp_grid_init(struct gp_grid *grid, int rows, int cols, bool ascii);
void gp_grid_fini(struct gp_grid *grid);
struct gp_cell *gp_grid_at(const struct gp_grid *grid, int y, int x);
struct gp_rect gp_grid_rect(const struct gp_grid *grid);

/* Puts text at (y, x) of the rectangle and cuts it at the right edge.  Returns the column after the
 * whole text, in the rectangle's coordinates, also if the text was cut. */
int gp_grid_put(struct gp_grid *grid, struct gp_rect rect, int y, int x, enum gp_style style, const char *text);
int gp_grid_printf(struct gp_grid *grid, struct gp_rect rect, int y, int x, enum gp_style style, const char *format,
                   ...) GP_PRINTF(6, 7);
/* Puts one character `count` times. */
int gp_grid_fill(struct gp_grid *grid, struct gp_rect rect, int y, int x, int count, enum gp_style style,
                 const char *glyph);
/* Gives a whole line of the rectangle one style, keeping its characters. */
void gp_grid_paint(struct gp_grid *grid, struct gp_rect rect, int y, enum gp_style style);
/* The same for `width` columns from x on. */
void gp_grid_paint_part(struct gp_grid *grid, struct gp_rect rect, int y, int x, int width, enum gp_style style);
void gp_grid_clear(struct gp_grid *grid, struct gp_rect rect);

/* ---- text in cells ----------------------------------------------------------------------------------------------- */
/* Text in the cells of a table: UTF-8 decoding, widths in columns, and the format of sizes, rates,
 * counts and durations.  All of tools/show/terminal uses it.  Pure, except that widths depend on the
 * locale (wcwidth).  An unknown value is "-", never 0. */

/* Decodes the first character and returns its length in bytes; 0 at the end of the text.  Each
 * malformed byte is decoded as U+FFFD. */
int gp_grid_decode(const char *text, uint32_t *code);
/* The columns of a character: 0 if it combines, 1 or 2.  A control character is shown as '?' and
 * takes 1. */
int gp_grid_code_width(uint32_t code);
int gp_grid_width(const char *text);

enum gp_text_form {
    GP_TEXT_SHORT, /* 12.3G: tables */
    GP_TEXT_WHOLE, /* the same, with the whole path of a program: tables that need not fit a screen */
    GP_TEXT_LONG,  /* 12.30 GiB: sentences and details, as gp_size_text has it */
};

/* All of these return `out`.  Units of bytes are powers of two; a negative size is unknown. */
const char *gp_grid_bytes(int64_t bytes, enum gp_text_form form, char *out, size_t out_bytes);
/* Three digits and K, M, G (powers of ten); NaN or a negative value is unknown. */
const char *gp_grid_rate(double rate, char *out, size_t out_bytes);
const char *gp_grid_count(int64_t count, char *out, size_t out_bytes);
/* 90 s -> "1m30s". */
const char *gp_grid_duration(double seconds, char *out, size_t out_bytes);

#endif
