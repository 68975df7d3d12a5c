/* SPDX-License-Identifier: MIT
 *
 * test_view_draw.c: frames of `gpuprof top`.  The golden frames are in tests/golden/top.
 * GP_GOLDEN_UPDATE=1 writes them again; read them before you commit them.
 */
#include "view_fixture.h"

#include <lib/golden.h>

static void check_cells(const struct gp_grid *grid, const char *what)
{
    for (int y = 0; y < grid->rows; y++) {
        for (int x = 0; x < grid->cols; x++) {
            const struct gp_cell *cell = gp_grid_at(grid, y, x);
            cr_assert_lt(cell->style, GP_STYLES);
            if (cell->width == 2)
                cr_assert(x + 1 < grid->cols && gp_grid_at(grid, y, x + 1)->width == 0, "%s: half a character", what);
            else if (cell->width == 0)
                cr_assert(x > 0 && gp_grid_at(grid, y, x - 1)->width == 2, "%s: half a character", what);
            else
                cr_assert(cell->glyph[0] && (unsigned char)cell->glyph[0] >= 0x20, "%s: control character", what);
            cr_assert(!grid->ascii || (unsigned char)cell->glyph[0] < 0x80, "%s: not ASCII", what);
        }
    }
}

static void draw_all_modes(struct fix_view *view, struct gp_grid *grid, const char *what)
{
    static const int keys[] = {0, 't', 'd', 'H', '?', 'q', '>', GP_KEY_ESCAPE, '/', GP_KEY_ESCAPE, 'p', 'n'};
    for (size_t i = 0; i < GP_COUNT(keys); i++) {
        if (keys[i])
            fix_key(view, keys[i]);
        fix_draw(view, grid);
        check_cells(grid, what);
    }
    fix_key(view, 't');
    fix_key(view, 'H');
    view->ui.by = GP_BY_PROCESS;
}

/* Draws a machine in every width with some heights, in every height with some widths, and some
 * sizes in all modes. */
static void draw_sizes(const struct fix_machine *machine)
{
    struct fix_view view;
    fix_open(&view, machine->make, 3);
    static const int some[] = {1, 2, 3, 5, 9, 15, 24, 40, 80, 100, 131, 300};
    for (int n = 1; n <= 300; n++) {
        for (size_t i = 0; i < GP_COUNT(some); i++) {
            struct gp_grid grid;
            int rows = i % 2 ? some[i] : n, cols = i % 2 ? n : some[i];
            if (rows > 100)
                continue;
            cr_assert_eq(gp_grid_init(&grid, rows, cols, n % 3 == 0), 0);
            if (n < 12 || n % 16 == 0)
                draw_all_modes(&view, &grid, machine->name);
            fix_draw(&view, &grid);
            check_cells(&grid, machine->name);
            gp_grid_fini(&grid);
        }
    }
    fix_close(&view);
}

Test(draw, fits_every_size_on_an_empty_machine)
{
    draw_sizes(&fix_machines[0]);
}

Test(draw, fits_every_size_on_a_typical_machine)
{
    draw_sizes(&fix_machines[1]);
}

Test(draw, fits_every_size_on_a_crowded_machine)
{
    draw_sizes(&fix_machines[2]);
}

Test(draw, fits_every_size_with_odd_values)
{
    draw_sizes(&fix_machines[3]);
}

Test(draw, before_the_first_sample_says_so)
{
    struct fix_view view;
    struct gp_grid grid;
    fix_open(&view, fix_empty, 0);
    cr_assert_eq(gp_grid_init(&grid, 10, 60, false), 0);
    fix_draw(&view, &grid);
    check_cells(&grid, "no sample");
    gp_grid_fini(&grid);
    fix_close(&view);
}

/* ---- golden frames ------------------------------------------------------------------------------------------- */

static char *frame_text(const struct gp_grid *grid)
{
    size_t bytes = (size_t)grid->rows * ((size_t)grid->cols * GP_CELL_BYTES + 1) + 1, used = 0;
    char *text = malloc(bytes);
    for (int y = 0; y < grid->rows; y++) {
        used += fix_line(grid, y, text + used, bytes - used);
        text[used++] = '\n';
    }
    text[used] = '\0';
    return text;
}

static void golden(struct fix_view *view, int cols, int rows, bool ascii, const char *name)
{
    struct gp_grid grid;
    char relative[128];
    snprintf(relative, sizeof(relative), "tests/golden/top/%s.txt", name);
    cr_assert_eq(gp_grid_init(&grid, rows, cols, ascii), 0);
    fix_draw(view, &grid);
    char *now = frame_text(&grid);
    golden_expect(relative, now, true);
    free(now);
    gp_grid_fini(&grid);
}

Test(golden, frames_of_all_sizes)
{
    static const int sizes[][2] = {{40, 10}, {60, 15}, {80, 24}, {120, 40}, {200, 50}, {120, 60}};
    for (size_t m = 0; m < GP_COUNT(fix_machines); m++) {
        struct fix_view view;
        fix_open(&view, fix_machines[m].make, 20);
        for (size_t i = 0; i < GP_COUNT(sizes); i++) {
            for (int ascii = 0; ascii < 2; ascii++) {
                char name[64];
                snprintf(name, sizeof(name), "%s-%dx%d-%s", fix_machines[m].name, sizes[i][0], sizes[i][1],
                         ascii ? "ascii" : "utf8");
                golden(&view, sizes[i][0], sizes[i][1], ascii, name);
            }
        }
        fix_close(&view);
    }
}

Test(golden, modes)
{
    static const struct {
        const char *name, *keys;
    } modes[] = {{"help", "?"},      {"tree", "t"},        {"gpus", "dt"},         {"containers", "dd"}, {"sort", ">"},
                 {"filter", "\\tr"}, {"question", "   p"}, {"no-match", "\\zz\n"}, {"search", "/bro"},   {"host", "H"}};
    for (size_t i = 0; i < GP_COUNT(modes); i++) {
        struct fix_view view;
        char name[64];
        fix_open(&view, fix_typical, 20);
        for (const char *p = modes[i].keys; *p; p++)
            fix_key(&view, *p);
        snprintf(name, sizeof(name), "mode-%s-100x30", modes[i].name);
        golden(&view, 100, 30, false, name);
        fix_close(&view);
    }
}

Test(golden, owners)
{
    static const struct {
        const char *name, *keys;
        int cols, rows;
    } frames[] = {{"owned-detail-80x24", "", 80, 24},     {"owned-detail-120x40", "", 120, 40},
                  {"owned-differs-120x40", "j", 120, 40}, {"owned-pools-120x40", "jj", 120, 40},
                  {"owned-owners-80x24", "ddd", 80, 24},  {"owned-tree-120x40", "dddtj", 120, 40}};
    for (size_t i = 0; i < GP_COUNT(frames); i++) {
        struct fix_view view;
        fix_open(&view, fix_owned, 20);
        for (const char *p = frames[i].keys; *p; p++)
            fix_key(&view, *p);
        golden(&view, frames[i].cols, frames[i].rows, false, frames[i].name);
        fix_close(&view);
    }
}

static bool screen_says(const struct gp_grid *grid, const char *what)
{
    char line[1024];
    bool is_there = false;
    for (int y = 0; y < grid->rows && !is_there; y++) {
        fix_line(grid, y, line, sizeof(line));
        is_there = strstr(line, what) != NULL;
    }
    return is_there;
}

/* The line of the screen that has `text`; -1: none. */
static int line_of(const struct gp_grid *grid, const char *text)
{
    char line[1024];
    for (int y = 0; y < grid->rows; y++) {
        fix_line(grid, y, line, sizeof(line));
        if (strstr(line, text))
            return y;
    }
    return -1;
}

/* ---- strokes ------------------------------------------------------------------------------------------------- */

static void expect_bar(struct gp_bar bar, const char *wanted)
{
    struct gp_grid grid;
    struct gp_draw draw = {.grid = &grid};
    char text[64];
    cr_assert_eq(gp_grid_init(&grid, 1, 10, true), 0);
    gp_draw_bar(&draw, gp_grid_rect(&grid), 0, 0, 10, &bar);
    fix_line(&grid, 0, text, sizeof(text));
    cr_assert_str_eq(text, wanted);
    gp_grid_fini(&grid);
}

Test(draw, bars_show_parts_within_parts)
{
    expect_bar((struct gp_bar){30, 50, 20, 100, 40}, "###|=::...");
    expect_bar((struct gp_bar){0, 0, 0, 100, 0}, "..........");
    expect_bar((struct gp_bar){1, 2, 1, 1000000, 1}, "#=:.......");
    expect_bar((struct gp_bar){100, 100, 0, 100, 100}, "##########");
    expect_bar((struct gp_bar){500, 900, 900, 100, 900}, "#########|");
    expect_bar((struct gp_bar){-1, -1, -1, 100, -1}, "..........");
    expect_bar((struct gp_bar){5, 5, 5, -1, 5}, "unknown");
}

/* The colour of the first cell after `label` on the screen; -1: it is not there. */
static int style_after(const struct gp_grid *grid, const char *label, int y)
{
    char line[1024];
    fix_line(grid, y, line, sizeof(line));
    const char *at = strstr(line, label);
    return at ? gp_grid_at(grid, y, (int)(at - line))->style : -1;
}

Test(draw, a_gpus_peaks_have_one_colour_and_its_history_a_scale)
{
    struct fix_view view;
    struct gp_grid grid;
    fix_open(&view, fix_typical, 20);
    cr_assert_eq(gp_grid_init(&grid, 40, 160, true), 0);
    fix_draw(&view, &grid);
    cr_assert_eq(style_after(&grid, "peak >=31.5G", 4), GP_STYLE_PEAK);
    cr_assert_eq(style_after(&grid, "peak >=40.0G", 4), GP_STYLE_PEAK);
    cr_assert_eq(style_after(&grid, "0..31.0G ", 4), GP_STYLE_DIM);
    gp_grid_fini(&grid);
    fix_close(&view);
}

static struct gp_system *fix_growing(uint64_t tick)
{
    struct gp_system *system = fix_system(1, tick);
    system->nvml = false;
    system->gpus[0].used_bytes = -1;
    fix_device(system, fix_process(system, 1, "grow"), 0, (double)tick, (double)tick, (double)tick, (double)tick);
    return system;
}

/* More samples than top keeps and than the screen has columns: the newest is at the right, one per
 * column, and the scale is that of what is shown. */
Test(draw, a_plot_shows_the_newest_samples_and_keeps_no_more_than_it_can_show)
{
    struct fix_view view;
    struct gp_grid grid;
    int last = GP_PLOT_SAMPLES + 17;
    fix_open(&view, fix_growing, last + 1);
    const struct gp_plot_history *plot = view.model.lists[GP_LIST_DEVICES].rows[0].plot;
    cr_assert_eq(plot->count, GP_PLOT_SAMPLES);
    for (int back = 0; back < GP_PLOT_SAMPLES; back++)
        cr_assert_eq(gp_model_plot(plot, back)->allocated, (int64_t)((last - back) * GIB));
    cr_assert_null(gp_model_plot(plot, GP_PLOT_SAMPLES));
    cr_assert_eq(gp_grid_init(&grid, 60, 100, true), 0);
    fix_draw(&view, &grid);
    check_cells(&grid, "plot");
    cr_assert(screen_says(&grid, "1m00s ago") && screen_says(&grid, "now") && screen_says(&grid, "- peak 1.0T"));
    gp_grid_fini(&grid);
    fix_close(&view);
}

Test(draw, a_program_that_ended_stays_in_the_plot)
{
    struct fix_view view;
    struct gp_grid grid;
    fix_open(&view, fix_typical, 40);
    for (uint64_t tick = 40; tick < 80; tick++)
        cr_assert_eq(gp_model_update(&view.model, fix_system(2, tick)), 0);
    fix_rows(&view);
    cr_assert_eq(gp_grid_init(&grid, 60, 120, true), 0);
    fix_draw(&view, &grid);
    int y = line_of(&grid, "# allocated"), end = line_of(&grid, "1m00s ago");
    cr_assert(y >= 0 && end > y);
    bool held = false;
    for (int line = y + 1; line < end; line++)
        held |= gp_grid_at(&grid, line, 120 - 1 - 30)->style == GP_STYLE_ALLOCATED;
    cr_assert(held, "%s", frame_text(&grid));
    for (int line = y + 1; line < end; line++)
        cr_assert_neq(gp_grid_at(&grid, line, 120 - 2)->style, GP_STYLE_ALLOCATED);
    gp_grid_fini(&grid);
    fix_close(&view);
}

/* Allocated rises to the size of the GPU, and what is reserved beside it is less than a dot, or much. */
static struct gp_system *fix_barely_reserved(uint64_t tick)
{
    struct gp_system *system = fix_system(1, tick);
    double allocated = (double)tick, reserved = allocated + (tick % 5 == 4 ? 20 : 0.001);
    system->gpus[0].used_bytes = -1;
    fix_device(system, fix_process(system, 4711, "cache"), 0, allocated, 140, reserved < 140 ? reserved : 140, 140);
    return system;
}

/* The dots that a cell has, by height from below; in ASCII all or none. */
static int dots_of(const struct gp_cell *cell, bool ascii)
{
    uint32_t code;
    if (ascii)
        return strchr("#=:", cell->glyph[0]) ? 4 : 0;
    gp_grid_decode(cell->glyph, &code);
    if (code < 0x2800 || code > 0x28ff)
        return 0;
    return code & 0x09 ? 4 : code & 0x12 ? 3 : code & 0x24 ? 2 : code & 0xc0 ? 1 : 0;
}

Test(draw, reserved_memory_is_never_hidden_and_the_plot_has_no_holes)
{
    for (int ascii = 0; ascii < 2; ascii++) {
        struct fix_view view;
        struct gp_grid grid;
        fix_open(&view, fix_barely_reserved, 139);
        cr_assert_eq(gp_grid_init(&grid, 50, 100, ascii), 0);
        fix_draw(&view, &grid);
        int top = line_of(&grid, "top: the device"), bottom = line_of(&grid, "1m00s ago") - 1;
        cr_assert(top > 0 && bottom > top, "%s", frame_text(&grid));
        for (int x = 100 - 2; x > 100 - 60; x--) {
            bool reserved = false, ended = false;
            for (int y = bottom; y > top; y--) {
                const struct gp_cell *cell = gp_grid_at(&grid, y, x);
                int dots = dots_of(cell, ascii);
                if (cell->style == GP_STYLE_PEAK || cell->style == GP_STYLE_DIM)
                    break;
                cr_assert(!ended || dots == 0, "a hole in column %d:\n%s", x, frame_text(&grid));
                reserved |= dots && cell->style == GP_STYLE_RESERVED;
                ended |= dots < 3; /* every second dot of reserved memory is one */
            }
            cr_assert(reserved, "no reserved memory in column %d:\n%s", x, frame_text(&grid));
        }
        gp_grid_fini(&grid);
        fix_close(&view);
    }
}

static struct gp_system *fix_attached(uint64_t tick)
{
    struct gp_system *system = fix_system(1, tick);
    system->nvml = false;
    system->gpus[0].used_bytes = -1;
    fix_device(system, fix_process(system, 4711, "late"), 0, 1, 2, 3, 4)->before.bytes = (int64_t)(70 * GIB);
    fix_device(system, fix_process(system, 4712, "early"), 0, 1, 2, 3, 4);
    return system;
}

/* What was there before an attach is in no total, but the memory is not free. */
Test(draw, an_attached_program_looks_as_large_as_it_is)
{
    struct fix_view view;
    struct gp_grid grid;
    char line[512];
    fix_open(&view, fix_attached, 3);
    cr_assert_eq(gp_grid_init(&grid, 60, 140, true), 0);
    fix_draw(&view, &grid);
    fix_line(&grid, line_of(&grid, "GPU0"), line, sizeof(line));
    cr_assert(strstr(line, "2.0G/76.0G/140G") && strstr(line, "====="), "%s", line);
    cr_assert(!strchr(line, '|'), "the peak since the attach is no mark in what is held: %s", line);
    cr_assert(line_of(&grid, "- peak") < 0 && screen_says(&grid, "peak >=2.0G  reserved 6.0G") &&
                  screen_says(&grid, "before an attach 70.0G"),
              "%s", frame_text(&grid));
    fix_line(&grid, line_of(&grid, " late"), line, sizeof(line));
    cr_assert(strstr(line, ">=1.0G") && strstr(line, ">=2.0G") && strstr(line, ">=3.0G") && strstr(line, ">=4.0G"),
              "%s", line);
    cr_assert(strstr(line, "66.0G") && strstr(line, "70.0G"), "headroom (64 free, 2 idle) and before: %s", line);
    fix_line(&grid, line_of(&grid, " early"), line, sizeof(line));
    cr_assert(!strstr(line, ">=") && strstr(line, "66.0G"), "%s", line);
    cr_assert_eq(gp_model_plot(view.model.lists[GP_LIST_DEVICES].rows[0].plot, 0)->reserved, (int64_t)(76 * GIB));
    gp_grid_fini(&grid);
    cr_assert_eq(gp_grid_init(&grid, 24, 80, true), 0);
    fix_draw(&view, &grid);
    cr_assert(screen_says(&grid, "BEFORE") && screen_says(&grid, ">=1.0G"), "%s", frame_text(&grid));
    gp_grid_fini(&grid);
    fix_close(&view);
}

Test(text, numbers_keep_three_digits_and_unknown_is_a_dash)
{
    static const struct {
        int64_t bytes;
        const char *wanted;
    } cases[] = {{-1, "-"},          {0, "0"},          {1023, "1023"},      {1024, "1.0K"},
                 {1047552, "1023K"}, {1048064, "1.0M"}, {104857600, "100M"}, {INT64_MAX, "8.0E"}};
    char text[32];
    for (size_t i = 0; i < GP_COUNT(cases); i++)
        cr_assert_str_eq(gp_grid_bytes(cases[i].bytes, GP_TEXT_SHORT, text, sizeof(text)), cases[i].wanted);
    cr_assert_str_eq(gp_grid_rate(NAN, text, sizeof(text)), "-");
    cr_assert_str_eq(gp_grid_rate(0, text, sizeof(text)), "0");
    cr_assert_str_eq(gp_grid_rate(12345, text, sizeof(text)), "12.3K");
}

Test(text, malformed_utf8_is_decoded_byte_by_byte)
{
    static const char *const bad[] = {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xe6\xa8", "\xf4\x90\x80\x80", "\x80"};
    for (size_t i = 0; i < GP_COUNT(bad); i++) {
        uint32_t code;
        cr_assert_eq(gp_grid_decode(bad[i], &code), 1);
        cr_assert_eq(code, 0xfffd);
    }
}

static void make_from_agent(struct gp_system *system)
{
    system->agent.present = system->agent.alive = true;
    for (int i = 0; i < system->process_count; i++)
        system->processes[i].from_agent = true;
}

Test(draw, without_the_agents_maps_no_process_is_live)
{
    struct fix_view view;
    struct gp_grid grid;
    fix_open(&view, fix_typical, 3);
    make_from_agent(view.model.system);
    cr_assert_eq(gp_grid_init(&grid, 40, 120, true), 0);
    fix_rows(&view);
    fix_draw(&view, &grid);
    cr_assert(!screen_says(&grid, "NO AGENT") && screen_says(&grid, " live "));
    gp_model_agent_lost(&view.model, view.model.system->time_ns + 90000000000ull);
    fix_rows(&view);
    fix_draw(&view, &grid);
    cr_assert(screen_says(&grid, "NO AGENT for 1m30s") && !screen_says(&grid, " live "));
    gp_grid_fini(&grid);
    fix_close(&view);
}

Test(draw, the_command_is_shown_without_the_folders_of_its_program)
{
    struct fix_view view;
    struct gp_grid grid;
    fix_open(&view, fix_typical, 3);
    struct gp_process *process = &view.model.system->processes[0];
    snprintf(process->cmdline, sizeof(process->cmdline), "/opt/conda/envs/train/bin/python3 /home/ada/train.py");
    cr_assert_eq(gp_grid_init(&grid, 24, 80, true), 0);
    fix_rows(&view);
    fix_draw(&view, &grid);
    cr_assert(screen_says(&grid, "python3 +train.py") && !screen_says(&grid, "/opt/conda"));
    gp_grid_fini(&grid);
    fix_close(&view);
}

/* The style of the last character of a text on line y. */
static int style_of(const struct gp_grid *grid, int y, const char *text)
{
    char line[1024];
    fix_line(grid, y, line, sizeof(line));
    const char *at = strstr(line, text);
    cr_assert(at, "no %s in %s", text, line);
    return gp_grid_at(grid, y, (int)(at - line) + (int)strlen(text) - 1)->style;
}

Test(draw, the_name_of_the_program_comes_first)
{
    static const struct {
        const char *command, *shown;
    } cases[] = {{"build/examples/train_rt --seconds 2", "live     train_rt --seconds 2"},
                 {"./a.out", "live     a.out"},
                 {"[kworker/0:1]", "live     [kworker/0:1]"},
                 {"/opt/bin/python3 -u /home/ada/a/long/way/to/train.py --x", "live     python3 -u +train.py --x"},
                 {"python3 -m train /", "live     python3 -m train /"}};
    for (size_t i = 0; i < GP_COUNT(cases); i++) {
        struct fix_view view;
        struct gp_grid grid;
        fix_open(&view, fix_typical, 2);
        struct gp_process *process = &view.model.system->processes[0];
        snprintf(process->cmdline, sizeof(process->cmdline), "%s", cases[i].command);
        cr_assert_eq(gp_grid_init(&grid, 30, 140, true), 0);
        fix_rows(&view);
        fix_draw(&view, &grid);
        cr_assert(screen_says(&grid, cases[i].shown), "%s:\n%s", cases[i].command, frame_text(&grid));
        gp_grid_fini(&grid);
        fix_close(&view);
    }
}

Test(draw, columns_without_a_value_are_left_out)
{
    struct fix_view view;
    struct gp_grid grid;
    char header[256];
    fix_open(&view, fix_crowd, 2); /* no containers, no losses */
    cr_assert_eq(gp_grid_init(&grid, 30, 200, true), 0);
    fix_draw(&view, &grid);
    cr_assert(line_of(&grid, "UNTRACKED") > 0 && line_of(&grid, "USER") > 0);
    cr_assert(line_of(&grid, "CONTAINER") < 0 && line_of(&grid, "LOST") < 0 && line_of(&grid, "BEFORE") < 0);
    struct gp_system *attached = fix_crowd(2);
    attached->processes[0].devices[0].before.bytes = 5ll << 30;
    cr_assert_eq(gp_model_update(&view.model, attached), 0);
    fix_rows(&view);
    fix_draw(&view, &grid);
    cr_assert(line_of(&grid, "BEFORE") > 0);
    view.ui.sort = GP_COLUMN_LOST;
    fix_rows(&view);
    fix_draw(&view, &grid);
    cr_assert(line_of(&grid, "vLOST") > 0 || line_of(&grid, "v LOST") > 0 || line_of(&grid, "LOST") > 0,
              "the column that rows are sorted by stays");
    view.ui.sort = GP_COLUMN_ALLOC;
    for (int i = 0; i < view.model.system->process_count; i++)
        view.model.system->processes[i].user[0] = '\0';
    view.model.system->processes[99].lost[GP_LOST_RING] = 3;
    cr_assert_eq(gp_model_update(&view.model, fix_crowd(3)), 0);
    snprintf(view.model.system->processes[50].container, sizeof(header) / 8, "4f1d2c3b5a69");
    fix_rows(&view);
    fix_draw(&view, &grid);
    cr_assert(line_of(&grid, "CONTAINER") > 0, "one row has one");
    gp_grid_fini(&grid);
    fix_close(&view);
}

Test(draw, the_selected_row_keeps_its_bar)
{
    struct fix_view view;
    struct gp_grid grid;
    fix_open(&view, fix_typical, 3);
    cr_assert_eq(gp_grid_init(&grid, 30, 132, true), 0);
    fix_draw(&view, &grid);
    int y = line_of(&grid, ">   4242");
    cr_assert_eq(style_of(&grid, y, "4242"), GP_STYLE_SELECTED);
    cr_assert_eq(style_of(&grid, y, " #"), GP_STYLE_ALLOCATED, "in reverse video a full block would be blank");
    cr_assert_eq(style_of(&grid, y, "train.py"), GP_STYLE_SELECTED);
    gp_grid_fini(&grid);
    fix_close(&view);
}

Test(draw, peaks_have_one_colour_in_the_table_and_the_details)
{
    struct fix_view view;
    struct gp_grid grid;
    fix_open(&view, fix_owned, 3);
    fix_key(&view, GP_KEY_DOWN);
    fix_key(&view, GP_KEY_UP);
    cr_assert_eq(gp_grid_init(&grid, 40, 132, true), 0);
    fix_draw(&view, &grid);
    int y = line_of(&grid, "     77 ada");
    cr_assert(style_of(&grid, y, "6.0G") == GP_STYLE_PEAK, "PEAK of serve");
    fix_key(&view, GP_KEY_DOWN);
    fix_draw(&view, &grid);
    y = line_of(&grid, "   4242 ada");
    cr_assert(style_of(&grid, y, "31.5G") == GP_STYLE_PEAK && style_of(&grid, y, "40.0G") == GP_STYLE_PEAK);
    fix_key(&view, GP_KEY_UP);
    fix_draw(&view, &grid);
    y = line_of(&grid, " pytorch     ");
    cr_assert(y > 0);
    cr_assert_eq(style_of(&grid, y, "16.00 GiB  16.00 GiB"), GP_STYLE_PEAK);
    cr_assert_eq(style_of(&grid, y, "27.00 GiB  27.00 GiB"), GP_STYLE_PEAK);
    cr_assert_eq(style_of(&grid, line_of(&grid, " linear "), "31.50 GiB"), GP_STYLE_PEAK);
    gp_grid_fini(&grid);
    fix_close(&view);
}

/* The agent's maps have no names, and a sum for processes that do not know their GPU yet. */
Test(draw, every_gpu_has_a_label)
{
    struct fix_view view;
    struct gp_grid grid;
    fix_open(&view, fix_odd, 0);
    struct gp_system *system = fix_odd(1);
    system->agent.present = system->agent.alive = true;
    system->agent.sum_count = 1;
    system->agent.sums = malloc(sizeof(struct gp_sum));
    system->agent.sums[0] = (struct gp_sum){.total_bytes = 1 << 30, .allocated = 1 << 20, .processes = 1};
    system->gpus[0].uuid[0] = '\0';
    cr_assert_eq(gp_model_update(&view.model, system), 0);
    view.ui.by = GP_BY_DEVICE;
    fix_rows(&view);
    cr_assert_eq(gp_grid_init(&grid, 30, 132, true), 0);
    fix_draw(&view, &grid);
    cr_assert(screen_says(&grid, "GPU0 name unknown") && screen_says(&grid, "GPU? not known yet"), "%s",
              frame_text(&grid));
    cr_assert(!screen_says(&grid, "GPU0 -") && screen_says(&grid, "not known yet (1)"));
    gp_grid_fini(&grid);
    fix_close(&view);
}
