/* SPDX-License-Identifier: MIT
 *
 * sampler.c: samples the processes in a thread of its own; see sampler.h.
 */
#include <show/terminal/sampler.h>

#include <agent/maps/maps.h>
#include <base/clock.h>
#include <errno.h>
#include <pthread.h>
#include <read/collect/collect.h>
#include <show/terminal/ui.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define GP_SAMPLER_WHY 256

struct gp_sampler {
    pthread_t thread;
    pthread_mutex_t mutex; /* of all below */
    pthread_cond_t change; /* CLOCK_MONOTONIC; the thread waits here for work, the next sample, or the end */
    int event;
    struct gp_collect_options options;
    int interval_ms;
    bool paused, stopping, refresh;
    struct gp_system *newest;
    int err;
    char why[GP_SAMPLER_WHY];
    int target_count; /* > 0: a reset is requested or in progress */
    uint32_t what;
    struct gp_reset_target targets[GP_UI_TAGS];
    bool answered;
    struct gp_reset_answer answer;
};

static void sampler_notify(struct gp_sampler *sampler)
{
    uint64_t one = 1;
    ssize_t ignored = write(sampler->event, &one, sizeof(one)); /* fails only after 2^64 - 2 unread events */
    (void)ignored;
}

/* The pid still belongs to the process that the user chose.  The kernel may have reused it
 * since. */
static bool reset_is_same(const struct gp_reset_target *target)
{
    struct gp_collect_options options = {.pids = &target->pid, .pid_count = 1};
    struct gp_system *system;
    if (gp_collect(&options, &system) != 0)
        return false;
    bool same = system->process_count == 1 && system->processes[0].start_time == target->start_time;
    gp_system_free(system);
    return same;
}

static void reset_send(const struct gp_reset_target *target, struct gp_reset_answer *answer, struct gp_wire_slot *slot)
{
    memset(slot, 0, sizeof(*slot));
    slot->command = GP_COMMAND_RESET;
    slot->what = answer->what;
    slot->device = target->device_index;
    int err = reset_is_same(target) ? gp_request(target->pid, slot, 1000000000ull) : -ESRCH;
    if (err) {
        if (answer->failed++ == 0) {
            answer->first_failed = target->pid;
            answer->first_error = err;
        }
        return;
    }
    if (answer->done++ > 0)
        return;
    answer->first = *target;
    answer->allocated_peak_after = answer->reserved_peak_after = -1;
    for (uint32_t i = 0; i < slot->reply_count && i < GP_WIRE_DEVICES; i++) {
        const struct gp_wire_before_after *reply = &slot->reply[i];
        if (reply->device != target->device_index)
            continue;
        answer->first.allocated_peak = reply->before[GP_STAT_ALLOCATED_BYTES].peak;
        answer->first.reserved_peak = reply->before[GP_STAT_RESERVED_BYTES].peak;
        answer->allocated_peak_after = reply->after[GP_STAT_ALLOCATED_BYTES].peak;
        answer->reserved_peak_after = reply->after[GP_STAT_RESERVED_BYTES].peak;
    }
}

/* Called with the mutex held, and releases it while a process answers.  targets[] does not change
 * until target_count is 0 (gp_sampler_reset). */
static void sampler_do_reset_locked(struct gp_sampler *sampler)
{
    struct gp_reset_answer answer = {.what = sampler->what};
    int count = sampler->target_count;
    struct gp_wire_slot *slot = malloc(sizeof(*slot));
    for (int i = 0; i < count && !sampler->stopping; i++) {
        struct gp_reset_target target = sampler->targets[i];
        pthread_mutex_unlock(&sampler->mutex);
        if (slot) {
            reset_send(&target, &answer, slot);
        } else if (answer.failed++ == 0) {
            answer.first_failed = target.pid;
            answer.first_error = -ENOMEM;
        }
        pthread_mutex_lock(&sampler->mutex);
    }
    free(slot);
    sampler->answer = answer;
    sampler->answered = true;
    sampler->target_count = 0;
    sampler->refresh = true;
    sampler_notify(sampler);
}

static void sampler_sample_locked(struct gp_sampler *sampler)
{
    struct gp_system *system = NULL;
    sampler->refresh = false;
    pthread_mutex_unlock(&sampler->mutex);
    char why[GP_SAMPLER_WHY];
    int err = gp_system_sample(&sampler->options, &system, why, sizeof(why));
    pthread_mutex_lock(&sampler->mutex);
    memcpy(sampler->why, why, sizeof(why));
    if (!err) {
        gp_system_free(sampler->newest);
        sampler->newest = system;
    }
    sampler->err = err;
    sampler_notify(sampler);
}

static void sampler_wait_locked(struct gp_sampler *sampler, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000ull), .tv_nsec = (long)(until_ns % 1000000000ull)};
    if (sampler->paused)
        pthread_cond_wait(&sampler->change, &sampler->mutex);
    else
        pthread_cond_timedwait(&sampler->change, &sampler->mutex, &until);
}

static void *sampler_run(void *argument)
{
    struct gp_sampler *sampler = argument;
    uint64_t last_ns = 0;
    pthread_mutex_lock(&sampler->mutex);
    while (!sampler->stopping) {
        uint64_t next_ns = last_ns + (uint64_t)sampler->interval_ms * 1000000ull;
        if (sampler->target_count > 0) {
            sampler_do_reset_locked(sampler);
        } else if (sampler->refresh || (!sampler->paused && gp_clock_ns() >= next_ns)) {
            last_ns = gp_clock_ns();
            sampler_sample_locked(sampler);
        } else {
            sampler_wait_locked(sampler, next_ns);
        }
    }
    pthread_mutex_unlock(&sampler->mutex);
    return NULL;
}

int gp_sampler_start(struct gp_sampler **out, const struct gp_collect_options *options, int interval_ms)
{
    struct gp_sampler *sampler = calloc(1, sizeof(*sampler));
    pthread_condattr_t attributes;
    sigset_t all, before;
    if (!sampler)
        return -ENOMEM;
    sampler->options = *options;
    sampler->interval_ms = interval_ms;
    sampler->refresh = true;
    sampler->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (sampler->event < 0) {
        int err = -errno;
        free(sampler);
        return err;
    }
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&sampler->change, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&sampler->mutex, NULL);
    /* The screen's thread handles all signals. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = -pthread_create(&sampler->thread, NULL, sampler_run, sampler);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err) {
        close(sampler->event);
        free(sampler);
        return err;
    }
    *out = sampler;
    return 0;
}

void gp_sampler_stop(struct gp_sampler *sampler)
{
    if (!sampler)
        return;
    pthread_mutex_lock(&sampler->mutex);
    sampler->stopping = true;
    pthread_cond_signal(&sampler->change);
    pthread_mutex_unlock(&sampler->mutex);
    pthread_join(sampler->thread, NULL);
    gp_system_free(sampler->newest);
    pthread_cond_destroy(&sampler->change);
    pthread_mutex_destroy(&sampler->mutex);
    close(sampler->event);
    free(sampler);
}

int gp_sampler_fd(const struct gp_sampler *sampler)
{
    return sampler->event;
}

struct gp_system *gp_sampler_take(struct gp_sampler *sampler, int *err)
{
    uint64_t events;
    ssize_t ignored = read(sampler->event, &events, sizeof(events));
    (void)ignored;
    pthread_mutex_lock(&sampler->mutex);
    struct gp_system *system = sampler->newest;
    sampler->newest = NULL;
    *err = sampler->err;
    sampler->err = 0;
    pthread_mutex_unlock(&sampler->mutex);
    return system;
}

void gp_sampler_why(struct gp_sampler *sampler, char *why, size_t why_bytes)
{
    pthread_mutex_lock(&sampler->mutex);
    snprintf(why, why_bytes, "%s", sampler->why);
    pthread_mutex_unlock(&sampler->mutex);
}

bool gp_sampler_answer(struct gp_sampler *sampler, struct gp_reset_answer *answer)
{
    pthread_mutex_lock(&sampler->mutex);
    bool answered = sampler->answered;
    sampler->answered = false;
    if (answered)
        *answer = sampler->answer;
    pthread_mutex_unlock(&sampler->mutex);
    return answered;
}

void gp_sampler_refresh(struct gp_sampler *sampler)
{
    pthread_mutex_lock(&sampler->mutex);
    sampler->refresh = true;
    pthread_cond_signal(&sampler->change);
    pthread_mutex_unlock(&sampler->mutex);
}

void gp_sampler_pace(struct gp_sampler *sampler, int interval_ms, bool paused)
{
    pthread_mutex_lock(&sampler->mutex);
    sampler->interval_ms = interval_ms;
    sampler->paused = paused;
    pthread_cond_signal(&sampler->change);
    pthread_mutex_unlock(&sampler->mutex);
}

int gp_sampler_reset(struct gp_sampler *sampler, const struct gp_reset_target *targets, int count, uint32_t what)
{
    pthread_mutex_lock(&sampler->mutex);
    int err = sampler->target_count > 0 || sampler->answered ? -EBUSY : 0;
    if (!err) {
        memcpy(sampler->targets, targets, (size_t)count * sizeof(*targets));
        sampler->target_count = count;
        sampler->what = what;
        pthread_cond_signal(&sampler->change);
    }
    pthread_mutex_unlock(&sampler->mutex);
    return err;
}
