/* SPDX-License-Identifier: MIT
 *
 * drawplot.c: draws the memory of each GPU over time below the table; see draw.h.  A column is a
 * sample, the newest at the right; the parts are those of the bars.
 */
#include <show/terminal/draw.h>

#include <show/terminal/grid.h>
#include <show/terminal/layout.h>
#include <show/terminal/model.h>
#include <stdio.h>

#define GP_PLOT_LABELS 7  /* columns of the sizes at the left: "1023G" and a gap at both sides */
#define GP_PLOT_STEPS  8  /* heights that a cell can have */
#define GP_PLOT_TIMES  30 /* columns from one time to the next */

struct plot {
    const struct gp_row *row;
    struct gp_rect area; /* of the samples */
    double top;          /* bytes at the upper edge */
    int peak;            /* line of the area, counted from below; -1: none */
    bool whole;          /* the upper edge is the size of the GPU */
};

static double plot_known(int64_t bytes)
{
    return bytes > 0 ? (double)bytes : 0;
}

/* Of the profiled programs, and of all programs. */
static double plot_reserved(const struct gp_plot_sample *sample)
{
    double allocated = plot_known(sample->allocated), reserved = plot_known(sample->reserved);
    return reserved > allocated ? reserved : allocated;
}

static double plot_held(const struct gp_plot_sample *sample)
{
    double ours = plot_reserved(sample), used = plot_known(sample->used);
    return used > ours ? used : ours;
}

/* In eighths of a line: in proportion to the bytes, and only 0 has none. */
static int plot_steps(const struct plot *plot, double bytes)
{
    int most = plot->area.h * GP_PLOT_STEPS;
    if (bytes <= 0)
        return 0;
    if (bytes >= plot->top)
        return most;
    int steps = (int)(bytes / plot->top * most + 0.5);
    return steps < 1 ? 1 : steps;
}

/* The scale ends at a power of two above everything shown, or at the size of the GPU.  Programs on
 * simulated GPUs may hold more than that in sum. */
static struct plot plot_of(const struct gp_gpu *gpu, const struct gp_row *row, struct gp_rect area)
{
    struct plot plot = {.row = row, .area = area, .top = 1 << 20, .peak = -1};
    double highest = plot_known(gp_row_mark(row));
    for (int back = 0; back < area.w; back++) {
        const struct gp_plot_sample *sample = gp_model_plot(row->plot, back);
        if (sample && plot_held(sample) > highest)
            highest = plot_held(sample);
    }
    while (plot.top < highest)
        plot.top *= 2;
    plot.whole = gpu->total_bytes > 0 && plot.top >= (double)gpu->total_bytes && highest <= (double)gpu->total_bytes;
    if (plot.whole)
        plot.top = (double)gpu->total_bytes;
    if (gp_row_mark(row) > 0)
        plot.peak = (plot_steps(&plot, (double)row->allocated_peak) - 1) / GP_PLOT_STEPS;
    return plot;
}

/* A cell of a part that only fills whole cells, or the lowest cell of a part that is not empty. */
static bool plot_fills(int steps, int level)
{
    return steps - level * GP_PLOT_STEPS >= GP_PLOT_STEPS / 2 || (level == 0 && steps > 0);
}

static void draw_cell(const struct gp_draw *draw, const struct plot *plot, const struct gp_plot_sample *sample, int x,
                      int level)
{
    static const char *const partial[] = {"\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587"};
    bool ascii = draw->grid->ascii;
    int y = plot->area.h - 1 - level;
    int allocated = sample ? plot_steps(plot, plot_known(sample->allocated)) : 0;
    int above = allocated - level * GP_PLOT_STEPS;
    if (above >= GP_PLOT_STEPS || (ascii && plot_fills(allocated, level)))
        gp_grid_put(draw->grid, plot->area, y, x, GP_STYLE_ALLOCATED, ascii ? "#" : "\u2588");
    else if (above > 0 && !ascii)
        gp_grid_put(draw->grid, plot->area, y, x, GP_STYLE_ALLOCATED, partial[above - 1]);
    else if (level == plot->peak)
        gp_grid_put(draw->grid, plot->area, y, x, GP_STYLE_PEAK, ascii ? "-" : "\u2500");
    else if (sample && plot_fills(plot_steps(plot, plot_reserved(sample)), level))
        gp_grid_put(draw->grid, plot->area, y, x, GP_STYLE_RESERVED, ascii ? "=" : "\u2592");
    else if (sample && plot_fills(plot_steps(plot, plot_held(sample)), level))
        gp_grid_put(draw->grid, plot->area, y, x, GP_STYLE_OTHER, ascii ? ":" : "\u2591");
}

static void draw_size(const struct gp_draw *draw, const struct plot *plot, struct gp_rect rect, int level,
                      enum gp_style style, double bytes)
{
    char text[32];
    gp_grid_bytes(bytes < 0x1p63 ? (int64_t)bytes : INT64_MAX, GP_TEXT_SHORT, text, sizeof(text));
    int x = GP_PLOT_LABELS - 1 - gp_grid_width(text), y = 1 + plot->area.h - 1 - level;
    gp_grid_fill(draw->grid, rect, y, 0, GP_PLOT_LABELS, GP_STYLE_NORMAL, " ");
    gp_grid_put(draw->grid, rect, y, x, style, text);
}

/* How long ago a sample was taken, below its column. */
static void draw_times(const struct gp_draw *draw, const struct plot *plot, struct gp_rect rect)
{
    const struct gp_plot_sample *newest = gp_model_plot(plot->row->plot, 0), *sample;
    char age[16], text[24];
    for (int back = 0; back < plot->area.w && (sample = gp_model_plot(plot->row->plot, back)); back += GP_PLOT_TIMES) {
        gp_grid_duration((double)(newest->time_ns - sample->time_ns) / 1e9, age, sizeof(age));
        snprintf(text, sizeof(text), back ? "%s ago" : "now", age);
        int x = rect.w - 1 - back - gp_grid_width(text);
        if (x >= GP_PLOT_LABELS)
            gp_grid_put(draw->grid, rect, rect.h - 1, x, GP_STYLE_DIM, text);
    }
}

/* "-- GPU0 Name  # allocated  = reserved  - peak >=31.5G  : others  device 140G ----": the parts
 * that fit whole. */
static void draw_title(const struct gp_draw *draw, const struct plot *plot, const struct gp_gpu *gpu,
                       struct gp_rect rect)
{
    bool ascii = draw->grid->ascii;
    char peak[64], number[32], total[32], top[96];
    gp_grid_fill(draw->grid, rect, 0, 0, rect.w - 1, GP_STYLE_DIM, ascii ? "-" : "\u2500");
    int x = gp_model_gpu_known(gpu) ? gp_grid_printf(draw->grid, rect, 0, 2, GP_STYLE_BOLD, " GPU%d ", gpu->index)
                                    : gp_grid_put(draw->grid, rect, 0, 2, GP_STYLE_BOLD, " GPU? ");
    if (rect.w >= 110)
        x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_NORMAL, "%.40s ", gp_model_gpu_label(gpu));
    snprintf(peak, sizeof(peak), " %s peak %s%s ", ascii ? "-" : "\u2500", gp_draw_least(draw, plot->row),
             gp_grid_bytes(plot->row->allocated_peak, GP_TEXT_SHORT, number, sizeof(number)));
    gp_grid_bytes(gpu->total_bytes, GP_TEXT_SHORT, total, sizeof(total));
    snprintf(top, sizeof(top), plot->whole ? " top: the device, %s " : " device %s ", total);
    const struct {
        const char *text;
        enum gp_style style;
        bool shown;
    } parts[] = {{ascii ? " # allocated " : " \u2588 allocated ", GP_STYLE_ALLOCATED, true},
                 {ascii ? " = reserved " : " \u2592 reserved ", GP_STYLE_RESERVED, true},
                 {peak, GP_STYLE_PEAK, plot->peak >= 0},
                 {ascii ? " : others " : " \u2591 others ", GP_STYLE_OTHER, gpu->used_bytes >= 0},
                 {top, GP_STYLE_NORMAL, gpu->total_bytes > 0}};
    for (size_t i = 0; i < GP_COUNT(parts); i++) {
        if (parts[i].shown && x + gp_grid_width(parts[i].text) <= rect.w - 1)
            x = gp_grid_put(draw->grid, rect, 0, x, parts[i].style, parts[i].text);
    }
}

static void draw_plot(const struct gp_draw *draw, struct gp_rect rect, int index)
{
    const struct gp_gpu *gpu = &draw->model->gpus[index];
    const struct gp_row *row = gp_draw_gpu_row(draw, index);
    struct gp_rect area = {rect.y + 1, rect.x + GP_PLOT_LABELS, rect.h - 2, rect.w - GP_PLOT_LABELS - 1};
    if (!row || area.h <= 0 || area.w <= 0)
        return;
    struct plot plot = plot_of(gpu, row, area);
    draw_title(draw, &plot, gpu, rect);
    for (int x = 0; x < area.w; x++) {
        const struct gp_plot_sample *sample = gp_model_plot(row->plot, area.w - 1 - x);
        for (int level = 0; level < area.h; level++)
            draw_cell(draw, &plot, sample, x, level);
    }
    draw_size(draw, &plot, rect, area.h - 1, GP_STYLE_DIM, plot.top);
    draw_size(draw, &plot, rect, 0, GP_STYLE_DIM, 0);
    if (plot.peak > 0)
        draw_size(draw, &plot, rect, plot.peak, GP_STYLE_PEAK, plot_known(row->allocated_peak));
    draw_times(draw, &plot, rect);
}

/* A GPU that no profiled program has used since the start can do without, if not all fit. */
static bool plot_idle(const struct gp_draw *draw, int index)
{
    const struct gp_row *row = gp_draw_gpu_row(draw, index);
    return !row || (row->reserved_peak <= 0 && row->allocated_peak <= 0 && row->before <= 0);
}

void gp_draw_plots(const struct gp_draw *draw, const struct gp_layout *layout)
{
    int gpus = draw->model->gpu_count, busy = 0, place = 0;
    for (int i = 0; i < gpus; i++)
        busy += !plot_idle(draw, i);
    int idle = layout->plot_shown - (busy < layout->plot_shown ? busy : layout->plot_shown); /* places for these */
    for (int i = 0; i < gpus && place < layout->plot_shown; i++) {
        if (plot_idle(draw, i) && idle-- <= 0)
            continue;
        draw_plot(draw, gp_draw_layout_plot(layout, place++), i);
    }
}
