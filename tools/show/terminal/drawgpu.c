/* SPDX-License-Identifier: MIT
 * drawgpu.c: draws the block of each GPU at the top: name, bar, numbers and a sparkline of the last
 * minute; see draw.h.
 */
#include <show/terminal/draw.h>

#include <show/terminal/grid.h>
#include <show/terminal/layout.h>
#include <show/terminal/model.h>
#include <stdio.h>

const char *gp_draw_least(const struct gp_draw *draw, const struct gp_row *row)
{
    return !row->seen_peak && !row->late ? "" : draw->grid->ascii ? ">=" : "\u2265";
}

const struct gp_row *gp_draw_gpu_row(const struct gp_draw *draw, int gpu)
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
    int64_t bytes = width >= 8 ? gp_draw_spark_most(row->history, width) : -1;
    if (bytes < 0)
        return;
    snprintf(scale, sizeof(scale), "0..%s", gp_grid_bytes(bytes, GP_TEXT_SHORT, most, sizeof(most)));
    int at = rect.w - width - 1;
    gp_grid_put(draw->grid, rect, 1, at - 1 - gp_grid_width(scale), GP_STYLE_DIM, scale);
    gp_draw_spark(draw, rect, 1, at, width, row->history);
}

/* "allocated 12.3G  peak >=13.1G  reserved ...": as many items as fit without a cut. */
static void draw_gpu_numbers(const struct gp_draw *draw, struct gp_rect rect, const struct gp_row *row,
                             const struct gp_bar *bar, int x)
{
    char number[32], item[64];
    const char *least = gp_draw_least(draw, row);
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
    const struct gp_row *row = gp_draw_gpu_row(draw, index);
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
        struct gp_rect rect = gp_draw_layout_gpu(layout, i);
        if (hidden > 0 && i == layout->gpu_shown - 1)
            gp_grid_printf(draw->grid, rect, 0, 0, GP_STYLE_DIM, "and %d more GPUs: press d to list them", hidden + 1);
        else
            draw_gpu(draw, rect, i);
    }
}
