/* SPDX-License-Identifier: MIT
 *
 * draw.h: draws the view into a grid (grid.h).
 */
#ifndef GP_SHOW_TERMINAL_DRAW_H
#define GP_SHOW_TERMINAL_DRAW_H

#include <show/terminal/column.h>
#include <show/terminal/grid.h>
#include <show/terminal/model.h>
#include <show/terminal/ui.h>
#include <stdint.h>

/* Fills the grid from the model, the lines of the table and the user's choices.  Pure. draw.c puts
 * the parts together; the other draw*.c files draw them. */

/* Computes the place of each part of the screen from its size and the wanted heights. Pure.  For any
 * size, the rectangles do not overlap and stay on the screen; a part without room has h = 0.  The
 * idea of a pure layout function is nvtop's. */

struct gp_layout_wish {
    int rows, cols;
    int alerts; /* lines */
    int gpus;
    int table_rows; /* rows of the table */
    int detail;     /* lines of the detail pane; 0: not wanted */
};

struct gp_layout {
    struct gp_rect title, alerts, gpus, header, table, plots, detail, message, footer;
    int gpu_lines;    /* per GPU: 2 or 1 */
    int gpu_columns;  /* GPUs side by side */
    int gpu_shown;    /* places; if they are fewer than the GPUs, the last one says how many more there are */
    int plot_columns; /* plots side by side */
    int plot_shown;   /* plots of memory over time, one per GPU as far as they fit */
};

struct gp_layout gp_draw_layout_of(const struct gp_layout_wish *wish);

struct gp_draw { /* the inputs of every part */
    struct gp_grid *grid;
    const struct gp_model *model;
    const struct gp_row_list *list;
    const struct gp_ui *ui;
};

/* The layout of a frame of the grid's size.  gp_ui_settle needs the height of its table before the
 * frame is drawn. */
struct gp_layout gp_draw_layout(const struct gp_draw *draw);
void gp_draw_frame(const struct gp_draw *draw);

void gp_draw_gpus(const struct gp_draw *draw, const struct gp_layout *layout);
void gp_draw_table(const struct gp_draw *draw, const struct gp_layout *layout);
/* Memory over time, per GPU. */
void gp_draw_plots(const struct gp_draw *draw, const struct gp_layout *layout);
void gp_draw_detail(const struct gp_draw *draw, struct gp_rect rect);
void gp_draw_help(const struct gp_draw *draw, struct gp_rect rect);
void gp_draw_sort(const struct gp_draw *draw, struct gp_rect rect);
void gp_draw_empty(const struct gp_draw *draw, struct gp_rect rect);
/* The height that the detail pane of the selected row could use, in lines. */
int gp_draw_detail_lines(const struct gp_draw *draw);

struct gp_hit {               /* what is at a place of the screen */
    int line;                 /* of the list; -1: no row */
    enum gp_column_id column; /* whose name is there; GP_COLUMNS: none */
    int key;                  /* of the footer; GP_KEY_NONE: none */
};
struct gp_hit gp_draw_hit(const struct gp_draw *draw, int y, int x);
/* The column at x of a table of this width; GP_COLUMNS: none. */
enum gp_column_id gp_draw_column_at(const struct gp_draw *draw, int width, int x);

struct gp_bar { /* bytes; -1 unknown */
    int64_t allocated, reserved, other, total, peak;
};

/* Draws `width` cells for the total: allocated, the rest of reserved, memory of others, free; and a
 * mark at the peak. */
void gp_draw_bar(const struct gp_draw *draw, struct gp_rect rect, int y, int x, int width, const struct gp_bar *bar);

#endif
