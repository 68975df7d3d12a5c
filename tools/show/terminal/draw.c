/* SPDX-License-Identifier: MIT
 *
 * draw.c: see draw.h.  Draws one frame: title, alerts, GPUs, table, details, message and keys.
 */
#include <show/terminal/draw.h>

#include <base/numbers.h>
#include <show/terminal/column.h>
#include <show/terminal/grid.h>
#include <show/terminal/layout.h>
#include <show/terminal/model.h>
#include <show/terminal/outlook.h>
#include <show/terminal/print.h>
#include <show/terminal/siteview.h>
#include <show/terminal/ui.h>
#include <stdio.h>
#include <string.h>

#define GP_ALERTS                                                                                                      \
    11 /* a forecast, losses, processes that cannot be read, three about the agent, five about call sites */

struct gp_alerts {
    char text[GP_ALERTS][256];
    enum gp_style style[GP_ALERTS];
    int count;
};

static void alerts_losses(struct gp_alerts *alerts, const struct gp_model *model)
{
    char *text = alerts->text[alerts->count];
    size_t used =
        (size_t)snprintf(text, sizeof(alerts->text[0]), "LOST %llu events:", (unsigned long long)model->lost_total);
    for (unsigned i = 0; i < GP_LOSTS && used < sizeof(alerts->text[0]); i++) {
        if (model->lost[i])
            used += (size_t)snprintf(text + used, sizeof(alerts->text[0]) - used, " %s %llu",
                                     gp_lost_name(i) ? gp_lost_name(i) : "other", (unsigned long long)model->lost[i]);
    }
    alerts->style[alerts->count++] = GP_STYLE_WARN;
}

static void alerts_agent(struct gp_alerts *alerts, const struct gp_agent *agent)
{
    char age[16];
    if (!agent->present)
        return;
    if (!agent->alive) {
        snprintf(alerts->text[alerts->count], sizeof(alerts->text[0]),
                 "NO AGENT for %s: the sums are not updated; start it: systemctl start gpuprof-agent",
                 gp_grid_duration((double)agent->silent_ns / 1e9, age, sizeof(age)));
        alerts->style[alerts->count++] = GP_STYLE_ERROR;
    }
    if (agent->processes_hidden) {
        snprintf(alerts->text[alerts->count], sizeof(alerts->text[0]),
                 "HIDDEN: processes of other users are in the sums; only root can list them");
        alerts->style[alerts->count++] = GP_STYLE_WARN;
    }
    if (agent->map_full || agent->refused) {
        snprintf(alerts->text[alerts->count], sizeof(alerts->text[0]),
                 "NOT COUNTED: %llu updates (the agent's tables are full), %llu batches (refused)",
                 (unsigned long long)agent->map_full, (unsigned long long)agent->refused);
        alerts->style[alerts->count++] = GP_STYLE_WARN;
    }
}

/* In the view by site: what is missing from it. */
static void alerts_sites(struct gp_alerts *alerts, const struct gp_model *model, const struct gp_ui *ui)
{
    const struct gp_site_set *set = model->sites;
    const size_t room = sizeof(alerts->text[0]);
    int without = set ? gp_site_refused(set, model, gp_ui_scope(ui), true) : 0;
    if (!set || !gp_ui_by_site(ui))
        return;
    if (without && gp_site_shown(set, model, gp_ui_scope(ui))) { /* without any sites, the empty table says this */
        alerts->style[alerts->count] = GP_STYLE_NORMAL;
        snprintf(alerts->text[alerts->count++], room, "%d more process%s without stacks: %s", without,
                 without == 1 ? " runs" : "es run", GP_SITE_HINT);
    }
    if (set->beyond) {
        alerts->style[alerts->count] = GP_STYLE_WARN;
        snprintf(alerts->text[alerts->count++], room,
                 "the call sites of %d more processes are not shown (at most %d are open): select one and press s",
                 set->beyond, GP_SITE_PROCESSES);
    }
    if (set->problem[0]) {
        alerts->style[alerts->count] = GP_STYLE_ERROR;
        snprintf(alerts->text[alerts->count++], room, "%.250s", set->problem);
    }
    for (int i = 0, notes = 0; i < set->count && notes < 2; i++) {
        const struct gp_site_model *one = set->models[i];
        if (!gp_site_in_scope(model, gp_ui_scope(ui), one->pid, one->start_time))
            continue;
        for (uint32_t n = 0; notes < 2 && gp_site_note(one, n, alerts->text[alerts->count], room); n++, notes++)
            alerts->style[alerts->count++] = GP_STYLE_WARN;
    }
}

/* The process whose memory runs out first, if that is soon. */
static void alerts_forecast(struct gp_alerts *alerts, const struct gp_model *model)
{
    const struct gp_row *first = gp_outlook_growth_first(model);
    char left[32], rate[32], device[32];
    if (!first || first->outlook->result.seconds_to_oom > GP_OUTLOOK_SOON)
        return;
    const struct gp_forecast_result *result = &first->outlook->result;
    const char *container = first->process->container, *owner = first->outlook->grows;
    gp_column_text(GP_COLUMN_DEV, first, model, GP_TEXT_LONG, true, device, sizeof(device));
    snprintf(alerts->text[alerts->count], sizeof(alerts->text[0]),
             "OUT OF MEMORY in about %s: %d %.31s%s%.24s, device %s, +%s/s%s%.70s%s%s",
             gp_grid_duration(result->seconds_to_oom, left, sizeof(left)), (int)first->id.pid, first->process->comm,
             container[0] ? " in " : "", container, device,
             gp_grid_bytes((int64_t)result->bytes_per_second, GP_TEXT_LONG, rate, sizeof(rate)),
             first->outlook->site[0] ? " at " : "", first->outlook->site, owner[0] ? ", owner " : "", owner);
    alerts->style[alerts->count++] = GP_STYLE_ERROR;
}

static struct gp_alerts alerts_of(const struct gp_model *model, const struct gp_ui *ui)
{
    struct gp_alerts alerts = {.count = 0};
    if (!model->system)
        return alerts;
    alerts_forecast(&alerts, model);
    if (model->lost_total)
        alerts_losses(&alerts, model);
    int stale = model->states[GP_PROCESS_STALE], damaged = model->states[GP_PROCESS_DAMAGED];
    /* If the agent is dead all of its processes are stale, and alerts_agent reports that. */
    if (model->system->agent.present && !model->system->agent.alive)
        stale = 0;
    if (stale || damaged) {
        char old[80] = "", wrong[48] = "";
        if (stale)
            snprintf(old, sizeof(old), "%d stale (stopped or busy: old numbers)", stale);
        if (damaged)
            snprintf(wrong, sizeof(wrong), "%s%d damaged (numbers not shown)", stale ? ", " : "", damaged);
        snprintf(alerts.text[alerts.count], sizeof(alerts.text[0]), "NOT EXACT: %s%s", old, wrong);
        alerts.style[alerts.count++] = damaged ? GP_STYLE_ERROR : GP_STYLE_WARN;
    }
    alerts_agent(&alerts, &model->system->agent);
    alerts_sites(&alerts, model, ui);
    return alerts;
}

struct gp_layout gp_draw_layout(const struct gp_draw *draw)
{
    struct gp_layout_wish wish = {.rows = draw->grid->rows,
                                  .cols = draw->grid->cols,
                                  .alerts = alerts_of(draw->model, draw->ui).count,
                                  .gpus = draw->model->gpu_count,
                                  .table_rows = draw->list->count ? draw->list->count : 6,
                                  .detail = draw->ui->detail ? gp_draw_detail_lines(draw) : 0};
    const struct gp_row *row =
        draw->ui->cursor >= 0 && draw->ui->cursor < draw->list->count ? &draw->list->rows[draw->ui->cursor] : NULL;
    wish.more = draw->ui->detail && row ? gp_draw_sites_lines(draw, row) : 0;
    return gp_draw_layout_of(&wish);
}

/* What the user has changed. Returns the column after it. */
static int draw_title_state(const struct gp_draw *draw, struct gp_rect rect, int x)
{
    if (draw->ui->paused)
        x = gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_WARN, "  PAUSED");
    if (draw->ui->tag_count)
        x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_NORMAL, "  %d tagged", draw->ui->tag_count);
    if (draw->ui->filter[0] && draw->ui->mode != GP_MODE_FILTER)
        x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_WARN, "  filter: %s", draw->ui->filter);
    return x;
}

/* "3 call sites of 4711 train, live 400 MiB, host 64.0 MiB". */
static void draw_title_sites(const struct gp_draw *draw, struct gp_rect rect, int x)
{
    const struct gp_site_set *set = draw->model->sites;
    const struct gp_site_model *one = NULL;
    int64_t live = 0, host = 0;
    uint32_t sites = 0;
    int processes = 0;
    char text[32], every[16];
    for (int i = 0; set && i < set->count; i++) {
        if (!gp_site_in_scope(draw->model, gp_ui_scope(draw->ui), set->models[i]->pid, set->models[i]->start_time))
            continue;
        one = set->models[i];
        processes++;
        sites += one->row_count;
        live += one->live_bytes;
        host += one->host_bytes;
    }
    x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_NORMAL, "  %u call site%s of ", sites, sites == 1 ? "" : "s");
    if (processes == 1)
        x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_NORMAL, "%d %s", (int)one->pid, one->comm);
    else if (draw->ui->scoped)
        x = gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_NORMAL, draw->ui->scope_name);
    else
        x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_NORMAL, "%d processes", processes);
    if (processes == 1 && one->ended)
        x = gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_WARN, "  ENDED");
    if (set && set->pending)
        x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_WARN, "  %d more to read", set->pending);
    if (processes)
        x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_NORMAL, ", live %s",
                           gp_grid_bytes(live, GP_TEXT_LONG, text, sizeof(text)));
    if (host)
        x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_NORMAL, ", host %s",
                           gp_grid_bytes(host, GP_TEXT_LONG, text, sizeof(text)));
    x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_DIM, "  every %s",
                       gp_grid_duration(draw->ui->interval_ms / 1000.0, every, sizeof(every)));
    draw_title_state(draw, rect, x);
}

static void draw_title(const struct gp_draw *draw, struct gp_rect rect, const struct gp_alerts *alerts, int shown)
{
    const struct gp_model *model = draw->model;
    int foreign = model->states[GP_PROCESS_FOREIGN], count = model->system ? model->system->process_count - foreign : 0;
    char every[16];
    bool whole = model->system && model->system->agent.present;
    int x = gp_grid_put(draw->grid, rect, 0, 0, GP_STYLE_BOLD, whole ? "gpuprof top --system" : "gpuprof top");
    if (alerts->count > shown) /* an alert without a line of its own goes into the title */
        x = gp_grid_printf(draw->grid, rect, 0, x, alerts->style[shown], " %.24s", alerts->text[shown]);
    if (gp_ui_by_site(draw->ui)) {
        draw_title_sites(draw, rect, x);
        return;
    }
    x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_NORMAL, "  %d profiled", count);
    if (foreign)
        x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_DIM, ", %d other", foreign);
    x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_NORMAL, ", %d GPU%s  every %s", model->gpu_count,
                       model->gpu_count == 1 ? "" : "s",
                       gp_grid_duration(draw->ui->interval_ms / 1000.0, every, sizeof(every)));
    x = draw_title_state(draw, rect, x);
    if (model->system && !model->system->nvml)
        x = gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_DIM, "  no NVML: others unknown");
    if (model->system && model->system->denied_count)
        x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_DIM, "  %d of other users hidden",
                           model->system->denied_count);
    if (model->system && model->system->unsearched_count)
        gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_DIM, "  %d not searched to the end",
                       model->system->unsearched_count);
}

/* "y/n reset the allocated peak of 1234 train.py (13.1 GiB)?"; on a narrow screen the end of the
 * text is cut. */
static void draw_question(const struct gp_draw *draw, struct gp_rect rect)
{
    const struct gp_ui *ui = draw->ui;
    char allocated[32], reserved[32], peaks[80], what[256];
    const struct gp_reset_target *first = &ui->targets[0];
    gp_grid_bytes(first->allocated_peak, GP_TEXT_LONG, allocated, sizeof(allocated));
    gp_grid_bytes(first->reserved_peak, GP_TEXT_LONG, reserved, sizeof(reserved));
    if (ui->reset_what == GP_RESET_PEAKS)
        snprintf(peaks, sizeof(peaks), "%s, %s", allocated, reserved);
    else
        snprintf(peaks, sizeof(peaks), "%s", ui->reset_what == GP_RESET_ALLOCATED ? allocated : reserved);
    if (ui->target_count == 1)
        snprintf(what, sizeof(what), "reset the %s peak of %d %s (%s)?", gp_reset_word(ui->reset_what), (int)first->pid,
                 first->comm, peaks);
    else
        snprintf(what, sizeof(what), "reset the %s peaks of %d rows: %d %s (%s), ...?", gp_reset_word(ui->reset_what),
                 ui->target_count, (int)first->pid, first->comm, peaks);
    int x = gp_grid_put(draw->grid, rect, 0, 0, GP_STYLE_WARN, "y/n ");
    gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_BOLD, what);
}

static bool draw_has_message(const struct gp_ui *ui)
{
    return ui->mode == GP_MODE_CONFIRM || ui->mode == GP_MODE_FILTER || ui->mode == GP_MODE_SEARCH || ui->message[0];
}

static void draw_message(const struct gp_draw *draw, struct gp_rect rect)
{
    const struct gp_ui *ui = draw->ui;
    gp_grid_clear(draw->grid, rect);
    if (ui->mode == GP_MODE_CONFIRM) {
        draw_question(draw, rect);
    } else if (ui->mode == GP_MODE_FILTER || ui->mode == GP_MODE_SEARCH) {
        bool filter = ui->mode == GP_MODE_FILTER;
        int x = gp_grid_put(draw->grid, rect, 0, 0, GP_STYLE_BOLD, filter ? "filter: " : "search: ");
        x = gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_NORMAL, filter ? ui->filter : ui->search);
        x = gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_SELECTED, " ");
        if (ui->message[0] && !filter)
            gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_ERROR, "  %s", ui->message);
        else
            gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_DIM,
                        filter ? "  Enter keeps, Esc clears" : "  Enter or Esc ends, then n: next");
    } else {
        gp_grid_put(draw->grid, rect, 0, 0, ui->message_is_error ? GP_STYLE_ERROR : GP_STYLE_NORMAL, ui->message);
    }
}

/* Draws the keys, or finds the one at column `find` (>= 0).  A key shows the first of those that do
 * the same; the last one, which quits, is always there, and the others as far as they fit. */
static int draw_footer(const struct gp_draw *draw, struct gp_rect rect, int find)
{
    char key[16];
    const struct gp_key_help *quit = &gp_key_helps[gp_key_help_count - 1];
    int kept = (int)strcspn(quit->keys, " ") + (int)strlen(quit->label);
    for (int i = 0, x = 0; i < gp_key_help_count; i++) {
        const struct gp_key_help *help = &gp_key_helps[i];
        if (!help->label)
            continue;
        snprintf(key, sizeof(key), "%.*s", (int)strcspn(help->keys, " "), help->keys);
        int width = (int)strlen(key) + (int)strlen(help->label);
        if (x + width + (help == quit ? 0 : 1 + kept) > rect.w)
            continue;
        if (find >= x && find < x + width)
            return help->key;
        if (find < 0) {
            gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_KEY, key);
            gp_grid_put(draw->grid, rect, 0, x + (int)strlen(key), GP_STYLE_LABEL, help->label);
        }
        x += width + 1;
    }
    return GP_KEY_NONE;
}

static bool draw_is_in(struct gp_rect rect, int y, int x)
{
    return y >= rect.y && y < rect.y + rect.h && x >= rect.x && x < rect.x + rect.w;
}

struct gp_hit gp_draw_hit(const struct gp_draw *draw, int y, int x)
{
    struct gp_layout layout = gp_draw_layout(draw);
    struct gp_hit hit = {-1, GP_COLUMNS, GP_KEY_NONE};
    int line = y - layout.table.y + draw->ui->top;
    if (draw_is_in(layout.table, y, x) && line < draw->list->count)
        hit.line = line;
    else if (draw_is_in(layout.header, y, x))
        hit.column = gp_draw_column_at(draw, layout.header.w, x);
    else if (draw_is_in(layout.footer, y, x))
        hit.key = draw_footer(draw, layout.footer, x - layout.footer.x);
    return hit;
}

void gp_draw_frame(const struct gp_draw *draw)
{
    struct gp_alerts alerts = alerts_of(draw->model, draw->ui);
    struct gp_layout layout = gp_draw_layout(draw);
    gp_grid_clear(draw->grid, gp_grid_rect(draw->grid));
    draw_title(draw, layout.title, &alerts, layout.alerts.h);
    for (int i = 0; i < layout.alerts.h; i++)
        gp_grid_put(draw->grid, layout.alerts, i, 0, alerts.style[i], alerts.text[i]);
    if (draw->ui->mode == GP_MODE_HELP) { /* it takes the space between the alerts and the message */
        struct gp_rect body = layout.gpus;
        body.h += layout.header.h + layout.table.h + layout.plots.h + layout.detail.h;
        gp_draw_help(draw, body);
    } else {
        gp_draw_gpus(draw, &layout);
        gp_draw_table(draw, &layout);
        gp_draw_plots(draw, &layout);
        gp_draw_detail(draw, layout.detail);
        if (draw->ui->mode == GP_MODE_SORT) {
            struct gp_rect body = layout.table;
            body.h += layout.plots.h + layout.detail.h;
            gp_draw_sort(draw, body);
        }
    }
    draw_footer(draw, layout.footer, -1);
    if (draw_has_message(draw->ui))
        draw_message(draw, layout.message.h ? layout.message : layout.footer.h ? layout.footer : layout.title);
}
