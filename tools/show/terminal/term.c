/* SPDX-License-Identifier: MIT
 *
 * term.c: see term.h.  It only puts a grid on the screen and reads keys.
 */
#define NCURSES_WIDECHAR 1
#define _GNU_SOURCE

#include <show/terminal/term.h>

#include <errno.h>
#include <langinfo.h>
#include <ncurses.h>
#include <show/terminal/grid.h>
#include <show/terminal/ui.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

static struct {
    SCREEN *screen;
    struct termios saved;
    char leave[128]; /* escape sequences that restore the ordinary screen after a crash */
    size_t leave_bytes;
    attr_t attributes[GP_STYLES];
    short pairs[GP_STYLES];
    int click_y, click_x;
} gp_term;

static const char *term_name(void)
{
    const char *name = getenv("TERM");
    return name ? name : "";
}

bool gp_term_usable(void)
{
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term_name()[0] && strcmp(term_name(), "dumb") != 0;
}

bool gp_term_utf8(void)
{
    /* The font of the Linux console has 256 or 512 glyphs, which do not include the blocks and
     * arrows. */
    return strcmp(nl_langinfo(CODESET), "UTF-8") == 0 && strcmp(term_name(), "linux") != 0 &&
           strcmp(term_name(), "dumb") != 0;
}

int gp_term_width(void)
{
    struct winsize size;
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* ---- styles -------------------------------------------------------------------------------------------------- */

static void term_monochrome(void)
{
    static const attr_t attributes[GP_STYLES] = {
        [GP_STYLE_DIM] = A_DIM,
        [GP_STYLE_BOLD] = A_BOLD,
        [GP_STYLE_HEADER] = A_REVERSE,
        [GP_STYLE_SELECTED] = A_REVERSE | A_BOLD,
        [GP_STYLE_TAGGED] = A_BOLD | A_UNDERLINE,
        [GP_STYLE_ALLOCATED] = A_BOLD,
        [GP_STYLE_PEAK] = A_BOLD,
        [GP_STYLE_WARN] = A_BOLD,
        [GP_STYLE_ERROR] = A_BOLD | A_REVERSE,
        [GP_STYLE_KEY] = A_BOLD,
        [GP_STYLE_LABEL] = A_REVERSE,
    };
    memcpy(gp_term.attributes, attributes, sizeof(attributes));
    memset(gp_term.pairs, 0, sizeof(gp_term.pairs));
}

/* Foreground colours on the terminal's own background.  Middle tones of blue, orange and red are
 * readable on black and on white, and people who cannot distinguish red and green can distinguish
 * them.  No meaning depends on colour alone. */
static void term_colours(void)
{
    static const struct {
        enum gp_style style;
        short rich, plain; /* colour numbers: with 256 colours, with 8 */
        attr_t attributes;
    } colours[] = {
        {GP_STYLE_ALLOCATED, 33, COLOR_BLUE, A_BOLD},
        {GP_STYLE_RESERVED, 172, COLOR_MAGENTA, 0},
        {GP_STYLE_OTHER, 244, -1, A_DIM},
        {GP_STYLE_PEAK, 133, -1, A_BOLD},
        {GP_STYLE_SPARK, 33, COLOR_BLUE, 0},
        {GP_STYLE_WARN, 161, COLOR_RED, A_BOLD},
        {GP_STYLE_ERROR, 161, COLOR_RED, A_REVERSE | A_BOLD},
        {GP_STYLE_TAGGED, 172, COLOR_MAGENTA, A_BOLD},
        {GP_STYLE_DIM, 244, -1, A_DIM},
    };
    start_color();
    if (use_default_colors() != OK)
        return;
    for (size_t i = 0; i < GP_COUNT(colours); i++) {
        short pair = (short)(i + 1);
        init_pair(pair, COLORS >= 256 ? colours[i].rich : colours[i].plain, -1);
        gp_term.pairs[colours[i].style] = pair;
        /* With 256 colours the grey itself is dim. */
        gp_term.attributes[colours[i].style] = COLORS >= 256 ? colours[i].attributes & ~A_DIM : colours[i].attributes;
    }
}

/* ---- life ---------------------------------------------------------------------------------------------------- */

static void term_crash(int number)
{
    tcsetattr(STDIN_FILENO, TCSANOW, &gp_term.saved);
    ssize_t ignored = write(STDOUT_FILENO, gp_term.leave, gp_term.leave_bytes);
    (void)ignored;
    signal(number, SIG_DFL);
    raise(number);
}

static void term_leave(const char *text)
{
    size_t bytes = text ? strlen(text) : 0;
    if (bytes && gp_term.leave_bytes + bytes < sizeof(gp_term.leave)) {
        memcpy(gp_term.leave + gp_term.leave_bytes, text, bytes);
        gp_term.leave_bytes += bytes;
    }
}

static void term_guard(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    static const char *const names[] = {"sgr0", "cnorm", "rmcup"};
    gp_term.leave_bytes = 0;
    term_leave(has_mouse() ? "\033[?1006l\033[?1000l" : NULL); /* ncurses switches these modes on */
    for (size_t i = 0; i < GP_COUNT(names); i++) {
        const char *text = tigetstr(names[i]);
        term_leave(text != (char *)-1 ? text : NULL);
    }
    struct sigaction action = {.sa_handler = term_crash, .sa_flags = (int)SA_RESETHAND};
    for (size_t i = 0; i < GP_COUNT(numbers); i++)
        sigaction(numbers[i], &action, NULL);
}

/* All presses and releases are asked for, although few have a meaning here: get_wch() reads on past
 * an event that is not in the mask, nodelay() or not, and so would wait for the next key.  A press is
 * reported at once: ncurses does not wait for a second one.  With Shift, the terminal's own selection
 * still works. */
static void term_mouse_on(void)
{
    mmask_t mask = 0;
    for (int button = 1; button <= 5; button++)
        mask |= NCURSES_MOUSE_MASK(button, NCURSES_BUTTON_PRESSED | NCURSES_BUTTON_RELEASED);
    mousemask(mask, NULL);
    mouseinterval(0);
}

int gp_term_open(void)
{
    const char *no_color = getenv("NO_COLOR");
    if (tcgetattr(STDIN_FILENO, &gp_term.saved) != 0)
        return -ENOTTY;
    if (!getenv("ESCDELAY"))
        set_escdelay(25); /* ms: the bytes of one key arrive faster, and a user does not notice the delay */
    gp_term.screen = newterm(NULL, stdout, stdin);
    if (!gp_term.screen)
        return -ENOTTY;
    term_guard();
    set_term(gp_term.screen);
    cbreak();
    noecho();
    nonl();
    intrflush(stdscr, FALSE);
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    scrollok(stdscr, FALSE);
    curs_set(0);
    term_mouse_on();
    term_monochrome();
    if (has_colors() && !(no_color && no_color[0]))
        term_colours();
    return 0;
}

void gp_term_close(void)
{
    if (!gp_term.screen)
        return;
    endwin();
    delscreen(gp_term.screen);
    gp_term.screen = NULL;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &gp_term.saved);
}

void gp_term_size(int *rows, int *cols)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0 &&
        (size.ws_row != LINES || size.ws_col != COLS))
        resizeterm(size.ws_row, size.ws_col);
    *rows = LINES;
    *cols = COLS;
}

void gp_term_stop(void)
{
    endwin();
    raise(SIGSTOP);
    gp_term_resume();
}

void gp_term_resume(void)
{
    endwin();
    refresh();
}

/* ---- out and in ---------------------------------------------------------------------------------------------- */

static void term_put(int y, int x, const struct gp_cell *cell)
{
    wchar_t wide[GP_CELL_BYTES];
    size_t count = 0;
    uint32_t code;
    cchar_t character;
    const char *glyph = cell->glyph;
    for (int bytes; (bytes = gp_grid_decode(glyph, &code)) > 0 && count < CCHARW_MAX; glyph += bytes)
        wide[count++] = (wchar_t)code;
    wide[count] = L'\0';
    if (setcchar(&character, wide, gp_term.attributes[cell->style], gp_term.pairs[cell->style], NULL) == OK)
        mvadd_wch(y, x, &character); /* in the last cell ERR only means that the cursor cannot advance */
}

void gp_term_show(const struct gp_grid *grid, bool repaint)
{
    if (repaint)
        clearok(stdscr, TRUE);
    for (int y = 0; y < grid->rows; y++) {
        for (int x = 0; x < grid->cols; x++) {
            const struct gp_cell *cell = gp_grid_at(grid, y, x);
            if (cell->width > 0)
                term_put(y, x, cell);
        }
    }
    refresh();
}

static int term_button(mmask_t state)
{
    if (state & BUTTON4_PRESSED)
        return GP_KEY_WHEEL_UP;
    if (state & BUTTON5_PRESSED)
        return GP_KEY_WHEEL_DOWN;
    return state & BUTTON1_PRESSED ? GP_KEY_CLICK : GP_KEY_RESIZE;
}

/* One KEY_MOUSE stands for all events that were there together; getmouse() returns the newest first.
 * Of these, the newest that has a meaning counts. */
static int term_mouse(void)
{
    MEVENT event;
    int key = GP_KEY_RESIZE;
    while (getmouse(&event) == OK) {
        if (key != GP_KEY_RESIZE)
            continue;
        key = term_button(event.bstate);
        gp_term.click_y = event.y;
        gp_term.click_x = event.x;
    }
    return key;
}

void gp_term_click(int *y, int *x)
{
    *y = gp_term.click_y;
    *x = gp_term.click_x;
}

static int term_function_key(int key)
{
    switch (key) {
    case KEY_MOUSE:
        return term_mouse();
    case KEY_UP:
        return GP_KEY_UP;
    case KEY_DOWN:
        return GP_KEY_DOWN;
    case KEY_LEFT:
        return GP_KEY_LEFT;
    case KEY_RIGHT:
        return GP_KEY_RIGHT;
    case KEY_PPAGE:
        return GP_KEY_PAGE_UP;
    case KEY_NPAGE:
        return GP_KEY_PAGE_DOWN;
    case KEY_HOME:
        return GP_KEY_HOME;
    case KEY_END:
        return GP_KEY_END;
    case KEY_ENTER:
        return GP_KEY_ENTER;
    case KEY_BACKSPACE:
    case KEY_DC:
        return GP_KEY_BACKSPACE;
    default:
        break;
    }
    if (key >= KEY_F(1) && key <= KEY_F(10))
        return GP_KEY_F1 + key - KEY_F(1);
    return GP_KEY_RESIZE; /* any other key redraws the screen, which is harmless */
}

int gp_term_key(void)
{
    wint_t key;
    int kind = get_wch(&key);
    if (kind == ERR)
        return GP_KEY_NONE;
    if (kind == KEY_CODE_YES)
        return term_function_key((int)key);
    if (key == L'\r' || key == L'\n')
        return GP_KEY_ENTER;
    return key == 0x7f ? GP_KEY_BACKSPACE : (int)key;
}
