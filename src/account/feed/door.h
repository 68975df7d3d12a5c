/* SPDX-License-Identifier: MIT
 *
 * door.h: libraries whose own pools are watched (framework/). The pool's memory is a heap (heap.h),
 * and the pieces that the pool hands out are blocks. The rules of heaps hold, except that a pool
 * does not describe itself: its memory becomes a heap with the pool's first known event, and a
 * piece inside another pool's piece is part of that one and does not count again.
 */
#ifndef GP_ACCOUNT_FEED_DOOR_H
#define GP_ACCOUNT_FEED_DOOR_H

#include <gpuprof/wire.h>
#include <stdbool.h>
#include <stdint.h>

/* X(TAG, name): the libraries, under the names that viewers read. */
#define GP_DOOR_ROWS(X)                                                                                                \
    X(RMM, "rmm")                                                                                                      \
    X(TENSORFLOW, "tensorflow")                                                                                        \
    X(PADDLE, "paddle")                                                                                                \
    X(XLA, "xla")
enum gp_door {
    GP_DOOR_NVTX, /* not a library: heaps that the program describes */
#define GP_DOOR_TAG(_tag, _name) GP_DOOR_##_tag,
    GP_DOOR_ROWS(GP_DOOR_TAG)
#undef GP_DOOR_TAG
        GP_DOORS
};
/* Blocks and memory of its pools have this owner, which is not 0. Before the others. */
void gp_feed_door_open(enum gp_door door, uint8_t owner);
/* A pool took the range from where it takes memory. Any thread, as the next three. */
void gp_feed_pool_grew(enum gp_door door, uint64_t address, uint64_t bytes);
/* pool: any number but 0 that tells pools apart. False: it contradicts what is known of that pool. Pieces in memory
 * that is not known to be the driver's are ignored. */
bool gp_feed_piece(enum gp_door door, uint64_t pool, uint64_t address, uint64_t bytes);
bool gp_feed_piece_back(enum gp_door door, uint64_t pool, uint64_t address);
/* Sets the state of the library for viewers. text: constant. */
void gp_feed_door_say(enum gp_door door, enum gp_wire_door_state state, const char *text);
/* The answer of a library that gpuprof asks about its own pools; no total of ours has it. -1:
 * unknown. */
struct gp_door_numbers {
    int64_t allocated_bytes, allocated_peak_bytes, reserved_bytes, reserved_peak_bytes, limit_bytes;
    uint64_t time_ns;
};
/* NULL: no longer known. device: GP_DEVICE_UNKNOWN with NULL: all; others that there cannot be are ignored. */
void gp_feed_door_polled(enum gp_door door, int device, const struct gp_door_numbers *numbers);
/* The poller calls `ask` whenever a viewer asks, once a second while a reader follows the events, and at the end, as long
 * as the library is on. */
void gp_feed_door_ask(void (*ask)(void));
/* Nothing more is heard of its pools: their memory is allocated as a whole again. */
void gp_feed_door_end(enum gp_door door);

#endif
