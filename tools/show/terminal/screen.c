/* SPDX-License-Identifier: MIT
 * screen.c: the loop of the interactive `gpuprof top`; see ui.h.  One thread waits in one poll for everything.
 */
#include <show/terminal/ui.h>

#include <base/clock.h>
#include <errno.h>
#include <poll.h>
#include <read/collect/collect.h>
#include <show/terminal/column.h>
#include <show/terminal/draw.h>
#include <show/terminal/grid.h>
#include <show/terminal/layout.h>
#include <show/terminal/model.h>
#include <show/terminal/outlook.h>
#include <show/terminal/sampler.h>
#include <show/terminal/siteview.h>
#include <show/terminal/term.h>
#include <show/terminal/window.h>
#include <string.h>
#include <unistd.h>

struct gp_screen {
    struct gp_model model;
    struct gp_growth growth;
    struct gp_row_list list;
    struct gp_window window;
    struct gp_ui *ui;
    struct gp_sampler *sampler;
    struct gp_site_set sites; /* open while they are shown */
    bool by_site;             /* in the last frame */
    int64_t left;             /* samples still to show; 0: no limit */
};

#define GP_SCREEN_BESIDE 4 /* processes whose sites stay open while others are selected */

/* On a tall screen the call sites of the selected process stand below its details.  They are opened with the first
 * sample after the row was selected, so that moving through the rows does not wait for symbols. */
static int screen_sites_beside(struct gp_screen *screen)
{
    const struct gp_row_list *list = &screen->list;
    const struct gp_row *row = screen->ui->cursor < list->count ? &list->rows[screen->ui->cursor] : NULL;
    if (!screen->ui->detail || screen->window.grid.rows < GP_LAYOUT_TALL) {
        gp_site_set_close(&screen->sites);
        screen->model.sites = NULL;
        return 0;
    }
    screen->model.sites = &screen->sites;
    if (screen->sites.generation == screen->model.generation || !row || !row->process || row->process->from_agent)
        return 0;
    struct gp_row_id scope = {
        .kind = GP_ROW_PROCESS, .pid = row->id.pid, .start_time = row->id.start_time, .device = GP_MODEL_NO_DEVICE};
    gp_site_set_trim(&screen->sites, &screen->model, &scope, GP_SCREEN_BESIDE);
    int err = gp_site_set_step(&screen->sites, &screen->model, &scope);
    screen->sites.pending = 0;
    return err;
}

/* Reading the call sites of a process does not wait for it, so this thread does it. */
static int screen_sites(struct gp_screen *screen)
{
    bool before = screen->by_site;
    screen->by_site = gp_ui_by_site(screen->ui);
    if (!screen->by_site)
        return screen_sites_beside(screen);
    screen->model.sites = &screen->sites;
    if (!before) {
        screen->sites.pending = 1; /* first a frame that says so: looking symbols up takes time */
        return 0;
    }
    return gp_site_set_step(&screen->sites, &screen->model, gp_ui_scope(screen->ui));
}

static int screen_frame(struct gp_screen *screen)
{
    int err = gp_window_fit(&screen->window);
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
    gp_window_show(&screen->window);
    return 0;
}

static void screen_answer(struct gp_screen *screen)
{
    struct gp_reset_answer answer;
    char before[32], after[32];
    if (!gp_sampler_answer(screen->sampler, &answer))
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
    struct gp_system *system = gp_sampler_take(screen->sampler, &err);
    screen_answer(screen);
    if (err) {
        char why[256];
        gp_sampler_why(screen->sampler, why, sizeof(why));
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
        gp_sampler_refresh(screen->sampler);
        break;
    case GP_ACTION_RESET:
        if (gp_sampler_reset(screen->sampler, ui->targets, ui->target_count, ui->reset_what) != 0)
            gp_ui_say(ui, true, "the previous reset is still in progress");
        else
            gp_ui_say(ui, false, "resetting ...");
        break;
    case GP_ACTION_REDRAW:
        screen->window.repaint = true;
        break;
    case GP_ACTION_INTERVAL:
        gp_sampler_pace(screen->sampler, ui->interval_ms, ui->paused);
        break;
    case GP_ACTION_NONE:
        break;
    }
    if (ui->paused != paused)
        gp_sampler_pace(screen->sampler, ui->interval_ms, ui->paused);
    screen_rows(screen); /* the next key acts on the rows as this one left them */
}

static int screen_loop(struct gp_screen *screen)
{
    struct gp_window *window = &screen->window;
    int err = screen_frame(screen);
    while (!err && !window->quit) {
        struct pollfd polls[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                 {.fd = gp_sampler_fd(screen->sampler), .events = POLLIN},
                                 {.fd = window->signals, .events = POLLIN}};
        if (poll(polls, 3, screen->sites.pending ? 0 : -1) < 0 && errno != EINTR)
            return -errno;
        if (polls[2].revents)
            gp_window_signals(window);
        if (polls[1].revents)
            err = screen_sample(screen);
        gp_window_keys(window, polls[0].revents, screen_key, screen);
        if (!err)
            err = screen_frame(screen);
    }
    return err;
}

int gp_screen_run(const struct gp_collect_options *options, struct gp_ui *ui, int64_t samples, int *signal_out)
{
    struct gp_screen screen = {.ui = ui, .left = samples};
    int err = gp_window_begin(&screen.window);
    gp_model_init(&screen.model);
    if (!err)
        err = gp_sampler_start(&screen.sampler, options, ui->interval_ms);
    if (!err)
        err = gp_term_open();
    if (!err) {
        err = screen_loop(&screen);
        gp_term_close(); /* before anything that may wait or print */
    }
    gp_sampler_stop(screen.sampler);
    gp_window_end(&screen.window);
    gp_rows_fini(&screen.list);
    gp_site_set_close(&screen.sites);
    gp_outlook_growth_fini(&screen.growth);
    gp_model_fini(&screen.model);
    *signal_out = screen.window.ended_by;
    return err;
}
