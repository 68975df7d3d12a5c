/* SPDX-License-Identifier: MIT
 * test_view_ui.c: what the keys of `gpuprof top` change. */
#include "view_fixture.h"

static struct fix_view view;

static void view_close(void)
{
    fix_close(&view);
}

TestSuite(ui, .fini = view_close);

Test(ui, arrows_stay_in_the_table_and_follow_the_row)
{
    fix_open(&view, fix_typical, 1);
    fix_key(&view, GP_KEY_UP);
    cr_assert_eq(view.ui.cursor, 0);
    fix_key(&view, GP_KEY_END);
    cr_assert_eq(view.ui.cursor, 6);
    fix_key(&view, GP_KEY_DOWN);
    cr_assert_eq(view.ui.cursor, 6);
    fix_key(&view, GP_KEY_HOME);
    fix_key(&view, 'j');
    struct gp_row_id chosen = view.ui.selected;
    fix_key(&view, 'I');
    cr_assert(gp_model_id_equal(&view.list.rows[view.ui.cursor].id, &chosen), "the row is followed, not the line");
}

Test(ui, paging_keeps_the_cursor_on_the_screen)
{
    fix_open(&view, fix_crowd, 1);
    gp_ui_settle(&view.ui, &view.list, 10);
    fix_key(&view, GP_KEY_PAGE_DOWN);
    cr_assert(view.ui.cursor == 10 && view.ui.top == 1);
    fix_key(&view, GP_KEY_END);
    cr_assert(view.ui.cursor == 99 && view.ui.top == 90);
    gp_ui_settle(&view.ui, &view.list, 200);
    cr_assert_eq(view.ui.top, 0, "a taller screen shows all");
}

Test(ui, reset_asks_first_and_names_one_row)
{
    fix_open(&view, fix_typical, 1);
    cr_assert_eq(fix_key(&view, 'r'), GP_ACTION_NONE);
    cr_assert_eq(view.ui.mode, GP_MODE_CONFIRM);
    cr_assert_eq(view.ui.target_count, 1);
    cr_assert_eq(view.ui.targets[0].pid, 4242);
    cr_assert_eq(view.ui.targets[0].device_index, 0);
    cr_assert_eq(fix_key(&view, 'x'), GP_ACTION_NONE);
    cr_assert_eq(view.ui.mode, GP_MODE_CONFIRM, "any other key keeps asking");
    cr_assert_eq(fix_key(&view, 'n'), GP_ACTION_NONE);
    cr_assert_eq(view.ui.mode, GP_MODE_NORMAL);
    fix_key(&view, 'p');
    cr_assert_eq(view.ui.reset_what, GP_RESET_PEAKS);
    cr_assert_eq(fix_key(&view, 'y'), GP_ACTION_RESET);
}

Test(ui, reset_of_tagged_rows_takes_each_peak_once)
{
    fix_open(&view, fix_typical, 1);
    fix_key(&view, ' ');
    fix_key(&view, ' ');
    cr_assert_eq(view.ui.tag_count, 2);
    view.ui.tree = true;
    fix_rows(&view);
    fix_key(&view, GP_KEY_HOME);
    fix_key(&view, ' '); /* the process that sums both */
    fix_key(&view, 'R');
    cr_assert_eq(view.ui.target_count, 2);
    cr_assert_eq(view.ui.reset_what, GP_RESET_RESERVED);
}

Test(ui, reset_of_a_process_that_cannot_answer_is_refused)
{
    fix_open(&view, fix_typical, 1);
    fix_key(&view, GP_KEY_END);
    fix_key(&view, 'r');
    cr_assert_eq(view.ui.mode, GP_MODE_NORMAL);
    cr_assert(view.ui.message_is_error && view.ui.message[0]);
}

Test(ui, owners_are_not_reset)
{
    fix_open(&view, fix_owned, 1);
    fix_key(&view, 'd');
    fix_key(&view, 'd');
    fix_key(&view, 'd');
    cr_assert_eq(view.ui.by, GP_BY_OWNER);
    fix_key(&view, GP_KEY_HOME);
    fix_key(&view, 'r');
    cr_assert_eq(view.ui.mode, GP_MODE_NORMAL);
    cr_assert(view.ui.message_is_error && strstr(view.ui.message, "by process"));
    fix_key(&view, 'd');
    fix_key(&view, 'd');
    cr_assert_eq(view.ui.by, GP_BY_PROCESS, "after the call sites");
}

Test(ui, reset_of_a_gpu_takes_its_processes_and_not_the_host)
{
    fix_open(&view, fix_typical, 1);
    fix_key(&view, 'd');
    cr_assert_eq(view.ui.by, GP_BY_DEVICE);
    fix_key(&view, GP_KEY_HOME);
    fix_key(&view, 'r');
    cr_assert_eq(view.ui.target_count, 2, "4242 and 77 on GPU 0; Xorg is not profiled");
}

Test(ui, the_filter_can_be_typed_and_deleted)
{
    fix_open(&view, fix_typical, 1);
    fix_key(&view, '\\');
    for (const char *p = "sq\xe9"; *p; p++) /* Latin-1 codes: characters, not bytes */
        fix_key(&view, (unsigned char)*p);
    cr_assert_str_eq(view.ui.filter, "sq\xc3\xa9");
    fix_key(&view, GP_KEY_BACKSPACE);
    cr_assert_str_eq(view.ui.filter, "sq");
    for (int i = 0; i < 200; i++)
        fix_key(&view, 0x6a21);
    cr_assert_lt(strlen(view.ui.filter), sizeof(view.ui.filter));
    cr_assert_eq(fix_key(&view, 'Q'), GP_ACTION_NONE);
    fix_key(&view, GP_KEY_ESCAPE);
    cr_assert_eq(view.ui.filter[0], '\0');
    cr_assert_eq(view.ui.mode, GP_MODE_NORMAL);
}

Test(ui, the_sort_menu_skips_the_bar_and_takes_the_choice)
{
    fix_open(&view, fix_typical, 1);
    fix_key(&view, '>');
    fix_key(&view, GP_KEY_HOME);
    fix_key(&view, GP_KEY_UP);
    cr_assert_eq(view.ui.sort_cursor, GP_COLUMN_PID);
    for (int i = 0; i < 7; i++)
        fix_key(&view, GP_KEY_DOWN);
    cr_assert_eq(view.ui.sort_cursor, GP_COLUMN_ALLOCS);
    fix_key(&view, GP_KEY_ENTER);
    cr_assert_eq(view.ui.sort, GP_COLUMN_ALLOCS);
    cr_assert_not(view.ui.ascending);
}

Test(ui, the_interval_moves_in_steps_and_stops_at_its_limits)
{
    fix_open(&view, fix_typical, 1);
    cr_assert_eq(fix_key(&view, '+'), GP_ACTION_INTERVAL);
    cr_assert_eq(view.ui.interval_ms, 2000);
    for (int i = 0; i < 30; i++)
        fix_key(&view, '-');
    cr_assert_eq(view.ui.interval_ms, 100);
    for (int i = 0; i < 30; i++)
        fix_key(&view, '+');
    cr_assert_eq(view.ui.interval_ms, 3600000);
    view.ui.interval_ms = 1700;
    fix_key(&view, '-');
    cr_assert_eq(view.ui.interval_ms, 1000);
}

Test(ui, quit_keys_quit_and_k_kills_no_process)
{
    fix_open(&view, fix_typical, 1);
    cr_assert_eq(fix_key(&view, 'q'), GP_ACTION_QUIT);
    cr_assert_eq(fix_key(&view, GP_KEY_F10), GP_ACTION_QUIT);
    cr_assert_eq(fix_key(&view, 'k'), GP_ACTION_NONE);
    cr_assert_eq(view.ui.mode, GP_MODE_NORMAL);
    cr_assert(strstr(view.ui.message, "never kills"), "%s", view.ui.message);
    fix_key(&view, 'g');
    cr_assert_eq(fix_key(&view, GP_KEY_F1 + 8), GP_ACTION_NONE);
    cr_assert(strstr(view.ui.message, "never kills"), "%s", view.ui.message);
    fix_key(&view, 'y');
    cr_assert(strstr(view.ui.message, "no such key: y"), "%s", view.ui.message);
    fix_key(&view, 'g');
    cr_assert_str_empty(view.ui.message, "%s", view.ui.message);
}

Test(ui, no_sequence_of_keys_breaks_a_frame)
{
    struct gp_grid grid;
    fix_open(&view, fix_typical, 2);
    cr_assert_eq(gp_grid_init(&grid, 24, 80, false), 0);
    unsigned seed = 1;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1664525u + 1013904223u;
        int key = (seed >> 16) % 160;
        fix_key(&view, key < 128 ? key : GP_KEY_BASE + 1 + (key - 128) % 20);
        if (i % 37 == 0)
            cr_assert_eq(gp_model_update(&view.model, (i % 2 ? fix_typical : fix_empty)((uint64_t)i)), 0);
        fix_rows(&view);
        fix_draw(&view, &grid);
    }
    gp_grid_fini(&grid);
}

/* One table makes the help and the footer, so they are checked together: on 80 columns nothing is
 * cut, no key has two meanings, and what the footer offers can be clicked. */
Test(ui, the_help_fits_and_names_each_key_once)
{
    struct gp_grid grid;
    char line[512];
    fix_open(&view, fix_typical, 2);
    cr_assert_eq(gp_grid_init(&grid, 24, 80, false), 0);
    for (int i = 0; i < gp_key_help_count; i++) {
        const struct gp_key_help *help = &gp_key_helps[i];
        cr_assert(strlen(help->keys) <= 11 && strlen(help->what) <= 66, "%s", help->what);
        cr_assert_eq(help->label != NULL, help->key != 0);
        for (int k = 0; k < i; k++)
            cr_assert(strcmp(help->keys, gp_key_helps[k].keys) != 0 &&
                      (!help->key || help->key != gp_key_helps[k].key));
    }
    fix_draw(&view, &grid);
    fix_line(&grid, 23, line, sizeof(line));
    for (int i = 0; i < gp_key_help_count; i++) {
        if (!gp_key_helps[i].label)
            continue;
        const char *at = strstr(line, gp_key_helps[i].label);
        struct gp_draw draw = {&grid, &view.model, &view.list, &view.ui};
        cr_assert(at, "%s is not in %s", gp_key_helps[i].label, line);
        cr_assert_eq(gp_draw_hit(&draw, 23, (int)(at - line)).key, gp_key_helps[i].key);
    }
    fix_key(&view, 'h');
    fix_draw(&view, &grid);
    fix_line(&grid, 21, line, sizeof(line));
    cr_assert(strstr(line, "more: "), "%s", line);
    for (int i = 0; i < 30; i++)
        fix_key(&view, GP_KEY_DOWN);
    fix_draw(&view, &grid);
    fix_line(&grid, 21, line, sizeof(line));
    cr_assert_not(strstr(line, "more: "));
    gp_grid_fini(&grid);
}

Test(ui, a_search_selects_the_next_row_and_a_filter_leaves_rows_out)
{
    fix_open(&view, fix_typical, 2);
    int rows = view.list.count;
    fix_key(&view, '/');
    for (const char *p = "train"; *p; p++)
        fix_key(&view, *p);
    fix_key(&view, GP_KEY_ENTER);
    cr_assert_eq(view.list.count, rows);
    cr_assert(view.ui.cursor == 0 && view.list.rows[0].id.pid == 4242);
    fix_key(&view, 'n');
    cr_assert(view.ui.cursor == 1 && view.list.rows[1].id.pid == 4242, "its second GPU");
    fix_key(&view, 'n');
    cr_assert_eq(view.ui.cursor, 0, "from the top again");
    fix_key(&view, '/');
    fix_key(&view, '#');
    cr_assert(view.ui.message_is_error && view.ui.cursor == 0);
    fix_key(&view, GP_KEY_ESCAPE);
}

/* ---- the screen stays where the user put it ---------------------------------------------------------------------- */

/* A hundred workers and `more` larger programs; worker 60 holds `sixty` GiB. */
static void crowd_sample(int more, double sixty)
{
    static uint64_t tick = 100;
    struct gp_system *system = fix_crowd(++tick);
    fix_value(&system->processes[60].devices[0], GP_STAT_ALLOCATED_BYTES, sixty * GIB, 20 * GIB);
    for (int i = 0; i < more; i++)
        fix_device(system, fix_process(system, 20000 + i, "larger"), 0, 50 + i, 60, 60, 60);
    cr_assert_eq(gp_model_update(&view.model, system), 0);
    fix_rows(&view);
}

static int shown(int line)
{
    return view.list.rows[view.ui.top + line].id.pid;
}

Test(ui, rows_that_come_and_go_do_not_move_the_screen)
{
    fix_open(&view, fix_crowd, 1);
    gp_ui_settle(&view.ui, &view.list, 10);
    crowd_sample(3, 6);
    cr_assert(view.ui.top == 0 && view.ui.cursor == 3 && view.ui.selected.pid == 10099, "the first rows stay in view");
    fix_key(&view, GP_KEY_HOME);
    for (int i = 0; i < 30; i++)
        fix_key(&view, GP_KEY_DOWN);
    int first = shown(0), chosen = view.ui.selected.pid;
    static const int more[] = {4, 9, 0, 2};
    for (size_t i = 0; i < GP_COUNT(more); i++) {
        crowd_sample(more[i], 6);
        cr_assert(shown(0) == first && view.ui.selected.pid == chosen, "%d larger: %d", more[i], shown(0));
    }
    crowd_sample(0, 6);
    gp_ui_settle(&view.ui, &view.list, 11);
    cr_assert_eq(view.ui.selected.pid, chosen);
}

Test(ui, a_row_that_changes_its_rank_takes_the_selection_with_it_and_not_the_screen)
{
    fix_open(&view, fix_crowd, 1);
    gp_ui_settle(&view.ui, &view.list, 10);
    crowd_sample(0, 30); /* worker 60 is the first */
    fix_key(&view, GP_KEY_HOME);
    cr_assert_eq(view.ui.selected.pid, 10060);
    crowd_sample(0, 0.01);
    cr_assert(view.ui.top == 0 && shown(0) == 10099, "the largest rows are still shown");
    cr_assert(view.ui.selected.pid == 10060 && view.ui.cursor > 90, "the row is still selected");
    crowd_sample(0, 0.01);
    cr_assert(view.ui.top == 0);
    fix_key(&view, GP_KEY_UP);
    cr_assert(view.ui.top > 80 && view.ui.cursor >= view.ui.top, "a key goes on from there");
    fix_key(&view, GP_KEY_HOME);
    crowd_sample(0, 40);
    fix_key(&view, 'N');
    cr_assert_eq(view.ui.selected.pid, 10099);
    cr_assert(view.ui.cursor >= view.ui.top && view.ui.cursor < view.ui.top + view.ui.page,
              "where the user changes the order, the row is shown");
}

Test(ui, the_row_below_takes_the_place_of_one_that_ends)
{
    fix_open(&view, fix_crowd, 1);
    gp_ui_settle(&view.ui, &view.list, 10);
    crowd_sample(5, 6);
    fix_key(&view, GP_KEY_HOME);
    fix_key(&view, GP_KEY_DOWN);
    cr_assert_eq(view.ui.selected.pid, 20003);
    crowd_sample(3, 6); /* 20004 and 20003 end */
    cr_assert(view.ui.cursor == 1 && view.ui.selected.pid == 20001, "%d", (int)view.ui.selected.pid);
}

Test(ui, each_view_keeps_its_place)
{
    fix_open(&view, fix_crowd, 1);
    gp_ui_settle(&view.ui, &view.list, 10);
    for (int i = 0; i < 25; i++)
        fix_key(&view, GP_KEY_DOWN);
    int first = shown(0), chosen = view.ui.selected.pid;
    fix_key(&view, 'd');
    cr_assert(view.ui.by == GP_BY_DEVICE && view.ui.cursor == 0 && view.ui.top == 0);
    fix_key(&view, GP_KEY_END);
    fix_key(&view, 'd');
    fix_key(&view, 'd');
    fix_key(&view, 's');
    cr_assert_eq(view.ui.by, GP_BY_SITE);
    fix_key(&view, GP_KEY_ESCAPE);
    cr_assert_eq(view.ui.by, GP_BY_OWNER);
    fix_key(&view, 'd');
    fix_key(&view, 'd');
    cr_assert(view.ui.by == GP_BY_PROCESS && view.ui.selected.pid == chosen && shown(0) == first);
    fix_key(&view, 'd');
    cr_assert_eq(view.ui.cursor, view.list.count - 1, "the last GPU");
}
