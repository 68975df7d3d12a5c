/* SPDX-License-Identifier: MIT
 * rows.c: see rows.h. */
#define _GNU_SOURCE /* qsort_r, strcasestr */
#include <view/rows.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    int names = strcmp(a->id.container, b->id.container);
    return names ? names : strcmp(a->id.owner, b->id.owner);
}

static bool rows_match(const char *needle, const struct gp_row *row)
{
    char pid[16];
    snprintf(pid, sizeof(pid), "%d", (int)row->id.pid);
    const struct gp_process *process = row->process;
    if (row->id.owner[0] && strcasestr(row->id.owner, needle))
        return true;
    if (!process)
        return strcasestr(row->id.container, needle) != NULL;
    return strcasestr(process->comm, needle) || strcasestr(process->cmdline, needle) ||
           strcasestr(process->user, needle) || strcasestr(process->container, needle) || strstr(pid, needle);
}

static bool rows_want(const struct gp_ui *ui, const struct gp_row *pair)
{
    if (pair->id.device == GP_MODEL_HOST && !ui->host)
        return false;
    return !ui->filter[0] || rows_match(ui->filter, pair);
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
        if (gp_row_contains(group, &pairs->rows[i]) && rows_want(ui, &pairs->rows[i]))
            return true;
    }
    return false;
}

static int rows_groups(const struct gp_model *model, const struct gp_ui *ui, struct gp_row_list *list)
{
    static const enum gp_member_list which[GP_BYS] = {GP_LIST_PROCESSES, GP_LIST_DEVICES, GP_LIST_CONTAINERS,
                                                      GP_LIST_OWNERS};
    const struct gp_row_list *groups = &model->lists[which[ui->by]];
    for (int i = 0; i < groups->count; i++) {
        int err = rows_want_group(model, ui, &groups->rows[i]) ? gp_row_list_add(list, &groups->rows[i]) : 0;
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
        if (!rows_want(ui, pair) || (group && !gp_row_contains(group, pair)))
            continue;
        int err = gp_row_list_add(list, pair);
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
        err = gp_row_list_add(list, &groups.rows[i]);
        int from = list->count;
        if (!err)
            err = rows_pairs(model, ui, &groups.rows[i], list);
        rows_sort(list, from, order);
        rows_close_branch(list, from);
    }
    gp_rows_fini(&groups);
    return err;
}

int gp_rows_build(const struct gp_model *model, const struct gp_ui *ui, struct gp_row_list *list)
{
    struct gp_rows_order order = {model, ui->sort, ui->ascending};
    int err;
    list->count = 0;
    if (ui->tree) {
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
