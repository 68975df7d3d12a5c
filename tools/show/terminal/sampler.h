/* SPDX-License-Identifier: MIT
 *
 * sampler.h: a thread that samples the processes, so that the screen still answers keys while the
 * sampler waits for a stopped process.  Only the thread that owns the screen calls these functions.
 * One mutex guards all shared state.  A new sample replaces one that the screen has not taken, so a
 * slow screen costs no memory.
 */
#ifndef GP_SHOW_TERMINAL_SAMPLER_H
#define GP_SHOW_TERMINAL_SAMPLER_H

#include <read/collect/collect.h>
#include <show/terminal/ui.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The result of a reset. */
struct gp_reset_answer {
    uint32_t what;
    int done, failed;
    pid_t first_failed;
    int first_error;                                   /* -errno */
    struct gp_reset_target first;                      /* the first target that was reset, with its peaks before */
    int64_t allocated_peak_after, reserved_peak_after; /* of that target */
};

struct gp_sampler;

/* Copies `options` except for the pids, which must outlive the sampler.  0 or -errno. */
int gp_sampler_start(struct gp_sampler **out, const struct gp_collect_options *options, int interval_ms);
/* Ends the thread.  Waits for a sample in progress (at most its deadline) and for one request (one
 * second). */
void gp_sampler_stop(struct gp_sampler *sampler);
/* Becomes readable when there is a sample, an error or the answer to a reset. */
int gp_sampler_fd(const struct gp_sampler *sampler);
/* Returns the newest sample, which the caller then owns; NULL: no new sample.  *err: -errno of a
 * failed sample, or 0. */
struct gp_system *gp_sampler_take(struct gp_sampler *sampler, int *err);
/* A sentence about the last *err. */
void gp_sampler_why(struct gp_sampler *sampler, char *why, size_t why_bytes);
/* Takes the answer to a reset; false: none is new. */
bool gp_sampler_answer(struct gp_sampler *sampler, struct gp_reset_answer *answer);
/* Takes a sample now. */
void gp_sampler_refresh(struct gp_sampler *sampler);
void gp_sampler_pace(struct gp_sampler *sampler, int interval_ms, bool paused);
/* Starts a reset; count <= GP_UI_TAGS.  0, or -EBUSY: the answer to the last reset has not been
 * taken. */
int gp_sampler_reset(struct gp_sampler *sampler, const struct gp_reset_target *targets, int count, uint32_t what);

#endif
