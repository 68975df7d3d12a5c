/* SPDX-License-Identifier: MIT
 *
 * term.h: the terminal.  term.c is the only file that uses ncurses.  A process has one terminal,
 * used by one thread.
 */
#ifndef GP_SHOW_TERMINAL_TERM_H
#define GP_SHOW_TERMINAL_TERM_H

#include <show/terminal/grid.h>
#include <stdbool.h>

/* Standard input and output are terminals that can move the cursor. */
bool gp_term_usable(void);
/* The locale and the terminal show UTF-8. */
bool gp_term_utf8(void);
/* Columns of standard output, if that is a terminal; else 0. */
int gp_term_width(void);
/* 0, or -ENOTTY: terminfo does not know TERM.  From now on a crash of the process restores the
 * terminal; on all other ways out the caller must call gp_term_close.  Only SIGKILL leaves the
 * terminal as it is. */
int gp_term_open(void);
void gp_term_close(void);
/* Reads the size from the kernel and passes it to ncurses. */
void gp_term_size(int *rows, int *cols);
/* `repaint`: draw every cell again, because the screen may be damaged. */
void gp_term_show(const struct gp_grid *grid, bool repaint);
/* The next key (enum gp_key or a character); GP_KEY_NONE: no key is waiting. */
int gp_term_key(void);
/* Where the last GP_KEY_CLICK was. */
void gp_term_click(int *y, int *x);
/* For Ctrl-Z: restores the terminal, stops this process, and takes the terminal again when the
 * process continues. */
void gp_term_stop(void);
/* After SIGCONT: the shell may have changed the terminal's modes. */
void gp_term_resume(void);

#endif
