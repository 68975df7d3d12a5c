/* SPDX-License-Identifier: MIT
 *
 * sampler.h: a thread that looks at the processes, so that the screen answers keys while a stopped process lets us
 * wait.  All functions are for the one thread that owns the screen.
 */
#ifndef GP_VIEW_SAMPLER_H
#define GP_VIEW_SAMPLER_H

#include <collect/collect.h>
#include <view/ui.h>

/* What became of a reset. */
struct gp_reset_answer {
    uint32_t what;
    int done, failed;
    pid_t first_failed;
    int first_error;                                   /* -errno */
    struct gp_reset_target first;                      /* the first one done, with its peaks of before */
    int64_t allocated_peak_after, reserved_peak_after; /* of it */
};

struct gp_sampler;

/* `options` is copied but for the pids, which must outlive the sampler.  0 or -errno. */
int gp_sampler_start(struct gp_sampler **out, const struct gp_collect_options *options, int interval_ms);
/* Ends the thread; waits for a sample in flight (at most its deadline) and for one request (one second). */
void gp_sampler_stop(struct gp_sampler *sampler);
/* Readable when one of the two functions below has something. */
int gp_sampler_fd(const struct gp_sampler *sampler);
/* The newest sample, then the caller's; NULL: none.  *err is -errno of a sample that failed, else 0. */
struct gp_system *gp_sampler_take(struct gp_sampler *sampler, int *err);
/* The sentence for the last *err. */
void gp_sampler_why(struct gp_sampler *sampler, char *why, size_t why_bytes);
bool gp_sampler_answer(struct gp_sampler *sampler, struct gp_reset_answer *answer);
void gp_sampler_refresh(struct gp_sampler *sampler);
void gp_sampler_pace(struct gp_sampler *sampler, int interval_ms, bool paused);
/* 0 or -EBUSY: the last reset has not been answered. */
int gp_sampler_reset(struct gp_sampler *sampler, const struct gp_reset_target *targets, int count, uint32_t what);

#endif
