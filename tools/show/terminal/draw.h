/* SPDX-License-Identifier: MIT
 *
 * draw.h: fills the grid from the model, the lines of the table and the user's choices.  Pure.
 * draw.c puts the parts together; the other draw*.c files draw them.
 */
#ifndef GP_SHOW_TERMINAL_DRAW_H
#define GP_SHOW_TERMINAL_DRAW_H

#include <show/terminal/grid.h>
#include <show/terminal/layout.h>
#include <show/terminal/model.h>
#include <show/terminal/ui.h>
#include <stdint.h>

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

/* ---- parts ------------------------------------------------------------------------------------------------------- */

void gp_draw_gpus(const struct gp_draw *draw, const struct gp_layout *layout);
void gp_draw_table(const struct gp_draw *draw, const struct gp_layout *layout);
/* Memory over time, per GPU. */
void gp_draw_plots(const struct gp_draw *draw, const struct gp_layout *layout);
void gp_draw_detail(const struct gp_draw *draw, struct gp_rect rect);
void gp_draw_help(const struct gp_draw *draw, struct gp_rect rect);
void gp_draw_sort(const struct gp_draw *draw, struct gp_rect rect);
void gp_draw_empty(const struct gp_draw *draw, struct gp_rect rect);
/* Draw the parts of the detail pane of a call site, and of a view without call sites. */
void gp_draw_stack(const struct gp_draw *draw, struct gp_rect rect, const struct gp_row *row);
int gp_draw_stack_lines(const struct gp_draw *draw, const struct gp_row *row);
void gp_draw_no_sites(const struct gp_draw *draw, struct gp_rect rect);
/* The call sites of the selected process, below its details: the lines that they could use, 0 where they are shown
 * elsewhere or nowhere. */
int gp_draw_sites_lines(const struct gp_draw *draw, const struct gp_row *row);
void gp_draw_sites(const struct gp_draw *draw, struct gp_rect rect, const struct gp_row *row);
/* The row of a GPU of the model, or NULL. */
const struct gp_row *gp_draw_gpu_row(const struct gp_draw *draw, int gpu);
/* What stands before the peaks of a row: ">=" if the exact one may be higher, as in the table. */
const char *gp_draw_least(const struct gp_draw *draw, const struct gp_row *row);
/* The height that the detail pane of the selected row could use, in lines. */
int gp_draw_detail_lines(const struct gp_draw *draw);

/* ---- clicks -------------------------------------------------------------------------------------------------- */

struct gp_hit {               /* what is at a place of the screen */
    int line;                 /* of the list; -1: no row */
    enum gp_column_id column; /* whose name is there; GP_COLUMNS: none */
    int key;                  /* of the footer; GP_KEY_NONE: none */
};
struct gp_hit gp_draw_hit(const struct gp_draw *draw, int y, int x);
/* The column at x of a table of this width; GP_COLUMNS: none. */
enum gp_column_id gp_draw_column_at(const struct gp_draw *draw, int width, int x);

/* ---- strokes ------------------------------------------------------------------------------------------------- */

struct gp_bar { /* bytes; -1 unknown */
    int64_t allocated, reserved, other, total, peak;
};

/* Draws `width` cells for the total: allocated, the rest of reserved, memory of others, free; and a
 * mark at the peak. */
void gp_draw_bar(const struct gp_draw *draw, struct gp_rect rect, int y, int x, int width, const struct gp_bar *bar);
/* The highest of the newest `width` samples; -1: none is known. */
int64_t gp_draw_spark_most(const struct gp_history *history, int width);
/* Draws `width` cells with the newest sample at the right.  The scale begins at 0 and ends at
 * gp_draw_spark_most. */
void gp_draw_spark(const struct gp_draw *draw, struct gp_rect rect, int y, int x, int width,
                   const struct gp_history *history);

#endif
