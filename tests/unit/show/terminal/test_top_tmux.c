/* SPDX-License-Identifier: MIT
 *
 * test_top_tmux.c: runs `gpuprof top` on a real terminal (tmux), where it watches processes with
 * well-formed sessions. Each test starts a tmux server of its own.  Skipped if tmux is not
 * installed.
 */
#include <base/clock.h>
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <lib/paths.h>
#include <lib/session.h>
#include <lib/sitesession.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCREEN_BYTES 65536
#define WAIT_NS      10000000000ull /* long enough for a loaded machine; a wait ends as soon as the text appears */

static char socket_path[64];
static char screen[SCREEN_BYTES];
static pid_t watched[2];

static int tmux(const char *format, ...)
{
    char arguments[2048], command[2300];
    va_list args;
    va_start(args, format);
    vsnprintf(arguments, sizeof(arguments), format, args);
    va_end(args);
    snprintf(command, sizeof(command), "tmux -S %s -f /dev/null %s 2>/dev/null", socket_path, arguments);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    size_t got = fread(screen, 1, sizeof(screen) - 1, pipe);
    screen[got] = '\0';
    return pclose(pipe);
}

static void see(const char *wanted, bool present)
{
    uint64_t end = gp_clock_ns() + WAIT_NS;
    do {
        tmux("capture-pane -p -t top");
        if ((strstr(screen, wanted) != NULL) == present)
            return;
        usleep(50000);
    } while (gp_clock_ns() < end);
    cr_assert(false, "waited for \"%s\" to %s; the screen was:\n%s", wanted, present ? "come" : "go", screen);
}

static void type(const char *keys)
{
    cr_assert_eq(tmux("send-keys -t top %s", keys), 0);
}

/* Starts a shell with an unmistakable prompt, so that a test sees what a program leaves on the
 * terminal. */
static void start(void)
{
    if (system("command -v tmux >/dev/null 2>&1") != 0)
        cr_skip_test("tmux is not installed");
    snprintf(socket_path, sizeof(socket_path), "/tmp/gpuprof-test-tmux-%d", (int)getpid());
    for (int i = 0; i < 2; i++) {
        struct gp_test_process_options options = {.devices = 2, .comm = i ? "train" : "serve"};
        watched[i] = gp_test_process_start(&options);
        cr_assert_gt(watched[i], 0);
    }
    cr_assert_eq(tmux("new-session -d -s top -x 100 -y 30 \"env -u NO_COLOR LC_ALL=C.UTF-8 PS1='READY ' sh\""), 0);
    see("READY", true);
}

static void finish(void)
{
    if (!socket_path[0])
        return;
    tmux("kill-server");
    unlink(socket_path); /* tmux leaves it */
    for (int i = 0; i < 2; i++) {
        if (watched[i] > 0)
            gp_test_process_stop(watched[i]);
    }
}

static void run_top(const char *before, const char *options)
{
    char line[2048];
    snprintf(line, sizeof(line), "\"%s '%s' top -p %d,%d %s; echo rc=\\$?\" Enter", before, path_command(),
             (int)watched[0], (int)watched[1], options);
    type(line);
    see("F10Quit", true);
}

/* The shell is back, echoes typed text, and the frame is gone. */
static void restored(const char *rc)
{
    see(rc, true);
    see("F10Quit", false);
    type("'echo al''ive' Enter");
    see("alive", true);
    tmux("display-message -p -t top '#{cursor_flag} #{alternate_on}'");
    cr_assert_str_eq(screen, "1 0\n", "the cursor is shown, the ordinary screen is back");
}

TestSuite(top, .init = start, .fini = finish, .timeout = 120);

Test(top, shows_processes_and_quits_cleanly)
{
    char pid[16];
    snprintf(pid, sizeof(pid), "%d", (int)watched[0]);
    run_top("", "-d 0.2");
    see(pid, true);
    see("ALLOC", true);
    see("linear", true); /* the details */
    type("q");
    restored("rc=0");
}

Test(top, resets_a_peak_after_a_question)
{
    run_top("", "-d 0.2");
    see("live", true);
    type("r");
    see("y/n reset the allocated peak of", true);
    type("n");
    see("nothing was reset", true);
    type("r y");
    see("allocated peak reset:", true);
    type("q");
    restored("rc=0");
}

Test(top, follows_the_window_down_to_one_cell_and_back)
{
    run_top("", "-d 0.2");
    static const char *const sizes[] = {"-x 60 -y 15", "-x 1 -y 1", "-x 7 -y 3", "-x 200 -y 50"};
    for (size_t i = 0; i < GP_COUNT(sizes); i++)
        cr_assert_eq(tmux("resize-window -t top %s", sizes[i]), 0);
    see("OF TOTAL", true);
    cr_assert_eq(tmux("resize-window -t top -x 60 -y 15"), 0);
    see("OF TOTAL", false);
    see("PEAK", true);
    type("q");
    restored("rc=0");
}

Test(top, stops_and_continues)
{
    run_top("", "-d 0.2");
    type("C-z");
    see("F10Quit", false);
    see("READY", true);
    type("fg Enter");
    see("F10Quit", true);
    type("C-c");
    see("READY", true);
    see("F10Quit", false);
}

Test(top, gives_the_terminal_back_when_terminated)
{
    run_top("timeout --foreground --preserve-status -s TERM 2", "-d 0.2");
    restored("rc=143");
}

Test(top, gives_the_terminal_back_when_it_crashes)
{
    run_top("ulimit -c 0; timeout --foreground --preserve-status -s SEGV 2", "-d 0.2");
    restored("rc=139");
}

Test(top, ends_after_n_samples_and_honours_no_color)
{
    run_top("NO_COLOR=1", "-d 0.5 -n 6");
    tmux("capture-pane -p -e -t top");
    for (const char *p = screen; (p = strstr(p, "\033["));
         p++) { /* 30 to 38 and 40 to 48 set a colour; 39 and 49 reset it */
        for (const char *q = p + 2; *q && *q != 'm'; q++) {
            bool first = q[-1] == '[' || q[-1] == ';';
            cr_assert_not(first && (*q == '3' || *q == '4') && q[1] >= '0' && q[1] <= '8', "a colour:\n%s", screen);
        }
    }
    restored("rc=0");
}

Test(top, without_utf8_shows_ascii)
{
    run_top("LC_ALL=C", "-d 0.2");
    see("PEAK", true);
    for (const char *p = screen; *p; p++)
        cr_assert_lt((unsigned char)*p, 0x80, "%s", screen);
    type("q");
    restored("rc=0");
}

Test(top, a_dumb_terminal_gets_a_table)
{
    char line[512];
    snprintf(line, sizeof(line), "\"TERM=dumb '%s' top -p %d; echo rc=\\$?\" Enter", path_command(), (int)watched[0]);
    type(line);
    see("rc=0", true);
    cr_assert_not_null(strstr(screen, "R-PEAK"));
    cr_assert_null(strstr(screen, "F10Quit"));
}

Test(top, a_terminal_that_nobody_knows_gets_a_table)
{
    char line[512];
    snprintf(line, sizeof(line), "\"TERM=no-such-terminal '%s' top -p %d; echo rc=\\$?\" Enter", path_command(),
             (int)watched[0]);
    type(line);
    see("rc=0", true);
    cr_assert_not_null(strstr(screen, "TERM=no-such-terminal is unknown here"));
    cr_assert_not_null(strstr(screen, "R-PEAK"));
}

Test(top, shows_call_sites)
{
    char line[1024];
    pid_t pid = gp_test_sites_process();
    cr_assert_gt(pid, 0);
    snprintf(line, sizeof(line), "\"'%s' top --by site -d 0.2 -p %d; echo rc=\\$?\" Enter", path_command(), (int)pid);
    type(line);
    see("F6Sort", true);
    see("forward (model.py:10)", true);
    see("train.py:20)", true); /* the stack of the selected site */
    see("+", true);            /* one of the sites grows */
    type("Down");
    see("site 2 of", true);
    type("Enter");
    see("the innermost call first", false);
    type("'>'"); /* the menu of columns, as in every view */
    see("Sort by", true);
    see("DELTA/S", true);
    type("Escape");
    type("q");
    see("rc=0", true);
    see("F6Sort", false);
    gp_test_process_stop(pid);
}

/* F3 from view to view, and s to the call sites of one process, in one run. */
Test(top, goes_from_processes_to_call_sites_and_back)
{
    char line[1024];
    pid_t pid = gp_test_sites_process();
    cr_assert_gt(pid, 0);
    snprintf(line, sizeof(line), "\"'%s' top -d 0.2 -p %d,%d; echo rc=\\$?\" Enter", path_command(), (int)pid,
             (int)watched[0]);
    type(line);
    see("2 profiled", true);
    type("F3 F3 F3");
    see("OWNER (PROCESSES)", true);
    type("F3");
    see("4 call sites of", true);
    see("1 more process runs without stacks", true);
    type("F3");
    see("2 profiled", true);
    type("'/' boxfort"); /* no process is selected by a text that two have */
    type("Enter Home s");
    see("without stacks, so the call sites are unknown", true);
    see("gpuprof stacks all", true);
    type("s");
    see("4 call sites of", true);
    type("Escape");
    see("2 profiled", true);
    type("q");
    restored("rc=0");
    gp_test_process_stop(pid);
}

/* Finds a text on the screen; the upper left cell is 1, 1, as in the bytes of a mouse. */
static void find(const char *text, int *y, int *x)
{
    see(text, true);
    const char *at = strstr(screen, text), *line = screen;
    *y = 1;
    for (const char *p = screen; p < at; p++) {
        if (*p == '\n') {
            line = p + 1;
            ++*y;
        }
    }
    *x = (int)(at - line) + 1;
}

/* The bytes that a terminal of type "screen" sends: after a mark the button, column and line, each
 * with 32 added.  Button 3 stands for the release of any other. */
static void button(int number, int y, int x)
{
    char command[64];
    snprintf(command, sizeof(command), "-H 1b 5b 4d %x %x %x", 32u + (unsigned)number, 32u + (unsigned)x,
             32u + (unsigned)y);
    type(command);
}

/* Presses a button at the place of a text, and lets it go. */
static void press(int number, const char *text)
{
    int y, x;
    find(text, &y, &x);
    button(number, y, x);
    button(3, y, x);
}

Test(top, follows_the_mouse)
{
    char row[32], selected[64];
    run_top("LC_ALL=C", "-d 0.2");
    press(0, "F6Sort");
    see("Sort by", true);
    type("Escape");
    see("Sort by", false);
    press(0, "R-PEAK");
    see("sorted by R-PEAK", true);
    snprintf(row, sizeof(row), "%d ", (int)watched[1]);
    snprintf(selected, sizeof(selected), "-- %d train", (int)watched[1]);
    type("Home");
    see(selected, false);
    press(0, row);
    see(selected, true);
    press(64, row); /* the wheel */
    see(selected, false);
    tmux("display-message -p -t top '#{mouse_any_flag}'");
    cr_assert_str_eq(screen, "1\n");
    type("q");
    restored("rc=0");
    tmux("display-message -p -t top '#{mouse_any_flag}'");
    cr_assert_str_eq(screen, "0\n");
}

/* Clears the screen, of which top learns nothing, gives it a new size, and waits until top draws it
 * again.  No key is involved. */
static void is_alive(void)
{
    static int width = 100;
    width ^= 1;
    cr_assert_eq(tmux("send-keys -t top -R"), 0);
    cr_assert_eq(tmux("resize-window -t top -x %d -y 30", width), 0);
    see("F10Quit", true);
}

/* The release comes after the press had its effect, or together with it; of the two other buttons
 * neither means anything. */
Test(top, goes_on_while_and_after_a_button_is_pressed)
{
    int y, x;
    char command[64];
    run_top("LC_ALL=C", "-d 0.2");
    is_alive();
    for (int number = 1; number <= 2; number++) {
        find("PID", &y, &x);
        button(number, y, x);
        is_alive();
        button(3, y, x);
        is_alive();
    }
    find("PID", &y, &x);
    button(0, y, x);
    see("sorted by PID", true);
    is_alive();
    button(3, y, x);
    is_alive();
    find("PEAK", &y, &x);
    snprintf(command, sizeof(command), "-H 1b 5b 4d 20 %x %x 1b 5b 4d 23 %x %x", 32u + (unsigned)x, 32u + (unsigned)y,
             32u + (unsigned)x, 32u + (unsigned)y);
    type(command);
    see("sorted by PEAK", true);
    is_alive();
    type("q");
    restored("rc=0");
}

/* In the other form, the button, column and line are decimal, and a small m is the release. */
Test(top, goes_on_after_buttons_that_only_some_mice_have)
{
    int y, x;
    char command[64];
    run_top("LC_ALL=C TERM=xterm-256color", "-d 0.2");
    is_alive();
    static const int buttons[] = {66, 128, 129}; /* the wheel to the side, back, forward */
    for (size_t i = 0; i < GP_COUNT(buttons); i++) {
        for (const char *end = "Mm"; *end; end++) {
            find("PID", &y, &x);
            snprintf(command, sizeof(command), "-l '\033[<%d;%d;%d%c'", buttons[i], x, y, *end);
            type(command);
            is_alive();
        }
    }
    type("q");
    restored("rc=0");
}

static pid_t crowd[60];

static void end_crowd(void)
{
    for (size_t i = 0; i < GP_COUNT(crowd); i++) {
        if (crowd[i] > 0)
            gp_test_process_stop(crowd[i]);
    }
    finish();
}

/* More rows than lines: the position is shown, and every row can be reached. */
Test(top, says_which_lines_of_a_long_list_are_shown, .fini = end_crowd)
{
    char line[1024];
    size_t used = (size_t)snprintf(line, sizeof(line), "\"'%s' top -d 0.5 -p %d", path_command(), (int)watched[0]);
    for (size_t i = 0; i < GP_COUNT(crowd); i++) {
        struct gp_test_process_options options = {.devices = 1, .comm = "crowd"};
        crowd[i] = i % 2 ? gp_test_sites_process() : gp_test_process_start(&options);
        cr_assert_gt(crowd[i], 0);
        used += (size_t)snprintf(line + used, sizeof(line) - used, ",%d", (int)crowd[i]);
    }
    snprintf(line + used, sizeof(line) - used, "; echo rc=\\$?\" Enter");
    cr_assert_eq(tmux("resize-window -t top -x 80 -y 24"), 0);
    type(line);
    see("61 profiled", true);
    see("/62", true); /* the first process has two devices */
    see(" 1-", true);
    type("End");
    see("-62/62", true);
    type("PageUp");
    see("-62/62", false);
    type("Home");
    see(" 1-", true);
    type("F3 F3 F3 F3"); /* the call sites of all: four of each process that has stacks */
    see("120 call sites of 30 processes", true);
    see("31 more processes run without stacks", true);
    see("/120", true);
    type("F3");
    cr_assert_eq(tmux("resize-window -t top -x 200 -y 100"), 0);
    see("/62", false);
    type("q");
    see("rc=0", true);
}
