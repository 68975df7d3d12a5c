/* SPDX-License-Identifier: MIT
 *
 * api.h: helpers shared by the functions of gpuprof.h in this folder. The program calls these
 * functions on any of its threads. They never start the library, call CUDA, allocate or print.
 */
#ifndef GP_SESSION_API_H
#define GP_SESSION_API_H

#include "base/numbers.h"
#include <stdbool.h>
#include <stdint.h>

/* False: nothing is known in this process (not injected, switched off, a forked child, start not
 * finished, or a signal handler that interrupted our own code). After true, call the leave
 * function with the same variable; it restores errno. */
bool gp_api_enter(int *saved_errno);
void gp_api_leave(int saved_errno);

/* Call it between the two: brings the polled parts of the numbers up to date, if there are any. */
void gp_api_poll(void);

/* Reads a row of gp_wire_device[] at one instant, with fresh polled parts; or resets it
 * (GP_RESET_*). False: the device is not known. */
bool gp_api_device(unsigned index, struct gp_wire_device *out);
bool gp_api_reset(unsigned index, unsigned what);

/* As gp_stat_keys, for pinned host memory. */
#define GP_API_HOST_STATS 18u
extern const struct gp_stat_key gp_api_host_stats[GP_API_HOST_STATS];

#endif
