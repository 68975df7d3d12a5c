/* SPDX-License-Identifier: MIT
 *
 * drawtable.c: draws the header and the lines of the table; see draw.h.
 */
#include <view/draw.h>

#include <string.h>
#include <view/state.h>

static enum gp_style draw_cell_style(enum gp_column_id id, const struct gp_row *row)
{
    const struct gp_process *process = row->process;
    if (id == GP_COLUMN_LOST && row->lost > 0)
        return GP_STYLE_WARN;
    if (process && process->state == GP_PROCESS_DAMAGED)
        return id == GP_COLUMN_STATE ? GP_STYLE_ERROR : GP_STYLE_DIM;
    if (process && process->state == GP_PROCESS_STALE)
        return id == GP_COLUMN_STATE ? GP_STYLE_WARN : GP_STYLE_DIM;
    if (process && process->oom.count && id == GP_COLUMN_STATE && gp_process_live(process))
        return GP_STYLE_ERROR;
    if (process && (process->state != GP_PROCESS_LIVE || process->closed))
        return GP_STYLE_DIM;
    if (id == GP_COLUMN_ALLOC)
        return GP_STYLE_ALLOCATED;
    if (id == GP_COLUMN_RESERVED)
        return GP_STYLE_RESERVED;
    if (id == GP_COLUMN_PEAK)
        return GP_STYLE_PEAK;
    return row->process ? GP_STYLE_NORMAL : GP_STYLE_BOLD;
}

/* Draws text in a field.  The text is aligned, scrolled by `shift` columns, and marked where its
 * end is cut. */
static void draw_field(const struct gp_draw *draw, struct gp_rect field, bool right, int shift, enum gp_style style,
                       const char *text)
{
    int width = gp_text_width(text);
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
    int over = gp_text_width(text) - field.w;
    draw_field(draw, field, false, over > 0 ? over : 0, style, text);
    if (over > 0 && field.w > 0)
        gp_grid_put(draw->grid, field, 0, 0, style, draw->grid->ascii ? "+" : "\u2026");
}

/* The table shows sums only; in the tree, rows of processes are below them. */
static bool draw_groups(const struct gp_ui *ui)
{
    return ui->by != GP_BY_PROCESS && !ui->tree;
}

static void draw_line_bar(const struct gp_draw *draw, struct gp_rect field, const struct gp_row *row)
{
    if (row->id.device < 0)
        return; /* neither host memory nor a sum over GPUs has a total */
    struct gp_bar bar = {row->allocated, row->reserved, -1, row->total, row->allocated_peak};
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

static void draw_line(const struct gp_draw *draw, struct gp_rect line, const struct gp_row *row, bool selected)
{
    enum gp_column_id ids[GP_COLUMNS];
    int rest, count = gp_columns_fit(line.w - 1, draw_groups(draw->ui), ids, &rest), x = 1;
    char text[512];
    bool tagged = gp_ui_tagged(draw->ui, &row->id);
    gp_grid_put(draw->grid, line, 0, 0, GP_STYLE_NORMAL, tagged ? "*" : selected ? ">" : draw_mark(row));
    for (int i = 0; i < count; i++) {
        const struct gp_column *column = &gp_columns[ids[i]];
        struct gp_rect field = {line.y, line.x + x, 1, ids[i] == GP_COLUMN_COMMAND ? rest : column->width};
        enum gp_style style = draw_cell_style(ids[i], row);
        if (field.x + field.w > line.x + line.w)
            field.w = line.x + line.w - field.x;
        if (ids[i] == GP_COLUMN_BAR) {
            draw_line_bar(draw, field, row);
        } else if (ids[i] == GP_COLUMN_COMMAND) {
            const char *branch = draw_branch(draw, row);
            gp_column_text(ids[i], row, draw->model, GP_TEXT_SHORT, draw->grid->ascii, text, sizeof(text));
            int used = field.w > 0 ? gp_grid_put(draw->grid, field, 0, 0, style, branch) : 0;
            field.x += used;
            field.w -= used;
            if (row->process || draw->ui->shift)
                draw_field(draw, field, false, draw->ui->shift, style, text);
            else
                draw_field_end(draw, field, style, text);
        } else if (ids[i] == GP_COLUMN_CONTAINER) {
            gp_column_text(ids[i], row, draw->model, GP_TEXT_SHORT, draw->grid->ascii, text, sizeof(text));
            draw_field_end(draw, field, style, text);
        } else {
            gp_column_text(ids[i], row, draw->model, GP_TEXT_SHORT, draw->grid->ascii, text, sizeof(text));
            draw_field(draw, field, column->right, 0, style, text);
        }
        x += column->width + 1;
    }
    if (selected)
        gp_grid_paint(draw->grid, line, 0, GP_STYLE_SELECTED);
    else if (tagged)
        gp_grid_paint(draw->grid, line, 0, GP_STYLE_TAGGED);
}

static const char *draw_title_of(const struct gp_ui *ui, enum gp_column_id id)
{
    if (id != GP_COLUMN_COMMAND || !draw_groups(ui))
        return gp_columns[id].name;
    return ui->by == GP_BY_DEVICE      ? "GPU (PROCESSES)"
           : ui->by == GP_BY_CONTAINER ? "CONTAINER (PROCESSES)"
                                       : "OWNER (PROCESSES)";
}

static void draw_header(const struct gp_draw *draw, struct gp_rect line)
{
    enum gp_column_id ids[GP_COLUMNS];
    int rest, count = gp_columns_fit(line.w - 1, draw_groups(draw->ui), ids, &rest), x = 1;
    for (int i = 0; i < count; i++) {
        const struct gp_column *column = &gp_columns[ids[i]];
        const char *name = draw_title_of(draw->ui, ids[i]);
        struct gp_rect field = {line.y, line.x + x, line.h > 0, ids[i] == GP_COLUMN_COMMAND ? rest : column->width};
        int before = x;
        x += column->width + 1;
        if (field.x + field.w > line.x + line.w)
            field.w = line.x + line.w - field.x;
        draw_field(draw, field, column->right, 0, GP_STYLE_NORMAL, name);
        if (ids[i] != draw->ui->sort)
            continue;
        /* The mark is in the gap before a name that is aligned right, else after the name. */
        int at = column->right ? before + column->width - (int)strlen(name) - 1 : before + (int)strlen(name);
        const char *mark =
            draw->grid->ascii ? (draw->ui->ascending ? "^" : "v") : (draw->ui->ascending ? "\u25b2" : "\u25bc");
        gp_grid_put(draw->grid, line, 0, at, GP_STYLE_NORMAL, mark);
    }
    gp_grid_paint(draw->grid, line, 0, GP_STYLE_HEADER);
}

void gp_draw_table(const struct gp_draw *draw, const struct gp_layout *layout)
{
    draw_header(draw, layout->header);
    for (int y = 0; y < layout->table.h; y++) {
        int index = draw->ui->top + y;
        if (index >= draw->list->count)
            break;
        struct gp_rect line = {layout->table.y + y, layout->table.x, 1, layout->table.w};
        draw_line(draw, line, &draw->list->rows[index], index == draw->ui->cursor);
    }
    if (draw->list->count == 0)
        gp_draw_empty(draw, layout->table);
}
