/* SPDX-License-Identifier: MIT
 *
 * term.h: the terminal.  term.c is the only file that knows ncurses.  One terminal per process, one thread.
 */
#ifndef GP_VIEW_TERM_H
#define GP_VIEW_TERM_H

#include <stdbool.h>
#include <view/grid.h>

/* Stdin and stdout are terminals that can place a cursor. */
bool gp_term_usable(void);
/* The locale and the terminal show UTF-8. */
bool gp_term_utf8(void);
/* 0, or -ENOTTY: terminfo does not know TERM.  Whatever ends the process from now on but SIGKILL leaves a usable
 * terminal, provided that gp_term_close is called on the ordinary ways out. */
int gp_term_open(void);
void gp_term_close(void);
/* Asks the kernel, and tells ncurses. */
void gp_term_size(int *rows, int *cols);
/* `repaint`: do not trust what is on the screen. */
void gp_term_show(const struct gp_grid *grid, bool repaint);
/* The next key (enum gp_key or a character), GP_KEY_NONE when there is none. */
int gp_term_key(void);
/* Ctrl-Z: gives the terminal back, stops this process, takes it again when continued. */
void gp_term_stop(void);
/* After SIGCONT: the shell may have changed the terminal's modes. */
void gp_term_resume(void);

#endif
