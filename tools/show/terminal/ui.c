/* SPDX-License-Identifier: MIT
 *
 * ui.c: see ui.h.  The keys are those of htop and nvtop, except that k does not kill a process.
 */
#include <show/terminal/ui.h>

#include <base/text.h>
#include <show/terminal/column.h>
#include <show/terminal/grid.h>
#include <show/terminal/model.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct gp_key_help gp_key_helps[] = {
    {"F1 h ?", "this help", "Help", GP_KEY_F1},
    {"F2 Enter i", "details of the selected row: kinds, scopes, failures, stack", "Detail", GP_KEY_F1 + 1},
    {"F3 d", "rows by process, GPU, container, owner (library), call site", "By", GP_KEY_F1 + 2},
    {"s", "call sites of the selected row; again: of all processes; Esc: back", "Sites", 's'},
    {"F4 \\", "filter by pid, command, user, container, call site; Esc clears", "Filter", GP_KEY_F1 + 3},
    {"/", "search: select the next row with this text; n: again", "Search", '/'},
    {"F5 t", "tree: rows under the row that sums them", "Tree", GP_KEY_F1 + 4},
    {"F6 > <", "choose the column to sort by; a click on a column does too", "Sort", GP_KEY_F1 + 5},
    {"I", "invert the order", NULL, 0},
    {"M P N", "sort by allocated, by its peak, by pid", NULL, 0},
    {"r", "reset the allocated peak, after a question", NULL, 0},
    {"R", "reset the reserved peak, after a question", NULL, 0},
    {"p", "reset both peaks, after a question", "Reset", 'p'},
    {"Space", "tag a row: resets act on all tagged rows; U untags", NULL, 0},
    {"H", "show or hide host memory (pinned, registered)", NULL, 0},
    {"+ -", "longer, shorter interval", NULL, 0},
    {"Z", "pause; F sample now", "Pause", 'Z'},
    {"arrows j", "move, as wheel and clicks do; left, right scroll the command", NULL, 0},
    {"PgUp PgDn", "page; Home, End or g, G: first and last", NULL, 0},
    {"Ctrl-L", "redraw", NULL, 0},
    {"F10 q", "quit; top never ends another program", "Quit", GP_KEY_F10},
};
const int gp_key_help_count = (int)GP_COUNT(gp_key_helps);

/* The intervals of + and -, ms; the limits are those of -d. */
static const int ui_intervals[] = {100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000, 300000, 600000, 3600000};

void gp_ui_init(struct gp_ui *ui)
{
    memset(ui, 0, sizeof(*ui));
    ui->sort = GP_COLUMN_ALLOC;
    ui->site_sort = GP_COLUMN_LIVE;
    ui->detail = true;
    ui->interval_ms = 1000;
    ui->page = 1;
    ui->selected.device = GP_MODEL_NO_DEVICE;
    for (int i = 0; i < GP_BYS; i++)
        ui->places[i].selected.device = GP_MODEL_NO_DEVICE;
}

void gp_ui_say(struct gp_ui *ui, bool is_error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(ui->message, sizeof(ui->message), format, args);
    va_end(args);
    ui->message_is_error = is_error;
}

static int ui_tag_index(const struct gp_ui *ui, const struct gp_row_id *id)
{
    for (int i = 0; i < ui->tag_count; i++) {
        if (gp_model_id_equal(&ui->tags[i], id))
            return i;
    }
    return -1;
}

bool gp_ui_tagged(const struct gp_ui *ui, const struct gp_row_id *id)
{
    return ui_tag_index(ui, id) >= 0;
}

static void ui_remember(struct gp_ui *ui, const struct gp_row_list *list)
{
    ui->shown_top = ui->top;
    ui->shown_count = 0;
    for (int i = ui->top; i < list->count && i < ui->top + ui->page && ui->shown_count < GP_UI_SHOWN; i++)
        ui->shown[ui->shown_count++] = gp_model_id_hash(&list->rows[i].id);
}

/* The cursor onto the screen, and no empty lines below the last row. */
static void ui_scroll(struct gp_ui *ui, const struct gp_row_list *list, bool to_cursor)
{
    if (to_cursor && ui->cursor < ui->top)
        ui->top = ui->cursor;
    if (to_cursor && ui->cursor >= ui->top + ui->page)
        ui->top = ui->cursor - ui->page + 1;
    int most = list->count > ui->page ? list->count - ui->page : 0;
    if (ui->top > most)
        ui->top = most;
    if (ui->top < 0)
        ui->top = 0;
    ui_remember(ui, list);
}

void gp_ui_select(struct gp_ui *ui, const struct gp_row_list *list, int line)
{
    ui->cursor = line < 0 || list->count == 0 ? 0 : line < list->count ? line : list->count - 1;
    if (list->count)
        ui->selected = list->rows[ui->cursor].id;
    ui_scroll(ui, list, true);
}

/* The line, counted from the screen's first one, on which the row was; -1: it was not on the screen. */
static int ui_was_shown(const struct gp_ui *ui, const struct gp_row *row)
{
    uint64_t hash = gp_model_id_hash(&row->id);
    for (int i = 0; i < ui->shown_count; i++) {
        if (ui->shown[i] == hash)
            return i;
    }
    return -1;
}

/* By how many lines most of the rows that were on the screen moved, because others came or went above them.  0 where
 * no move is that of most: then they changed their order.  A screen that begins with the first row goes on to do so. */
static int ui_moved(const struct gp_ui *ui, const struct gp_row_list *list)
{
    int move = 0, votes = 0, agree = 0, all = 0;
    for (int way = 0; ui->top > 0 && way < 2; way++) { /* finds the one that may be that of most, then counts */
        for (int i = 0; i < list->count; i++) {
            int line = ui_was_shown(ui, &list->rows[i]), moved = i - (ui->shown_top + line);
            if (line < 0)
                continue;
            if (way) {
                all++;
                agree += moved == move;
            } else if (votes == 0) {
                move = moved;
                votes = 1;
            } else {
                votes += moved == move ? 1 : -1;
            }
        }
    }
    return 2 * agree > all ? move : 0;
}

void gp_ui_settle(struct gp_ui *ui, const struct gp_row_list *list, int page)
{
    int moved = ui_moved(ui, list), line = ui->cursor + moved;
    bool visible = ui->cursor >= ui->top && ui->cursor < ui->top + ui->page;
    bool resized = ui->page != page;
    ui->page = page > 0 ? page : 1;
    for (int i = 0; i < list->count; i++) {
        if (gp_model_id_equal(&list->rows[i].id, &ui->selected)) {
            line = i;
            break;
        }
    }
    ui->cursor = line < 0 || list->count == 0 ? 0 : line < list->count ? line : list->count - 1;
    if (list->count)
        ui->selected = list->rows[ui->cursor].id;
    ui->top += moved;
    ui_scroll(ui, list, ui->follow || (resized && visible));
    ui->follow = ui->follow && list->count == 0;
}

/* Each view keeps its place; the view by call site has a new one for each choice of processes. */
static void ui_enter(struct gp_ui *ui, enum gp_by by)
{
    ui->places[ui->by] = (struct gp_ui_place){ui->selected, ui->cursor, ui->top};
    ui->by = by;
    if (by == GP_BY_SITE)
        ui->places[by] = (struct gp_ui_place){.selected.device = GP_MODEL_NO_DEVICE};
    ui->selected = ui->places[by].selected;
    ui->cursor = ui->places[by].cursor;
    ui->top = ui->places[by].top;
    ui->shown_count = 0;
}

static void ui_tag(struct gp_ui *ui, const struct gp_row_list *list)
{
    if (list->count == 0)
        return;
    int index = ui_tag_index(ui, &ui->selected);
    if (index >= 0)
        ui->tags[index] = ui->tags[--ui->tag_count];
    else if (ui->tag_count < GP_UI_TAGS)
        ui->tags[ui->tag_count++] = ui->selected;
    else
        gp_ui_say(ui, true, "at most %d rows can be tagged; U untags all", GP_UI_TAGS);
    gp_ui_select(ui, list, ui->cursor + 1);
}

/* ---- resets -------------------------------------------------------------------------------------------------- */

const char *gp_reset_word(uint32_t what)
{
    return what == GP_RESET_ALLOCATED ? "allocated" : what == GP_RESET_RESERVED ? "reserved" : "allocated and reserved";
}

static bool ui_targeted(const struct gp_ui *ui, const struct gp_row *pair)
{
    for (int i = 0; i < ui->target_count; i++) {
        const struct gp_reset_target *target = &ui->targets[i];
        if (target->pid == pair->id.pid && target->start_time == pair->id.start_time &&
            target->device_index == pair->device->index)
            return true;
    }
    return false;
}

/* 1: the pair is a new target; 0: it cannot be one, or is one already; -1: too many targets. */
static int ui_target(struct gp_ui *ui, const struct gp_row *pair)
{
    if (!pair->device || !gp_model_process_readable(pair->process) || pair->process->closed || ui_targeted(ui, pair))
        return 0;
    if (ui->target_count == GP_UI_TAGS)
        return -1;
    struct gp_reset_target *target = &ui->targets[ui->target_count++];
    target->pid = pair->id.pid;
    target->start_time = pair->id.start_time;
    target->device_index = pair->device->index;
    target->allocated_peak = pair->allocated_peak;
    target->reserved_peak = pair->reserved_peak;
    memcpy(target->comm, pair->process->comm, sizeof(target->comm));
    return 1;
}

/* Collects the pairs of the tagged rows, or of the selected row.  Host memory is included only if
 * its own row is tagged or selected.  False: too many. */
static bool ui_find_targets(struct gp_ui *ui, const struct gp_model *model)
{
    const struct gp_row_list *pairs = &model->lists[GP_LIST_PAIRS];
    const struct gp_row_id *ids = ui->tag_count ? ui->tags : &ui->selected;
    int count = ui->tag_count ? ui->tag_count : 1;
    ui->target_count = 0;
    for (int t = 0; t < count; t++) {
        struct gp_row group = {.id = ids[t]};
        for (int i = 0; i < pairs->count; i++) {
            const struct gp_row *pair = &pairs->rows[i];
            bool named = ids[t].kind == GP_ROW_PAIR || pair->id.device != GP_MODEL_HOST;
            if (named && gp_model_row_contains(&group, pair) && ui_target(ui, pair) < 0)
                return false;
        }
    }
    return true;
}

/* A reset acts on all owners of a device at once. */
static bool ui_has_shares(const struct gp_ui *ui)
{
    const struct gp_row_id *ids = ui->tag_count ? ui->tags : &ui->selected;
    for (int i = 0; i < (ui->tag_count ? ui->tag_count : 1); i++) {
        if (ids[i].owner[0])
            return true;
    }
    return false;
}

static void ui_ask_reset(struct gp_ui *ui, const struct gp_model *model, const struct gp_row_list *list, uint32_t what)
{
    if (list->count == 0) {
        gp_ui_say(ui, true, "nothing to reset: no row is selected");
        return;
    }
    if (model->system && model->system->agent.present) {
        /* This screen shows the agent's peaks, which a reset of a process does not change. */
        gp_ui_say(ui, true, "these peaks are machine-wide; as root run: gpuprof reset %s --all [--device N]",
                  what == GP_RESET_ALLOCATED  ? "--allocated"
                  : what == GP_RESET_RESERVED ? "--reserved"
                                              : "--peaks");
        return;
    }
    if (ui_has_shares(ui)) {
        gp_ui_say(ui, true, "peaks are reset by process: choose a process, a GPU or a container (d)");
        return;
    }
    if (!ui_find_targets(ui, model)) {
        gp_ui_say(ui, true, "more than %d peaks to reset: tag fewer rows", GP_UI_TAGS);
        return;
    }
    if (ui->target_count == 0) {
        gp_ui_say(ui, true, "nothing to reset: no process of this row answers and has used a device");
        return;
    }
    ui->reset_what = what;
    ui->mode = GP_MODE_CONFIRM;
    ui->message[0] = '\0';
}

/* ---- keys ---------------------------------------------------------------------------------------------------- */

static enum gp_action ui_interval(struct gp_ui *ui, int direction)
{
    const int count = (int)GP_COUNT(ui_intervals);
    int next = ui->interval_ms;
    if (direction > 0) {
        for (int i = count - 1; i >= 0 && ui_intervals[i] > ui->interval_ms; i--)
            next = ui_intervals[i];
    } else {
        for (int i = 0; i < count && ui_intervals[i] < ui->interval_ms; i++)
            next = ui_intervals[i];
    }
    ui->interval_ms = next;
    char text[16];
    gp_ui_say(ui, false, "interval %s", gp_grid_duration(next / 1000.0, text, sizeof(text)));
    return GP_ACTION_INTERVAL;
}

static void ui_sort_by(struct gp_ui *ui, enum gp_column_id column)
{
    *(gp_ui_by_site(ui) ? &ui->site_sort : &ui->sort) = column;
    *(gp_ui_by_site(ui) ? &ui->site_ascending : &ui->ascending) = gp_column_ascends(column);
    ui->follow = true;
    gp_ui_say(ui, false, "sorted by %s", gp_columns[column].name);
}

void gp_ui_click_column(struct gp_ui *ui, enum gp_column_id column)
{
    ui->follow = true;
    if (gp_ui_sort(ui) == column)
        *(gp_ui_by_site(ui) ? &ui->site_ascending : &ui->ascending) ^= true;
    else
        ui_sort_by(ui, column);
}

/* Appends a character to a line of input, or removes one. */
static void ui_edit(char text[GP_UI_FILTER], int key)
{
    size_t used = strlen(text);
    if (key == GP_KEY_BACKSPACE) {
        while (used > 0 && ((unsigned char)text[--used] & 0xc0) == 0x80)
            ;
        text[used] = '\0';
    } else if (key >= ' ' && key < GP_KEY_BASE && key != 0x7f) {
        char bytes[5] = {0};
        gp_utf8_put(bytes, (uint32_t)key);
        if (used + strlen(bytes) < GP_UI_FILTER)
            strcat(text, bytes);
    }
}

/* Selects the first row with the text of the search, from line `from` on and then from the top. */
static void ui_find(struct gp_ui *ui, const struct gp_row_list *list, int from)
{
    for (int i = 0; ui->search[0] && i < list->count; i++) {
        int line = (from + i) % list->count;
        if (gp_match_row(&list->rows[line], ui->search)) {
            gp_ui_select(ui, list, line);
            return;
        }
    }
    if (ui->search[0])
        gp_ui_say(ui, true, "no row has \"%s\"", ui->search);
    else
        gp_ui_say(ui, true, "nothing to search for: press / first");
}

static enum gp_action ui_key_search(struct gp_ui *ui, const struct gp_row_list *list, int key)
{
    if (key == GP_KEY_ENTER || key == GP_KEY_ESCAPE) {
        ui->mode = GP_MODE_NORMAL;
        return GP_ACTION_NONE;
    }
    ui->message[0] = '\0';
    ui_edit(ui->search, key);
    if (ui->search[0] && key != GP_KEY_RESIZE)
        ui_find(ui, list, ui->cursor);
    return GP_ACTION_NONE;
}

static enum gp_action ui_key_filter(struct gp_ui *ui, int key)
{
    ui->follow = true;
    if (key == GP_KEY_ESCAPE)
        ui->filter[0] = '\0';
    if (key == GP_KEY_ENTER || key == GP_KEY_ESCAPE)
        ui->mode = GP_MODE_NORMAL;
    else
        ui_edit(ui->filter, key);
    return GP_ACTION_NONE;
}

/* The next column that the view can be sorted by, `step` (1 or -1) from `from`; `from` if there is
 * none. */
static int ui_sortable(const struct gp_ui *ui, int from, int step)
{
    for (int i = from + step; i >= 0 && i < GP_COLUMNS; i += step) {
        if (gp_column_sorts((enum gp_column_id)i, gp_ui_by_site(ui)))
            return i;
    }
    return from;
}

static enum gp_action ui_key_sort(struct gp_ui *ui, int key)
{
    int cursor = (int)ui->sort_cursor;
    if (key == GP_KEY_UP || key == GP_KEY_WHEEL_UP)
        cursor = ui_sortable(ui, cursor, -1);
    if (key == GP_KEY_DOWN || key == GP_KEY_WHEEL_DOWN || key == 'j')
        cursor = ui_sortable(ui, cursor, 1);
    if (key == GP_KEY_HOME)
        cursor = ui_sortable(ui, -1, 1);
    if (key == GP_KEY_END)
        cursor = ui_sortable(ui, GP_COLUMNS, -1);
    ui->sort_cursor = (enum gp_column_id)cursor;
    if (key == GP_KEY_ENTER)
        ui_sort_by(ui, ui->sort_cursor);
    if (key == GP_KEY_ENTER || key == GP_KEY_ESCAPE || key == 'q')
        ui->mode = GP_MODE_NORMAL;
    return GP_ACTION_NONE;
}

static enum gp_action ui_key_confirm(struct gp_ui *ui, int key)
{
    if (key == 'y' || key == 'Y') {
        ui->mode = GP_MODE_NORMAL;
        return GP_ACTION_RESET;
    }
    if (key == 'n' || key == 'N' || key == 'q' || key == GP_KEY_ESCAPE) {
        ui->mode = GP_MODE_NORMAL;
        ui->target_count = 0;
        gp_ui_say(ui, false, "nothing was reset");
    }
    return GP_ACTION_NONE;
}

static enum gp_action ui_key_help(struct gp_ui *ui, int key)
{
    int step = 0;
    if (key == GP_KEY_UP || key == GP_KEY_WHEEL_UP)
        step = -1;
    else if (key == GP_KEY_DOWN || key == GP_KEY_WHEEL_DOWN || key == 'j')
        step = 1;
    else if (key == GP_KEY_PAGE_UP)
        step = -10;
    else if (key == GP_KEY_PAGE_DOWN || key == ' ')
        step = 10;
    if (!step && key != GP_KEY_RESIZE) {
        ui->mode = GP_MODE_NORMAL;
        return GP_ACTION_NONE;
    }
    ui->help_top += step;
    if (ui->help_top >= gp_key_help_count)
        ui->help_top = gp_key_help_count - 1;
    if (ui->help_top < 0)
        ui->help_top = 0;
    return GP_ACTION_NONE;
}

/* Handles keys that move the cursor.  False: the key is not one of them. */
static bool ui_key_move(struct gp_ui *ui, const struct gp_row_list *list, int key)
{
    switch (key) {
    case GP_KEY_UP:
        gp_ui_select(ui, list, ui->cursor - 1);
        return true;
    case GP_KEY_DOWN:
    case 'j':
        gp_ui_select(ui, list, ui->cursor + 1);
        return true;
    case GP_KEY_WHEEL_UP:
        gp_ui_select(ui, list, ui->cursor - 3);
        return true;
    case GP_KEY_WHEEL_DOWN:
        gp_ui_select(ui, list, ui->cursor + 3);
        return true;
    case 'n':
        ui_find(ui, list, ui->cursor + 1);
        return true;
    case GP_KEY_PAGE_UP:
        gp_ui_select(ui, list, ui->cursor - ui->page);
        return true;
    case GP_KEY_PAGE_DOWN:
        gp_ui_select(ui, list, ui->cursor + ui->page);
        return true;
    case GP_KEY_HOME:
    case 'g':
        gp_ui_select(ui, list, 0);
        return true;
    case GP_KEY_END:
    case 'G':
        gp_ui_select(ui, list, list->count - 1);
        return true;
    case GP_KEY_LEFT:
        ui->shift -= ui->shift >= 8 ? 8 : ui->shift;
        return true;
    case GP_KEY_RIGHT: /* command lines are at most 255 bytes long */
        ui->shift += ui->shift < 248 ? 8 : 0;
        return true;
    default:
        return false;
    }
}

/* ---- views --------------------------------------------------------------------------------------------------- */

static const char *const ui_views[GP_BYS] = {"process", "GPU", "container", "owner", "call site"};

/* The agent's tables have no call sites. */
static bool ui_has_sites(const struct gp_model *model)
{
    return !model->system || !model->system->agent.present;
}

static void ui_next_view(struct gp_ui *ui, const struct gp_model *model)
{
    enum gp_by by = (enum gp_by)((ui->by + 1) % GP_BYS);
    if (by == GP_BY_SITE && !ui_has_sites(model))
        by = GP_BY_PROCESS;
    if (by == GP_BY_SITE) {
        ui->back = ui->by;
        ui->scoped = false;
    }
    ui_enter(ui, by);
    gp_ui_say(ui, false, by == GP_BY_SITE ? "by call site, all processes" : "by %s", ui_views[by]);
}

static void ui_scope(struct gp_ui *ui, const struct gp_row *row)
{
    ui->scoped = true;
    ui->scope = row->id;
    if (row->process && row->id.pid > 0)
        snprintf(ui->scope_name, sizeof(ui->scope_name), "%d %.48s", (int)row->id.pid, row->process->comm);
    else if (row->id.pid > 0)
        snprintf(ui->scope_name, sizeof(ui->scope_name), "%d", (int)row->id.pid);
    else if (row->id.owner[0] || row->id.container[0])
        snprintf(ui->scope_name, sizeof(ui->scope_name), "%.60s", row->id.owner[0] ? row->id.owner : row->id.container);
    else
        snprintf(ui->scope_name, sizeof(ui->scope_name), row->id.device >= 0 ? "one GPU" : "no container");
}

/* The call sites of the selected row's processes; in that view, of one process or of all. */
static void ui_sites(struct gp_ui *ui, const struct gp_model *model, const struct gp_row_list *list)
{
    const struct gp_row *row = ui->cursor < list->count ? &list->rows[ui->cursor] : NULL;
    if (!ui_has_sites(model)) {
        gp_ui_say(ui, true, "the agent's tables have no call sites; run: gpuprof top --by site");
        return;
    }
    if (ui->by != GP_BY_SITE)
        ui->back = ui->by;
    if ((ui->by == GP_BY_SITE && ui->scoped) || !row)
        ui->scoped = false;
    else
        ui_scope(ui, row);
    ui_enter(ui, GP_BY_SITE);
    if (ui->scoped)
        gp_ui_say(ui, false, "call sites of %s; s: of all processes, Esc: back", ui->scope_name);
    else
        gp_ui_say(ui, false, "call sites of all processes; s: of the selected one, Esc: back");
}

/* Call sites of host memory are shown until the user hides them: they belong to the same program. */
static void ui_host(struct gp_ui *ui)
{
    bool shown = gp_ui_by_site(ui) ? ui->sites_without_host : !ui->host;
    if (gp_ui_by_site(ui))
        ui->sites_without_host = !shown;
    else
        ui->host = shown;
    gp_ui_say(ui, false, shown ? "host memory shown" : "host memory hidden");
}

/* Handles keys that change the view.  False: the key is not one of them. */
static bool ui_key_view(struct gp_ui *ui, const struct gp_model *model, const struct gp_row_list *list, int key)
{
    switch (key) {
    case GP_KEY_F1:
    case 'h':
    case '?':
        ui->mode = GP_MODE_HELP;
        ui->help_top = 0;
        return true;
    case GP_KEY_F1 + 1:
    case GP_KEY_ENTER:
    case 'i':
        ui->detail = !ui->detail;
        return true;
    case GP_KEY_F1 + 2:
    case 'd':
        ui_next_view(ui, model);
        return true;
    case 's':
        ui_sites(ui, model, list);
        return true;
    case GP_KEY_F1 + 3:
    case '\\':
        ui->mode = GP_MODE_FILTER;
        return true;
    case '/':
        ui->mode = GP_MODE_SEARCH;
        ui->search[0] = '\0';
        return true;
    case GP_KEY_F1 + 4:
    case 't':
        ui->tree = !ui->tree;
        ui->follow = true;
        return true;
    case GP_KEY_F1 + 5:
    case '>':
    case '<':
        ui->mode = GP_MODE_SORT;
        ui->sort_cursor = gp_ui_sort(ui);
        return true;
    case 'I':
        *(gp_ui_by_site(ui) ? &ui->site_ascending : &ui->ascending) ^= true;
        ui->follow = true;
        return true;
    case 'H':
        ui_host(ui);
        ui->follow = true;
        return true;
    default:
        return false;
    }
}

static enum gp_action ui_key_act(struct gp_ui *ui, const struct gp_model *model, const struct gp_row_list *list,
                                 int key)
{
    switch (key) {
    case 'q':
    case GP_KEY_F10:
    case 3: /* Ctrl-C, if the terminal passes it as a key */
        return GP_ACTION_QUIT;
    case GP_KEY_ESCAPE: /* first the filter, then the view of the call sites */
        if (!ui->filter[0] && gp_ui_by_site(ui)) {
            ui_enter(ui, ui->back);
            gp_ui_say(ui, false, "by %s", ui_views[ui->by]);
        } else {
            ui->follow = true;
        }
        ui->filter[0] = '\0';
        break;
    case 'M':
        ui_sort_by(ui, gp_ui_by_site(ui) ? GP_COLUMN_LIVE : GP_COLUMN_ALLOC);
        break;
    case 'P':
        ui_sort_by(ui, gp_ui_by_site(ui) ? GP_COLUMN_SITE_PEAK : GP_COLUMN_PEAK);
        break;
    case 'N':
        ui_sort_by(ui, GP_COLUMN_PID);
        break;
    case 'r':
        ui_ask_reset(ui, model, list, GP_RESET_ALLOCATED);
        break;
    case 'R':
        ui_ask_reset(ui, model, list, GP_RESET_RESERVED);
        break;
    case 'p':
        ui_ask_reset(ui, model, list, GP_RESET_PEAKS);
        break;
    case ' ':
        ui_tag(ui, list);
        break;
    case 'U':
        ui->tag_count = 0;
        break;
    case '+':
    case '=':
        return ui_interval(ui, 1);
    case '-':
        return ui_interval(ui, -1);
    case 'Z':
        ui->paused = !ui->paused;
        return ui->paused ? GP_ACTION_NONE : GP_ACTION_REFRESH;
    case 'F':
        return GP_ACTION_REFRESH;
    case GP_KEY_REDRAW:
        return GP_ACTION_REDRAW;
    case 'k':
    case GP_KEY_F1 + 8: /* htop's way to end a process */
        gp_ui_say(ui, false, "gpuprof top never kills; q quits, h lists the keys");
        break;
    default:
        if (key > ' ' && key < 0x7f)
            gp_ui_say(ui, false, "no such key: %c; h lists the keys, q quits", key);
        break;
    }
    return GP_ACTION_NONE;
}

enum gp_action gp_ui_key(struct gp_ui *ui, const struct gp_model *model, const struct gp_row_list *list, int key)
{
    switch (ui->mode) {
    case GP_MODE_FILTER:
        return ui_key_filter(ui, key);
    case GP_MODE_SEARCH:
        return ui_key_search(ui, list, key);
    case GP_MODE_SORT:
        return ui_key_sort(ui, key);
    case GP_MODE_CONFIRM:
        return ui_key_confirm(ui, key);
    case GP_MODE_HELP:
        return ui_key_help(ui, key);
    case GP_MODE_NORMAL:
        break;
    }
    if (key != GP_KEY_RESIZE)
        ui->message[0] = '\0';
    if (ui_key_move(ui, list, key) || ui_key_view(ui, model, list, key))
        return GP_ACTION_NONE;
    return ui_key_act(ui, model, list, key);
}
