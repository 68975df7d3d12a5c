/* SPDX-License-Identifier: MIT
 *
 * strokes.c: draws bars and sparklines; see draw.h.  A quantity that is not zero gets at least one
 * cell.
 */
#include <show/terminal/draw.h>

#include <show/terminal/grid.h>
#include <show/terminal/model.h>

static int bar_cells(int64_t bytes, int64_t total, int width)
{
    if (bytes <= 0)
        return 0;
    if (bytes >= total)
        return width;
    int cells = (int)((double)bytes / (double)total * width + 0.5);
    return cells < 1 ? 1 : cells > width ? width : cells;
}

void gp_draw_bar(const struct gp_draw *draw, struct gp_rect rect, int y, int x, int width, const struct gp_bar *bar)
{
    static const char *const glyphs[2][5] = {{"\u2588", "\u2592", "\u2591", "\u00b7", "\u2503"},
                                             {"#", "=", ":", ".", "|"}};
    const char *const *glyph = glyphs[draw->grid->ascii];
    if (width <= 0)
        return;
    if (bar->total <= 0) {
        gp_grid_fill(draw->grid, rect, y, x, width, GP_STYLE_DIM, " ");
        gp_grid_put(draw->grid, rect, y, x, GP_STYLE_DIM, width >= 7 ? "unknown" : "-");
        return;
    }
    int allocated = bar_cells(bar->allocated, bar->total, width);
    int reserved = bar_cells(bar->reserved, bar->total, width);
    int64_t held = (bar->reserved > 0 ? bar->reserved : 0) + (bar->other > 0 ? bar->other : 0);
    int all = bar_cells(held, bar->total, width);
    if (reserved < allocated)
        reserved = allocated;
    /* Reserved memory that is not allocated keeps a cell of its own. */
    if (bar->reserved > bar->allocated && reserved == allocated) {
        if (reserved < width)
            reserved++;
        else if (allocated > 1)
            allocated--;
    }
    if (bar->other > 0 && all <= reserved)
        all = reserved < width ? reserved + 1 : width;
    for (int i = 0; i < width; i++) {
        int part = i < all ? 2 : 3;
        if (i < reserved)
            part = i < allocated ? 0 : 1;
        static const enum gp_style styles[] = {GP_STYLE_ALLOCATED, GP_STYLE_RESERVED, GP_STYLE_OTHER, GP_STYLE_DIM};
        gp_grid_put(draw->grid, rect, y, x + i, styles[part], glyph[part]);
    }
    int peak = bar_cells(bar->peak, bar->total, width);
    if (peak > allocated) /* a bar at its peak needs no mark */
        gp_grid_put(draw->grid, rect, y, x + peak - 1, GP_STYLE_PEAK, glyph[4]);
}

/* The level of a sample from 0 (no height) to 8 (the whole cell): heights are in proportion to the
 * bytes, and only 0 has none. */
static int spark_level(int64_t sample, int64_t most)
{
    int level = most > 0 ? (int)((double)sample / (double)most * 8 + 0.5) : 0;
    if (sample <= 0)
        return 0;
    if (level < 1)
        return 1;
    return level > 8 ? 8 : level;
}

int64_t gp_draw_spark_most(const struct gp_history *history, int width)
{
    int64_t most = -1;
    for (int i = 0; i < width; i++) {
        int64_t sample = gp_model_history(history, i);
        most = sample > most ? sample : most;
    }
    return most;
}

void gp_draw_spark(const struct gp_draw *draw, struct gp_rect rect, int y, int x, int width,
                   const struct gp_history *history)
{
    static const char *const blocks[2][9] = {
        {"_", "\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"},
        {"_", ".", ":", "-", "=", "+", "*", "%", "#"}};
    int64_t most = gp_draw_spark_most(history, width);
    for (int i = 0; i < width; i++) {
        int64_t sample = gp_model_history(history, i);
        if (sample >= 0)
            gp_grid_put(draw->grid, rect, y, x + width - 1 - i, GP_STYLE_SPARK,
                        blocks[draw->grid->ascii][spark_level(sample, most)]);
    }
}
