/* SPDX-License-Identifier: MIT
 *
 * replay.h: replays the history of a framework's allocator through our cache (gp_feed_replay_fn).
 */
#ifndef GP_ALLOCATOR_REPLAY_H
#define GP_ALLOCATOR_REPLAY_H

struct gp_feed_replay;

/* Our own threads; takes no lock of the accounts, and memory from mmap. */
void gp_replay(struct gp_feed_replay *replay);

#endif
