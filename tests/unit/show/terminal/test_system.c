/* SPDX-License-Identifier: MIT
 * test_system.c: tests the agent's sums in the views: exact peaks, containers by cgroup, hidden processes. */
#include "view_fixture.h"

static struct gp_system *whole(uint64_t tick)
{
    struct gp_system *system = fix_system(2, tick);
    struct gp_process *process = fix_process(system, 10, "train");
    fix_device(system, process, 0, 4, 6, 5, 7)->totals_only = true;
    process->from_agent = true;
    process->cgroup_id = 77;
    snprintf(process->container, sizeof(process->container), "team/train");
    struct gp_agent *agent = &system->agent;
    agent->present = agent->alive = true;
    agent->sums = calloc(3, sizeof(*agent->sums));
    for (int i = 0; i < 3; i++) {
        struct gp_sum *sum = &agent->sums[agent->sum_count++];
        *sum = (struct gp_sum){.cgroup_id = i == 0   ? 0
                                            : i == 1 ? 77
                                                     : 78,
                               .total_bytes = -1,
                               .allocated = (int64_t)((i == 0   ? 9
                                                       : i == 1 ? 4
                                                                : 5) *
                                                      GIB),
                               .allocated_peak = (int64_t)(50 * GIB),
                               .reserved = (int64_t)(12 * GIB),
                               .reserved_peak = (int64_t)(60 * GIB),
                               .calls = (int64_t)(tick * 100),
                               .frees = (int64_t)(tick * 50),
                               .processes = i == 0 ? 3 : i};
        snprintf(sum->uuid, sizeof(sum->uuid), "GPU-%08d", 0);
        if (i)
            snprintf(sum->container, sizeof(sum->container), "team/train"); /* two containers with the same name */
    }
    return system;
}

Test(system, sums_of_the_agent_are_exact_and_include_hidden_processes)
{
    struct fix_view view;
    fix_open(&view, whole, 2);
    const struct gp_row *gpu = &view.model.lists[GP_LIST_DEVICES].rows[0];
    cr_assert_eq(gpu->allocated, (int64_t)(9 * GIB), "only the 4 of the one visible process");
    cr_assert_eq(gpu->allocated_peak, (int64_t)(50 * GIB));
    cr_assert_not(gpu->seen_peak);
    cr_assert_eq(gpu->members, 3);
    cr_assert(fabs(gpu->allocs_per_s - 100) < 1e-6);
    cr_assert(fabs(gpu->frees_per_s - 50) < 1e-6);
    cr_assert_eq(view.model.lists[GP_LIST_DEVICES].count, 2, "the idle GPU has no row");
    fix_close(&view);
}

Test(system, containers_of_one_name_are_two)
{
    struct fix_view view;
    fix_open(&view, whole, 2);
    const struct gp_row_list *list = &view.model.lists[GP_LIST_CONTAINERS];
    cr_assert_eq(list->count, 2);
    const struct gp_row *pair = &view.model.lists[GP_LIST_PAIRS].rows[0];
    cr_assert(gp_model_row_contains(&list->rows[0], pair));
    cr_assert_not(gp_model_row_contains(&list->rows[1], pair));
    cr_assert_neq(list->rows[0].history, list->rows[1].history);
    fix_close(&view);
}

Test(system, a_sum_that_falls_has_no_rate)
{
    struct fix_view view;
    fix_open(&view, whole, 2);
    struct gp_system *system = whole(2);
    system->agent.sums[0].calls = 1; /* another agent */
    cr_assert_eq(gp_model_update(&view.model, system), 0);
    cr_assert(isnan(view.model.lists[GP_LIST_DEVICES].rows[0].allocs_per_s));
    fix_close(&view);
}

Test(system, peaks_of_the_machine_are_not_reset_by_a_key)
{
    struct fix_view view;
    fix_open(&view, whole, 1);
    cr_assert_eq(fix_key(&view, 'r'), GP_ACTION_NONE);
    cr_assert_eq(view.ui.mode, GP_MODE_NORMAL);
    cr_assert(strstr(view.ui.message, "gpuprof reset --allocated --all"), "%s", view.ui.message);
    fix_close(&view);
}

Test(system, every_size_of_screen_is_drawn)
{
    static const struct {
        int rows, cols;
    } sizes[] = {{1, 1}, {3, 20}, {24, 80}, {50, 200}};
    for (int by = 0; by < GP_BYS; by++) {
        for (size_t i = 0; i < GP_COUNT(sizes); i++) {
            struct fix_view view;
            struct gp_grid grid;
            fix_open(&view, whole, 1);
            struct gp_system *system = whole(1);
            system->agent.alive = false;
            system->agent.processes_hidden = true;
            system->agent.map_full = 4;
            cr_assert_eq(gp_model_update(&view.model, system), 0);
            view.ui.by = (enum gp_by)by;
            fix_rows(&view);
            cr_assert_eq(gp_grid_init(&grid, sizes[i].rows, sizes[i].cols, false), 0);
            fix_draw(&view, &grid);
            gp_grid_fini(&grid);
            fix_close(&view);
        }
    }
}
