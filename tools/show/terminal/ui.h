/* SPDX-License-Identifier: MIT
 *
 * ui.h: `gpuprof top` on the screen: the choices of the user, the lines of the table, and the loop
 * that shows them.
 */
#ifndef GP_SHOW_TERMINAL_UI_H
#define GP_SHOW_TERMINAL_UI_H

#include <base/compiler.h>
#include <show/terminal/column.h>
#include <show/terminal/model.h>
#include <stdbool.h>

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
#define GP_UI_SHOWN  256 /* rows of a very tall screen */

struct gp_ui_place { /* where the user is in the table */
    struct gp_row_id selected;
    int cursor, top; /* selected line, which may be above or below the screen; first line shown */
};

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
    struct gp_row_id selected; /* with cursor and top: struct gp_ui_place */
    int cursor, top;
    struct gp_ui_place places[GP_BYS]; /* of the other views */
    uint64_t shown[GP_UI_SHOWN];       /* hashes of the rows that were on the screen, from line shown_top on */
    int shown_top, shown_count;
    bool follow; /* the next gp_ui_settle brings the selected row onto the screen */
    int shift;   /* columns scrolled to the right in commands */
    int page;    /* lines of the table on the screen, from the layout; for PgUp and PgDn */
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
 * selected, or the line if the row is gone.  The screen stays where the user put it: it does not follow a row that
 * changes its rank, and rows that come or go above it do not move it. */
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

/* ==== the screen ================================================================================================== */
/* The interactive `gpuprof top`.  It waits for samples, keys and signals, and shows frames. */

/* Shows `samples` samples (0: until the user quits), starting with the state in `ui`.  0, -ENOTTY
 * (nothing was shown: print a table instead), or -errno.  *signal_out: the signal that ended it,
 * else 0; SIGINT quits and counts as 0. */
int gp_screen_run(const struct gp_collect_options *options, struct gp_ui *ui, int64_t samples, int *signal_out);

#endif
