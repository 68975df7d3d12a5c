/* SPDX-License-Identifier: MIT
 * rows.c: makes the lines of the table, of processes and of call sites; see ui.h.
 */
#define _GNU_SOURCE /* qsort_r */
#include <show/terminal/ui.h>

#include <show/terminal/column.h>
#include <show/terminal/model.h>
#include <show/terminal/siteview.h>
#include <stdlib.h>
#include <string.h>

/* ---- the lines --------------------------------------------------------------------------------------------------- */

struct gp_rows_order {
    const struct gp_model *model;
    enum gp_column_id column;
    bool ascending;
};

static int rows_compare(const void *left, const void *right, void *argument)
{
    const struct gp_row *a = left, *b = right;
    const struct gp_rows_order *order = argument;
    int unknown;
    int result = gp_column_compare(order->column, a, b, order->model, &unknown);
    if (unknown == 1 || unknown == 2)
        return unknown == 1 ? 1 : -1;
    if (result)
        return order->ascending ? result : -result;
    if (a->id.pid != b->id.pid)
        return a->id.pid < b->id.pid ? -1 : 1;
    if (a->id.start_time != b->id.start_time)
        return a->id.start_time < b->id.start_time ? -1 : 1;
    if (a->id.device != b->id.device)
        return a->id.device < b->id.device ? -1 : 1;
    if (a->id.site != b->id.site)
        return a->id.site < b->id.site ? -1 : 1;
    int names = strcmp(a->id.container, b->id.container);
    return names ? names : strcmp(a->id.owner, b->id.owner);
}

static bool rows_want(const struct gp_ui *ui, const struct gp_row *pair)
{
    if (pair->id.device == GP_MODEL_HOST && !ui->host)
        return false;
    return !ui->filter[0] || gp_match_row(pair, ui->filter);
}

static const struct gp_row_list *rows_members(const struct gp_model *model, const struct gp_ui *ui)
{
    return &model->lists[ui->by == GP_BY_OWNER ? GP_LIST_SHARES : GP_LIST_PAIRS];
}

/* A group stays if one of its members does.  An idle GPU has no members and stays only without a
 * filter. */
static bool rows_want_group(const struct gp_model *model, const struct gp_ui *ui, const struct gp_row *group)
{
    const struct gp_row_list *pairs = rows_members(model, ui);
    if (group->id.device == GP_MODEL_HOST && !ui->host)
        return false;
    if (!ui->filter[0])
        return true;
    for (int i = 0; i < pairs->count; i++) {
        if (gp_model_row_contains(group, &pairs->rows[i]) && rows_want(ui, &pairs->rows[i]))
            return true;
    }
    return false;
}

static int rows_groups(const struct gp_model *model, const struct gp_ui *ui, struct gp_row_list *list)
{
    static const enum gp_member_list which[GP_BYS] = {GP_LIST_PROCESSES, GP_LIST_DEVICES, GP_LIST_CONTAINERS,
                                                      GP_LIST_OWNERS, GP_LIST_PROCESSES};
    const struct gp_row_list *groups = &model->lists[which[ui->by]];
    for (int i = 0; i < groups->count; i++) {
        int err = rows_want_group(model, ui, &groups->rows[i]) ? gp_model_row_add(list, &groups->rows[i]) : 0;
        if (err)
            return err;
    }
    return 0;
}

static int rows_pairs(const struct gp_model *model, const struct gp_ui *ui, const struct gp_row *group,
                      struct gp_row_list *list)
{
    const struct gp_row_list *pairs = rows_members(model, ui);
    for (int i = 0; i < pairs->count; i++) {
        const struct gp_row *pair = &pairs->rows[i];
        if (!rows_want(ui, pair) || (group && !gp_model_row_contains(group, pair)))
            continue;
        int err = gp_model_row_add(list, pair);
        if (err)
            return err;
        list->rows[list->count - 1].depth = group ? 1 : 0;
    }
    return 0;
}

static void rows_sort(struct gp_row_list *list, int from, struct gp_rows_order *order)
{
    if (list->count - from > 1)
        qsort_r(list->rows + from, (size_t)(list->count - from), sizeof(*list->rows), rows_compare, order);
}

/* Ends a branch.  A process on one device is one row, because its sum repeats the pair. */
static void rows_close_branch(struct gp_row_list *list, int from)
{
    if (list->count == from + 1 && list->rows[from - 1].id.kind == GP_ROW_PROCESS) {
        list->rows[from - 1] = list->rows[from];
        list->rows[from - 1].depth = 0;
        list->count--;
    } else if (list->count > from) {
        list->rows[list->count - 1].last = true;
    }
}

static int rows_tree(const struct gp_model *model, const struct gp_ui *ui, struct gp_rows_order *order,
                     struct gp_row_list *list)
{
    struct gp_row_list groups = {0};
    int err = rows_groups(model, ui, &groups);
    rows_sort(&groups, 0, order);
    for (int i = 0; i < groups.count && !err; i++) {
        err = gp_model_row_add(list, &groups.rows[i]);
        int from = list->count;
        if (!err)
            err = rows_pairs(model, ui, &groups.rows[i], list);
        rows_sort(list, from, order);
        rows_close_branch(list, from);
    }
    gp_rows_fini(&groups);
    return err;
}

/* ---- call sites ------------------------------------------------------------------------------------------------ */

/* The pair of the site's process and device in the last sample; NULL: the process has ended. */
static const struct gp_row *rows_site_pair(const struct gp_model *model, const struct gp_site_model *one, int device)
{
    const struct gp_row_list *pairs = &model->lists[GP_LIST_PAIRS];
    const struct gp_row *any = NULL;
    for (int i = 0; i < pairs->count; i++) {
        const struct gp_row *pair = &pairs->rows[i];
        if (pair->id.pid != one->pid || pair->id.start_time != one->start_time)
            continue;
        if (pair->device && pair->device->index == device)
            return pair;
        any = pair;
    }
    return any;
}

static struct gp_row rows_site(const struct gp_model *model, const struct gp_site_model *one,
                               const struct gp_site_row *site)
{
    struct gp_row row = gp_model_row_empty(GP_ROW_SITE, GP_MODEL_NO_DEVICE);
    int device = one->sites->sites[site->site].device;
    const struct gp_row *pair = rows_site_pair(model, one, device);
    row.id.pid = one->pid;
    row.id.start_time = one->start_time;
    row.id.site = site->site;
    if (device == (int)GP_WIRE_HOST)
        row.id.device = GP_MODEL_HOST;
    else if (pair && pair->device && pair->device->index == device) {
        row.id.device = pair->id.device;
        row.id.gpu = pair->id.gpu;
    }
    row.process = pair ? pair->process : NULL;
    row.site = site;
    return row;
}

static int rows_sites_of(const struct gp_model *model, const struct gp_ui *ui, const struct gp_site_model *one,
                         struct gp_row_list *list)
{
    int err = 0;
    for (uint32_t i = 0; i < one->row_count && !err; i++) {
        struct gp_row row = rows_site(model, one, &one->rows[i]);
        row.depth = ui->tree ? 1 : 0;
        if (row.id.device == GP_MODEL_HOST && ui->sites_without_host)
            continue;
        if (!ui->filter[0] || gp_match_row(&row, ui->filter) ||
            (row.process && gp_match_row(&(struct gp_row){.id = row.id, .process = row.process}, ui->filter)))
            err = gp_model_row_add(list, &row);
    }
    return err;
}

static const struct gp_row *rows_process(const struct gp_model *model, const struct gp_site_model *one)
{
    const struct gp_row_list *processes = &model->lists[GP_LIST_PROCESSES];
    for (int i = 0; i < processes->count; i++) {
        if (processes->rows[i].id.pid == one->pid && processes->rows[i].id.start_time == one->start_time)
            return &processes->rows[i];
    }
    return NULL;
}

/* In the tree the sites are under their process, and the process that holds most comes first. */
static int rows_site_tree(const struct gp_model *model, const struct gp_ui *ui, struct gp_rows_order *order,
                          struct gp_row_list *list)
{
    struct gp_row_list groups = {0};
    int err = 0;
    for (int i = 0; i < model->sites->count && !err; i++) {
        const struct gp_site_model *one = model->sites->models[i];
        const struct gp_row *process = rows_process(model, one);
        if (process && gp_site_in_scope(model, gp_ui_scope(ui), one->pid, one->start_time))
            err = gp_model_row_add(&groups, process);
    }
    rows_sort(&groups, 0, order);
    for (int g = 0; g < groups.count && !err; g++) {
        err = gp_model_row_add(list, &groups.rows[g]);
        int from = list->count;
        for (int i = 0; i < model->sites->count && !err; i++) {
            if (rows_process(model, model->sites->models[i]) && model->sites->models[i]->pid == groups.rows[g].id.pid)
                err = rows_sites_of(model, ui, model->sites->models[i], list);
        }
        rows_sort(list, from, order);
        if (list->count > from)
            list->rows[list->count - 1].last = true;
        else
            list->count = from - 1;
    }
    gp_rows_fini(&groups);
    return err;
}

static int rows_sites(const struct gp_model *model, const struct gp_ui *ui, struct gp_rows_order *order,
                      struct gp_row_list *list)
{
    int err = 0;
    if (!model->sites)
        return 0;
    if (ui->tree)
        return rows_site_tree(model, ui, order, list);
    for (int i = 0; i < model->sites->count && !err; i++) {
        const struct gp_site_model *one = model->sites->models[i];
        if (gp_site_in_scope(model, gp_ui_scope(ui), one->pid, one->start_time))
            err = rows_sites_of(model, ui, one, list);
    }
    rows_sort(list, 0, order);
    return err;
}

int gp_rows_build(const struct gp_model *model, const struct gp_ui *ui, struct gp_row_list *list)
{
    struct gp_rows_order order = {model, gp_ui_sort(ui), gp_ui_ascending(ui)};
    int err;
    list->count = 0;
    if (gp_ui_by_site(ui)) {
        err = rows_sites(model, ui, &order, list);
    } else if (ui->tree) {
        err = rows_tree(model, ui, &order, list);
    } else {
        err = ui->by == GP_BY_PROCESS ? rows_pairs(model, ui, NULL, list) : rows_groups(model, ui, list);
        rows_sort(list, 0, &order);
    }
    if (err)
        list->count = 0;
    return err;
}

void gp_rows_fini(struct gp_row_list *list)
{
    free(list->rows);
    *list = (struct gp_row_list){0};
}
