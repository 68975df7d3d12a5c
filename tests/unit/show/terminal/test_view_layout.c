/* SPDX-License-Identifier: MIT
 * test_view_layout.c: the rectangles of a frame, for every size. */
#include <criterion/criterion.h>
#include <show/terminal/layout.h>

static bool inside(struct gp_rect r, int rows, int cols)
{
    return r.h >= 0 && r.w >= 0 && r.y >= 0 && r.x >= 0 && r.y + r.h <= rows && r.x + r.w <= cols;
}

static bool overlap(struct gp_rect a, struct gp_rect b)
{
    return a.h > 0 && b.h > 0 && a.w > 0 && b.w > 0 && a.y < b.y + b.h && b.y < a.y + a.h && a.x < b.x + b.w &&
           b.x < a.x + a.w;
}

static void check(const struct gp_layout_wish *wish)
{
    struct gp_layout layout = gp_draw_layout_of(wish);
    const struct gp_rect all[] = {layout.title,  layout.alerts,  layout.header, layout.table, layout.plots,
                                  layout.detail, layout.message, layout.footer, layout.gpus};
    cr_assert_leq(layout.gpu_shown, wish->gpus);
    cr_assert_leq(layout.plot_shown, wish->gpus);
    cr_assert((layout.plot_shown > 0) == (layout.plots.h > 0));
    int lines = 0;
    for (int i = 0; i < (int)GP_COUNT(all); i++) {
        cr_assert(inside(all[i], wish->rows, wish->cols), "%dx%d part %d", wish->cols, wish->rows, i);
        lines += all[i].h;
        for (int k = 0; k < i; k++)
            cr_assert_not(overlap(all[i], all[k]), "%dx%d parts %d and %d", wish->cols, wish->rows, k, i);
    }
    cr_assert_eq(lines, wish->rows, "%dx%d: every line has an owner", wish->cols, wish->rows);
}

Test(layout, never_overlaps_and_stays_inside_for_every_size)
{
    static const int gpus[] = {0, 1, 2, 8, 56}, rows[] = {0, 3, 500}, details[] = {0, 2, 9};
    for (int r = 1; r <= 100; r++) {
        for (int c = 1; c <= 300; c++) {
            for (int i = 0; i < 45; i++) {
                struct gp_layout_wish wish = {r, c, i % 4, gpus[i % 5], rows[i / 5 % 3], details[i / 15], i % 7 * 3};
                check(&wish);
            }
        }
    }
}

Test(layout, gives_the_first_line_to_the_title_and_the_second_to_the_table)
{
    struct gp_layout_wish wish = {.rows = 2, .cols = 20, .alerts = 1, .gpus = 1, .table_rows = 5, .detail = 5};
    struct gp_layout layout = gp_draw_layout_of(&wish);
    cr_assert_eq(layout.title.h, 1);
    cr_assert_eq(layout.table.h, 1);
}

Test(layout, keeps_losses_gpus_table_and_footer_at_60x15)
{
    struct gp_layout_wish wish = {.rows = 15, .cols = 60, .alerts = 2, .gpus = 2, .table_rows = 20, .detail = 6};
    struct gp_layout layout = gp_draw_layout_of(&wish);
    cr_assert_eq(layout.alerts.h, 2);
    cr_assert_eq(layout.gpu_shown, 2);
    cr_assert_eq(layout.footer.h, 1);
    cr_assert_geq(layout.table.h, 3);
}

Test(layout, puts_many_gpus_side_by_side)
{
    struct gp_layout_wish wish = {.rows = 40, .cols = 160, .gpus = 56, .table_rows = 100};
    struct gp_layout layout = gp_draw_layout_of(&wish);
    cr_assert_eq(layout.gpu_columns, 4);
    cr_assert_eq(layout.gpu_shown, 56);
}

/* Plots take only the lines that the table and the detail pane leave. */
Test(layout, a_tall_screen_has_a_plot_per_gpu_and_a_low_one_none)
{
    struct gp_layout_wish wish = {.rows = 24, .cols = 80, .gpus = 1, .table_rows = 1};
    cr_assert_eq(gp_draw_layout_of(&wish).plot_shown, 0);
    wish = (struct gp_layout_wish){.rows = 60, .cols = 120, .gpus = 2, .table_rows = 4, .detail = 6};
    struct gp_layout layout = gp_draw_layout_of(&wish);
    cr_assert_eq(layout.plot_shown, 2);
    cr_assert_eq(layout.plot_columns, 1);
    cr_assert_geq(layout.plots.h, 30);
    cr_assert_eq(layout.detail.h, 6);
    cr_assert_geq(layout.table.h, 5);
    wish.table_rows = 100;
    layout = gp_draw_layout_of(&wish);
    cr_assert_eq(layout.plot_shown, 0);
    cr_assert_eq(layout.plots.h, 0);
    wish = (struct gp_layout_wish){.rows = 60, .cols = 220, .gpus = 8, .table_rows = 8};
    layout = gp_draw_layout_of(&wish);
    cr_assert_eq(layout.plot_shown, 8);
    cr_assert_gt(layout.plot_columns, 1);
}

Test(layout, accepts_a_screen_without_cells)
{
    struct gp_layout_wish wish = {.rows = -1, .cols = 0, .alerts = 3, .gpus = 9, .table_rows = 9, .detail = 9};
    struct gp_layout layout = gp_draw_layout_of(&wish);
    cr_assert_eq(layout.title.h + layout.table.h + layout.gpus.h, 0);
}

/* Call sites of the selected process have half of the lines that the table leaves, and all of them without a GPU. */
Test(layout, a_tall_screen_has_room_for_call_sites)
{
    struct gp_layout_wish wish = {.rows = 40, .cols = 120, .gpus = 1, .table_rows = 4, .detail = 7, .more = 30};
    struct gp_layout layout = gp_draw_layout_of(&wish);
    cr_assert_eq(layout.plot_shown, 1);
    cr_assert_geq(layout.detail.h, 7 + 8);
    cr_assert_eq(layout.table.h, 5);
    wish.more = 5;
    cr_assert_eq(gp_draw_layout_of(&wish).detail.h, 12);
    wish.gpus = 0;
    wish.more = 30;
    cr_assert_geq(gp_draw_layout_of(&wish).detail.h, 7 + 19);
    wish.rows = 24;
    cr_assert_eq(gp_draw_layout_of(&wish).detail.h, 7, "not on a low screen");
}
