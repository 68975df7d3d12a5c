/* SPDX-License-Identifier: MIT
 * play.h: the replay's child, from its first line to its last; isolate.c forks and waits for it. */
#ifndef GP_REPLAY_PLAY_H
#define GP_REPLAY_PLAY_H

#include "isolate.h"

/* Fills *result, which is shared with the parent; errors are in result->complete and result->why
 * only.  `folder` takes the ledgers. */
void gp_replay_play(const struct gp_replay_trace *trace, const struct gp_replay_settings *settings, const char *folder,
                    struct gp_replay_result *result);

#endif
