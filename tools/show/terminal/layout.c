/* SPDX-License-Identifier: MIT
 *
 * layout.c: which lines of the screen each part gets; see layout.h.
 */
#include <show/terminal/layout.h>

#include <show/terminal/grid.h>

/* Parts take their lines in the order of their importance: title, one line of the table, header,
 * footer, alerts, GPUs, message, detail.  The table gets the rest, and gives plots of the GPUs and the
 * call sites of the selected process the lines that it does not need on a tall screen. */

#define GP_PLOT_SCREEN    GP_LAYOUT_TALL
#define GP_PLOT_WIDTH     50
#define GP_PLOT_HEIGHT    7 /* with its title and its times */
#define GP_PLOT_TALLEST   32
#define GP_PLOT_TABLE_GAP 1 /* a row that comes or goes need not move the plots */
#define GP_MORE_HEIGHT    3 /* fewer lines than a heading and two call sites are of no use */

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
    unused = least(left, unused);
    /* The call sites of the selected process get half of the unused lines, and what the plots leave. */
    int more = detail == wish->detail && unused >= GP_MORE_HEIGHT ? least(wish->more, unused / 2) : 0;
    int plots = take(&left, layout_plots(&layout, wish->gpus, cols, unused - more));
    if (more)
        detail += take(&left, least(wish->more, unused - plots));
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

struct gp_rect gp_draw_layout_gpu(const struct gp_layout *layout, int i)
{
    int columns = layout->gpu_columns;
    int width = layout->gpus.w / columns;
    struct gp_rect rect = {layout->gpus.y + i / columns * layout->gpu_lines, i % columns * width, layout->gpu_lines,
                           width};
    if (i < 0 || i >= layout->gpu_shown)
        rect.h = rect.w = 0;
    return rect;
}

struct gp_rect gp_draw_layout_plot(const struct gp_layout *layout, int i)
{
    int columns = layout->plot_columns, lines = divide_up(layout->plot_shown, columns);
    if (i < 0 || i >= layout->plot_shown)
        return (struct gp_rect){layout->plots.y, layout->plots.x, 0, 0};
    int width = layout->plots.w / columns, height = layout->plots.h / lines;
    return (struct gp_rect){layout->plots.y + i / columns * height, i % columns * width, height, width};
}
