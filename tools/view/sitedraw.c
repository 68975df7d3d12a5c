/* SPDX-License-Identifier: MIT
 * sitedraw.c: draws the frame of the call sites, and writes them as a table and as JSON; see
 * siteview.h.  Pure. */
#include <view/siteview.h>

#include <math.h>
#include <string.h>
#include <view/celltext.h>
#include <write/stats.h>
#include <write/write.h>

/* ---- fields ---------------------------------------------------------------------------------------------------- */

static const char *site_signed(double bytes, enum gp_text_form form, char *out, size_t out_bytes)
{
    char number[32];
    double size = fabs(bytes);
    if (isnan(bytes))
        return "-";
    if (size < 1)
        return "0";
    gp_text_bytes((int64_t)(size < 9e18 ? size : 9e18), form, number, sizeof(number));
    snprintf(out, out_bytes, "%c%s", bytes < 0 ? '-' : '+', number);
    return out;
}

/* label_bytes: the room for a site's name, including its NUL. */
static const char *site_field(const struct gp_site_row *row, enum gp_site_column column, enum gp_text_form form,
                              size_t label_bytes, char *out, size_t out_bytes)
{
    const char *kind = gp_kind_name(row->kind);
    switch (column) {
    case GP_SITE_DEV:
        if (row->device == (int)GP_WIRE_HOST)
            return "host";
        snprintf(out, out_bytes, row->device < 0 ? "-" : "%d", row->device);
        return out;
    case GP_SITE_KIND:
        return kind ? kind : "-";
    case GP_SITE_LIVE:
        return gp_text_bytes(row->live, form, out, out_bytes);
    case GP_SITE_PEAK:
        return gp_text_bytes(row->peak, form, out, out_bytes);
    case GP_SITE_AT_PEAK:
        return gp_text_bytes(row->at_peak, form, out, out_bytes);
    case GP_SITE_SHARE:
        snprintf(out, out_bytes, isnan(row->share) ? "-" : "%.1f", 100 * row->share);
        return out;
    case GP_SITE_CALLS:
        return gp_text_rate(row->calls_per_s, out, out_bytes);
    case GP_SITE_DELTA:
        return site_signed(row->delta_per_s, form, out, out_bytes);
    default:
        gp_site_text(row->name, row->caller, row->callee, out, label_bytes < out_bytes ? label_bytes : out_bytes);
        return out;
    }
}

bool gp_site_note(const struct gp_site_model *model, uint32_t i, char *out, size_t out_bytes)
{
    const struct gp_sites *s = model->sites;
    if (s->lost_rows + s->lost_frames + s->lost_strings) {
        if (i == 0) {
            snprintf(out, out_bytes,
                     "tables of sites are full: %llu allocations without a site, %llu with a short stack, %llu unnamed",
                     (unsigned long long)s->lost_rows, (unsigned long long)s->lost_frames,
                     (unsigned long long)s->lost_strings);
            return true;
        }
        i--;
    }
    if (s->modules_truncated) {
        if (i == 0) {
            snprintf(out, out_bytes, "too many mapped files: some functions are shown as addresses");
            return true;
        }
        i--;
    }
    const char *note = gp_symbols_note(model->symbols, i);
    if (note)
        snprintf(out, out_bytes, "%s", note);
    return note != NULL;
}

/* ---- frame ----------------------------------------------------------------------------------------------------- */

int gp_site_cursor(const struct gp_site_model *model, const struct gp_site_ui *ui)
{
    for (uint32_t i = 0; i < model->row_count; i++)
        if (model->rows[i].site == ui->selected)
            return (int)i;
    return model->row_count ? 0 : -1;
}

static void site_draw_title(struct gp_grid *grid, struct gp_rect rect, const struct gp_site_model *model,
                            const struct gp_site_ui *ui)
{
    char live[32], host[32], every[16];
    int x = gp_grid_put(grid, rect, 0, 0, GP_STYLE_BOLD, "gpuprof top");
    if (model->ended)
        x = gp_grid_put(grid, rect, 0, x, GP_STYLE_WARN, "  ENDED");
    if (ui->paused)
        x = gp_grid_put(grid, rect, 0, x, GP_STYLE_WARN, "  PAUSED");
    x = gp_grid_printf(grid, rect, 0, x, GP_STYLE_NORMAL, "  %u sites of %d %s, live %s", model->row_count,
                       (int)model->pid, model->comm,
                       gp_text_bytes(model->live_bytes, GP_TEXT_LONG, live, sizeof(live)));
    if (model->host_bytes)
        x = gp_grid_printf(grid, rect, 0, x, GP_STYLE_NORMAL, " and %s on the host",
                           gp_text_bytes(model->host_bytes, GP_TEXT_LONG, host, sizeof(host)));
    gp_grid_printf(grid, rect, 0, x, GP_STYLE_DIM, "  every %s",
                   gp_text_duration(ui->interval_ms / 1000.0, every, sizeof(every)));
}

/* How many columns from the left fit beside the name of the site, which keeps at least 24
 * columns. */
static int site_columns_fit(int width)
{
    int used = 1, shown = 0;
    for (; shown < GP_SITE_SITE; shown++) {
        used += gp_site_columns[shown].width + 1;
        if (used + 24 > width)
            break;
    }
    return shown;
}

static enum gp_style site_style(const struct gp_site_row *row, enum gp_site_column column)
{
    if (column == GP_SITE_LIVE)
        return GP_STYLE_ALLOCATED;
    if (column == GP_SITE_AT_PEAK || column == GP_SITE_SHARE)
        return GP_STYLE_PEAK;
    if (column == GP_SITE_DELTA && row && row->delta_per_s >= 1)
        return GP_STYLE_WARN; /* it grows */
    return GP_STYLE_NORMAL;
}

static void site_draw_line(struct gp_grid *grid, struct gp_rect line, const struct gp_site_model *model,
                           const struct gp_site_row *row)
{
    int shown = site_columns_fit(line.w), x = 1;
    char text[512];
    for (int i = 0; i <= GP_SITE_SITE; i++) {
        if (i >= shown && i < GP_SITE_SITE)
            continue;
        const struct gp_site_column_text *column = &gp_site_columns[i];
        int width = i == GP_SITE_SITE ? line.w - x : column->width;
        if (width <= 0)
            break;
        const char *field =
            row ? site_field(row, (enum gp_site_column)i, GP_TEXT_SHORT, (size_t)width + 1, text, sizeof(text))
                : column->name;
        struct gp_rect cell = {line.y, line.x + x, 1, width};
        int pad = column->right ? width - gp_text_width(field) : 0;
        gp_grid_put(grid, cell, 0, pad > 0 ? pad : 0, site_style(row, (enum gp_site_column)i), field);
        if (!row && model->sort == (enum gp_site_column)i)
            gp_grid_put(grid, line, 0, column->right && pad > 0 ? x + pad - 1 : x + (int)strlen(column->name),
                        GP_STYLE_NORMAL,
                        grid->ascii ? (model->ascending ? "^" : "v") : (model->ascending ? "\u25b2" : "\u25bc"));
        x += width + 1;
    }
}

static void site_draw_stack(struct gp_grid *grid, struct gp_rect rect, const struct gp_site_model *model,
                            const struct gp_site_row *row)
{
    const struct gp_frame_text *frames;
    char text[512];
    uint32_t count = gp_symbols_site(model->symbols, row->site, &frames);
    gp_grid_printf(grid, rect, 0, 0, GP_STYLE_BOLD, " site %u, the innermost call first", row->site);
    for (int y = 1; y < rect.h && (uint32_t)y <= count; y++) {
        bool last = y == rect.h - 1 && (uint32_t)y < count;
        gp_frame_label(&frames[y - 1], text, rect.w > 4 ? (size_t)rect.w - 3 : 1);
        if (last)
            snprintf(text, sizeof(text), "and %u more", count - (uint32_t)y + 1);
        bool users = frames[y - 1].role == GP_ROLE_USER || frames[y - 1].role == GP_ROLE_WRAPPER;
        gp_grid_put(grid, rect, y, 3,
                    last || !users                ? GP_STYLE_DIM
                    : &frames[y - 1] == row->name ? GP_STYLE_BOLD
                                                  : GP_STYLE_NORMAL,
                    text);
    }
}

static void site_draw_footer(struct gp_grid *grid, struct gp_rect rect, const struct gp_site_ui *ui)
{
    static const char *const keys[][2] = {{"s", "Sort"},      {"i", "Invert"}, {"Enter", "Stack"},
                                          {"Space", "Pause"}, {"+-", "Pace"},  {"q", "Quit"}};
    int x = 0;
    if (ui->message[0]) {
        gp_grid_put(grid, rect, 0, 0, GP_STYLE_ERROR, ui->message);
        return;
    }
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        x = gp_grid_put(grid, rect, 0, x, GP_STYLE_KEY, keys[i][0]);
        x = gp_grid_put(grid, rect, 0, x, GP_STYLE_LABEL, keys[i][1]) + 1;
    }
}

/* Lines for the selected stack: at most two fifths of the screen, to leave room for the table. */
static int site_stack_lines(const struct gp_site_model *model, const struct gp_site_row *row, int rows)
{
    const struct gp_frame_text *frames;
    int want = 1 + (int)gp_symbols_site(model->symbols, row->site, &frames), most = rows * 2 / 5;
    return want < most ? want : most > 1 ? most : 0;
}

void gp_site_draw(struct gp_grid *grid, const struct gp_site_model *model, struct gp_site_ui *ui)
{
    struct gp_rect all = gp_grid_rect(grid);
    int cursor = gp_site_cursor(model, ui), y = 0;
    char note[256];
    gp_grid_clear(grid, all);
    site_draw_title(grid, (struct gp_rect){y++, 0, 1, all.w}, model, ui);
    for (uint32_t i = 0; i < 2 && all.h > 12 && gp_site_note(model, i, note, sizeof(note)); i++)
        gp_grid_put(grid, (struct gp_rect){y++, 0, 1, all.w}, 0, 0, GP_STYLE_WARN, note);
    struct gp_rect header = {y++, 0, 1, all.w};
    site_draw_line(grid, header, model, NULL);
    gp_grid_paint(grid, header, 0, GP_STYLE_HEADER);
    int stack = ui->detail && cursor >= 0 ? site_stack_lines(model, &model->rows[cursor], all.h) : 0;
    ui->page = all.h - y - stack - 1 > 1 ? all.h - y - stack - 1 : 1;
    if (ui->top > cursor)
        ui->top = cursor > 0 ? cursor : 0;
    if (cursor >= ui->top + ui->page)
        ui->top = cursor - ui->page + 1;
    for (int i = 0; i < ui->page && ui->top + i < (int)model->row_count; i++) {
        struct gp_rect line = {y + i, 0, 1, all.w};
        site_draw_line(grid, line, model, &model->rows[ui->top + i]);
        if (ui->top + i == cursor)
            gp_grid_paint(grid, line, 0, GP_STYLE_SELECTED);
    }
    if (cursor < 0)
        gp_grid_put(grid, (struct gp_rect){y, 0, 1, all.w}, 0, 1, GP_STYLE_DIM, "no memory has been allocated yet");
    if (stack > 0)
        site_draw_stack(grid, (struct gp_rect){all.h - 1 - stack, 0, stack, all.w}, model, &model->rows[cursor]);
    site_draw_footer(grid, (struct gp_rect){all.h - 1, 0, all.h > 2, all.w}, ui);
}

/* ---- printed --------------------------------------------------------------------------------------------------- */

static void site_print_text(FILE *out, const char *text, bool utf8)
{
    for (; *text; text++)
        if (utf8 || (unsigned char)*text < 0x80)
            fputc(*text, out);
        else if (((unsigned char)*text & 0xc0) != 0x80)
            fputc('?', out);
}

void gp_site_print(FILE *out, const struct gp_site_model *model, bool utf8)
{
    char text[2048];
    for (int line = -1; line < (int)model->row_count; line++) {
        for (int i = 0; i < GP_SITE_COLUMNS; i++) {
            const struct gp_site_column_text *column = &gp_site_columns[i];
            const char *field = line < 0 ? column->name
                                         : site_field(&model->rows[line], (enum gp_site_column)i, GP_TEXT_GLUED,
                                                      sizeof(text), text, sizeof(text));
            int wide = i >= GP_SITE_LIVE && i <= GP_SITE_AT_PEAK ? 2 : i == GP_SITE_DELTA ? 2 : 0; /* "KiB" for "K" */
            int pad = column->width ? column->width + wide - gp_text_width(field) : 0;
            fprintf(out, "%s%*s", i ? " " : "", column->right && pad > 0 ? pad : 0, "");
            site_print_text(out, field, utf8);
            if (!column->right && pad > 0)
                fprintf(out, "%*s", pad, "");
        }
        fputc('\n', out);
    }
}

static json_t *site_rate(double rate)
{
    return isnan(rate) || isinf(rate) ? json_null() : json_real(rate);
}

static json_t *site_row_json(const struct gp_site_model *model, const struct gp_site_row *row)
{
    const struct gp_frame_text *frames;
    char label[1024];
    json_t *stack = json_array();
    uint32_t count = gp_symbols_site(model->symbols, row->site, &frames);
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(stack, json_pack("{s:s,s:o,s:o,s:o,s:b,s:b,s:s,s:b}", "function", frames[i].function,
                                               "file", gp_json_text(frames[i].file), "line",
                                               frames[i].line ? json_integer(frames[i].line) : json_null(), "module",
                                               gp_json_text(frames[i].module), "python", (int)frames[i].python,
                                               "inlined", (int)frames[i].inlined, "role",
                                               gp_frame_role_name(frames[i].role), "folded", (int)frames[i].folded));
    gp_site_text(row->name, row->caller, row->callee, label, sizeof(label));
    return json_pack(
        "{s:i,s:i,s:i,s:s,s:s,s:o,s:o,s:o,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:o,s:o,s:o,s:o}", "site", (int)row->site,
        "sites", (int)row->sites, "frame", (int)(row->name - frames), "name", label, "function", row->name->function,
        "file", gp_json_text(row->name->file), "line", row->name->line ? json_integer(row->name->line) : json_null(),
        "kind", gp_json_text(gp_kind_name(row->kind)), "device",
        row->device == (int)GP_WIRE_HOST ? json_string("host")
        : row->device < 0                ? json_null()
                                         : json_integer(row->device),
        "live_bytes", (json_int_t)row->live, "live_count", (json_int_t)row->count, "peak_bytes", (json_int_t)row->peak,
        "at_peak_bytes", (json_int_t)row->at_peak, "allocated_bytes", (json_int_t)row->allocated, "calls",
        (json_int_t)row->calls, "share_of_peak", site_rate(row->share), "calls_per_s", site_rate(row->calls_per_s),
        "delta_bytes_per_s", site_rate(row->delta_per_s), "frames", stack);
}

json_t *gp_site_json(const struct gp_site_model *model)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < model->row_count; i++)
        json_array_append_new(array, site_row_json(model, &model->rows[i]));
    return array;
}
