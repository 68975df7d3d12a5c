/* SPDX-License-Identifier: MIT
 *
 * drawplot.c: draws the memory of each GPU over time below the table; see draw.h.  A column is two
 * samples, the newest at the right; the parts are those of the bars.  A cell has the eight dots of a
 * character of Braille: four heights for each of its samples, and the density of the dots tells the
 * parts apart where there is no colour.
 */
#include <show/terminal/draw.h>

#include <base/text.h>
#include <show/terminal/grid.h>
#include <show/terminal/layout.h>
#include <show/terminal/model.h>
#include <stdio.h>

#define GP_PLOT_LABELS 7  /* columns of the sizes at the left: "1023G" and a gap at both sides */
#define GP_PLOT_STEPS  4  /* heights that a cell can have */
#define GP_PLOT_SIDES  2  /* samples of a cell */
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

/* In dots: in proportion to the bytes, and only 0 has none. */
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
    for (int back = 0; back < GP_PLOT_SIDES * area.w; back++) {
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

/* Where the parts of a sample end, in dots from below. */
struct plot_ends {
    int allocated, reserved, held;
};

/* Reserved memory that is not allocated has a dot of its own, however little it is. */
static struct plot_ends plot_ends_of(const struct plot *plot, const struct gp_plot_sample *sample)
{
    if (!sample)
        return (struct plot_ends){0, 0, 0};
    double allocated = plot_known(sample->allocated), reserved = plot_reserved(sample);
    struct plot_ends ends = {plot_steps(plot, allocated), plot_steps(plot, reserved),
                             plot_steps(plot, plot_held(sample))};
    if (reserved > allocated && ends.reserved == ends.allocated) {
        if (ends.reserved < plot->area.h * GP_PLOT_STEPS)
            ends.reserved++;
        else
            ends.allocated--;
    }
    ends.held = ends.held > ends.reserved ? ends.held : ends.reserved;
    return ends;
}

/* How many dots' heights of the cell lie below `end`: 0 to GP_PLOT_STEPS. */
static int plot_within(int end, int level)
{
    int above = end - level * GP_PLOT_STEPS;
    return above < 0 ? 0 : above > GP_PLOT_STEPS ? GP_PLOT_STEPS : above;
}

/* All dots of allocated memory, every second one of reserved and those at its end, every fourth one of others. */
static unsigned plot_dots(const struct plot_ends *ends, int level, int side)
{
    static const unsigned char dots[GP_PLOT_SIDES][GP_PLOT_STEPS] = {{0x40, 0x04, 0x02, 0x01},
                                                                     {0x80, 0x20, 0x10, 0x08}};
    const int from = level * GP_PLOT_STEPS;
    unsigned set = 0;
    for (int i = 0; i < plot_within(ends->held, level); i++) {
        bool shown = i == side * 2;
        if (from + i < ends->allocated)
            shown = true;
        else if (from + i < ends->reserved)
            shown = from + i == ends->reserved - 1 || (i + side) % 2 == 0;
        if (shown)
            set |= dots[side][i];
    }
    return set;
}

/* A character has one colour.  That of reserved memory is shown where it ends, or has most of the cell. */
static enum gp_style plot_style(const struct plot_ends ends[GP_PLOT_SIDES], int level)
{
    int allocated = 0, reserved = 0;
    bool ends_here = false;
    for (int side = 0; side < GP_PLOT_SIDES; side++) {
        int mine = plot_within(ends[side].allocated, level), both = plot_within(ends[side].reserved, level);
        allocated += mine;
        reserved += both - mine;
        ends_here |= both > mine && ends[side].reserved <= (level + 1) * GP_PLOT_STEPS;
    }
    if (reserved > allocated || ends_here)
        return GP_STYLE_RESERVED;
    return allocated ? GP_STYLE_ALLOCATED : reserved ? GP_STYLE_RESERVED : GP_STYLE_OTHER;
}

/* In ASCII a cell has one part: that of the larger sample in its middle.  Reserved memory keeps a cell. */
static void draw_cell_ascii(const struct gp_draw *draw, const struct plot *plot,
                            const struct plot_ends ends[GP_PLOT_SIDES], int x, int level)
{
    static const char *const glyphs[] = {"#", "=", ":"};
    static const enum gp_style styles[] = {GP_STYLE_ALLOCATED, GP_STYLE_RESERVED, GP_STYLE_OTHER};
    const struct plot_ends *larger = &ends[ends[1].held >= ends[0].held];
    int cells[] = {larger->allocated, larger->reserved, larger->held}, part = 0;
    for (int i = 0; i < 3; i++)
        cells[i] = cells[i] ? (cells[i] < GP_PLOT_STEPS ? 1 : (cells[i] + GP_PLOT_STEPS / 2) / GP_PLOT_STEPS) : 0;
    if (larger->reserved > larger->allocated && cells[1] == cells[0]) {
        if (cells[1] < plot->area.h)
            cells[1]++;
        else
            cells[0]--;
    }
    while (part < 3 && level >= cells[part])
        part++;
    /* The line of the peak hides no reserved memory that has this cell alone. */
    if (level == plot->peak && part > 0 && (part > 1 || cells[0] < level))
        gp_grid_put(draw->grid, plot->area, plot->area.h - 1 - level, x, GP_STYLE_PEAK, "-");
    else if (part < 3)
        gp_grid_put(draw->grid, plot->area, plot->area.h - 1 - level, x, styles[part], glyphs[part]);
}

static void draw_cell(const struct gp_draw *draw, const struct plot *plot, const struct plot_ends ends[GP_PLOT_SIDES],
                      int x, int level)
{
    char glyph[8] = "";
    int y = plot->area.h - 1 - level;
    unsigned dots = plot_dots(&ends[0], level, 0) | plot_dots(&ends[1], level, 1);
    bool kept = false; /* allocated memory, and reserved that begins here */
    for (int side = 0; side < GP_PLOT_SIDES; side++)
        kept |= ends[side].reserved > level * GP_PLOT_STEPS && ends[side].allocated >= level * GP_PLOT_STEPS;
    if (level == plot->peak && !kept) {
        gp_grid_put(draw->grid, plot->area, y, x, GP_STYLE_PEAK, "\u2500");
    } else if (dots) {
        gp_utf8_put(glyph, 0x2800 + dots);
        gp_grid_put(draw->grid, plot->area, y, x, plot_style(ends, level), glyph);
    }
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
    for (int back = 0; back < plot->area.w && (sample = gp_model_plot(plot->row->plot, GP_PLOT_SIDES * back));
         back += GP_PLOT_TIMES) {
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
    } parts[] = {{ascii ? " # allocated " : " \u28ff allocated ", GP_STYLE_ALLOCATED, true},
                 {ascii ? " = reserved " : " \u286a reserved ", GP_STYLE_RESERVED, true},
                 {peak, GP_STYLE_PEAK, plot->peak >= 0},
                 {ascii ? " : others " : " \u2850 others ", GP_STYLE_OTHER, gpu->used_bytes >= 0},
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
        struct plot_ends ends[GP_PLOT_SIDES];
        int back = GP_PLOT_SIDES * (area.w - 1 - x);
        for (int side = 0; side < GP_PLOT_SIDES; side++)
            ends[side] = plot_ends_of(&plot, gp_model_plot(row->plot, back + GP_PLOT_SIDES - 1 - side));
        for (int level = 0; level < area.h; level++)
            (draw->grid->ascii ? draw_cell_ascii : draw_cell)(draw, &plot, ends, x, level);
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

/* The GPU of the selected row; -1: none. */
static int plot_selected(const struct gp_draw *draw)
{
    int cursor = draw->ui->cursor;
    return cursor >= 0 && cursor < draw->list->count ? draw->list->rows[cursor].id.device : -1;
}

void gp_draw_plots(const struct gp_draw *draw, const struct gp_layout *layout)
{
    int gpus = draw->model->gpu_count, busy = 0, place = 0, selected = plot_selected(draw);
    for (int i = 0; i < gpus; i++)
        busy += !plot_idle(draw, i);
    int idle = layout->plot_shown - (busy < layout->plot_shown ? busy : layout->plot_shown); /* places for these */
    for (int i = 0; i < gpus && place < layout->plot_shown; i++) {
        bool last = place == layout->plot_shown - 1 && selected > i; /* kept for the GPU of the selected row */
        if (i != selected && (last || (plot_idle(draw, i) && idle-- <= 0)))
            continue;
        draw_plot(draw, gp_draw_layout_plot(layout, place++), i);
    }
}
