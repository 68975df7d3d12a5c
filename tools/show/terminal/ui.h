/* SPDX-License-Identifier: MIT
 *
 * ui.h: `gpuprof top` on the screen: columns, the choices of the user, the lines of the table, and
 * how they are drawn.
 */
#ifndef GP_SHOW_TERMINAL_UI_H
#define GP_SHOW_TERMINAL_UI_H

#include <base/compiler.h>
#include <show/terminal/grid.h>
#include <show/terminal/model.h>
#include <stdbool.h>

/* ==== columns ===================================================================================================== */
/* The table of columns, which the screen, the printed tables, --sort and the sort menus share.  A
 * view shows either the columns of processes and their sums, or those of call sites. */

enum gp_column_id {
#define GP_COLUMN(_id, ...) GP_COLUMN_##_id,
#include <show/terminal/column.def>
    GP_COLUMNS
};

enum gp_column_in { GP_IN_PROCESSES = 1, GP_IN_SITES = 2, GP_IN_BOTH = 3, GP_IN_ROWS = 4 };
enum gp_column_form { GP_FORM_TEXT, GP_FORM_WORD, GP_FORM_NUMBER, GP_FORM_DRAWN };
enum gp_column_shown { GP_SHOWN_USED, GP_SHOWN_ALWAYS, GP_SHOWN_RATE, GP_SHOWN_COUNT, GP_SHOWN_ROWS };

struct gp_column_say { /* how a text is wanted */
    const struct gp_model *model;
    enum gp_text_form form;
    bool ascii;
};

struct gp_column { /* column.def explains the fields */
    const char *name;
    int width, print_width;
    unsigned in;
    enum gp_column_form form;
    int keep;
    double (*value)(const struct gp_row *row);
    void (*text)(double value, const struct gp_row *row, const struct gp_column_say *say, char *out, size_t out_bytes);
    enum gp_style style;
    enum gp_column_shown shown;
    const char *what;
};

extern const struct gp_column gp_columns[GP_COLUMNS];

/* Aligned to the right. */
static inline bool gp_column_right(const struct gp_column *column)
{
    return column->form == GP_FORM_WORD || column->form == GP_FORM_NUMBER;
}

/* The column belongs to the table of call sites (sites), or to that of processes. */
bool gp_column_in(enum gp_column_id id, bool sites);
/* The rows of the table can be sorted by it. */
bool gp_column_sorts(enum gp_column_id id, bool sites);
/* Finds a column of a table by its name, in any case.  GP_COLUMNS: no column of that name can be
 * sorted by. */
enum gp_column_id gp_column_find(const char *name, bool sites);
/* The first order of a column when it is chosen: the largest number or the first text on top. */
bool gp_column_ascends(enum gp_column_id id);
/* The number of the row; NAN: unknown, or the column has texts alone. */
double gp_column_value(enum gp_column_id id, const struct gp_row *row);
const char *gp_column_text(enum gp_column_id id, const struct gp_row *row, const struct gp_model *model,
                           enum gp_text_form form, bool ascii, char *out, size_t out_bytes);
/* <0, 0 or >0 in ascending order.  Bit 0 of *unknown is set if the value of a is unknown, bit 1 for
 * b; the caller sorts unknown values last in either direction. */
int gp_column_compare(enum gp_column_id id, const struct gp_row *a, const struct gp_row *b,
                      const struct gp_model *model, int *unknown);

struct gp_column_choice {   /* what is known about the columns before their width is */
    bool sites;             /* of which table */
    bool printed;           /* as a printed table, whose columns are wider; else on the screen */
    bool groups;            /* every row is a sum and has no pid, user or state */
    bool empty[GP_COLUMNS]; /* no row has a value: the column is not shown */
};
/* Chooses the columns that fit into `width`, in the table's order; the last one takes the rest.
 * Returns the count; *rest is the width of the last column. */
int gp_columns_fit(int width, const struct gp_column_choice *choice, enum gp_column_id ids[GP_COLUMNS], int *rest);

/* ==== choices ===================================================================================================== */
/* The choices of the user of `gpuprof top`, and what each key changes.  Pure: a key press changes
 * the state and returns the action that the caller's loop must take. */

enum gp_key { /* a key that is not here is its own Unicode character */
              GP_KEY_NONE = 0,
              GP_KEY_BACKSPACE = 8,
              GP_KEY_TAB = 9,
              GP_KEY_ENTER = 10,
              GP_KEY_REDRAW = 12, /* Ctrl-L */
              GP_KEY_ESCAPE = 27,
              GP_KEY_BASE = 0x110000, /* above Unicode */
              GP_KEY_UP,
              GP_KEY_DOWN,
              GP_KEY_LEFT,
              GP_KEY_RIGHT,
              GP_KEY_PAGE_UP,
              GP_KEY_PAGE_DOWN,
              GP_KEY_HOME,
              GP_KEY_END,
              GP_KEY_RESIZE,
              GP_KEY_WHEEL_UP,
              GP_KEY_WHEEL_DOWN,
              GP_KEY_CLICK, /* gp_term_click says where; screen.c finds what is there */
              GP_KEY_F1,    /* F1..F10 follow one another */
              GP_KEY_F10 = GP_KEY_F1 + 9,
};

enum gp_action {
    GP_ACTION_NONE,
    GP_ACTION_QUIT,
    GP_ACTION_REFRESH,  /* take a sample now */
    GP_ACTION_INTERVAL, /* the interval changed */
    GP_ACTION_RESET,    /* send the requests in targets[] */
    GP_ACTION_REDRAW,   /* the screen may be damaged: repaint all of it */
};

enum gp_mode { GP_MODE_NORMAL, GP_MODE_FILTER, GP_MODE_SEARCH, GP_MODE_SORT, GP_MODE_CONFIRM, GP_MODE_HELP };
enum gp_by { GP_BY_PROCESS, GP_BY_DEVICE, GP_BY_CONTAINER, GP_BY_OWNER, GP_BY_SITE, GP_BYS };

#define GP_UI_TAGS   256 /* more than a user tags by hand; one more is refused with a message */
#define GP_UI_FILTER 64  /* bytes; this fits on a line after its label */

struct gp_reset_target { /* one request */
    pid_t pid;
    uint64_t start_time;
    int device_index; /* in the session's devices[] */
    int64_t allocated_peak, reserved_peak;
    char comm[GP_COMM_BYTES];
};

struct gp_ui {
    enum gp_mode mode;
    enum gp_by by;
    enum gp_by back; /* the view before that of the call sites, for Esc */
    enum gp_column_id sort, site_sort;
    bool ascending, site_ascending, tree, host, detail, paused;
    bool sites_without_host;
    bool scoped;            /* the view by site shows the processes of `scope` only */
    struct gp_row_id scope; /* of the row that was selected */
    char scope_name[64];    /* for the title */
    char filter[GP_UI_FILTER], search[GP_UI_FILTER];
    enum gp_column_id sort_cursor; /* in the sort menu */
    int help_top;
    struct gp_row_id selected;
    int cursor, top, shift; /* selected line, first line shown, columns scrolled to the right in commands */
    int page;               /* lines of the table on the screen, from the layout; for PgUp and PgDn */
    int tag_count;
    struct gp_row_id tags[GP_UI_TAGS];
    uint32_t reset_what;
    int target_count;
    struct gp_reset_target targets[GP_UI_TAGS];
    int interval_ms;
    char message[256];
    bool message_is_error;
};

static inline bool gp_ui_by_site(const struct gp_ui *ui)
{
    return ui->by == GP_BY_SITE;
}

/* The column and order of the view that is shown. */
static inline enum gp_column_id gp_ui_sort(const struct gp_ui *ui)
{
    return gp_ui_by_site(ui) ? ui->site_sort : ui->sort;
}

static inline bool gp_ui_ascending(const struct gp_ui *ui)
{
    return gp_ui_by_site(ui) ? ui->site_ascending : ui->ascending;
}

/* The processes whose call sites are shown; NULL: all. */
static inline const struct gp_row_id *gp_ui_scope(const struct gp_ui *ui)
{
    return ui->scoped ? &ui->scope : NULL;
}

void gp_ui_init(struct gp_ui *ui);
bool gp_ui_tagged(const struct gp_ui *ui, const struct gp_row_id *id);
/* Call this when the rows, their order or the screen's size changed.  Keeps the selected row
 * selected, or the line if the row is gone, and keeps it on the screen. */
void gp_ui_settle(struct gp_ui *ui, const struct gp_row_list *list, int page);
/* `list`: the rows on the screen (gp_rows_build). */
enum gp_action gp_ui_key(struct gp_ui *ui, const struct gp_model *model, const struct gp_row_list *list, int key);
void gp_ui_say(struct gp_ui *ui, bool is_error, const char *format, ...) GP_PRINTF(3, 4);

/* Selects a line. */
void gp_ui_select(struct gp_ui *ui, const struct gp_row_list *list, int line);
/* Sorts by a column; in the other order if it is sorted by that already. */
void gp_ui_click_column(struct gp_ui *ui, enum gp_column_id column);

/* "allocated", "reserved", "allocated and reserved". */
const char *gp_reset_word(uint32_t what);

/* The table of keys for the help screen and the footer, which are the same in every view. */
struct gp_key_help {
    const char *keys, *what;
    const char *label; /* in the footer; NULL: not in the footer */
    int key;           /* what a click on the label does */
};
extern const struct gp_key_help gp_key_helps[];
extern const int gp_key_help_count;

/* ==== lines ======================================================================================================= */
/* Makes the lines of the table: the rows of the model, filtered, sorted and put into a tree as the
 * user chose. Pure. */

/* Replaces the list's contents; the rows point into the model.  0 or -ENOMEM (the list is then
 * empty). */
int gp_rows_build(const struct gp_model *model, const struct gp_ui *ui, struct gp_row_list *list);
void gp_rows_fini(struct gp_row_list *list);

/* ---- the text that finds a row ----------------------------------------------------------------------------------- */
/* The text by which a user finds a row: of the filter, and of the search.  Pure. */

/* The row's pid, command, user, container or owner contains the text, in any case; of a call site,
 * its function, file, caller, kind of memory or pid. */
bool gp_match_row(const struct gp_row *row, const char *text);

/* ==== drawing ===================================================================================================== */
/* Fills the grid from the model, the lines of the table and the user's choices.  Pure. draw.c puts
 * the parts together; the other draw*.c files draw them. */

/* ---- the layout -------------------------------------------------------------------------------------------------- */
/* Computes the place of each part of the screen from its size and the wanted heights. Pure.  For any
 * size, the rectangles do not overlap and stay on the screen; a part without room has h = 0.  The
 * idea of a pure layout function is nvtop's. */

struct gp_layout_wish {
    int rows, cols;
    int alerts; /* lines */
    int gpus;
    int table_rows; /* rows of the table */
    int detail;     /* lines of the detail pane; 0: not wanted */
};

struct gp_layout {
    struct gp_rect title, alerts, gpus, header, table, plots, detail, message, footer;
    int gpu_lines;    /* per GPU: 2 or 1 */
    int gpu_columns;  /* GPUs side by side */
    int gpu_shown;    /* places; if they are fewer than the GPUs, the last one says how many more there are */
    int plot_columns; /* plots side by side */
    int plot_shown;   /* plots of memory over time, one per GPU as far as they fit */
};

struct gp_layout gp_draw_layout_of(const struct gp_layout_wish *wish);

/* ---- draw -------------------------------------------------------------------------------------------------------- */

struct gp_draw { /* the inputs of every part */
    struct gp_grid *grid;
    const struct gp_model *model;
    const struct gp_row_list *list;
    const struct gp_ui *ui;
};

/* The layout of a frame of the grid's size.  gp_ui_settle needs the height of its table before the
 * frame is drawn. */
struct gp_layout gp_draw_layout(const struct gp_draw *draw);
void gp_draw_frame(const struct gp_draw *draw);

/* ---- parts --------------------------------------------------------------------------------------------------- */

void gp_draw_gpus(const struct gp_draw *draw, const struct gp_layout *layout);
void gp_draw_table(const struct gp_draw *draw, const struct gp_layout *layout);
/* Memory over time, per GPU. */
void gp_draw_plots(const struct gp_draw *draw, const struct gp_layout *layout);
void gp_draw_detail(const struct gp_draw *draw, struct gp_rect rect);
void gp_draw_help(const struct gp_draw *draw, struct gp_rect rect);
void gp_draw_sort(const struct gp_draw *draw, struct gp_rect rect);
void gp_draw_empty(const struct gp_draw *draw, struct gp_rect rect);
/* The height that the detail pane of the selected row could use, in lines. */
int gp_draw_detail_lines(const struct gp_draw *draw);

/* ---- clicks -------------------------------------------------------------------------------------------------- */

struct gp_hit {               /* what is at a place of the screen */
    int line;                 /* of the list; -1: no row */
    enum gp_column_id column; /* whose name is there; GP_COLUMNS: none */
    int key;                  /* of the footer; GP_KEY_NONE: none */
};
struct gp_hit gp_draw_hit(const struct gp_draw *draw, int y, int x);
/* The column at x of a table of this width; GP_COLUMNS: none. */
enum gp_column_id gp_draw_column_at(const struct gp_draw *draw, int width, int x);

/* ---- strokes ------------------------------------------------------------------------------------------------- */

struct gp_bar { /* bytes; -1 unknown */
    int64_t allocated, reserved, other, total, peak;
};

/* Draws `width` cells for the total: allocated, the rest of reserved, memory of others, free; and a
 * mark at the peak. */
void gp_draw_bar(const struct gp_draw *draw, struct gp_rect rect, int y, int x, int width, const struct gp_bar *bar);

/* ==== the screen ================================================================================================== */
/* The interactive `gpuprof top`.  It waits for samples, keys and signals, and shows frames. */

/* Shows `samples` samples (0: until the user quits), starting with the state in `ui`.  0, -ENOTTY
 * (nothing was shown: print a table instead), or -errno.  *signal_out: the signal that ended it,
 * else 0; SIGINT quits and counts as 0. */
int gp_screen_run(const struct gp_collect_options *options, struct gp_ui *ui, int64_t samples, int *signal_out);

#endif
