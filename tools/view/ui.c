/* SPDX-License-Identifier: MIT
 *
 * ui.c: see ui.h.  The keys are those of htop and nvtop, except that k does not kill a process.
 */
#include <view/ui.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <view/state.h>

const struct gp_key_help gp_key_helps[] = {
    {"F1 h ?", "this help", "Help"},
    {"F2 Enter i", "details of the selected row: kinds, scopes, failures", "Detail"},
    {"F3 d", "rows by process, GPU, container, owner (the library that asked)", "By"},
    {"F4 / \\", "filter by pid, command, user or container; Esc clears", "Filter"},
    {"F5 t", "tree: rows under the row that sums them", "Tree"},
    {"F6 > <", "choose the column to sort by", "Sort"},
    {"I", "invert the order", NULL},
    {"M P N", "sort by allocated, by its peak, by pid", NULL},
    {"r", "reset the allocated peak, after a question", "AllocPeak"},
    {"R", "reset the reserved peak, after a question", "ResPeak"},
    {"p", "reset both peaks, after a question", "Both"},
    {"Space", "tag a row: resets act on all tagged rows; U untags", NULL},
    {"H", "show host memory (pinned, registered)", NULL},
    {"+ -", "longer, shorter interval", NULL},
    {"Z", "pause; F sample now", NULL},
    {"arrows j", "move; left and right scroll the command", NULL},
    {"PgUp PgDn", "page; Home, End or g, G: first and last", NULL},
    {"Ctrl-L", "redraw", NULL},
    {"F10 q", "quit", "Quit"},
};
const int gp_key_help_count = (int)GP_COUNT(gp_key_helps);

/* The intervals of + and -, ms; the limits are those of -d. */
static const int ui_intervals[] = {100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000, 300000, 600000, 3600000};

void gp_ui_init(struct gp_ui *ui)
{
    memset(ui, 0, sizeof(*ui));
    ui->sort = GP_COLUMN_ALLOC;
    ui->detail = true;
    ui->interval_ms = 1000;
    ui->page = 1;
    ui->selected.device = GP_MODEL_NO_DEVICE;
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
        if (gp_row_id_equal(&ui->tags[i], id))
            return i;
    }
    return -1;
}

bool gp_ui_tagged(const struct gp_ui *ui, const struct gp_row_id *id)
{
    return ui_tag_index(ui, id) >= 0;
}

static void ui_select(struct gp_ui *ui, const struct gp_row_list *list, int line)
{
    ui->cursor = line < 0 || list->count == 0 ? 0 : line < list->count ? line : list->count - 1;
    if (list->count)
        ui->selected = list->rows[ui->cursor].id;
    if (ui->cursor < ui->top)
        ui->top = ui->cursor;
    if (ui->cursor >= ui->top + ui->page)
        ui->top = ui->cursor - ui->page + 1;
    int most = list->count > ui->page ? list->count - ui->page : 0;
    if (ui->top > most)
        ui->top = most;
}

void gp_ui_settle(struct gp_ui *ui, const struct gp_row_list *list, int page)
{
    int line = ui->cursor;
    ui->page = page > 0 ? page : 1;
    for (int i = 0; i < list->count; i++) {
        if (gp_row_id_equal(&list->rows[i].id, &ui->selected)) {
            line = i;
            break;
        }
    }
    ui_select(ui, list, line);
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
    ui_select(ui, list, ui->cursor + 1);
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
    if (!pair->device || !gp_process_readable(pair->process) || pair->process->closed || ui_targeted(ui, pair))
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
            if (named && gp_row_contains(&group, pair) && ui_target(ui, pair) < 0)
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
    gp_ui_say(ui, false, "interval %s", gp_text_duration(next / 1000.0, text, sizeof(text)));
    return GP_ACTION_INTERVAL;
}

static void ui_sort_by(struct gp_ui *ui, enum gp_column_id column)
{
    ui->sort = column;
    ui->ascending = !gp_columns[column].numeric;
    gp_ui_say(ui, false, "sorted by %s", gp_columns[column].name);
}

static enum gp_action ui_key_filter(struct gp_ui *ui, int key)
{
    size_t used = strlen(ui->filter);
    if (key == GP_KEY_ENTER) {
        ui->mode = GP_MODE_NORMAL;
    } else if (key == GP_KEY_ESCAPE) {
        ui->filter[0] = '\0';
        ui->mode = GP_MODE_NORMAL;
    } else if (key == GP_KEY_BACKSPACE) {
        while (used > 0 && ((unsigned char)ui->filter[--used] & 0xc0) == 0x80)
            ;
        ui->filter[used] = '\0';
    } else if (key >= ' ' && key < GP_KEY_BASE && key != 0x7f) {
        char bytes[5] = {0};
        if (key < 0x80) {
            bytes[0] = (char)key;
        } else if (key < 0x800) {
            bytes[0] = (char)(0xc0 | key >> 6);
            bytes[1] = (char)(0x80 | (key & 0x3f));
        } else if (key < 0x10000) {
            bytes[0] = (char)(0xe0 | key >> 12);
            bytes[1] = (char)(0x80 | (key >> 6 & 0x3f));
            bytes[2] = (char)(0x80 | (key & 0x3f));
        } else {
            bytes[0] = (char)(0xf0 | key >> 18);
            bytes[1] = (char)(0x80 | (key >> 12 & 0x3f));
            bytes[2] = (char)(0x80 | (key >> 6 & 0x3f));
            bytes[3] = (char)(0x80 | (key & 0x3f));
        }
        if (used + strlen(bytes) < sizeof(ui->filter))
            strcat(ui->filter, bytes);
    }
    return GP_ACTION_NONE;
}

static enum gp_action ui_key_sort(struct gp_ui *ui, int key)
{
    int step = key == GP_KEY_UP ? -1 : key == GP_KEY_DOWN || key == 'j' ? 1 : 0;
    int cursor = (int)ui->sort_cursor + step;
    if (cursor == GP_COLUMN_BAR)
        cursor += step;
    if (key == GP_KEY_HOME || cursor < 0)
        cursor = 0;
    if (key == GP_KEY_END || cursor >= GP_COLUMNS)
        cursor = GP_COLUMNS - 1;
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
    int step = key == GP_KEY_UP                        ? -1
               : key == GP_KEY_DOWN || key == 'j'      ? 1
               : key == GP_KEY_PAGE_UP                 ? -10
               : key == GP_KEY_PAGE_DOWN || key == ' ' ? 10
                                                       : 0;
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
        ui_select(ui, list, ui->cursor - 1);
        return true;
    case GP_KEY_DOWN:
    case 'j':
        ui_select(ui, list, ui->cursor + 1);
        return true;
    case GP_KEY_PAGE_UP:
        ui_select(ui, list, ui->cursor - ui->page);
        return true;
    case GP_KEY_PAGE_DOWN:
        ui_select(ui, list, ui->cursor + ui->page);
        return true;
    case GP_KEY_HOME:
    case 'g':
        ui_select(ui, list, 0);
        return true;
    case GP_KEY_END:
    case 'G':
        ui_select(ui, list, list->count - 1);
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

/* Handles keys that change the view.  False: the key is not one of them. */
static bool ui_key_view(struct gp_ui *ui, int key)
{
    static const char *const views[GP_BYS] = {"process", "GPU", "container", "owner"};
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
        ui->by = (enum gp_by)((ui->by + 1) % GP_BYS);
        gp_ui_say(ui, false, "by %s", views[ui->by]);
        return true;
    case GP_KEY_F1 + 3:
    case '/':
    case '\\':
        ui->mode = GP_MODE_FILTER;
        return true;
    case GP_KEY_F1 + 4:
    case 't':
        ui->tree = !ui->tree;
        return true;
    case GP_KEY_F1 + 5:
    case '>':
    case '<':
        ui->mode = GP_MODE_SORT;
        ui->sort_cursor = ui->sort;
        return true;
    case 'I':
        ui->ascending = !ui->ascending;
        return true;
    case 'H':
        ui->host = !ui->host;
        gp_ui_say(ui, false, ui->host ? "host memory shown" : "host memory hidden");
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
    case GP_KEY_ESCAPE:
        ui->filter[0] = '\0';
        break;
    case 'M':
        ui_sort_by(ui, GP_COLUMN_ALLOC);
        break;
    case 'P':
        ui_sort_by(ui, GP_COLUMN_PEAK);
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
    default:
        break;
    }
    return GP_ACTION_NONE;
}

enum gp_action gp_ui_key(struct gp_ui *ui, const struct gp_model *model, const struct gp_row_list *list, int key)
{
    switch (ui->mode) {
    case GP_MODE_FILTER:
        return ui_key_filter(ui, key);
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
    if (ui_key_move(ui, list, key) || ui_key_view(ui, key))
        return GP_ACTION_NONE;
    return ui_key_act(ui, model, list, key);
}
