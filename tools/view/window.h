/* SPDX-License-Identifier: MIT
 *
 * window.h: the terminal as an interactive view has it: a grid of its size, signals from a descriptor, so that nothing
 * is ever interrupted half-way through a frame, and keys.  One thread.
 */
#ifndef GP_VIEW_WINDOW_H
#define GP_VIEW_WINDOW_H

#include <view/grid.h>

struct gp_window {
    struct gp_grid grid;
    int signals; /* signalfd: poll it, then gp_window_signals */
    bool ascii, repaint, quit;
    int ended_by;         /* the signal that quit, but for SIGINT, which a person means; else 0 */
    uint64_t blocked[16]; /* sigset_t before us */
};

/* The signals are blocked from here on; the terminal is opened apart (gp_term_open), after what may fail and wants to
 * speak.  0 or -errno. */
int gp_window_begin(struct gp_window *window);
void gp_window_end(struct gp_window *window);

/* Before a frame is drawn: the grid has the terminal's size.  0 or -errno. */
int gp_window_fit(struct gp_window *window);
/* After it was drawn. */
void gp_window_show(struct gp_window *window);

void gp_window_signals(struct gp_window *window);
/* Every key that waits, until one quits; revents: what poll said of the terminal, which may be gone. */
void gp_window_keys(struct gp_window *window, short revents, void (*key)(void *arg, int key), void *arg);

#endif
