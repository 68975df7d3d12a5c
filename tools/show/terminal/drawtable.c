/* SPDX-License-Identifier: MIT
 *
 * drawtable.c: draws the header and the lines of the table; see draw.h.
 */
#include <show/terminal/draw.h>

#include <math.h>
#include <show/terminal/column.h>
#include <show/terminal/grid.h>
#include <show/terminal/layout.h>
#include <show/terminal/model.h>
#include <show/terminal/siteview.h>
#include <show/terminal/ui.h>
#include <stdio.h>
#include <string.h>

static enum gp_style draw_cell_style(enum gp_column_id id, const struct gp_row *row)
{
    const struct gp_process *process = row->process;
    if (id == GP_COLUMN_LOST && row->lost > 0)
        return GP_STYLE_WARN;
    if (process && process->state == GP_PROCESS_DAMAGED)
        return id == GP_COLUMN_STATE ? GP_STYLE_ERROR : GP_STYLE_DIM;
    if (process && process->state == GP_PROCESS_STALE)
        return id == GP_COLUMN_STATE ? GP_STYLE_WARN : GP_STYLE_DIM;
    if (process && process->oom.count && id == GP_COLUMN_STATE && gp_model_process_live(process))
        return GP_STYLE_ERROR;
    if (process && (process->state != GP_PROCESS_LIVE || process->closed))
        return GP_STYLE_DIM;
    if (gp_columns[id].style != GP_STYLE_NORMAL)
        return gp_columns[id].style;
    if (id == GP_COLUMN_DELTA && row->site && row->site->delta_per_s >= 1)
        return GP_STYLE_WARN; /* it grows */
    return row->site || row->process ? GP_STYLE_NORMAL : GP_STYLE_BOLD;
}

/* Draws text in a field.  The text is aligned, scrolled by `shift` columns, and marked where its
 * end is cut. */
static void draw_field(const struct gp_draw *draw, struct gp_rect field, bool right, int shift, enum gp_style style,
                       const char *text)
{
    int width = gp_grid_width(text);
    if (field.w <= 0)
        return;
    int x = right && width < field.w ? field.w - width : -shift;
    gp_grid_put(draw->grid, field, 0, x, style, text);
    if (x + width > field.w)
        gp_grid_put(draw->grid, field, 0, field.w - 1, style, draw->grid->ascii ? "+" : "\u2026");
}

/* The same, but cuts the start: cgroup paths and UUIDs differ at their end. */
static void draw_field_end(const struct gp_draw *draw, struct gp_rect field, enum gp_style style, const char *text)
{
    int over = gp_grid_width(text) - field.w;
    draw_field(draw, field, false, over > 0 ? over : 0, style, text);
    if (over > 0 && field.w > 0)
        gp_grid_put(draw->grid, field, 0, 0, style, draw->grid->ascii ? "+" : "\u2026");
}

/* The table shows sums only; in the tree, rows of processes are below them. */
static bool draw_groups(const struct gp_ui *ui)
{
    return ui->by != GP_BY_PROCESS && ui->by != GP_BY_SITE && !ui->tree;
}

/* A column that says nothing in any row is left out.  Losses have an alert of their own, and a rate
 * is not known before the second sample. */
static bool draw_is_empty(const struct gp_draw *draw, enum gp_column_id id)
{
    const struct gp_row_list *list = draw->list;
    enum gp_column_shown shown = gp_columns[id].shown;
    char text[512];
    if (list->count == 0)
        return shown == GP_SHOWN_ROWS;
    if (id == gp_ui_sort(draw->ui) || shown == GP_SHOWN_ALWAYS ||
        (shown == GP_SHOWN_RATE && draw->model->generation < 2))
        return false;
    for (int i = 0; i < list->count; i++) {
        const struct gp_row *row = &list->rows[i];
        if (id == GP_COLUMN_PID && gp_ui_by_site(draw->ui)) { /* one process is named in the title */
            if (row->id.pid != list->rows[0].id.pid)
                return false;
        } else if (gp_columns[id].form == GP_FORM_DRAWN) {
            if (!isnan(gp_column_value(id, row)))
                return false;
        } else {
            gp_column_text(id, row, draw->model, GP_TEXT_SHORT, draw->grid->ascii, text, sizeof(text));
            if (strcmp(text, "-") != 0 && !(shown == GP_SHOWN_COUNT && strcmp(text, "0") == 0))
                return false;
        }
    }
    return true;
}

struct gp_draw_columns {
    enum gp_column_id ids[GP_COLUMNS];
    int count, rest;
};

static struct gp_draw_columns draw_columns(const struct gp_draw *draw, int width)
{
    struct gp_draw_columns columns;
    struct gp_column_choice choice = {.sites = gp_ui_by_site(draw->ui), .groups = draw_groups(draw->ui)};
    for (int i = 0; i < GP_COLUMNS; i++) {
        if (gp_column_in((enum gp_column_id)i, choice.sites) && i != GP_COLUMN_COMMAND && i != GP_COLUMN_SITE)
            choice.empty[i] = draw_is_empty(draw, (enum gp_column_id)i);
    }
    columns.count = gp_columns_fit(width - 1, &choice, columns.ids, &columns.rest);
    return columns;
}

static int draw_width(const struct gp_draw_columns *columns, int i)
{
    const struct gp_column *column = &gp_columns[columns->ids[i]];
    return column->width ? column->width : columns->rest;
}

static void draw_line_bar(const struct gp_draw *draw, struct gp_rect field, const struct gp_row *row)
{
    if (row->id.device < 0)
        return; /* neither host memory nor a sum over GPUs has a total */
    struct gp_bar bar = {row->allocated, gp_row_held(row), -1, row->total, gp_row_mark(row)};
    if (row->allocated >= 0)
        gp_draw_bar(draw, field, 0, 0, field.w, &bar);
}

static const char *draw_branch(const struct gp_draw *draw, const struct gp_row *row)
{
    if (row->depth == 0)
        return "";
    if (draw->grid->ascii)
        return row->last ? "`- " : "|- ";
    return row->last ? "\u2514\u2500 " : "\u251c\u2500 ";
}

/* Marks numbers that are not exact, because a narrow screen has no STATE column. */
static const char *draw_mark(const struct gp_row *row)
{
    if (!row->process)
        return " ";
    return row->process->state == GP_PROCESS_DAMAGED ? "!" : row->process->state == GP_PROCESS_STALE ? "?" : " ";
}

/* Shortens a command that does not fit: "python3 /home/ada/train.py" differs from others in
 * its last part, so the folders of the first path are left out. */
static void draw_shorten(char *text, bool ascii)
{
    char *word = strchr(text, ' ');
    while (word && (word[1] == '-' || !memchr(word + 1, '/', strcspn(word + 1, " "))))
        word = strchr(word + 1, ' ');
    if (!word)
        return;
    char *end = word + 1 + strcspn(word + 1, " "), *name = end;
    while (name[-1] != '/')
        name--;
    const char *mark = ascii ? "+" : "\u2026";
    if (name < end && (size_t)(name - word - 1) > strlen(mark)) {
        memcpy(word + 1, mark, strlen(mark));
        memmove(word + 1 + strlen(mark), name, strlen(name) + 1);
    }
}

/* The last column: a command, the name of a sum, or a call site. */
static void draw_last(const struct gp_draw *draw, struct gp_rect field, enum gp_column_id id, const struct gp_row *row,
                      enum gp_style style)
{
    char text[512];
    int used = field.w > 0 ? gp_grid_put(draw->grid, field, 0, 0, style, draw_branch(draw, row)) : 0;
    field.x += used;
    field.w -= used;
    size_t room = row->site && field.w >= 0 && (size_t)field.w + 1 < sizeof(text) && !draw->ui->shift
                      ? (size_t)field.w + 1 /* a label shortens its path */
                      : sizeof(text);
    gp_column_text(id, row, draw->model, GP_TEXT_SHORT, draw->grid->ascii, text, room);
    if (row->process && !row->site && !draw->ui->shift && gp_grid_width(text) > field.w)
        draw_shorten(text, draw->grid->ascii);
    if (row->process || row->site || draw->ui->shift)
        draw_field(draw, field, false, draw->ui->shift, style, text);
    else
        draw_field_end(draw, field, style, text);
}

/* The bar keeps its own colours in a selected row: in reverse video its full blocks would be
 * blank. */
static void draw_line(const struct gp_draw *draw, struct gp_rect line, const struct gp_draw_columns *columns,
                      const struct gp_row *row, bool selected)
{
    char text[512];
    int x = 1, bar = line.w, bar_end = line.w;
    bool tagged = gp_ui_tagged(draw->ui, &row->id);
    gp_grid_put(draw->grid, line, 0, 0, GP_STYLE_NORMAL, tagged ? "*" : selected ? ">" : draw_mark(row));
    for (int i = 0; i < columns->count; i++) {
        enum gp_column_id id = columns->ids[i];
        struct gp_rect field = {line.y, line.x + x, 1, draw_width(columns, i)};
        enum gp_style style = draw_cell_style(id, row);
        if (field.x + field.w > line.x + line.w)
            field.w = line.x + line.w - field.x;
        if (gp_columns[id].form == GP_FORM_DRAWN) {
            draw_line_bar(draw, field, row);
            bar = x;
            bar_end = x + field.w;
        } else if (id == GP_COLUMN_COMMAND || id == GP_COLUMN_SITE) {
            draw_last(draw, field, id, row, style);
        } else {
            gp_column_text(id, row, draw->model, GP_TEXT_SHORT, draw->grid->ascii, text, sizeof(text));
            if (id == GP_COLUMN_CONTAINER)
                draw_field_end(draw, field, style, text);
            else
                draw_field(draw, field, gp_column_right(&gp_columns[id]), 0, style, text);
        }
        x += gp_columns[id].width + 1;
    }
    if (selected || tagged) {
        enum gp_style style = selected ? GP_STYLE_SELECTED : GP_STYLE_TAGGED;
        gp_grid_paint_part(draw->grid, line, 0, 0, bar, style);
        gp_grid_paint_part(draw->grid, line, 0, bar_end, line.w - bar_end, style);
    }
}

static const char *draw_title_of(const struct gp_ui *ui, enum gp_column_id id)
{
    if (id != GP_COLUMN_COMMAND || !draw_groups(ui))
        return gp_columns[id].name;
    return ui->by == GP_BY_DEVICE      ? "GPU (PROCESSES)"
           : ui->by == GP_BY_CONTAINER ? "CONTAINER (PROCESSES)"
                                       : "OWNER (PROCESSES)";
}

/* "1-45/60": which lines of a longer list are on the screen. */
static void draw_position(const struct gp_draw *draw, struct gp_rect line, int lines)
{
    char text[64];
    int last = draw->ui->top + lines;
    if (draw->list->count <= lines || lines <= 0)
        return;
    snprintf(text, sizeof(text), " %d-%d/%d", draw->ui->top + 1, last < draw->list->count ? last : draw->list->count,
             draw->list->count);
    int at = line.w - (int)strlen(text);
    if (at > 0)
        gp_grid_put(draw->grid, line, 0, at, GP_STYLE_NORMAL, text);
}

static void draw_header(const struct gp_draw *draw, struct gp_rect line, const struct gp_draw_columns *columns,
                        int lines)
{
    bool ascending = gp_ui_ascending(draw->ui);
    for (int i = 0, x = 1; i < columns->count; i++) {
        const struct gp_column *column = &gp_columns[columns->ids[i]];
        const char *name = draw_title_of(draw->ui, columns->ids[i]);
        struct gp_rect field = {line.y, line.x + x, line.h > 0, draw_width(columns, i)};
        int before = x;
        x += column->width + 1;
        if (field.x + field.w > line.x + line.w)
            field.w = line.x + line.w - field.x;
        draw_field(draw, field, gp_column_right(column), 0, GP_STYLE_NORMAL, name);
        if (columns->ids[i] != gp_ui_sort(draw->ui))
            continue;
        /* The mark is in the gap before a name that is aligned right, else after the name. */
        int at = gp_column_right(column) ? before + column->width - (int)strlen(name) - 1 : before + (int)strlen(name);
        const char *mark = draw->grid->ascii ? (ascending ? "+" : "-") : (ascending ? "\u25b2" : "\u25bc");
        gp_grid_put(draw->grid, line, 0, at, GP_STYLE_NORMAL, mark);
    }
    draw_position(draw, line, lines);
    gp_grid_paint(draw->grid, line, 0, GP_STYLE_HEADER);
}

enum gp_column_id gp_draw_column_at(const struct gp_draw *draw, int width, int x)
{
    struct gp_draw_columns columns = draw_columns(draw, width);
    for (int i = 0, from = 1; i < columns.count; i++) {
        int wide = draw_width(&columns, i);
        if (x >= from && x <= from + wide)
            return columns.ids[i];
        from += wide + 1;
    }
    return GP_COLUMNS;
}

void gp_draw_table(const struct gp_draw *draw, const struct gp_layout *layout)
{
    struct gp_draw_columns columns = draw_columns(draw, layout->table.w);
    draw_header(draw, layout->header, &columns, layout->table.h);
    for (int y = 0; y < layout->table.h; y++) {
        int index = draw->ui->top + y;
        if (index >= draw->list->count)
            break;
        struct gp_rect line = {layout->table.y + y, layout->table.x, 1, layout->table.w};
        draw_line(draw, line, &columns, &draw->list->rows[index], index == draw->ui->cursor);
    }
    if (draw->list->count == 0)
        gp_draw_empty(draw, layout->table);
}
