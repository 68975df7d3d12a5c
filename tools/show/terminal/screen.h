/* SPDX-License-Identifier: MIT
 *
 * screen.h: the interactive `gpuprof top`.  It waits for samples, keys and signals, and shows
 * frames.
 */
#ifndef GP_VIEW_SCREEN_H
#define GP_VIEW_SCREEN_H

#include <show/terminal/ui.h>

/* Shows `samples` samples (0: until the user quits), starting with the state in `ui`.  0, -ENOTTY
 * (nothing was shown: print a table instead), or -errno.  *signal_out: the signal that ended it,
 * else 0; SIGINT quits and counts as 0. */
int gp_screen_run(const struct gp_collect_options *options, struct gp_ui *ui, int64_t samples, int *signal_out);

#endif
