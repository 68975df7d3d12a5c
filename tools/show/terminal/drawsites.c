/* SPDX-License-Identifier: MIT
 *
 * drawsites.c: draws the call sites of the selected process below its details; see draw.h.
 */
#include <show/terminal/draw.h>

#include <base/numbers.h>
#include <math.h>
#include <show/terminal/grid.h>
#include <show/terminal/model.h>
#include <show/terminal/siteview.h>
#include <show/terminal/ui.h>
#include <stdio.h>

/* Lines that are kept for those that are being read, so that the plots above do not jump. */
#define GP_SITES_SOON 12

static const struct gp_site_model *sites_model(const struct gp_draw *draw, const struct gp_row *row)
{
    return draw->model->sites ? gp_site_set_find(draw->model->sites, row->id.pid, row->id.start_time) : NULL;
}

/* A row of a process on a device has the sites of that device. */
static bool sites_in(const struct gp_site_model *one, const struct gp_row *row, const struct gp_site_row *site)
{
    return row->id.kind != GP_ROW_PAIR || (row->device && one->sites->sites[site->site].device == row->device->index);
}

static bool sites_refused(const struct gp_draw *draw, const struct gp_row *row, bool for_stacks)
{
    const struct gp_row_id scope = {
        .kind = GP_ROW_PROCESS, .pid = row->id.pid, .start_time = row->id.start_time, .device = GP_MODEL_NO_DEVICE};
    return draw->model->sites && gp_site_refused(draw->model->sites, draw->model, &scope, for_stacks);
}

int gp_draw_sites_lines(const struct gp_draw *draw, const struct gp_row *row)
{
    const struct gp_process *process = row->process;
    if (!process || row->site || gp_ui_by_site(draw->ui) || !gp_model_process_readable(process) || process->from_agent)
        return 0;
    const struct gp_site_model *one = sites_model(draw, row);
    int lines = 1;
    for (uint32_t i = 0; one && i < one->row_count; i++)
        lines += sites_in(one, row, &one->rows[i]);
    if (one && lines > 1)
        return lines;
    return one || sites_refused(draw, row, true) || sites_refused(draw, row, false) ? 2 : GP_SITES_SOON;
}

/* Why there are none. */
static void draw_none(const struct gp_draw *draw, struct gp_rect rect, const struct gp_row *row,
                      const struct gp_site_model *one)
{
    if (one)
        gp_grid_put(draw->grid, rect, 1, 1, GP_STYLE_DIM, "nothing has been allocated");
    else if (row->process->closed)
        gp_grid_put(draw->grid, rect, 1, 1, GP_STYLE_DIM, "the process has ended");
    else if (sites_refused(draw, row, true))
        gp_grid_printf(draw->grid, rect, 1, 1, GP_STYLE_DIM,
                       "unknown: it runs without stacks; 'gpuprof stacks all -p %d'", (int)row->id.pid);
    else if (sites_refused(draw, row, false))
        gp_grid_put(draw->grid, rect, 1, 1, GP_STYLE_WARN, "they cannot be read");
    else
        gp_grid_put(draw->grid, rect, 1, 1, GP_STYLE_DIM,
                    draw->ui->paused ? "not read yet: Z ends the pause" : "reading ...");
}

static void draw_site(const struct gp_draw *draw, struct gp_rect rect, int y, const struct gp_site_row *site)
{
    char live[32], peak[32], count[32], rate[32], label[512];
    const char *kind = site->kind == GP_KIND_NONE ? NULL : gp_kind_name(site->kind);
    size_t room = rect.w > 53 ? (size_t)(rect.w - 53 + 1) : 1;
    gp_grid_printf(draw->grid, rect, y, 1, GP_STYLE_NORMAL, "%-10s %10s %10s %8s %8s  ", kind ? kind : "-",
                   gp_grid_bytes(site->live, GP_TEXT_LONG, live, sizeof(live)),
                   gp_grid_bytes(site->peak, GP_TEXT_LONG, peak, sizeof(peak)),
                   gp_grid_count(site->count, count, sizeof(count)),
                   gp_grid_rate(site->calls_per_s, rate, sizeof(rate)));
    gp_grid_paint_part(draw->grid, rect, y, 23, 10, GP_STYLE_PEAK);
    gp_caller_line(site->name, site->operation, site->caller, site->callee, label,
                   room < sizeof(label) ? room : sizeof(label));
    gp_grid_put(draw->grid, rect, y, 53, GP_STYLE_NORMAL, label);
}

void gp_draw_sites(const struct gp_draw *draw, struct gp_rect rect, const struct gp_row *row)
{
    const struct gp_site_model *one = sites_model(draw, row);
    int count = gp_draw_sites_lines(draw, row) - 1, y = 1;
    gp_grid_put(draw->grid, rect, 0, 1, GP_STYLE_BOLD, "KIND             LIVE       PEAK   BLOCKS  CALLS/S  CALL SITE");
    for (uint32_t i = 0; one && i < one->row_count && y < rect.h; i++) {
        if (sites_in(one, row, &one->rows[i]))
            draw_site(draw, rect, y++, &one->rows[i]);
    }
    if (y == 1)
        draw_none(draw, rect, row, one);
    else if (count >= rect.h)
        gp_grid_printf(draw->grid, rect, 0, 63, GP_STYLE_DIM, "  %d of %d; s: all", rect.h - 1, count);
}
