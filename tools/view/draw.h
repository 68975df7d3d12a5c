/* SPDX-License-Identifier: MIT
 *
 * draw.h: fills the grid from the model, the table's lines and the person's choices.  Pure; draw.c puts the parts
 * together, the other draw*.c files hold one part each.
 */
#ifndef GP_VIEW_DRAW_H
#define GP_VIEW_DRAW_H

#include <view/grid.h>
#include <view/layout.h>
#include <view/ui.h>

struct gp_draw { /* what every part needs */
    struct gp_grid *grid;
    const struct gp_model *model;
    const struct gp_row_list *list;
    const struct gp_ui *ui;
};

/* The layout that a frame of this size has.  Also how many lines of table fit: gp_ui_settle needs it before drawing. */
struct gp_layout gp_draw_layout(const struct gp_draw *draw);
void gp_draw_frame(const struct gp_draw *draw);

/* ---- parts --------------------------------------------------------------------------------------------------- */

void gp_draw_gpus(const struct gp_draw *draw, const struct gp_layout *layout);
void gp_draw_table(const struct gp_draw *draw, const struct gp_layout *layout);
void gp_draw_detail(const struct gp_draw *draw, struct gp_rect rect);
void gp_draw_help(const struct gp_draw *draw, struct gp_rect rect);
void gp_draw_sort(const struct gp_draw *draw, struct gp_rect rect);
void gp_draw_empty(const struct gp_draw *draw, struct gp_rect rect);
/* Lines that the detail pane of the selected row could fill. */
int gp_draw_detail_lines(const struct gp_draw *draw);
/* The selected line's row, or NULL. */
const struct gp_row *gp_draw_selected(const struct gp_draw *draw);

/* ---- strokes ------------------------------------------------------------------------------------------------- */

struct gp_bar { /* bytes; -1 unknown */
    int64_t allocated, reserved, other, total, peak;
};

/* `width` cells: allocated within reserved, then what others hold, within the total; a mark at the peak. */
void gp_draw_bar(const struct gp_draw *draw, struct gp_rect rect, int y, int x, int width, const struct gp_bar *bar);
/* `width` cells, the newest sample at the right, scaled to the highest sample shown. */
void gp_draw_spark(const struct gp_draw *draw, struct gp_rect rect, int y, int x, int width,
                   const struct gp_history *history);

#endif
