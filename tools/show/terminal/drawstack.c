/* SPDX-License-Identifier: MIT
 *
 * drawstack.c: draws the stack of the selected call site, and the text for a view without call
 * sites; see draw.h.
 */
#include <show/terminal/draw.h>

#include <show/terminal/grid.h>
#include <show/terminal/model.h>
#include <show/terminal/siteview.h>
#include <show/terminal/ui.h>
#include <stdio.h>

static const struct gp_site_model *stack_model(const struct gp_draw *draw, const struct gp_row *row)
{
    const struct gp_site_set *set = draw->model->sites;
    return set && row->site ? gp_site_set_find(set, row->id.pid, row->id.start_time) : NULL;
}

int gp_draw_stack_lines(const struct gp_draw *draw, const struct gp_row *row)
{
    const struct gp_site_model *one = stack_model(draw, row);
    const struct gp_frame_text *frames;
    return one ? 1 + (int)gp_symbols_site(one->symbols, row->site->site, &frames) : 0;
}

/* The first frame to show.  If not all fit, the frames of libraries inside of the one that names the site are left
 * out, as far as others need their lines; one line says so. */
static uint32_t stack_begin(const struct gp_frame_text *frames, uint32_t count, const struct gp_frame_text *name,
                            uint32_t lines)
{
    uint32_t inner = name >= frames && name < frames + count ? (uint32_t)(name - frames) : 0;
    if (count <= lines || lines < 3 || inner < 2)
        return 0;
    uint32_t spare = count - lines + 1;
    return inner < spare ? inner : spare;
}

void gp_draw_stack(const struct gp_draw *draw, struct gp_rect rect, const struct gp_row *row)
{
    const struct gp_site_model *one = stack_model(draw, row);
    const struct gp_frame_text *frames;
    char text[512];
    if (!one)
        return;
    uint32_t count = gp_symbols_site(one->symbols, row->site->site, &frames);
    gp_grid_fill(draw->grid, rect, 0, 0, rect.w, GP_STYLE_DIM, draw->grid->ascii ? "-" : "\u2500");
    gp_grid_printf(draw->grid, rect, 0, 2, GP_STYLE_BOLD, " site %u of %d %s, the innermost call first ",
                   row->site->site, (int)one->pid, one->comm);
    uint32_t lines = rect.h > 1 ? (uint32_t)rect.h - 1 : 0, at = stack_begin(frames, count, row->site->name, lines);
    int y = 1;
    if (at)
        gp_grid_printf(draw->grid, rect, y++, 3, GP_STYLE_DIM, "%u calls inside of:", at);
    for (; y < rect.h && at < count; y++, at++) {
        bool last = y == rect.h - 1 && at + 1 < count;
        size_t room = rect.w > 4 ? (size_t)rect.w - 3 : 1;
        gp_frame_label(&frames[at], text, room < sizeof(text) ? room : sizeof(text));
        if (last)
            snprintf(text, sizeof(text), "and %u more", count - at);
        bool users = frames[at].role == GP_ROLE_USER || frames[at].role == GP_ROLE_WRAPPER;
        gp_grid_put(draw->grid, rect, y, 3,
                    last || !users                   ? GP_STYLE_DIM
                    : &frames[at] == row->site->name ? GP_STYLE_BOLD
                                                     : GP_STYLE_NORMAL,
                    text);
    }
}

void gp_draw_no_sites(const struct gp_draw *draw, struct gp_rect rect)
{
    const struct gp_site_set *set = draw->model->sites;
    const struct gp_row_id *scope = gp_ui_scope(draw->ui);
    int without = set ? gp_site_refused(set, draw->model, scope, true) : 0;
    int unread = set ? gp_site_refused(set, draw->model, scope, false) : 0;
    int y = rect.h > 6 ? 1 : 0;
    if (!set || set->pending) {
        gp_grid_put(draw->grid, rect, y, 1, GP_STYLE_DIM, "reading call sites ...");
        return;
    }
    if (without) {
        gp_grid_printf(draw->grid, rect, y++, 1, GP_STYLE_NORMAL, "%s without stacks, so the call sites are unknown:",
                       draw->ui->scoped ? "this program runs" : "the programs run");
        gp_grid_put(draw->grid, rect, y++, 3, GP_STYLE_BOLD, GP_SITE_HINT);
    }
    if (unread)
        gp_grid_printf(draw->grid, rect, y++, 1, GP_STYLE_WARN, "the call sites of %d process%s cannot be read", unread,
                       unread == 1 ? "" : "es");
    if (gp_site_shown(set, draw->model, scope))
        gp_grid_put(draw->grid, rect, y++, 1, GP_STYLE_DIM, "no memory has been allocated yet");
    gp_grid_put(draw->grid, rect, y, 1, GP_STYLE_DIM, "Esc or F3: back to the processes");
}
