/* SPDX-License-Identifier: MIT
 *
 * layout.h: computes the place of each part of the screen from its size and the wanted heights.
 * Pure.  For any size, the rectangles do not overlap and stay on the screen; a part without room
 * has h = 0.  The idea of a pure layout function is nvtop's.
 */
#ifndef GP_SHOW_TERMINAL_LAYOUT_H
#define GP_SHOW_TERMINAL_LAYOUT_H

#include <show/terminal/grid.h>

#define GP_LAYOUT_TALL 32 /* rows of the lowest screen with plots, and call sites below the details */

struct gp_layout_wish {
    int rows, cols;
    int alerts; /* lines */
    int gpus;
    int table_rows; /* rows of the table */
    int detail;     /* lines of the detail pane; 0: not wanted */
    int more;       /* further lines that it can use on a tall screen */
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
/* The place of GPU number i < gpu_shown. */
struct gp_rect gp_draw_layout_gpu(const struct gp_layout *layout, int i);
/* The place of plot number i < plot_shown. */
struct gp_rect gp_draw_layout_plot(const struct gp_layout *layout, int i);

#endif
