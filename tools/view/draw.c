/* SPDX-License-Identifier: MIT
 *
 * draw.c: see draw.h.  Draws one frame: title, alerts, GPUs, table, details, message and keys.
 */
#include <view/draw.h>

#include <stdio.h>
#include <string.h>
#include <write/stats.h>

#define GP_ALERTS 5 /* losses, processes that cannot be read, and three about the agent */

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
                 gp_text_duration((double)agent->silent_ns / 1e9, age, sizeof(age)));
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

static struct gp_alerts alerts_of(const struct gp_model *model)
{
    struct gp_alerts alerts = {.count = 0};
    if (!model->system)
        return alerts;
    if (model->lost_total)
        alerts_losses(&alerts, model);
    int stale = model->states[GP_PROCESS_STALE], damaged = model->states[GP_PROCESS_DAMAGED];
    /* If the agent is dead all of its processes are stale, and alerts_agent reports that. */
    if (model->system->agent.present && !model->system->agent.alive)
        stale = 0;
    if (stale || damaged) {
        snprintf(alerts.text[alerts.count], sizeof(alerts.text[0]),
                 "NOT EXACT: %d stale (stopped? showing old numbers), %d damaged (numbers not shown)", stale, damaged);
        alerts.style[alerts.count++] = damaged ? GP_STYLE_ERROR : GP_STYLE_WARN;
    }
    alerts_agent(&alerts, &model->system->agent);
    return alerts;
}

struct gp_layout gp_draw_layout(const struct gp_draw *draw)
{
    struct gp_layout_wish wish = {.rows = draw->grid->rows,
                                  .cols = draw->grid->cols,
                                  .alerts = alerts_of(draw->model).count,
                                  .gpus = draw->model->gpu_count,
                                  .table_rows = draw->list->count ? draw->list->count : 6,
                                  .detail = draw->ui->detail ? gp_draw_detail_lines(draw) : 0};
    return gp_layout_of(&wish);
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
    x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_NORMAL, "  %d profiled", count);
    if (foreign)
        x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_DIM, ", %d other", foreign);
    x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_NORMAL, ", %d GPU%s  every %s", model->gpu_count,
                       model->gpu_count == 1 ? "" : "s",
                       gp_text_duration(draw->ui->interval_ms / 1000.0, every, sizeof(every)));
    if (draw->ui->paused)
        x = gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_WARN, "  PAUSED");
    if (draw->ui->tag_count)
        x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_NORMAL, "  %d tagged", draw->ui->tag_count);
    if (draw->ui->filter[0] && draw->ui->mode != GP_MODE_FILTER)
        x = gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_WARN, "  filter: %s", draw->ui->filter);
    if (model->system && !model->system->nvml)
        x = gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_DIM, "  no NVML: others unknown");
    if (model->system && model->system->denied_count)
        gp_grid_printf(draw->grid, rect, 0, x, GP_STYLE_DIM, "  %d of other users hidden", model->system->denied_count);
}

/* "y/n reset the allocated peak of 1234 train.py (13.1 GiB)?"; on a narrow screen the end of the
 * text is cut. */
static void draw_question(const struct gp_draw *draw, struct gp_rect rect)
{
    const struct gp_ui *ui = draw->ui;
    char allocated[32], reserved[32], peaks[80], what[256];
    const struct gp_reset_target *first = &ui->targets[0];
    gp_text_bytes(first->allocated_peak, GP_TEXT_LONG, allocated, sizeof(allocated));
    gp_text_bytes(first->reserved_peak, GP_TEXT_LONG, reserved, sizeof(reserved));
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
    return ui->mode == GP_MODE_CONFIRM || ui->mode == GP_MODE_FILTER || ui->message[0];
}

static void draw_message(const struct gp_draw *draw, struct gp_rect rect)
{
    const struct gp_ui *ui = draw->ui;
    gp_grid_clear(draw->grid, rect);
    if (ui->mode == GP_MODE_CONFIRM) {
        draw_question(draw, rect);
    } else if (ui->mode == GP_MODE_FILTER) {
        int x = gp_grid_put(draw->grid, rect, 0, 0, GP_STYLE_BOLD, "filter: ");
        x = gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_NORMAL, ui->filter);
        x = gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_SELECTED, " ");
        gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_DIM, "  Enter keeps, Esc clears");
    } else {
        gp_grid_put(draw->grid, rect, 0, 0, ui->message_is_error ? GP_STYLE_ERROR : GP_STYLE_NORMAL, ui->message);
    }
}

static void draw_footer(const struct gp_draw *draw, struct gp_rect rect)
{
    int x = 0;
    for (int i = 0; i < gp_key_help_count; i++) {
        const struct gp_key_help *help = &gp_key_helps[i];
        if (!help->label)
            continue;
        /* Show the first of the keys that do the same.  A key whose label does not fit is left
         * out. */
        char key[16];
        snprintf(key, sizeof(key), "%.*s", (int)strcspn(help->keys, " "), help->keys);
        if (x + (int)strlen(key) + (int)strlen(help->label) > rect.w)
            break;
        x = gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_KEY, key);
        x = gp_grid_put(draw->grid, rect, 0, x, GP_STYLE_LABEL, help->label) + 1;
    }
}

void gp_draw_frame(const struct gp_draw *draw)
{
    struct gp_alerts alerts = alerts_of(draw->model);
    struct gp_layout layout = gp_draw_layout(draw);
    gp_grid_clear(draw->grid, gp_grid_rect(draw->grid));
    draw_title(draw, layout.title, &alerts, layout.alerts.h);
    for (int i = 0; i < layout.alerts.h; i++)
        gp_grid_put(draw->grid, layout.alerts, i, 0, alerts.style[i], alerts.text[i]);
    if (draw->ui->mode == GP_MODE_HELP) { /* it takes the space between the alerts and the message */
        struct gp_rect body = layout.gpus;
        body.h += layout.header.h + layout.table.h + layout.detail.h;
        gp_draw_help(draw, body);
    } else {
        gp_draw_gpus(draw, &layout);
        gp_draw_table(draw, &layout);
        gp_draw_detail(draw, layout.detail);
        if (draw->ui->mode == GP_MODE_SORT) {
            struct gp_rect body = layout.table;
            body.h += layout.detail.h;
            gp_draw_sort(draw, body);
        }
    }
    draw_footer(draw, layout.footer);
    if (draw_has_message(draw->ui))
        draw_message(draw, layout.message.h ? layout.message : layout.footer.h ? layout.footer : layout.title);
}
