/* SPDX-License-Identifier: MIT
 * grid.c: see grid.h.  A wide character is never split: writing over one half blanks the other
 * half.  Its parts: text in cells, the grid. */
#define _GNU_SOURCE /* wcwidth */
#include <show/terminal/grid.h>

#include <base/text.h>
#include <errno.h>
#include <math.h>
#include <show/text/write.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

/* ---- text in cells ----------------------------------------------------------------------------------------------- */
/* Malformed text is never read beyond its NUL. */

int gp_grid_decode(const char *text, uint32_t *code)
{
    const char *at = text;
    *code = gp_utf8_next(&at);
    return (int)(at - text);
}

int gp_grid_code_width(uint32_t code)
{
    if (code < 0x20 || code == 0x7f)
        return 1;
    if (code < 0x7f)
        return 1;
    int width = wcwidth((wchar_t)code);
    return width < 0 ? 1 : width > 2 ? 2 : width;
}

int gp_grid_width(const char *text)
{
    int width = 0;
    uint32_t code;
    for (int bytes; (bytes = gp_grid_decode(text, &code)) > 0; text += bytes)
        width += gp_grid_code_width(code);
    return width;
}

/* Chooses the unit: a value that would round up to `step` (1023.5 does) becomes 1.0 of the next
 * unit. */
static void text_scaled(double value, double step, int *unit, int last, double *scaled)
{
    *unit = 0;
    while (*unit < last && value >= step - 0.5) {
        value /= step;
        ++*unit;
    }
    *scaled = value;
}

const char *gp_grid_bytes(int64_t bytes, enum gp_text_form form, char *out, size_t out_bytes)
{
    static const char *const units[] = {"", "K", "M", "G", "T", "P", "E"};
    char size[GP_SIZE_TEXT];
    int unit;
    double value;
    if (bytes < 0 || form == GP_TEXT_LONG) {
        snprintf(out, out_bytes, "%s", gp_size_text(size, bytes));
        return out;
    }
    text_scaled((double)bytes, 1024, &unit, 6, &value);
    snprintf(out, out_bytes, "%.*f%s", unit && value < 99.95 ? 1 : 0, value, units[unit]);
    return out;
}

const char *gp_grid_rate(double rate, char *out, size_t out_bytes)
{
    static const char *const units[] = {"", "K", "M", "G", "T"};
    if (isnan(rate) || rate < 0) {
        snprintf(out, out_bytes, "-");
        return out;
    }
    int unit;
    double value;
    text_scaled(rate, 1000, &unit, 4, &value);
    snprintf(out, out_bytes, "%.*f%s", value < 99.95 && (unit || value != (double)(int64_t)value) ? 1 : 0, value,
             units[unit]);
    return out;
}

const char *gp_grid_count(int64_t count, char *out, size_t out_bytes)
{
    if (count < 0)
        snprintf(out, out_bytes, "-");
    else if (count < 100000) /* five digits are as wide as "99.9K" */
        snprintf(out, out_bytes, "%lld", (long long)count);
    else
        gp_grid_rate((double)count, out, out_bytes);
    return out;
}

const char *gp_grid_duration(double seconds, char *out, size_t out_bytes)
{
    if (seconds < 60)
        snprintf(out, out_bytes, seconds < 10 && seconds != (double)(int64_t)seconds ? "%.1fs" : "%.0fs", seconds);
    else if (seconds < 3600)
        snprintf(out, out_bytes, "%dm%02ds", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(out, out_bytes, "%dh%02dm", (int)(seconds / 3600), (int)(seconds / 60) % 60);
    return out;
}

/* ---- the grid ---------------------------------------------------------------------------------------------------- */

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
