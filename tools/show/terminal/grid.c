/* SPDX-License-Identifier: MIT
 * grid.c: the cells of a grid; see grid.h.  A wide character is never split: writing over one half blanks the other
 * half.
 */
#include <show/terminal/grid.h>

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void cell_set(struct gp_cell *cell, const char *glyph, size_t bytes, int width, enum gp_style style)
{
    memcpy(cell->glyph, glyph, bytes);
    cell->glyph[bytes] = '\0';
    cell->width = (unsigned char)width;
    cell->style = (unsigned char)style;
}

int gp_grid_init(struct gp_grid *grid, int rows, int cols, bool ascii)
{
    *grid = (struct gp_grid){.rows = rows < 0 ? 0 : rows, .cols = cols < 0 ? 0 : cols, .ascii = ascii};
    size_t count = (size_t)grid->rows * (size_t)grid->cols;
    grid->cells = calloc(count ? count : 1, sizeof(*grid->cells));
    if (!grid->cells)
        return -ENOMEM;
    gp_grid_clear(grid, gp_grid_rect(grid));
    return 0;
}

void gp_grid_fini(struct gp_grid *grid)
{
    free(grid->cells);
    *grid = (struct gp_grid){0};
}

struct gp_cell *gp_grid_at(const struct gp_grid *grid, int y, int x)
{
    if (y < 0 || x < 0 || y >= grid->rows || x >= grid->cols)
        return NULL;
    return &grid->cells[(size_t)y * (size_t)grid->cols + (size_t)x];
}

struct gp_rect gp_grid_rect(const struct gp_grid *grid)
{
    return (struct gp_rect){0, 0, grid->rows, grid->cols};
}

/* The cell at (y, x) will be overwritten: if it is half of a wide character, blanks the other
 * half. */
static void grid_split(struct gp_grid *grid, int y, int x)
{
    struct gp_cell *cell = gp_grid_at(grid, y, x);
    struct gp_cell *other = cell->width == 0   ? gp_grid_at(grid, y, x - 1)
                            : cell->width == 2 ? gp_grid_at(grid, y, x + 1)
                                               : NULL;
    if (other)
        cell_set(other, " ", 1, 1, other->style);
}

/* Puts one character, all of whose columns are inside the grid. */
static void grid_place(struct gp_grid *grid, int y, int x, enum gp_style style, const char *bytes, int count, int width)
{
    for (int i = 0; i < width; i++)
        grid_split(grid, y, x + i);
    cell_set(gp_grid_at(grid, y, x), bytes, (size_t)count, width, style);
    if (width == 2)
        cell_set(gp_grid_at(grid, y, x + 1), "", 0, 0, style);
}

static void grid_combine(struct gp_grid *grid, int y, int x, const char *bytes, int count)
{
    struct gp_cell *cell = gp_grid_at(grid, y, x);
    if (cell && cell->width == 0)
        cell = gp_grid_at(grid, y, x - 1);
    if (!cell)
        return;
    size_t used = strlen(cell->glyph);
    if (used + (size_t)count < sizeof(cell->glyph)) {
        memcpy(cell->glyph + used, bytes, (size_t)count);
        cell->glyph[used + (size_t)count] = '\0';
    }
}

int gp_grid_put(struct gp_grid *grid, struct gp_rect rect, int y, int x, enum gp_style style, const char *text)
{
    int right = rect.x + rect.w < grid->cols ? rect.x + rect.w : grid->cols;
    bool visible = y >= 0 && y < rect.h && rect.y + y >= 0 && rect.y + y < grid->rows;
    int row = rect.y + y;
    int col = rect.x + x;
    uint32_t code;
    for (int bytes; (bytes = gp_grid_decode(text, &code)) > 0; text += bytes) {
        int width = gp_grid_code_width(code);
        const char *glyph = text;
        int count = bytes;
        if (code < 0x20 || code == 0x7f || code == 0xfffd || (code >= 0x80 && code < 0xa0) ||
            (code >= 0x80 && grid->ascii)) {
            glyph = "?";
            count = 1;
            width = width ? width : 1;
        }
        if (visible && width == 0 && col > rect.x && col <= right)
            grid_combine(grid, row, col - 1, glyph, count);
        else if (visible && width && col >= rect.x && col >= 0 && col + width <= right) {
            if (count == 1 && width == 2) { /* ASCII stand-in for a wide character */
                grid_place(grid, row, col, style, glyph, 1, 1);
                grid_place(grid, row, col + 1, style, " ", 1, 1);
            } else {
                grid_place(grid, row, col, style, glyph, count, width);
            }
        } else if (visible && width == 2 && col >= rect.x && col + 1 == right) {
            grid_place(grid, row, col, style, " ", 1, 1);
        }
        col += width;
    }
    return col - rect.x;
}

int gp_grid_printf(struct gp_grid *grid, struct gp_rect rect, int y, int x, enum gp_style style, const char *format,
                   ...)
{
    char text[1024]; /* wider than a terminal; longer text is cut */
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return gp_grid_put(grid, rect, y, x, style, text);
}

int gp_grid_fill(struct gp_grid *grid, struct gp_rect rect, int y, int x, int count, enum gp_style style,
                 const char *glyph)
{
    for (int i = 0; i < count; i++)
        gp_grid_put(grid, rect, y, x + i, style, glyph);
    return x + (count > 0 ? count : 0);
}

void gp_grid_paint_part(struct gp_grid *grid, struct gp_rect rect, int y, int x, int width, enum gp_style style)
{
    for (int i = x < 0 ? 0 : x; y >= 0 && y < rect.h && i < rect.w && i < x + width; i++) {
        struct gp_cell *cell = gp_grid_at(grid, rect.y + y, rect.x + i);
        if (cell)
            cell->style = (unsigned char)style;
    }
}

void gp_grid_paint(struct gp_grid *grid, struct gp_rect rect, int y, enum gp_style style)
{
    gp_grid_paint_part(grid, rect, y, 0, rect.w, style);
}

void gp_grid_clear(struct gp_grid *grid, struct gp_rect rect)
{
    for (int y = 0; y < rect.h; y++) {
        for (int x = 0; x < rect.w; x++) {
            struct gp_cell *cell = gp_grid_at(grid, rect.y + y, rect.x + x);
            if (!cell)
                continue;
            if (cell->glyph[0] || cell->width != 1)
                grid_split(grid, rect.y + y, rect.x + x);
            cell_set(cell, " ", 1, 1, GP_STYLE_NORMAL);
        }
    }
}
