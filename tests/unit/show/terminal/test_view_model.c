/* SPDX-License-Identifier: MIT
 * test_view_model.c: rows, sums, rates, peaks and histories of the model; sort, filter and tree of
 * the rows. */
#include <show/terminal/model.h>
#include <show/terminal/outlook.h>

#include "view_fixture.h"

#define CHECK_NEAR(_a, _b) cr_assert(fabs((_a) - (_b)) < 1e-6, "%g is not %g", (double)(_a), (double)(_b))

static struct fix_view view;

static void view_close(void)
{
    fix_close(&view);
}

TestSuite(model, .fini = view_close);
TestSuite(rows, .fini = view_close);

Test(model, rates_are_unknown_until_the_second_sample)
{
    fix_open(&view, fix_typical, 1);
    cr_assert(isnan(fix_row(&view.list, 4242, 0)->allocs_per_s));
    cr_assert_eq(gp_model_update(&view.model, fix_typical(1)), 0);
    fix_rows(&view);
    CHECK_NEAR(fix_row(&view.list, 4242, 0)->allocs_per_s, 1000);
    CHECK_NEAR(fix_row(&view.list, 4242, 0)->frees_per_s, 500);
}

Test(model, a_process_that_did_not_publish_has_no_rate)
{
    fix_open(&view, fix_typical, 3);
    cr_assert(isnan(fix_row(&view.list, 1001, 1)->allocs_per_s));
}

Test(model, a_reset_of_totals_gives_an_unknown_rate_not_a_negative_one)
{
    fix_open(&view, fix_typical, 2);
    struct gp_system *system = fix_typical(2);
    system->processes[0].devices[0].wire.stats[GP_STAT_ALLOCATION][GP_POOL_ALL].allocated = 3;
    cr_assert_eq(gp_model_update(&view.model, system), 0);
    fix_rows(&view);
    cr_assert(isnan(fix_row(&view.list, 4242, 0)->allocs_per_s));
    CHECK_NEAR(fix_row(&view.list, 4242, 1)->allocs_per_s, 1000);
}

Test(model, a_reused_pid_is_another_row)
{
    fix_open(&view, fix_typical, 2);
    struct gp_system *system = fix_typical(2);
    system->processes[0].start_time++;
    cr_assert_eq(gp_model_update(&view.model, system), 0);
    fix_rows(&view);
    cr_assert(isnan(fix_row(&view.list, 4242, 0)->allocs_per_s));
    cr_assert_eq(fix_row(&view.list, 4242, 0)->history->count, 1);
}

Test(model, numbers_that_cannot_be_trusted_are_unknown)
{
    fix_open(&view, fix_typical, 2);
    const struct gp_row *damaged = fix_row(&view.list, 1002, GP_MODEL_NO_DEVICE);
    const struct gp_row *foreign = fix_row(&view.list, 1003, 0);
    cr_assert_eq(damaged->allocated, -1);
    cr_assert_eq(damaged->lost, -1);
    cr_assert_eq(foreign->allocated, -1);
    cr_assert_eq(foreign->reserved_peak, -1);
    cr_assert_eq(foreign->untracked, (int64_t)(0.5 * GIB));
    cr_assert_eq(fix_row(&view.list, 1004, GP_MODEL_NO_DEVICE)->allocated, -1);
    cr_assert_eq(fix_row(&view.list, 1001, 1)->allocated, (int64_t)(2 * GIB), "stale numbers are shown");
}

Test(model, gpu_rows_sum_held_bytes_and_never_peaks)
{
    fix_open(&view, fix_typical, 1);
    const struct gp_row *gpu = &view.model.lists[GP_LIST_DEVICES].rows[0];
    cr_assert_eq(gpu->id.device, 0);
    cr_assert_eq(gpu->allocated, (int64_t)(24 * GIB));
    cr_assert_eq(gpu->reserved, (int64_t)(37 * GIB));
    cr_assert_eq(gpu->allocated_peak, (int64_t)(31.5 * GIB), "the highest single peak, not 37.5");
    cr_assert(gpu->seen_peak);
}

Test(model, the_highest_sum_seen_stays)
{
    fix_open(&view, fix_typical, 0);
    struct gp_system *high = fix_typical(0);
    fix_value(&high->processes[1].devices[0], GP_STAT_ALLOCATED_BYTES, 30 * GIB, 30 * GIB);
    cr_assert_eq(gp_model_update(&view.model, high), 0);
    cr_assert_eq(gp_model_update(&view.model, fix_typical(1)), 0);
    const struct gp_row *gpu = &view.model.lists[GP_LIST_DEVICES].rows[0];
    cr_assert_eq(gpu->allocated, (int64_t)(25 * GIB));
    cr_assert_eq(gpu->allocated_peak, (int64_t)(50 * GIB));
    gp_model_forget_peaks(&view.model, GP_RESET_ALLOCATED);
    cr_assert_eq(gp_model_update(&view.model, fix_typical(2)), 0);
    gpu = &view.model.lists[GP_LIST_DEVICES].rows[0];
    cr_assert_eq(gpu->allocated_peak, (int64_t)(31.5 * GIB));
    cr_assert_eq(gpu->reserved_peak, (int64_t)(40 * GIB), "the other peak was not reset");
}

static struct gp_system *one_process(uint64_t tick)
{
    struct gp_system *system = fix_system(1, tick);
    fix_device(system, fix_process(system, 5, "alone"), 0, 1, 3, 2, 4);
    return system;
}

Test(model, the_peak_of_a_gpu_with_one_process_is_exact)
{
    fix_open(&view, one_process, 1);
    const struct gp_row *gpu = &view.model.lists[GP_LIST_DEVICES].rows[0];
    cr_assert_eq(gpu->allocated_peak, (int64_t)(3 * GIB));
    cr_assert_not(gpu->seen_peak);
}

Test(model, losses_are_counted_once_per_process)
{
    fix_open(&view, fix_typical, 1);
    cr_assert_eq(view.model.lost_total, 13);
    struct gp_system *system = fix_typical(1);
    system->processes[0].lost[GP_LOST_MAP] = 2; /* a process on two GPUs */
    cr_assert_eq(gp_model_update(&view.model, system), 0);
    cr_assert_eq(view.model.lost_total, 15);
    cr_assert_eq(view.model.lists[GP_LIST_PROCESSES].rows[0].lost, 2);
}

Test(model, histories_keep_the_newest_samples)
{
    fix_open(&view, fix_typical, GP_HISTORY + 5);
    const struct gp_history *history = fix_row(&view.list, 4242, 0)->history;
    int newest = GP_HISTORY + 4;
    cr_assert_eq(gp_model_history(history, 0), (int64_t)((20 + newest % 8) * GIB));
    cr_assert_eq(gp_model_history(history, 3), (int64_t)((20 + (newest - 3) % 8) * GIB));
    cr_assert_eq(gp_model_history(history, GP_HISTORY - 1), (int64_t)((20 + (newest - GP_HISTORY + 1) % 8) * GIB));
    cr_assert_eq(gp_model_history(history, GP_HISTORY), -1);
}

Test(model, a_device_under_another_ordinal_is_found_by_its_uuid)
{
    fix_open(&view, fix_typical, 0);
    struct gp_system *system = fix_system(2, 0);
    struct gp_device_view *device = fix_device(system, fix_process(system, 9, "hidden"), 1, 1, 1, 1, 1);
    device->ordinal = 0; /* CUDA_VISIBLE_DEVICES=1 */
    cr_assert_eq(gp_model_update(&view.model, system), 0);
    cr_assert_eq(view.model.lists[GP_LIST_PAIRS].rows[0].id.device, 1);
}

Test(model, a_gpu_that_only_a_process_knows_gets_a_row)
{
    fix_open(&view, fix_typical, 0);
    struct gp_system *system = fix_system(1, 0);
    struct gp_device_view *device = fix_device(system, fix_process(system, 9, "new"), 0, 1, 1, 1, 1);
    strcpy(device->uuid, "GPU-other");
    cr_assert_eq(gp_model_update(&view.model, system), 0);
    cr_assert_eq(view.model.gpu_count, 2);
    cr_assert_eq(view.model.gpus[1].index, 1, "no two GPUs have the same number");
    cr_assert_eq(view.model.gpus[1].used_bytes, -1);
}

static struct gp_system *two_machines(bool first, uint64_t tick)
{
    struct gp_system *system = fix_system(0, tick);
    for (int i = first ? 0 : 1; i < 2; i++) {
        struct gp_device_view *device = fix_device(system, fix_process(system, 10 + i, "own"), -1, 1 + i, 3, 1 + i, 3);
        device->ordinal = 0;
        snprintf(device->uuid, sizeof(device->uuid), "GPU-%d", i);
    }
    return system;
}

/* Two simulated GPUs of the same number: when the program of one ends, the other stays what it was. */
Test(model, a_gpu_keeps_its_number_and_its_history_when_another_goes)
{
    fix_open(&view, fix_typical, 0);
    for (uint64_t tick = 0; tick < 3; tick++)
        cr_assert_eq(gp_model_update(&view.model, two_machines(true, tick)), 0);
    fix_rows(&view);
    cr_assert(view.model.gpu_count == 2 && view.list.rows[0].id.pid == 11);
    gp_ui_select(&view.ui, &view.list, 0);
    struct gp_row_id before = view.ui.selected;
    cr_assert_eq(gp_model_update(&view.model, two_machines(false, 3)), 0);
    fix_rows(&view);
    cr_assert(view.model.gpu_count == 1 && view.model.gpus[0].index == 1, "%d", view.model.gpus[0].index);
    cr_assert(gp_model_id_equal(&view.list.rows[0].id, &before) &&
              gp_model_row_contains(&(struct gp_row){.id = before}, &view.list.rows[0]));
    const struct gp_row *gpu = &view.model.lists[GP_LIST_DEVICES].rows[0];
    cr_assert_eq(gp_model_plot(gpu->plot, 3)->allocated, (int64_t)(2 * GIB), "not that of the other GPU");
    cr_assert_eq(gp_model_update(&view.model, two_machines(true, 4)), 0);
    cr_assert(view.model.gpus[0].index == 1 && view.model.gpus[1].index == 0);
    cr_assert_eq(gp_model_update(&view.model, two_machines(true, 5)), 0);
    cr_assert(view.model.gpus[0].index == 0 && view.model.gpus[1].index == 1, "in the order of their numbers");
}

static void expect_pids(const struct gp_row_list *list, const int *pids, int count)
{
    cr_assert_eq(list->count, count, "%d rows, not %d", list->count, count);
    for (int i = 0; i < count; i++)
        cr_assert_eq(list->rows[i].id.pid, pids[i], "row %d: pid %d, not %d", i, list->rows[i].id.pid, pids[i]);
}

Test(rows, sort_by_allocated_with_the_unknown_last_in_both_directions)
{
    fix_open(&view, fix_typical, 1);
    expect_pids(&view.list, (int[]){4242, 4242, 77, 1001, 1002, 1003, 1004}, 7);
    view.ui.ascending = true;
    fix_rows(&view);
    expect_pids(&view.list, (int[]){1001, 77, 4242, 4242, 1002, 1003, 1004}, 7);
}

Test(rows, sort_by_every_column_is_an_order)
{
    fix_open(&view, fix_crowd, 2);
    for (int column = 0; column < GP_COLUMNS; column++) {
        view.ui.sort = (enum gp_column_id)column;
        for (int direction = 0; direction < 2; direction++) {
            view.ui.ascending = direction;
            fix_rows(&view);
            cr_assert_eq(view.list.count, 100);
            for (int i = 1; i < view.list.count; i++) {
                int unknown, order = gp_column_compare(view.ui.sort, &view.list.rows[i - 1], &view.list.rows[i],
                                                       &view.model, &unknown);
                cr_assert(direction ? order <= 0 : order >= 0, "column %d row %d", column, i);
            }
        }
    }
}

Test(rows, host_memory_is_shown_after_its_key)
{
    fix_open(&view, fix_typical, 1);
    cr_assert_null(fix_row(&view.list, 4242, GP_MODEL_HOST));
    fix_key(&view, 'H');
    cr_assert_eq(fix_row(&view.list, 4242, GP_MODEL_HOST)->allocated, (int64_t)(1.5 * GIB));
}

Test(rows, filter_matches_pid_command_and_container)
{
    fix_open(&view, fix_typical, 1);
    static const char *const filters[] = {"TRAIN.py", "4242", "4f1d2c"};
    for (size_t i = 0; i < GP_COUNT(filters); i++) {
        strcpy(view.ui.filter, filters[i]);
        fix_rows(&view);
        expect_pids(&view.list, (int[]){4242, 4242}, 2);
    }
    strcpy(view.ui.filter, "no match");
    fix_rows(&view);
    expect_pids(&view.list, NULL, 0);
}

Test(rows, tree_by_process_and_by_gpu)
{
    fix_open(&view, fix_typical, 1);
    view.ui.tree = true;
    fix_rows(&view);
    cr_assert_eq(view.list.rows[0].id.kind, GP_ROW_PROCESS);
    cr_assert_eq(view.list.rows[0].allocated, (int64_t)(32 * GIB));
    cr_assert(view.list.rows[1].depth == 1 && !view.list.rows[1].last);
    cr_assert(view.list.rows[2].depth == 1 && view.list.rows[2].last);
    cr_assert(view.list.rows[3].id.kind == GP_ROW_PAIR && view.list.rows[3].depth == 0, "one device, one row");
    view.ui.by = GP_BY_DEVICE;
    fix_rows(&view);
    cr_assert_eq(view.list.rows[0].id.kind, GP_ROW_DEVICE);
    cr_assert_eq(view.list.rows[0].id.device, 0);
    expect_pids(&view.list, (int[]){0, 4242, 77, 1003, 0, 4242, 1001}, 7);
}

Test(rows, a_container_sums_its_own_processes)
{
    fix_open(&view, fix_typical, 1);
    view.ui.by = GP_BY_CONTAINER;
    fix_rows(&view);
    int found = 0;
    for (int i = 0; i < view.list.count; i++) {
        if (strcmp(view.list.rows[i].id.container, "4f1d2c3b5a69") == 0) {
            cr_assert_eq(view.list.rows[i].members, 1);
            found++;
        }
    }
    cr_assert_eq(found, 2, "one for each GPU");
}

static const struct gp_row *owner_row(const struct gp_row_list *list, const char *owner)
{
    for (int i = 0; i < list->count; i++) {
        if (strcmp(list->rows[i].id.owner, owner) == 0)
            return &list->rows[i];
    }
    return NULL;
}

Test(rows, owners_add_up_to_the_gpu)
{
    fix_open(&view, fix_owned, 2);
    view.ui.by = GP_BY_OWNER;
    fix_rows(&view);
    cr_assert_eq(view.list.count, 5, "pytorch, nccl, program, shared, unknown");
    const struct gp_row *pytorch = owner_row(&view.list, "pytorch");
    cr_assert(pytorch && pytorch->id.kind == GP_ROW_OWNER && pytorch->members == 2);
    cr_assert_eq(pytorch->allocated, (int64_t)(20 * GIB));
    cr_assert_eq(pytorch->reserved, (int64_t)(31 * GIB));
    cr_assert(pytorch->seen_peak, "a sum of two");
    const struct gp_row *nccl = owner_row(&view.list, "nccl");
    cr_assert(nccl && !nccl->seen_peak && nccl->reserved_peak == (int64_t)(3 * GIB) + 1024, "one process: exact");
    const struct gp_row *shared = owner_row(&view.list, "shared");
    cr_assert(shared && shared->allocated == 0 && shared->reserved == (int64_t)(2 * GIB));
    const struct gp_row *unknown = owner_row(&view.list, "unknown");
    cr_assert(unknown && unknown->reserved == (int64_t)(2 * GIB), "the process without a table");
    int64_t allocated = 0, reserved = 0;
    for (int i = 0; i < view.list.count; i++) {
        allocated += view.list.rows[i].allocated;
        reserved += view.list.rows[i].reserved;
    }
    cr_assert_eq(allocated, view.model.lists[GP_LIST_DEVICES].rows[0].allocated);
    cr_assert_eq(reserved, view.model.lists[GP_LIST_DEVICES].rows[0].reserved);
    view.ui.tree = true;
    fix_rows(&view);
    expect_pids(&view.list, (int[]){0, 4242, 77, 0, 4242, 0, 78, 0, 4242, 0, 77, 4242}, 12);
    strcpy(view.ui.filter, "NCC");
    fix_rows(&view);
    expect_pids(&view.list, (int[]){0, 4242}, 2);
}

/* ---- forecast ---------------------------------------------------------------------------------------------------- */

static void fix_growing(struct gp_model *model, uint64_t tick, double allocated)
{
    struct gp_system *system = fix_system(1, tick);
    struct gp_process *process = fix_process(system, 7, "train");
    struct gp_device_view *device = fix_device(system, process, 0, allocated, allocated + 5, allocated + 6, 20);
    device->wire.stats[GP_STAT_ALLOCATION][GP_POOL_ALL].freed =
        device->wire.stats[GP_STAT_ALLOCATION][GP_POOL_ALL].allocated - 10;
    snprintf(process->container, sizeof(process->container), "pod-7");
    cr_assert_eq(gp_model_update(model, system), 0);
}

/* 80 GiB are free, 6 more idle in the cache; each second takes a quarter of a GiB. */
Test(model, growth_has_an_end)
{
    struct gp_model model;
    char text[32];
    gp_model_init(&model);
    for (uint64_t tick = 0; tick < 60; tick++) {
        fix_growing(&model, tick, 10 + 0.25 * (double)tick);
        const struct gp_row *row = &model.lists[GP_LIST_PAIRS].rows[0];
        cr_assert_eq(model.system->processes[0].devices[0].forecast, &row->outlook->result);
        if (tick == 10)
            cr_assert_eq(row->outlook->result.verdict, GP_FORECAST_SHORT);
    }
    const struct gp_row *row = &model.lists[GP_LIST_PAIRS].rows[0];
    const struct gp_forecast_result *result = &row->outlook->result;
    cr_assert_eq(result->verdict, GP_FORECAST_GROWS, "%s", gp_forecast_word(result->verdict));
    cr_assert_eq(result->headroom_bytes, (int64_t)(86 * GIB));
    cr_assert_float_eq(result->bytes_per_second / GIB, 0.25, 0.01);
    cr_assert(result->seconds_to_oom > 300 && result->seconds_to_oom < 350, "%f", result->seconds_to_oom);
    /* Of these 6, 4 may be idle in private pools, and 7 cannot be. */
    ((struct gp_device_view *)row->device)->framework.private_bytes = (int64_t)(4 * GIB);
    gp_outlook_find(row->outlook, row, (int64_t)(80 * GIB));
    cr_assert_eq(result->headroom_bytes, (int64_t)(82 * GIB));
    ((struct gp_device_view *)row->device)->framework.private_bytes = (int64_t)(7 * GIB);
    gp_outlook_find(row->outlook, row, (int64_t)(80 * GIB));
    cr_assert_eq(result->headroom_bytes, (int64_t)(80 * GIB));
    ((struct gp_device_view *)row->device)->framework.private_bytes = 0;
    gp_outlook_find(row->outlook, row, (int64_t)(80 * GIB));
    cr_assert_eq(gp_outlook_growth_first(&model), row);
    gp_column_text(GP_COLUMN_OOM_IN, row, &model, GP_TEXT_SHORT, true, text, sizeof(text));
    cr_assert_eq(text[0], '5', "%s", text); /* minutes */
    gp_column_text(GP_COLUMN_HEADROOM, row, &model, GP_TEXT_SHORT, true, text, sizeof(text));
    cr_assert_str_eq(text, "86.0G");
    gp_model_fini(&model);
}

Test(model, steady_memory_has_none)
{
    struct gp_model model;
    char text[32];
    gp_model_init(&model);
    for (uint64_t tick = 0; tick < 60; tick++)
        fix_growing(&model, tick, 10 + (double)(tick % 3));
    const struct gp_row *row = &model.lists[GP_LIST_PAIRS].rows[0];
    cr_assert_neq(row->outlook->result.verdict, GP_FORECAST_GROWS);
    cr_assert_null(gp_outlook_growth_first(&model));
    gp_column_text(GP_COLUMN_OOM_IN, row, &model, GP_TEXT_SHORT, true, text, sizeof(text));
    cr_assert_str_eq(text, "-");
    gp_model_fini(&model);
}
