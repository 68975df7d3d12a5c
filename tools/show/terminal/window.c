/* SPDX-License-Identifier: MIT
 *
 * window.c: the terminal for an interactive view: a grid of its size, keys, and signals; see
 * window.h.
 */
#include <show/terminal/window.h>

#include <base/compiler.h>
#include <errno.h>
#include <poll.h>
#include <show/terminal/grid.h>
#include <show/terminal/term.h>
#include <show/terminal/ui.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

_Static_assert(sizeof(sigset_t) <= sizeof(((struct gp_window *)0)->blocked), "window.c");

int gp_window_begin(struct gp_window *window)
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

void gp_window_end(struct gp_window *window)
{
    sigset_t before;
    if (window->signals >= 0)
        close(window->signals);
    gp_grid_fini(&window->grid);
    memcpy(&before, window->blocked, sizeof(before));
    sigprocmask(SIG_SETMASK, &before, NULL);
}

int gp_window_fit(struct gp_window *window)
{
    int rows, cols;
    gp_term_size(&rows, &cols);
    if (rows == window->grid.rows && cols == window->grid.cols)
        return 0;
    gp_grid_fini(&window->grid);
    window->repaint = true;
    return gp_grid_init(&window->grid, rows, cols, window->ascii);
}

void gp_window_show(struct gp_window *window)
{
    gp_term_show(&window->grid, window->repaint);
    window->repaint = false;
}

void gp_window_signals(struct gp_window *window)
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

void gp_window_keys(struct gp_window *window, short revents, void (*key)(void *arg, int key), void *arg)
{
    int keys = 0, one;
    while (revents && !window->quit && (one = gp_term_key()) != GP_KEY_NONE) {
        key(arg, one);
        keys++;
    }
    if (!keys && (revents & (POLLHUP | POLLERR | POLLNVAL)))
        window->quit = true; /* the terminal is gone */
}
