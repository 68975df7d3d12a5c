/* SPDX-License-Identifier: MIT
 *
 * window.h: the terminal for an interactive view: a grid of its size, keys, and signals.  Signals
 * are read from a descriptor, so they never interrupt the drawing of a frame.  One thread uses it.
 */
#ifndef GP_SHOW_TERMINAL_WINDOW_H
#define GP_SHOW_TERMINAL_WINDOW_H

#include <show/terminal/grid.h>
#include <stdbool.h>
#include <stdint.h>

struct gp_window {
    struct gp_grid grid;
    int signals; /* signalfd: poll it, then gp_window_signals */
    bool ascii, repaint, quit;
    int ended_by;         /* the signal that set quit, else 0; 0 for SIGINT, with which a user quits */
    uint64_t blocked[16]; /* the sigset_t to restore */
};

/* Blocks the signals.  The caller opens the terminal (gp_term_open) after all steps that may fail
 * with a message.  0 or -errno. */
int gp_window_begin(struct gp_window *window);
void gp_window_end(struct gp_window *window);
/* Gives the grid the terminal's size; call it before a frame is drawn.  0 or -errno. */
int gp_window_fit(struct gp_window *window);
/* Shows the frame that was drawn into the grid. */
void gp_window_show(struct gp_window *window);
/* Handles the signals that have arrived. */
void gp_window_signals(struct gp_window *window);
/* Calls `key` for every waiting key until one of them quits.  revents: the result of poll for the
 * terminal; the view also quits if the terminal is gone. */
void gp_window_keys(struct gp_window *window, short revents, void (*key)(void *arg, int key), void *arg);

#endif
