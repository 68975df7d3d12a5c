/* SPDX-License-Identifier: MIT
 * sitescreen.c: the interactive `gpuprof top --by site`; see siteview.h.  Reading the sites of a
 * process does not wait for it, so one thread samples and draws. */
#include <view/siteview.h>

#include <base/clock.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>
#include <view/term.h>
#include <view/ui.h>
#include <view/window.h>

struct gp_site_screen {
    struct gp_site_model *model;
    struct gp_site_ui ui;
    struct gp_window window;
    int64_t left; /* samples still to show; 0: no limit */
    uint64_t next_ns;
};

static int site_frame(struct gp_site_screen *screen)
{
    int err = gp_window_fit(&screen->window);
    if (err)
        return err;
    gp_site_draw(&screen->window.grid, screen->model, &screen->ui);
    gp_window_show(&screen->window);
    return 0;
}

static void site_sample(struct gp_site_screen *screen)
{
    char problem[GP_PROBLEM_BYTES];
    screen->next_ns = gp_clock_ns() + (uint64_t)screen->ui.interval_ms * 1000000ull;
    int rc = gp_site_model_update(screen->model, problem);
    screen->ui.message[0] = '\0';
    if (rc)
        snprintf(screen->ui.message, sizeof(screen->ui.message), "cannot read the call sites: %s",
                 problem[0] ? problem : strerror(-rc));
    if (screen->left > 0 && --screen->left == 0)
        screen->window.quit = true;
}

static void site_move(struct gp_site_screen *screen, int by)
{
    int cursor = gp_site_cursor(screen->model, &screen->ui), last = (int)screen->model->row_count - 1;
    if (last < 0)
        return;
    by = by < -cursor ? -cursor : by > last - cursor ? last - cursor : by;
    screen->ui.selected = screen->model->rows[cursor + by].site;
}

static void site_pace(struct gp_site_ui *ui, bool faster)
{
    int64_t ms = faster ? ui->interval_ms / 2 : ui->interval_ms * 2ll;
    ui->interval_ms = ms < 100 ? 100 : ms > 3600000 ? 3600000 : (int)ms;
}

static void site_key(void *arg, int key)
{
    struct gp_site_screen *screen = arg;
    struct gp_site_model *model = screen->model;
    switch (key) {
    case 'q':
    case GP_KEY_F10:
        screen->window.quit = true;
        break;
    case 's': /* text columns start in ascending order, numbers in descending order */
        gp_site_model_sort(model, (enum gp_site_column)((model->sort + 1) % GP_SITE_COLUMNS),
                           (model->sort + 1) % GP_SITE_COLUMNS == GP_SITE_SITE ||
                               (model->sort + 1) % GP_SITE_COLUMNS <= GP_SITE_KIND);
        break;
    case 'i':
        gp_site_model_sort(model, model->sort, !model->ascending);
        break;
    case GP_KEY_ENTER:
    case 'd':
        screen->ui.detail = !screen->ui.detail;
        break;
    case ' ':
        screen->ui.paused = !screen->ui.paused;
        screen->next_ns = 0;
        break;
    case '+':
    case '-':
        site_pace(&screen->ui, key == '+');
        screen->next_ns = 0;
        break;
    case GP_KEY_UP:
    case 'k':
        site_move(screen, -1);
        break;
    case GP_KEY_DOWN:
    case 'j':
        site_move(screen, 1);
        break;
    case GP_KEY_PAGE_UP:
        site_move(screen, -screen->ui.page);
        break;
    case GP_KEY_PAGE_DOWN:
        site_move(screen, screen->ui.page);
        break;
    case GP_KEY_HOME:
        site_move(screen, -(int)model->row_count);
        break;
    case GP_KEY_END:
        site_move(screen, (int)model->row_count);
        break;
    case GP_KEY_REDRAW:
        screen->window.repaint = true;
        break;
    default:
        break;
    }
}

static int site_wait_ms(const struct gp_site_screen *screen)
{
    uint64_t now = gp_clock_ns();
    if (screen->ui.paused)
        return -1;
    return now >= screen->next_ns ? 0 : (int)((screen->next_ns - now) / 1000000ull) + 1;
}

static int site_loop(struct gp_site_screen *screen)
{
    struct gp_window *window = &screen->window;
    int err = site_frame(screen);
    while (!err && !window->quit) {
        struct pollfd polls[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = window->signals, .events = POLLIN}};
        if (poll(polls, 2, site_wait_ms(screen)) < 0 && errno != EINTR)
            return -errno;
        if (polls[1].revents)
            gp_window_signals(window);
        gp_window_keys(window, polls[0].revents, site_key, screen);
        if (!window->quit && site_wait_ms(screen) == 0)
            site_sample(screen);
        err = site_frame(screen);
    }
    return err;
}

int gp_site_screen(struct gp_site_model *model, int interval_ms, int64_t samples, int *signal_out)
{
    struct gp_site_screen screen = {
        .model = model, .left = samples, .ui = {.detail = true, .interval_ms = interval_ms}};
    screen.next_ns = gp_clock_ns() + (uint64_t)interval_ms * 1000000ull;
    int err = gp_window_begin(&screen.window);
    if (!err)
        err = gp_term_open();
    if (!err) {
        err = site_loop(&screen);
        gp_term_close();
    }
    gp_window_end(&screen.window);
    *signal_out = screen.window.ended_by;
    return err;
}
