/* SPDX-License-Identifier: MIT
 * sitescreen.c: the interactive `gpuprof top --by site`; see sites.h.  Reading sites waits for nobody, so one thread
 * does all. */
#define _GNU_SOURCE
#include <view/sites.h>

#include <base/clock.h>
#include <base/compiler.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <view/term.h>
#include <view/ui.h>

struct gp_site_screen {
    struct gp_site_model *model;
    struct gp_site_ui ui;
    struct gp_grid grid;
    int signals;
    int64_t left; /* samples still to be shown; 0: no end */
    uint64_t next_ns;
    bool repaint, quit, ascii;
    int ended_by;
};

static const int gp_site_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP, SIGCONT};

static int gp_site_frame(struct gp_site_screen *screen)
{
    int rows, cols;
    gp_term_size(&rows, &cols);
    if (rows != screen->grid.rows || cols != screen->grid.cols) {
        gp_grid_fini(&screen->grid);
        int err = gp_grid_init(&screen->grid, rows, cols, screen->ascii);
        if (err)
            return err;
        screen->repaint = true;
    }
    gp_site_draw(&screen->grid, screen->model, &screen->ui);
    gp_term_show(&screen->grid, screen->repaint);
    screen->repaint = false;
    return 0;
}

static void gp_site_sample(struct gp_site_screen *screen)
{
    char problem[GP_PROBLEM_BYTES];
    screen->next_ns = gp_clock_ns() + (uint64_t)screen->ui.interval_ms * 1000000ull;
    int rc = gp_site_model_update(screen->model, problem);
    screen->ui.message[0] = '\0';
    if (rc)
        snprintf(screen->ui.message, sizeof(screen->ui.message), "cannot look at its sites: %s",
                 problem[0] ? problem : strerror(-rc));
    if (screen->left > 0 && --screen->left == 0)
        screen->quit = true;
}

static void gp_site_move(struct gp_site_screen *screen, int by)
{
    int cursor = gp_site_cursor(screen->model, &screen->ui), last = (int)screen->model->row_count - 1;
    if (last < 0)
        return;
    by = by < -cursor ? -cursor : by > last - cursor ? last - cursor : by;
    screen->ui.selected = screen->model->rows[cursor + by].site;
}

static void gp_site_pace(struct gp_site_ui *ui, bool faster)
{
    int64_t ms = faster ? ui->interval_ms / 2 : ui->interval_ms * 2ll;
    ui->interval_ms = ms < 100 ? 100 : ms > 3600000 ? 3600000 : (int)ms;
}

static void gp_site_key(struct gp_site_screen *screen, int key)
{
    struct gp_site_model *model = screen->model;
    switch (key) {
    case 'q':
    case GP_KEY_F10:
        screen->quit = true;
        break;
    case 's': /* text columns begin with A, numbers with the largest */
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
        gp_site_pace(&screen->ui, key == '+');
        screen->next_ns = 0;
        break;
    case GP_KEY_UP:
    case 'k':
        gp_site_move(screen, -1);
        break;
    case GP_KEY_DOWN:
    case 'j':
        gp_site_move(screen, 1);
        break;
    case GP_KEY_PAGE_UP:
        gp_site_move(screen, -screen->ui.page);
        break;
    case GP_KEY_PAGE_DOWN:
        gp_site_move(screen, screen->ui.page);
        break;
    case GP_KEY_HOME:
        gp_site_move(screen, -(int)model->row_count);
        break;
    case GP_KEY_END:
        gp_site_move(screen, (int)model->row_count);
        break;
    case GP_KEY_REDRAW:
        screen->repaint = true;
        break;
    default:
        break;
    }
}

static void gp_site_signal(struct gp_site_screen *screen)
{
    struct signalfd_siginfo info;
    while (read(screen->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        screen->repaint = true;
        if (info.ssi_signo == SIGTSTP)
            gp_term_stop();
        else if (info.ssi_signo == SIGCONT)
            gp_term_resume();
        else if (info.ssi_signo != SIGWINCH)
            screen->quit = true;
        if (screen->quit && info.ssi_signo != SIGINT)
            screen->ended_by = (int)info.ssi_signo;
    }
}

static int gp_site_wait_ms(const struct gp_site_screen *screen)
{
    uint64_t now = gp_clock_ns();
    if (screen->ui.paused)
        return -1;
    return now >= screen->next_ns ? 0 : (int)((screen->next_ns - now) / 1000000ull) + 1;
}

static int gp_site_loop(struct gp_site_screen *screen)
{
    int err = gp_site_frame(screen);
    while (!err && !screen->quit) {
        struct pollfd polls[] = {{.fd = STDIN_FILENO, .events = POLLIN}, {.fd = screen->signals, .events = POLLIN}};
        if (poll(polls, 2, gp_site_wait_ms(screen)) < 0 && errno != EINTR)
            return -errno;
        if (polls[1].revents)
            gp_site_signal(screen);
        int key, keys = 0;
        while (polls[0].revents && !screen->quit && (key = gp_term_key()) != GP_KEY_NONE) {
            gp_site_key(screen, key);
            keys++;
        }
        if (polls[0].revents && !keys && (polls[0].revents & (POLLHUP | POLLERR | POLLNVAL)))
            screen->quit = true; /* the terminal is gone */
        if (!screen->quit && gp_site_wait_ms(screen) == 0)
            gp_site_sample(screen);
        err = gp_site_frame(screen);
    }
    return err;
}

int gp_site_screen(struct gp_site_model *model, int interval_ms, int64_t samples, int *signal_out)
{
    struct gp_site_screen screen = {
        .model = model, .left = samples, .signals = -1, .ui = {.detail = true, .interval_ms = interval_ms}};
    sigset_t set, before;
    screen.ascii = !gp_term_utf8();
    screen.next_ns = gp_clock_ns() + (uint64_t)interval_ms * 1000000ull;
    sigemptyset(&set);
    for (size_t i = 0; i < GP_COUNT(gp_site_signals); i++)
        sigaddset(&set, gp_site_signals[i]);
    sigprocmask(SIG_BLOCK, &set, &before);
    screen.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    int err = screen.signals < 0 ? -errno : gp_term_open();
    if (!err) {
        err = gp_site_loop(&screen);
        gp_term_close();
    }
    if (screen.signals >= 0)
        close(screen.signals);
    gp_grid_fini(&screen.grid);
    sigprocmask(SIG_SETMASK, &before, NULL);
    *signal_out = screen.ended_by;
    return err;
}
