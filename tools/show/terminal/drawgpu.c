/* SPDX-License-Identifier: MIT
 * drawgpu.c: draws the block of each GPU at the top: name, bar, numbers and a sparkline of the last
 * minute; see draw.h.  Its parts: the layout, strokes, the blocks of the GPUs, memory over time. */
#include <base/compiler.h>
#include <read/collect/collect.h>
#include <show/terminal/draw.h>
#include <show/terminal/grid.h>
#include <show/terminal/model.h>
#include <stdio.h>

/* ---- the layout -------------------------------------------------------------------------------------------------- */
/* Parts take their lines in the order of their importance: title, one line of the table, header,
 * footer, alerts, GPUs, message, detail.  The table gets the rest, and gives plots of the GPUs the
 * lines that it does not need on a tall screen. */

#define GP_PLOT_SCREEN    32 /* rows of the lowest screen with plots */
#define GP_PLOT_WIDTH     50
#define GP_PLOT_HEIGHT    7 /* with its title and its times */
#define GP_PLOT_TALLEST   20
#define GP_PLOT_TABLE_GAP 1 /* a row that comes or goes need not move the plots */

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int take(int *left, int wanted)
{
    int taken = least(*left, wanted < 0 ? 0 : wanted);
    *left -= taken;
    return taken;
}

static int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* Two lines per GPU if they fit into `room`, else one line, else several GPUs side by side. */
static int layout_gpus(struct gp_layout *layout, int gpus, int cols, int room)
{
    layout->gpu_lines = 1;
    layout->gpu_columns = 1;
    layout->gpu_shown = 0;
    if (gpus <= 0 || room <= 0)
        return 0;
    if (cols >= 50 && 2 * gpus <= room) { /* the numbers of the second line need 50 columns */
        layout->gpu_lines = 2;
        layout->gpu_shown = gpus;
        return 2 * gpus;
    }
    /* A GPU on one line needs 40 columns: a name, a bar of ten and three sizes. */
    while (divide_up(gpus, layout->gpu_columns) > room && cols / (layout->gpu_columns + 1) >= 40)
        layout->gpu_columns++;
    int lines = least(divide_up(gpus, layout->gpu_columns), room);
    layout->gpu_shown = least(gpus, lines * layout->gpu_columns);
    return lines;
}

/* One plot per GPU, side by side only if they do not fit below one another.  All are of one height. */
static int layout_plots(struct gp_layout *layout, int gpus, int cols, int room)
{
    layout->plot_columns = 1;
    layout->plot_shown = 0;
    if (gpus <= 0 || room < GP_PLOT_HEIGHT || cols < GP_PLOT_WIDTH)
        return 0;
    while (divide_up(gpus, layout->plot_columns) * GP_PLOT_HEIGHT > room &&
           cols / (layout->plot_columns + 1) >= GP_PLOT_WIDTH)
        layout->plot_columns++;
    int lines = least(divide_up(gpus, layout->plot_columns), room / GP_PLOT_HEIGHT);
    layout->plot_shown = least(gpus, lines * layout->plot_columns);
    return lines * least(room / lines, GP_PLOT_TALLEST);
}

struct gp_layout gp_draw_layout_of(const struct gp_layout_wish *wish)
{
    struct gp_layout layout = {.gpu_lines = 1, .gpu_columns = 1, .plot_columns = 1};
    int cols = wish->cols > 0 ? wish->cols : 0;
    int left = cols ? (wish->rows > 0 ? wish->rows : 0) : 0;
    int title = take(&left, 1);
    int table = take(&left, 1);
    int header = take(&left, 1);
    int footer = take(&left, 1);
    int alerts = take(&left, least(wish->alerts, left > 6 ? 3 : 1));
    int gpus = take(&left, layout_gpus(&layout, wish->gpus, cols, left > 24 ? left / 2 : (left + 1) * 2 / 5));
    int message = left >= 4 ? take(&left, 1) : 0;
    /* The pane leaves the table at least half of the rest, and needs four lines to be of use. */
    int spare = left + table - wish->table_rows;
    int room = spare > (left + table) / 2 ? spare : (left + table) / 2;
    int detail = room >= 4 && left >= 4 ? take(&left, least(wish->detail, room)) : 0;
    int unused = wish->rows >= GP_PLOT_SCREEN ? left + table - wish->table_rows - GP_PLOT_TABLE_GAP : 0;
    int plots = take(&left, layout_plots(&layout, wish->gpus, cols, least(left, unused)));
    table += left;

    int y = 0;
    struct gp_rect *const order[] = {&layout.title, &layout.alerts, &layout.gpus,    &layout.header, &layout.table,
                                     &layout.plots, &layout.detail, &layout.message, &layout.footer};
    const int heights[] = {title, alerts, gpus, header, table, plots, detail, message, footer};
    for (size_t i = 0; i < GP_COUNT(order); i++) {
        *order[i] = (struct gp_rect){y, 0, heights[i], cols};
        y += heights[i];
    }
    return layout;
}

/* The place of GPU number i < gpu_shown. */
static struct gp_rect draw_layout_gpu(const struct gp_layout *layout, int i)
{
    int columns = layout->gpu_columns;
    int width = layout->gpus.w / columns;
    struct gp_rect rect = {layout->gpus.y + i / columns * layout->gpu_lines, i % columns * width, layout->gpu_lines,
                           width};
    if (i < 0 || i >= layout->gpu_shown)
        rect.h = rect.w = 0;
    return rect;
}

/* The place of plot number i < plot_shown. */
static struct gp_rect draw_layout_plot(const struct gp_layout *layout, int i)
{
    int columns = layout->plot_columns, lines = divide_up(layout->plot_shown, columns);
    if (i < 0 || i >= layout->plot_shown)
        return (struct gp_rect){layout->plots.y, layout->plots.x, 0, 0};
    int width = layout->plots.w / columns, height = layout->plots.h / lines;
    return (struct gp_rect){layout->plots.y + i / columns * height, i % columns * width, height, width};
}

/* ---- strokes ----------------------------------------------------------------------------------------------------- */
/* Draws bars and sparklines; see draw.h.  A quantity that is not zero gets at least one cell. */

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
    if (bar->reserved > bar->allocated && reserved == allocated && allocated > 1 && reserved == width)
        allocated--;
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

/* The highest of the newest `width` samples; -1: none is known. */
static int64_t draw_spark_most(const struct gp_history *history, int width)
{
    int64_t most = -1;
    for (int i = 0; i < width; i++) {
        int64_t sample = gp_model_history(history, i);
        most = sample > most ? sample : most;
    }
    return most;
}

/* Draws `width` cells with the newest sample at the right.  The scale begins at 0 and ends at draw_spark_most. */
static void draw_spark(const struct gp_draw *draw, struct gp_rect rect, int y, int x, int width,
                       const struct gp_history *history)
{
    static const char *const blocks[2][9] = {
        {"_", "\u2581", "\u2582", "\u2583", "\u2584", "\u2585", "\u2586", "\u2587", "\u2588"},
        {"_", ".", ":", "-", "=", "+", "*", "%", "#"}};
    int64_t most = draw_spark_most(history, width);
    for (int i = 0; i < width; i++) {
        int64_t sample = gp_model_history(history, i);
        if (sample >= 0)
            gp_grid_put(draw->grid, rect, y, x + width - 1 - i, GP_STYLE_SPARK,
                        blocks[draw->grid->ascii][spark_level(sample, most)]);
    }
}

/* ---- the blocks of the GPUs -------------------------------------------------------------------------------------- */

/* What stands before the peaks of a row: ">=" if the exact one may be higher, as in the table. */
static const char *draw_least(const struct gp_draw *draw, const struct gp_row *row)
{
    return !row->seen_peak && !row->late ? "" : draw->grid->ascii ? ">=" : "\u2265";
}

/* The row of a GPU of the model, or NULL. */
static const struct gp_row *draw_gpu_row(const struct gp_draw *draw, int gpu)
{
    const struct gp_row_list *list = &draw->model->lists[GP_LIST_DEVICES];
    for (int i = 0; i < list->count; i++) {
        if (list->rows[i].id.device == gpu)
            return &list->rows[i];
    }
    return NULL;
}

static struct gp_bar draw_gpu_bar(const struct gp_gpu *gpu, const struct gp_row *row)
{
    struct gp_bar bar = {row->allocated, gp_row_held(row), -1, gpu->total_bytes, gp_row_mark(row)};
    if (gpu->used_bytes >= 0) {
        int64_t ours = bar.reserved > 0 ? bar.reserved : 0;
        bar.other = gpu->used_bytes > ours ? gpu->used_bytes - ours : 0;
    }
    return bar;
}

/* The history of the allocated bytes in the columns from x on, with its scale: "0..27.0G". */
static void draw_gpu_spark(const struct gp_draw *draw, struct gp_rect rect, const struct gp_row *row, int x)
{
    char most[32], scale[40];
    int room = rect.w - x - 1 - 9;     /* the scale takes up to 8 columns ("0..1023G") and a gap */
    int width = room > 60 ? 60 : room; /* a minute at the default interval; a longer line is hard to read */
    int64_t bytes = width >= 8 ? draw_spark_most(row->history, width) : -1;
    if (bytes < 0)
        return;
    snprintf(scale, sizeof(scale), "0..%s", gp_grid_bytes(bytes, GP_TEXT_SHORT, most, sizeof(most)));
    int at = rect.w - width - 1;
    gp_grid_put(draw->grid, rect, 1, at - 1 - gp_grid_width(scale), GP_STYLE_DIM, scale);
    draw_spark(draw, rect, 1, at, width, row->history);
}

/* "allocated 12.3G  peak >=13.1G  reserved ...": as many items as fit without a cut. */
static void draw_gpu_numbers(const struct gp_draw *draw, struct gp_rect rect, const struct gp_row *row,
                             const struct gp_bar *bar, int x)
{
    char number[32], item[64];
    const char *least = draw_least(draw, row);
    struct {
        const char *label, *mark;
        int64_t bytes;
        enum gp_style style;
    } items[] = {
        {"allocated", "", bar->allocated, GP_STYLE_ALLOCATED},    {"peak", least, row->allocated_peak, GP_STYLE_PEAK},
        {"reserved", "", row->reserved, GP_STYLE_RESERVED},       {"peak", least, row->reserved_peak, GP_STYLE_PEAK},
        {"before an attach", "", row->before, GP_STYLE_RESERVED}, {"others", "", bar->other, GP_STYLE_OTHER}};
    for (size_t i = 0; i < GP_COUNT(items); i++) {
        if (i >= GP_COUNT(items) - 2 && items[i].bytes < 0)
            continue; /* few programs were attached, and only NVML knows the memory of others */
        snprintf(item, sizeof(item), "%s %s%s", items[i].label, items[i].bytes < 0 ? "" : items[i].mark,
                 gp_grid_bytes(items[i].bytes, GP_TEXT_SHORT, number, sizeof(number)));
        if (x + gp_grid_width(item) > rect.w)
            return;
        x = gp_grid_put(draw->grid, rect, 1, x, items[i].style, item) + 2;
    }
    draw_gpu_spark(draw, rect, row, x);
}

static void draw_gpu(const struct gp_draw *draw, struct gp_rect rect, int index)
{
    const struct gp_gpu *gpu = &draw->model->gpus[index];
    const struct gp_row *row = draw_gpu_row(draw, index);
    if (!row || rect.h <= 0)
        return;
    struct gp_bar bar = draw_gpu_bar(gpu, row);
    char a[32], b[32], c[32], numbers[112];
    snprintf(numbers, sizeof(numbers), "%s/%s/%s", gp_grid_bytes(bar.allocated, GP_TEXT_SHORT, a, sizeof(a)),
             gp_grid_bytes(bar.reserved, GP_TEXT_SHORT, b, sizeof(b)),
             gp_grid_bytes(bar.total, GP_TEXT_SHORT, c, sizeof(c)));
    /* The numbers take up to 17 columns ("99.9G/99.9G/1023G") and the name up to 28; the bar takes
     * the rest. */
    int name = rect.w >= 60 ? (rect.w / 4 < 28 ? rect.w / 4 : 28) : 0;
    if (gp_model_gpu_known(gpu))
        gp_grid_printf(draw->grid, rect, 0, 0, GP_STYLE_BOLD, "GPU%d", gpu->index);
    else
        gp_grid_put(draw->grid, rect, 0, 0, GP_STYLE_BOLD, "GPU?");
    int x = draw->model->gpu_count > 10 ? 6 : 5; /* the bars of all GPUs start in one column */
    if (name) {
        struct gp_rect part = {rect.y, rect.x + x, 1, name};
        gp_grid_put(draw->grid, part, 0, 0, GP_STYLE_NORMAL, gp_model_gpu_label(gpu));
        x += name + 1;
    }
    int width = rect.w - x - 2 - 18;
    if (width >= 4) {
        x = gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_NORMAL, "[");
        gp_draw_bar(draw, rect, 0, x, width, &bar);
        x = gp_grid_put(draw->grid, rect, 0, x + width, GP_STYLE_NORMAL, "]");
    }
    gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_NORMAL, numbers);
    if (rect.h > 1)
        draw_gpu_numbers(draw, rect, row, &bar, 5);
}

void gp_draw_gpus(const struct gp_draw *draw, const struct gp_layout *layout)
{
    int hidden = draw->model->gpu_count - layout->gpu_shown;
    for (int i = 0; i < layout->gpu_shown; i++) {
        struct gp_rect rect = draw_layout_gpu(layout, i);
        if (hidden > 0 && i == layout->gpu_shown - 1)
            gp_grid_printf(draw->grid, rect, 0, 0, GP_STYLE_DIM, "and %d more GPUs: press d to list them", hidden + 1);
        else
            draw_gpu(draw, rect, i);
    }
}

/* ---- memory over time -------------------------------------------------------------------------------------------- */
/* Draws the memory of each GPU over time below the table; see draw.h.  A column is a sample, the
 * newest at the right; the parts are those of the bars. */

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
    snprintf(peak, sizeof(peak), " %s peak %s%s ", ascii ? "-" : "\u2500", draw_least(draw, plot->row),
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
    const struct gp_row *row = draw_gpu_row(draw, index);
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
    const struct gp_row *row = draw_gpu_row(draw, index);
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
        draw_plot(draw, draw_layout_plot(layout, place++), i);
    }
}
