/* SPDX-License-Identifier: MIT
 * drawpanel.c: draws the details of the selected row, the help, the sort menu, and the text for an
 * empty table; see draw.h.
 */
#include <show/terminal/draw.h>

#include <base/numbers.h>
#include <show/terminal/column.h>
#include <show/terminal/grid.h>
#include <show/terminal/model.h>
#include <show/terminal/ui.h>
#include <show/text/stats.h>
#include <show/text/write.h>
#include <stdio.h>
#include <string.h>

/* The row under the cursor, or NULL. */
static const struct gp_row *draw_selected(const struct gp_draw *draw)
{
    int cursor = draw->ui->cursor;
    return cursor >= 0 && cursor < draw->list->count ? &draw->list->rows[cursor] : NULL;
}

/* Peaks have their colour in the details as in the table; `heading` has the name above them. */
static void draw_peaks(const struct gp_draw *draw, struct gp_rect rect, int y, const char *heading, const char *name)
{
    const char *at = strstr(heading, name);
    int end = at ? (int)(at - heading) + (int)strlen(name) : 0;
    if (at)
        gp_grid_paint_part(draw->grid, rect, y, 1 + end - 10, 10, GP_STYLE_PEAK);
}

static bool kind_used(const struct gp_wire_kind_value *kind)
{
    return kind->calls > 0 || kind->current_bytes > 0 || kind->peak_bytes > 0 || kind->live > 0 || kind->live_peak > 0;
}

static bool row_has_kinds(const struct gp_row *row)
{
    return row->device && !row->device->totals_only && gp_model_process_readable(row->process);
}

static void count_line(void *lines, const char *text, bool is_wrong)
{
    (void)text, (void)is_wrong;
    ++*(int *)lines;
}

int gp_draw_detail_lines(const struct gp_draw *draw)
{
    const struct gp_row *row = draw_selected(draw);
    int lines = 2; /* the rule with the name, and the source */
    if (row && row->site)
        return gp_draw_stack_lines(draw, row);
    if (!row || !row->process)
        return row ? 2 : 0;
    lines += row->process->trouble[0] || row->process->problem[0] ? 1 : 0;
    lines += row->process->options[0] ? 1 : 0;
    lines += row->process->scope_count > 0 || row->process->failure_count > 0 ? 1 : 0;
    if (row_has_kinds(row)) {
        lines++;
        for (int i = 0; i < (int)GP_KINDS; i++)
            lines += kind_used(&row->device->wire.kinds[i]);
        struct gp_owner_view views[GP_OWNER_VIEWS];
        int owners = gp_peer_owners_of(row->process, row->device, views);
        lines += owners ? owners + 1 : 0;
        lines += (row->device->wire.asleep_bytes.peak != 0) + (row->device->wire.flags & GP_DEVICE_UNSOUND ? 1 : 0);
        gp_pool_lines(row->process, row->device, &(struct gp_pool_lines){count_line, &lines});
    }
    return lines;
}

struct draw_pools {
    const struct gp_draw *draw;
    struct gp_rect rect;
    int y;
};

static void draw_pool(void *arg, const char *text, bool is_wrong)
{
    struct draw_pools *pools = arg;
    gp_grid_put(pools->draw->grid, pools->rect, pools->y++, 1, is_wrong ? GP_STYLE_WARN : GP_STYLE_NORMAL, text);
}

/* The library that asked for the memory. Returns the line below. */
static int draw_owners(const struct gp_draw *draw, struct gp_rect rect, int y, const struct gp_row *row)
{
    struct gp_owner_view views[GP_OWNER_VIEWS];
    int count = gp_peer_owners_of(row->process, row->device, views);
    static const char heading[] = "OWNER           ALLOCATED       PEAK   RESERVED     R-PEAK   BLOCKS";
    if (count)
        gp_grid_put(draw->grid, rect, y++, 1, GP_STYLE_BOLD, heading);
    for (int i = 0; i < count; i++) {
        const struct gp_wire_owner_value *v = &views[i].value;
        char allocated[32], peak[32], reserved[32], reserved_peak[32], live[32];
        gp_grid_printf(draw->grid, rect, y, 1, GP_STYLE_NORMAL, "%-14.14s %10s %10s %10s %10s %8s  %s", views[i].owner,
                       gp_grid_bytes(v->allocated_bytes, GP_TEXT_LONG, allocated, sizeof(allocated)),
                       gp_grid_bytes(v->allocated_peak_bytes, GP_TEXT_LONG, peak, sizeof(peak)),
                       gp_grid_bytes(v->reserved_bytes, GP_TEXT_LONG, reserved, sizeof(reserved)),
                       gp_grid_bytes(v->reserved_peak_bytes, GP_TEXT_LONG, reserved_peak, sizeof(reserved_peak)),
                       gp_grid_count(v->live, live, sizeof(live)), rect.w >= 100 ? views[i].library : "");
        draw_peaks(draw, rect, y, heading, " PEAK");
        draw_peaks(draw, rect, y++, heading, "R-PEAK");
    }
    const struct gp_wire_value *asleep = &row->device->wire.asleep_bytes;
    char current[32], most[32];
    if (asleep->peak)
        gp_grid_printf(draw->grid, rect, y++, 1, GP_STYLE_NORMAL, "%s: %s of blocks asleep, without memory; peak %s",
                       row->device->framework.name,
                       gp_grid_bytes(asleep->current, GP_TEXT_LONG, current, sizeof(current)),
                       gp_grid_bytes(asleep->peak, GP_TEXT_LONG, most, sizeof(most)));
    if (row->device->wire.flags & GP_DEVICE_UNSOUND)
        gp_grid_put(draw->grid, rect, y++, 1, GP_STYLE_WARN, "allocated is more than reserved: memory was missed");
    struct draw_pools pools = {draw, rect, y};
    gp_pool_lines(row->process, row->device, &(struct gp_pool_lines){draw_pool, &pools});
    return pools.y;
}

/* Returns the line below. */
static int draw_kinds(const struct gp_draw *draw, struct gp_rect rect, int y, const struct gp_row *row)
{
    static const char heading[] = "KIND          CURRENT       PEAK   BLOCKS    MOST    CALLS";
    int width = rect.w - 74 < 40 ? rect.w - 74 : 40;
    if (width >= 8)
        gp_grid_put(draw->grid, rect, y, 72, GP_STYLE_BOLD, "OF PEAK");
    gp_grid_put(draw->grid, rect, y++, 1, GP_STYLE_BOLD, heading);
    for (int i = 0; i < (int)GP_KINDS; i++) {
        const struct gp_wire_kind_value *kind = &row->device->wire.kinds[i];
        char current[32], peak[32], live[32], live_peak[32], calls[32];
        if (!kind_used(kind))
            continue;
        bool apart = !gp_kind_sums((unsigned)i);
        gp_grid_printf(draw->grid, rect, y, 1, apart ? GP_STYLE_DIM : GP_STYLE_NORMAL, "%-10s %10s %10s %8s %7s %8s%s",
                       gp_kind_name((unsigned)i) ? gp_kind_name((unsigned)i) : "?",
                       gp_grid_bytes(kind->current_bytes, GP_TEXT_LONG, current, sizeof(current)),
                       gp_grid_bytes(kind->peak_bytes, GP_TEXT_LONG, peak, sizeof(peak)),
                       gp_grid_count(kind->live, live, sizeof(live)),
                       gp_grid_count(kind->live_peak, live_peak, sizeof(live_peak)),
                       gp_grid_count(kind->calls, calls, sizeof(calls)), apart ? "  not summed" : "");
        if (!apart)
            draw_peaks(draw, rect, y, heading, " PEAK");
        struct gp_bar bar = {kind->current_bytes, -1, -1, kind->peak_bytes, -1};
        if (width >= 8 && !apart)
            gp_draw_bar(draw, rect, y, 72, width, &bar);
        y++;
    }
    return y;
}

static void draw_scopes(const struct gp_draw *draw, struct gp_rect rect, int y, const struct gp_process *process)
{
    int x = 1;
    if (process->scope_count > 0)
        x = gp_grid_put(draw->grid, rect, y, x, GP_STYLE_BOLD, "scopes ");
    for (int i = 0; i < process->scope_count; i++)
        x = gp_grid_printf(draw->grid, rect, y, x, GP_STYLE_NORMAL, "%s  ", process->scopes[i].name);
    if (process->failure_count > 0)
        x = gp_grid_put(draw->grid, rect, y, x, GP_STYLE_WARN, "failed calls ");
    for (int i = 0; i < process->failure_count; i++) {
        const struct gp_failure_view *failure = &process->failures[i];
        x = gp_grid_printf(draw->grid, rect, y, x, GP_STYLE_NORMAL, "%s=%u x%llu  ", failure->api, failure->error,
                           (unsigned long long)failure->count);
    }
}

/* The line of a process that only the agent's maps know. */
static void draw_from_agent(const struct gp_draw *draw, struct gp_rect rect, const struct gp_row *row)
{
    char allocations[32], frees[32], age[32];
    const struct gp_process *process = row->process;
    int x = 1;
    if (row->device) {
        const struct gp_wire_value *counts = &row->device->wire.stats[GP_STAT_ALLOCATION][GP_POOL_ALL];
        x = gp_grid_printf(draw->grid, rect, 1, x, GP_STYLE_NORMAL, "%s allocations, %s frees, updated %s ago  ",
                           gp_grid_count(counts->allocated, allocations, sizeof(allocations)),
                           gp_grid_count(counts->freed, frees, sizeof(frees)),
                           gp_grid_duration((double)process->age_ns / 1e9, age, sizeof(age)));
    }
    gp_grid_printf(draw->grid, rect, 1, x, GP_STYLE_DIM, "cgroup %llu %s", (unsigned long long)process->cgroup_id,
                   process->container);
}

static void draw_source(const struct gp_draw *draw, struct gp_rect rect, const struct gp_row *row)
{
    char text[32];
    const struct gp_process *process = row->process;
    const char *source = gp_source_name(process->source);
    int x = 1;
    if (process->state == GP_PROCESS_FOREIGN) {
        gp_grid_printf(draw->grid, rect, 1, x, GP_STYLE_NORMAL, "not profiled; holds %s according to the driver",
                       gp_grid_bytes(row->untracked, GP_TEXT_LONG, text, sizeof(text)));
        return;
    }
    if (process->from_agent) {
        draw_from_agent(draw, rect, row);
        return;
    }
    if (process->state == GP_PROCESS_STALE)
        x = gp_grid_printf(draw->grid, rect, 1, x, GP_STYLE_WARN, "does not answer; the numbers are %s old  ",
                           gp_grid_duration((double)process->age_ns / 1e9, text, sizeof(text)));
    else if (process->state == GP_PROCESS_UNKNOWN)
        x = gp_grid_put(draw->grid, rect, 1, x, GP_STYLE_WARN, "has not published anything yet  ");
    if (process->gone)
        x = gp_grid_put(draw->grid, rect, 1, x, GP_STYLE_WARN, "gone: the program ended CUPTI  ");
    if (process->container[0])
        x = gp_grid_printf(draw->grid, rect, 1, x, GP_STYLE_NORMAL, "container %s  ", process->container);
    for (int i = 0; i < process->cgroup_limit_count; i++) {
        const struct gp_cgroup_limit *limit = &process->cgroup_limits[i];
        char used[32];
        if (limit->limit_bytes >= 0)
            x = gp_grid_printf(draw->grid, rect, 1, x, GP_STYLE_NORMAL, "cgroup limit %s, %s used  ",
                               gp_grid_bytes(limit->limit_bytes, GP_TEXT_LONG, text, sizeof(text)),
                               gp_grid_bytes(limit->used_bytes, GP_TEXT_LONG, used, sizeof(used)));
    }
    if (row->untracked >= 0)
        x = gp_grid_printf(draw->grid, rect, 1, x, GP_STYLE_NORMAL, "untracked %s  ",
                           gp_grid_bytes(row->untracked, GP_TEXT_LONG, text, sizeof(text)));
    if (row->before >= 0)
        x = gp_grid_printf(draw->grid, rect, 1, x, GP_STYLE_NORMAL, "before the attach %s  ",
                           gp_grid_bytes(row->before, GP_TEXT_LONG, text, sizeof(text)));
    if (process->allocator[0] && strcmp(process->allocator, "off") != 0)
        x = gp_grid_printf(draw->grid, rect, 1, x, GP_STYLE_NORMAL, "allocator %s  ", process->allocator);
    /* How it is counted comes last: a path may take the rest of the line. */
    gp_grid_printf(draw->grid, rect, 1, x, GP_STYLE_DIM, process->source_detail[0] ? "source %s (%s)" : "source %s",
                   source ? source : "unknown", process->source_detail);
}

static void draw_rule(const struct gp_draw *draw, struct gp_rect rect, const char *title)
{
    gp_grid_fill(draw->grid, rect, 0, 0, rect.w, GP_STYLE_DIM, draw->grid->ascii ? "-" : "\u2500");
    gp_grid_printf(draw->grid, rect, 0, 2, GP_STYLE_BOLD, " %s ", title);
}

void gp_draw_detail(const struct gp_draw *draw, struct gp_rect rect)
{
    const struct gp_row *row = draw_selected(draw);
    char title[160], device[32], command[512];
    if (!row || rect.h <= 0)
        return;
    if (row->site) {
        gp_draw_stack(draw, rect, row);
        return;
    }
    gp_column_text(GP_COLUMN_DEV, row, draw->model, GP_TEXT_LONG, draw->grid->ascii, device, sizeof(device));
    if (!row->process) {
        gp_column_text(GP_COLUMN_COMMAND, row, draw->model, GP_TEXT_LONG, draw->grid->ascii, command, sizeof(command));
        draw_rule(draw, rect, command);
        gp_grid_put(draw->grid, rect, 1, 1, GP_STYLE_DIM,
                    row->exact ? "exact peaks since the agent's start or a reset, ended processes too; t: members"
                               : "the peaks of a sum are the highest that this viewer saw; t shows the members");
        return;
    }
    const struct gp_process *process = row->process;
    snprintf(title, sizeof(title), "%d %s, device %s", (int)row->id.pid, process->comm, device);
    draw_rule(draw, rect, title);
    draw_source(draw, rect, row);
    int y = 2;
    const char *trouble = process->problem[0] ? process->problem : process->trouble;
    if (trouble[0])
        gp_grid_printf(draw->grid, rect, y++, 1, GP_STYLE_ERROR, "trouble: %s", trouble);
    if (process->oom.count) {
        char asked[32];
        const struct gp_wire_oom *oom = &process->oom;
        gp_grid_printf(draw->grid, rect, y++, 1, GP_STYLE_ERROR,
                       "out of memory %llu times; last: %s requested %s (why: gpuprof stat -p %d)",
                       (unsigned long long)oom->count, oom->api,
                       gp_grid_bytes(oom->asked_bytes > INT64_MAX ? INT64_MAX : (int64_t)oom->asked_bytes, GP_TEXT_LONG,
                                     asked, sizeof(asked)),
                       (int)process->pid);
    }
    if (process->options[0])
        gp_grid_printf(draw->grid, rect, y++, 1, GP_STYLE_WARN, "settings: %s", process->options);
    if (process->scope_count > 0 || process->failure_count > 0)
        draw_scopes(draw, rect, y++, process);
    if (row_has_kinds(row)) {
        y = draw_owners(draw, rect, y, row);
        y = draw_kinds(draw, rect, y, row);
    }
    if (y < rect.h && gp_draw_sites_lines(draw, row))
        gp_draw_sites(draw, (struct gp_rect){rect.y + y, rect.x, rect.h - y, rect.w}, row);
}

void gp_draw_help(const struct gp_draw *draw, struct gp_rect rect)
{
    int y = 0;
    gp_grid_clear(draw->grid, rect);
    for (int i = draw->ui->help_top; i < gp_key_help_count && y < rect.h; i++, y++) {
        gp_grid_put(draw->grid, rect, y, 1, GP_STYLE_BOLD, gp_key_helps[i].keys);
        gp_grid_put(draw->grid, rect, y, 13, GP_STYLE_NORMAL, gp_key_helps[i].what);
    }
    static const char *const notes[] = {
        "",
        "Allocated: the program's live blocks.  Reserved: memory held from the driver.",
        "Bars: allocated, rest of reserved, memory of others, free; mark: the peak.",
        "Plots (a screen of 32 lines or more): a column is two samples, the newest at the right.",
        "-: unknown.  ~: has estimates.  >=: highest sum seen (peaks do not add up), or attached:",
        "BEFORE is what the program had before, as reserved in bars and plots, in no other number.",
        "LOST: events that were not recorded.  Totals do not come from events.",
        "stale: did not answer in time, numbers are old.  foreign: not profiled.",
        "damaged: its data contradicts itself, and no number of it is shown.",
    };
    size_t note = 0;
    for (; note < GP_COUNT(notes) && y < rect.h; note++, y++)
        gp_grid_put(draw->grid, rect, y, 1, GP_STYLE_NORMAL, notes[note]);
    if (note < GP_COUNT(notes) && rect.h > 2) {
        struct gp_rect last = {rect.y + rect.h - 1, rect.x, 1, rect.w};
        gp_grid_clear(draw->grid, last);
        gp_grid_put(draw->grid, last, 0, 1, GP_STYLE_DIM,
                    "more: Down, PgDn, or the wheel; any other key ends the help, then q quits");
    }
}

void gp_draw_sort(const struct gp_draw *draw, struct gp_rect rect)
{
    int cursor = (int)draw->ui->sort_cursor, top = 0, y = 1, above = 0;
    for (int i = cursor; i >= 0; i--) { /* the cursor's line is on the screen */
        above += gp_column_sorts((enum gp_column_id)i, gp_ui_by_site(draw->ui));
        if (above <= rect.h - 1)
            top = i;
    }
    struct gp_rect box = {rect.y, rect.x, rect.h, rect.w < 60 ? rect.w : 60};
    gp_grid_clear(draw->grid, box);
    gp_grid_put(draw->grid, box, 0, 1, GP_STYLE_BOLD, "Sort by (Enter: select, Esc: cancel)");
    for (int i = top; i < GP_COLUMNS && y < box.h; i++) {
        if (!gp_column_sorts((enum gp_column_id)i, gp_ui_by_site(draw->ui)))
            continue;
        gp_grid_printf(draw->grid, box, y, 1, GP_STYLE_NORMAL, "%s %-10s %s", i == cursor ? ">" : " ",
                       gp_columns[i].name, gp_columns[i].what);
        if (i == cursor)
            gp_grid_paint(draw->grid, box, y, GP_STYLE_SELECTED);
        y++;
    }
}

void gp_draw_empty(const struct gp_draw *draw, struct gp_rect rect)
{
    const struct gp_system *system = draw->model->system;
    bool hidden = system && system->agent.present && system->agent.processes_hidden;
    int y = rect.h > 6 ? 1 : 0;
    if (!system) {
        gp_grid_put(draw->grid, rect, y, 1, GP_STYLE_DIM, "looking for profiled processes ...");
        return;
    }
    if (draw->ui->filter[0]) {
        gp_grid_printf(draw->grid, rect, y, 1, GP_STYLE_NORMAL, "no row matches \"%s\": Esc clears the filter",
                       draw->ui->filter);
        return;
    }
    if (gp_ui_by_site(draw->ui) && system->process_count > 0) {
        gp_draw_no_sites(draw, rect);
        return;
    }
    if (hidden) {
        gp_grid_put(draw->grid, rect, y, 1, GP_STYLE_NORMAL,
                    "no profiled process is yours; d shows the sums of all users by GPU and container");
        return;
    }
    gp_grid_put(draw->grid, rect, y, 1, GP_STYLE_NORMAL, "no profiled process yet: start one with");
    gp_grid_put(draw->grid, rect, y + 1, 3, GP_STYLE_BOLD, "gpuprof run CMD...");
    gp_grid_put(draw->grid, rect, y + 2, 1, GP_STYLE_NORMAL, "or with CUDA_INJECTION64_PATH=.../libgpuprof.so CMD...");
    gp_grid_put(draw->grid, rect, y + 3, 1, GP_STYLE_NORMAL, "or, for one that runs, with");
    gp_grid_put(draw->grid, rect, y + 4, 3, GP_STYLE_BOLD, "gpuprof attach PID");
    if (system->denied_count > 0)
        gp_grid_printf(draw->grid, rect, y + 5, 1, GP_STYLE_WARN,
                       "%d processes of other users cannot be read: run as root to see them", system->denied_count);
}
