/* SPDX-License-Identifier: MIT
 * screen.c: see ui.h.  One thread waits in one poll for everything.  Its parts: the window, the
 * sampler, the screen. */
#define _GNU_SOURCE
#include <gpuprof/wire.h>
#include <show/terminal/column.h>
#include <show/terminal/draw.h>
#include <show/terminal/ui.h>

#include <agent/maps/maps.h>
#include <base/clock.h>
#include <base/compiler.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <read/collect/collect.h>
#include <show/terminal/grid.h>
#include <show/terminal/model.h>
#include <show/terminal/siteview.h>
#include <show/terminal/term.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* ---- the window -------------------------------------------------------------------------------------------------- */
/* The terminal for an interactive view: a grid of its size, keys, and signals.  Signals are read
 * from a descriptor, so they never interrupt the drawing of a frame.  One thread uses it. */

struct gp_window {
    struct gp_grid grid;
    int signals; /* signalfd: poll it, then window_signals */
    bool ascii, repaint, quit;
    int ended_by;         /* the signal that set quit, else 0; 0 for SIGINT, with which a user quits */
    uint64_t blocked[16]; /* the sigset_t to restore */
};

_Static_assert(sizeof(sigset_t) <= sizeof(((struct gp_window *)0)->blocked), "screen.c");

/* Blocks the signals.  The caller opens the terminal (gp_term_open) after all steps that may fail
 * with a message.  0 or -errno. */
static int window_begin(struct gp_window *window)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP, SIGCONT};
    sigset_t set, before;
    *window = (struct gp_window){.ascii = !gp_term_utf8()};
    sigemptyset(&set);
    for (size_t i = 0; i < GP_COUNT(signals); i++)
        sigaddset(&set, signals[i]);
    sigprocmask(SIG_BLOCK, &set, &before);
    memcpy(window->blocked, &before, sizeof(before));
    window->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return window->signals < 0 ? -errno : 0;
}

static void window_end(struct gp_window *window)
{
    sigset_t before;
    if (window->signals >= 0)
        close(window->signals);
    gp_grid_fini(&window->grid);
    memcpy(&before, window->blocked, sizeof(before));
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* Gives the grid the terminal's size; call it before a frame is drawn.  0 or -errno. */
static int window_fit(struct gp_window *window)
{
    int rows, cols;
    gp_term_size(&rows, &cols);
    if (rows == window->grid.rows && cols == window->grid.cols)
        return 0;
    gp_grid_fini(&window->grid);
    window->repaint = true;
    return gp_grid_init(&window->grid, rows, cols, window->ascii);
}

/* Shows the frame that was drawn into the grid. */
static void window_show(struct gp_window *window)
{
    gp_term_show(&window->grid, window->repaint);
    window->repaint = false;
}

/* Handles the signals that have arrived. */
static void window_signals(struct gp_window *window)
{
    struct signalfd_siginfo info;
    while (read(window->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        switch (info.ssi_signo) {
        case SIGWINCH:
            window->repaint = true;
            break;
        case SIGTSTP:
            gp_term_stop();
            window->repaint = true;
            break;
        case SIGCONT:
            gp_term_resume();
            window->repaint = true;
            break;
        case SIGINT:
            window->quit = true;
            break;
        default:
            window->quit = true;
            window->ended_by = (int)info.ssi_signo;
        }
    }
}

/* Calls `key` for every waiting key until one of them quits.  revents: the result of poll for the
 * terminal; the view also quits if the terminal is gone. */
static void window_keys(struct gp_window *window, short revents, void (*key)(void *arg, int key), void *arg)
{
    int keys = 0, one;
    while (revents && !window->quit && (one = gp_term_key()) != GP_KEY_NONE) {
        key(arg, one);
        keys++;
    }
    if (!keys && (revents & (POLLHUP | POLLERR | POLLNVAL)))
        window->quit = true; /* the terminal is gone */
}

/* ---- the sampler ------------------------------------------------------------------------------------------------- */
/* A thread that samples the processes, so that the screen still answers keys while the sampler waits
 * for a stopped process.  Only the thread that owns the screen calls these functions.  One mutex
 * guards all shared state.  A new sample replaces one that the screen has not taken, so a slow
 * screen costs no memory. */

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
 * until target_count is 0 (sampler_reset). */
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

/* Copies `options` except for the pids, which must outlive the sampler.  0 or -errno. */
static int sampler_start(struct gp_sampler **out, const struct gp_collect_options *options, int interval_ms)
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

/* Ends the thread.  Waits for a sample in progress (at most its deadline) and for one request (one
 * second). */
static void sampler_stop(struct gp_sampler *sampler)
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

/* Becomes readable when there is a sample, an error or the answer to a reset. */
static int sampler_fd(const struct gp_sampler *sampler)
{
    return sampler->event;
}

/* Returns the newest sample, which the caller then owns; NULL: no new sample.  *err: -errno of a
 * failed sample, or 0. */
static struct gp_system *sampler_take(struct gp_sampler *sampler, int *err)
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

/* A sentence about the last *err. */
static void sampler_why(struct gp_sampler *sampler, char *why, size_t why_bytes)
{
    pthread_mutex_lock(&sampler->mutex);
    snprintf(why, why_bytes, "%s", sampler->why);
    pthread_mutex_unlock(&sampler->mutex);
}

/* Takes the answer to a reset; false: none is new. */
static bool sampler_answer(struct gp_sampler *sampler, struct gp_reset_answer *answer)
{
    pthread_mutex_lock(&sampler->mutex);
    bool answered = sampler->answered;
    sampler->answered = false;
    if (answered)
        *answer = sampler->answer;
    pthread_mutex_unlock(&sampler->mutex);
    return answered;
}

/* Takes a sample now. */
static void sampler_refresh(struct gp_sampler *sampler)
{
    pthread_mutex_lock(&sampler->mutex);
    sampler->refresh = true;
    pthread_cond_signal(&sampler->change);
    pthread_mutex_unlock(&sampler->mutex);
}

static void sampler_pace(struct gp_sampler *sampler, int interval_ms, bool paused)
{
    pthread_mutex_lock(&sampler->mutex);
    sampler->interval_ms = interval_ms;
    sampler->paused = paused;
    pthread_cond_signal(&sampler->change);
    pthread_mutex_unlock(&sampler->mutex);
}

/* Starts a reset; count <= GP_UI_TAGS.  0, or -EBUSY: the answer to the last reset has not been
 * taken. */
static int sampler_reset(struct gp_sampler *sampler, const struct gp_reset_target *targets, int count, uint32_t what)
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

/* ---- the screen -------------------------------------------------------------------------------------------------- */

struct gp_screen {
    struct gp_model model;
    struct gp_growth growth;
    struct gp_row_list list;
    struct gp_window window;
    struct gp_ui *ui;
    struct gp_sampler *sampler;
    struct gp_site_set sites; /* open while they are shown */
    int64_t left;             /* samples still to show; 0: no limit */
};

/* Reading the call sites of a process does not wait for it, so this thread does it. */
static int screen_sites(struct gp_screen *screen)
{
    if (gp_ui_by_site(screen->ui) && !screen->model.sites) {
        screen->model.sites = &screen->sites;
        screen->sites.pending = 1; /* first a frame that says so: looking symbols up takes time */
        return 0;
    }
    if (gp_ui_by_site(screen->ui))
        return gp_site_set_step(&screen->sites, &screen->model, gp_ui_scope(screen->ui));
    if (screen->model.sites)
        gp_site_set_close(&screen->sites);
    screen->model.sites = NULL;
    return 0;
}

static int screen_frame(struct gp_screen *screen)
{
    int err = window_fit(&screen->window);
    if (!err)
        err = screen_sites(screen);
    if (!err)
        err = gp_rows_build(&screen->model, screen->ui, &screen->list);
    if (err)
        return err;
    struct gp_draw draw = {&screen->window.grid, &screen->model, &screen->list, screen->ui};
    /* Twice: the height of the table depends on the details, and these on the row that the first
     * call selected. */
    gp_ui_settle(screen->ui, &screen->list, gp_draw_layout(&draw).table.h);
    gp_ui_settle(screen->ui, &screen->list, gp_draw_layout(&draw).table.h);
    gp_draw_frame(&draw);
    window_show(&screen->window);
    return 0;
}

static void screen_answer(struct gp_screen *screen)
{
    struct gp_reset_answer answer;
    char before[32], after[32];
    if (!sampler_answer(screen->sampler, &answer))
        return;
    if (answer.done > 0)
        gp_model_forget_peaks(&screen->model, answer.what);
    if (answer.failed > 0) {
        gp_ui_say(screen->ui, true, "%d reset, %d failed: pid %d: %s", answer.done, answer.failed,
                  (int)answer.first_failed,
                  answer.first_error == -ETIMEDOUT ? "it does not answer (stopped?)" : strerror(-answer.first_error));
    } else if (answer.done == 1) {
        bool reserved = answer.what == GP_RESET_RESERVED;
        gp_grid_bytes(reserved ? answer.first.reserved_peak : answer.first.allocated_peak, GP_TEXT_LONG, before,
                      sizeof(before));
        gp_grid_bytes(reserved ? answer.reserved_peak_after : answer.allocated_peak_after, GP_TEXT_LONG, after,
                      sizeof(after));
        gp_ui_say(screen->ui, false, "%d %s: %s peak reset: %s%s -> %s", (int)answer.first.pid, answer.first.comm,
                  gp_reset_word(answer.what), answer.what == GP_RESET_PEAKS ? "allocated " : "", before, after);
    } else {
        gp_ui_say(screen->ui, false, "%s peaks reset: %d rows", gp_reset_word(answer.what), answer.done);
    }
}

static int screen_rows(struct gp_screen *screen)
{
    int err = gp_rows_build(&screen->model, screen->ui, &screen->list);
    if (!err)
        gp_ui_settle(screen->ui, &screen->list, screen->ui->page);
    return err;
}

static int screen_sample(struct gp_screen *screen)
{
    int err;
    struct gp_system *system = sampler_take(screen->sampler, &err);
    screen_answer(screen);
    if (err) {
        char why[256];
        sampler_why(screen->sampler, why, sizeof(why));
        gp_ui_say(screen->ui, true, "%s", why);
        gp_model_agent_lost(&screen->model, gp_clock_ns());
    }
    if (!system)
        return 0;
    err = gp_model_update(&screen->model, system);
    if (!err)
        gp_outlook_growth_look(&screen->growth, &screen->model);
    if (!err) /* the old rows point into the old sample, and a key may be next */
        err = screen_rows(screen);
    if (!err && screen->left > 0 && --screen->left == 0)
        screen->window.quit = true;
    return err;
}

/* A click selects a row, sorts by a column, or is the key of the footer that it hits: returned. */
static int screen_click(struct gp_screen *screen)
{
    struct gp_draw draw = {&screen->window.grid, &screen->model, &screen->list, screen->ui};
    int y, x;
    gp_term_click(&y, &x);
    struct gp_hit hit = gp_draw_hit(&draw, y, x);
    if (screen->ui->mode != GP_MODE_NORMAL)
        return GP_KEY_RESIZE; /* draws the frame and keeps the message */
    if (hit.line >= 0)
        gp_ui_select(screen->ui, &screen->list, hit.line);
    else if (hit.column != GP_COLUMNS && gp_columns[hit.column].form != GP_FORM_DRAWN)
        gp_ui_click_column(screen->ui, hit.column);
    return hit.key == GP_KEY_NONE ? GP_KEY_RESIZE : hit.key;
}

static void screen_key(void *arg, int key)
{
    struct gp_screen *screen = arg;
    struct gp_ui *ui = screen->ui;
    if (key == GP_KEY_CLICK)
        key = screen_click(screen);
    bool paused = ui->paused;
    switch (gp_ui_key(ui, &screen->model, &screen->list, key)) {
    case GP_ACTION_QUIT:
        screen->window.quit = true;
        break;
    case GP_ACTION_REFRESH:
        sampler_refresh(screen->sampler);
        break;
    case GP_ACTION_RESET:
        if (sampler_reset(screen->sampler, ui->targets, ui->target_count, ui->reset_what) != 0)
            gp_ui_say(ui, true, "the previous reset is still in progress");
        else
            gp_ui_say(ui, false, "resetting ...");
        break;
    case GP_ACTION_REDRAW:
        screen->window.repaint = true;
        break;
    case GP_ACTION_INTERVAL:
        sampler_pace(screen->sampler, ui->interval_ms, ui->paused);
        break;
    case GP_ACTION_NONE:
        break;
    }
    if (ui->paused != paused)
        sampler_pace(screen->sampler, ui->interval_ms, ui->paused);
    screen_rows(screen); /* the next key acts on the rows as this one left them */
}

static int screen_loop(struct gp_screen *screen)
{
    struct gp_window *window = &screen->window;
    int err = screen_frame(screen);
    while (!err && !window->quit) {
        struct pollfd polls[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                 {.fd = sampler_fd(screen->sampler), .events = POLLIN},
                                 {.fd = window->signals, .events = POLLIN}};
        if (poll(polls, 3, screen->sites.pending ? 0 : -1) < 0 && errno != EINTR)
            return -errno;
        if (polls[2].revents)
            window_signals(window);
        if (polls[1].revents)
            err = screen_sample(screen);
        window_keys(window, polls[0].revents, screen_key, screen);
        if (!err)
            err = screen_frame(screen);
    }
    return err;
}

int gp_screen_run(const struct gp_collect_options *options, struct gp_ui *ui, int64_t samples, int *signal_out)
{
    struct gp_screen screen = {.ui = ui, .left = samples};
    int err = window_begin(&screen.window);
    gp_model_init(&screen.model);
    if (!err)
        err = sampler_start(&screen.sampler, options, ui->interval_ms);
    if (!err)
        err = gp_term_open();
    if (!err) {
        err = screen_loop(&screen);
        gp_term_close(); /* before anything that may wait or print */
    }
    sampler_stop(screen.sampler);
    window_end(&screen.window);
    gp_rows_fini(&screen.list);
    gp_site_set_close(&screen.sites);
    gp_outlook_growth_fini(&screen.growth);
    gp_model_fini(&screen.model);
    *signal_out = screen.window.ended_by;
    return err;
}
