/* SPDX-License-Identifier: MIT
 *
 * layout.h: which part of the screen is where.  Pure: sizes and wishes in, rectangles out.  The rectangles never
 * overlap and never leave the screen, whatever its size; a part without room has h = 0.  The idea of a pure layout
 * function is nvtop's.
 */
#ifndef GP_VIEW_LAYOUT_H
#define GP_VIEW_LAYOUT_H

#include <stdbool.h>
#include <view/grid.h>

struct gp_layout_wish {
    int rows, cols;
    int alerts; /* lines of losses and problems */
    int gpus;
    int table_rows; /* lines that the table could fill */
    int detail;     /* lines that the detail pane could fill; 0: not wanted */
};

struct gp_layout {
    struct gp_rect title, alerts, gpus, header, table, detail, message, footer;
    int gpu_lines;   /* of one GPU: 2 or 1 */
    int gpu_columns; /* side by side */
    int gpu_shown;   /* the rest is named in the last place */
};

struct gp_layout gp_layout_of(const struct gp_layout_wish *wish);
/* The place of GPU number i < gpu_shown. */
struct gp_rect gp_layout_gpu(const struct gp_layout *layout, int i);

#endif
