/* SPDX-License-Identifier: MIT
 *
 * test_sites.c: the call sites of a live session: what a viewer reads, how the tables grow, and
 * what a hostile process may write there.
 */
#include <lib/sitesession.h>
#include <read/collect/peer.h>
#include <read/collect/sites.h>
#include <show/terminal/column.h>
#include <show/terminal/grid.h>
#include <show/terminal/siteview.h>
#include <show/terminal/ui.h>
#include <symbol/symbol.h>

#include <unit/cmd/cli.h>
#include <unit/show/terminal/view_fixture.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct gp_test_session session;
static struct gp_test_sites wire;
static struct gp_peer peer;
static struct gp_sites *sites;
static char problem[GP_PROBLEM_BYTES];

static void setup(void)
{
    cr_assert_eq(gp_test_session_make(&session, 64, false), 0);
    cr_assert_eq(gp_test_sites_make(&session, &wire, GP_SITES_NATIVE), 0);
    cr_assert_eq(gp_peer_load(&peer, dup(session.fd), problem), 0, "%s", problem);
}

static void clean(void)
{
    gp_sites_close(sites);
    gp_peer_close(&peer);
    gp_test_session_free(&session);
}

static int open_sites(void)
{
    return gp_sites_open_peer(&sites, &peer, getpid(), "/proc/self", problem);
}

TestSuite(sites, .init = setup, .fini = clean, .timeout = 60);

Test(sites, an_empty_table_has_the_unknown_site)
{
    wire.head->rows = 0;
    cr_assert_eq(open_sites(), 0, "%s", problem);
    cr_assert_eq(sites->site_count, 1);
    cr_assert_eq(sites->sites[0].frame_count, 0);
}

Test(sites, off_is_not_an_error_of_the_session)
{
    session.header->sites_offset = session.header->sites_bytes = 0;
    cr_assert_eq(open_sites(), -ENOENT);
}

Test(sites, everything_is_read_and_grows)
{
    gp_test_sites_python(&wire, "f", "a.py", 3);
    gp_test_sites_native(&wire, (uint64_t)(uintptr_t)open_sites + 1);
    gp_test_sites_native(&wire, 5);
    uint32_t first = gp_test_sites_end(&wire, 2, GP_KIND_POOL, 100, 200);
    wire.rows[first].truncated = 1;
    wire.head->lost_rows = 1, wire.head->lost_frames = 2, wire.head->lost_strings = 3, wire.head->captures = 4;
    cr_assert_eq(open_sites(), 0, "%s", problem);
    cr_assert_eq(sites->site_count, 2);
    const struct gp_rec_site *row = &sites->sites[1];
    cr_assert(row->device == 2 && row->kind == GP_KIND_POOL && row->truncated && row->frame_count == 3);
    cr_assert(row->live_bytes == 100 && row->peak_bytes == 200 && row->calls == 1 && row->live_count == 1);
    const struct gp_rec_frame *frame = &sites->frames[row->first_frame];
    cr_assert_str_eq(sites->strings + frame[0].function, "f");
    cr_assert_str_eq(sites->strings + frame[0].file, "a.py");
    cr_assert_eq(frame[0].line, 3);
    cr_assert_eq(frame[0].pc, 0);
    cr_assert_lt(frame[1].module, sites->module_count);
    cr_assert(strstr(sites->strings + sites->modules[frame[1].module].path, "test_sites"));
    cr_assert_gt(strlen(sites->strings + sites->modules[frame[1].module].build_id), 8);
    cr_assert_eq(frame[2].module, GP_REC_NONE);
    cr_assert(sites->lost_rows == 1 && sites->lost_frames == 2 && sites->lost_strings == 3 && sites->captures == 4);

    struct gp_symbol_source source = GP_SYMBOL_SOURCE(sites, "");
    struct gp_symbols *symbols;
    const struct gp_frame_text *text;
    cr_assert_eq(gp_symbols_new(&symbols, &source), 0);
    cr_assert_geq(gp_symbols_site(symbols, 1, &text), 3);
    uint32_t modules = sites->module_count;
    for (int i = 0; i < 200; i++) {
        char name[32];
        snprintf(name, sizeof(name), "g%d", i);
        gp_test_sites_python(&wire, name, "b.py", (uint32_t)i);
        gp_test_sites_end(&wire, 0, GP_KIND_LINEAR, i, i);
    }
    wire.rows[1].live_bytes = 77;
    cr_assert_eq(gp_sites_update(sites, problem), 0, "%s", problem);
    cr_assert_eq(sites->site_count, 202);
    cr_assert_eq(sites->module_count, modules, "the same mappings keep their numbers");
    cr_assert_eq(sites->sites[1].live_bytes, 77);
    source = (struct gp_symbol_source){.sites = sites->sites,
                                       .frames = sites->frames,
                                       .modules = sites->modules,
                                       .strings = sites->strings,
                                       .site_count = sites->site_count,
                                       .frame_count = sites->frame_count,
                                       .module_count = sites->module_count,
                                       .root = ""};
    cr_assert_eq(gp_symbols_update(symbols, &source), 0);
    cr_assert_str_eq(gp_symbols_name(symbols, 201)->function, "g199");
    cr_assert_str_eq(gp_symbols_name(symbols, 201)->file, "b.py");
    cr_assert_str_eq(text[0].function, "open_sites", "strings returned earlier stay valid");
    gp_symbols_free(symbols);
}

Test(sites, what_a_site_held_at_the_peak)
{
    for (int i = 0; i < 2; i++) {
        gp_test_sites_python(&wire, "f", "a.py", 1);
        gp_test_sites_end(&wire, 1, GP_KIND_LINEAR, 100, 200);
        wire.rows[i + 1].at_peak_bytes = 150;
    }
    wire.head->devices[1].peak_seq = 9;
    wire.rows[1].peak_seq = 9; /* it changed after the peak and kept its bytes at the peak */
    wire.rows[2].peak_seq = 8; /* it has not changed since the peak */
    cr_assert_eq(open_sites(), 0, "%s", problem);
    cr_assert_eq(sites->sites[1].at_peak_bytes, 150);
    cr_assert_eq(sites->sites[2].at_peak_bytes, 100);
}

static uint32_t x_stop;
static void *mover(void *unused)
{
    for (int64_t i = 0; !__atomic_load_n(&x_stop, __ATOMIC_RELAXED);
         i++) { /* set one after the other, to the same number */
        for (int64_t *at = &wire.rows[1].live_bytes; at <= &wire.rows[1].at_peak_bytes; at++)
            __atomic_store_n(at, i, __ATOMIC_RELEASE);
        if (i % 256 == 0)
            usleep(1);
    }
    return unused;
}

Test(sites, a_row_that_moves_is_read_whole)
{
    pthread_t thread;
    gp_test_sites_python(&wire, "f", "a.py", 1);
    gp_test_sites_end(&wire, 1, GP_KIND_LINEAR, 0, 0);
    wire.rows[1].peak_seq = 1;
    wire.rows[1].live_count = wire.rows[1].peak_bytes = wire.rows[1].at_peak_bytes = 0;
    cr_assert_eq(open_sites(), 0, "%s", problem);
    pthread_create(&thread, NULL, mover, NULL);
    uint64_t torn = 0, unsteady = 0;
    for (int i = 0; i < 3000; i++) {
        cr_assert_eq(gp_sites_update(sites, problem), 0, "%s", problem);
        const struct gp_rec_site *row = &sites->sites[1];
        unsteady += sites->unsteady;
        torn += !sites->unsteady && (row->live_bytes < row->live_count || row->live_count < row->peak_bytes ||
                                     row->peak_bytes < row->at_peak_bytes || row->live_bytes > row->at_peak_bytes + 1);
    }
    __atomic_store_n(&x_stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    cr_assert_eq(torn, 0, "%lu torn, %lu reported as unsteady", (unsigned long)torn, (unsigned long)unsteady);
}

Test(sites, random_bytes)
{
    uint64_t total = session.header->sites_bytes;
    unsigned good = 0;
    srand(2);
    for (int i = 0; i < 20; i++) {
        gp_test_sites_python(&wire, "f", "a.py", 1);
        gp_test_sites_native(&wire, (uint64_t)(uintptr_t)open_sites);
        gp_test_sites_end(&wire, i, GP_KIND_LINEAR, 1, 1);
    }
    unsigned char *bytes = (void *)wire.head, *before = malloc(total);
    memcpy(before, bytes, total);
    for (int i = 0; i < 3000; i++) {
        for (int k = 0; k < 3; k++) {
            size_t at = k == 0   ? (size_t)rand() % 120
                        : k == 1 ? (size_t)wire.head->rows_offset % total + (size_t)rand() % 2600
                                 : (size_t)rand() % total;
            bytes[at % total] = (unsigned char)rand();
        }
        if (open_sites() == 0) {
            struct gp_symbol_source source = GP_SYMBOL_SOURCE(sites, "");
            struct gp_symbols *symbols;
            cr_assert_eq(gp_symbols_new(&symbols, &source), 0);
            for (uint32_t s = 0; s < sites->site_count && i % 100 == 0; s++)
                gp_symbols_name(symbols, s);
            gp_symbols_free(symbols);
            gp_sites_close(sites);
            sites = NULL;
            good++;
        }
        memcpy(bytes, before, total);
    }
    free(before);
    cr_assert(good > 100 && good < 2990, "%u of 3000 could be read", good);
}

/* ---- top --by site ----------------------------------------------------------------------------------------------- */

static struct gp_site_model model;

static void model_setup(void)
{
    setup();
    setlocale(LC_ALL, "C.UTF-8");
    gp_test_sites_python(&wire, "forward", "/home/someone/model.py", 10);
    gp_test_sites_python(&wire, "<module>", "/home/someone/train.py", 20);
    gp_test_sites_end(&wire, 0, GP_KIND_LINEAR, 300 << 20, 400 << 20);
    gp_test_sites_python(&wire, "keep", "/home/someone/model.py", 42);
    gp_test_sites_end(&wire, 0, GP_KIND_POOL, 100 << 20, 100 << 20);
    gp_test_sites_python(&wire, "load", "/home/someone/data.py", 7);
    gp_test_sites_end(&wire, (int)GP_WIRE_HOST, GP_KIND_PINNED, 64 << 20, 64 << 20);
    gp_test_sites_python(&wire, "never", "/home/someone/data.py", 8);
    gp_test_sites_end(&wire, 0, GP_KIND_LINEAR, 0, 0);
    wire.rows[4].calls = 0;
    cr_assert_eq(open_sites(), 0, "%s", problem);
    model = (struct gp_site_model){
        .pid = 4711, .comm = "train", .start_time = 4711 + 5000, .sort = GP_COLUMN_LIVE, .sites = sites};
    for (unsigned i = 0; i <= GP_WIRE_HOST; i++)
        model.numbers[i] = (int)i;
    cr_assert_eq(gp_site_model_count(&model), 0);
}

static void model_clean(void)
{
    gp_site_model_close(&model);
    sites = NULL;
    clean();
}

TestSuite(site_model, .init = model_setup, .fini = model_clean, .timeout = 60);

Test(site_model, rows_shares_and_rates)
{
    cr_assert_eq(model.row_count, 3, "a site without calls has no row");
    cr_assert_eq(model.live_bytes, 400 << 20);
    cr_assert_eq(model.host_bytes, 64 << 20);
    const struct gp_site_row *row = &model.rows[0];
    cr_assert(row->site == 1 && row->live == 300 << 20 && row->peak == 400 << 20 && row->at_peak == 300 << 20);
    cr_assert_str_eq(row->name->function, "forward");
    cr_assert_float_eq(row->share, 0.6, 1e-9, "300 of 500 MiB");
    cr_assert(isnan(row->calls_per_s) && isnan(row->delta_per_s), "rates take two samples");
    wire.rows[2].calls += 50;
    wire.rows[2].live_bytes -= 10 << 20;
    sites->time_ns = model.before_ns;
    cr_assert_eq(gp_sites_update(sites, problem), 0);
    sites->time_ns = model.before_ns + 2000000000ull;
    cr_assert_eq(gp_site_model_count(&model), 0);
    cr_assert_eq(model.rows[1].site, 2);
    cr_assert_float_eq(model.rows[1].calls_per_s, 25, 1e-9);
    cr_assert_float_eq(model.rows[1].delta_per_s, -(5 << 20), 1e-9);
    cr_assert_float_eq(model.rows[0].calls_per_s, 0, 1e-9);
}

Test(site_model, order)
{
    static const struct {
        enum gp_column_id column;
        bool ascending;
        uint32_t sites[3];
    } orders[] = {{GP_COLUMN_LIVE, false, {1, 2, 3}}, {GP_COLUMN_LIVE, true, {3, 2, 1}},
                  {GP_COLUMN_KIND, true, {1, 3, 2}},  {GP_COLUMN_SITE, true, {1, 2, 3}},
                  {GP_COLUMN_DEV, false, {3, 1, 2}},  {GP_COLUMN_CALLS, true, {1, 2, 3}},
                  {GP_COLUMN_SHARE, true, {2, 1, 3}}};
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        gp_site_model_sort(&model, orders[i].column, orders[i].ascending);
        for (int k = 0; k < 3; k++)
            if (orders[i].column != GP_COLUMN_SHARE || k < 2)
                cr_assert_eq(model.rows[k].site, orders[i].sites[k], "%s, place %d", gp_columns[orders[i].column].name,
                             k);
    }
    cr_assert_eq(gp_column_find("at-peak", true), GP_COLUMN_AT_PEAK);
    cr_assert_eq(gp_column_find("peak", true), GP_COLUMN_SITE_PEAK);
    cr_assert_eq(gp_column_find("peak", false), GP_COLUMN_PEAK);
    cr_assert_eq(gp_column_find("reserved", true), GP_COLUMNS);
    cr_assert_eq(gp_column_find("nonsense", true), GP_COLUMNS);
}

/* The screen of `top`, by call site, with this process and another one without stacks. */
static struct fix_view view;
static struct gp_site_refusal refusal = {.pid = 77, .start_time = 5077, .error = -ENOENT};
static struct gp_site_set set;

static void view_open(const char *keys)
{
    fix_open(&view, fix_typical, 2);
    struct gp_system *system = fix_system(1, 2);
    struct gp_process *process = fix_process(system, 4711, "train");
    fix_device(system, process, 0, 0.4, 0.5, 0.5, 0.5);
    fix_device(system, process, GP_MODEL_HOST, 0.1, 0.1, 0.1, 0.1);
    fix_device(system, fix_process(system, 77, "serve"), 0, 1, 1, 1, 1);
    cr_assert_eq(gp_model_update(&view.model, system), 0);
    set = (struct gp_site_set){.models = {&model}, .count = 1, .refusals = &refusal, .refusal_count = 1};
    view.model.sites = &set;
    fix_rows(&view);
    for (const char *p = keys; *p; p++)
        fix_key(&view, *p);
}

/* Any size down to one cell: nothing is drawn outside the grid, which would write outside its
 * memory. */
Test(site_model, frames_of_any_size)
{
    view_open("dddd");
    cr_assert_eq(view.ui.by, GP_BY_SITE);
    cr_assert_eq(view.list.count, 3);
    for (int rows = 1; rows < 30; rows++)
        for (int cols = 1; cols < 130; cols += rows % 2 ? 1 : 7) {
            struct gp_grid grid = {0};
            cr_assert_eq(gp_grid_init(&grid, rows, cols, cols % 2), 0);
            fix_key(&view, "jt>\033/x\033hqZI"[(rows + cols) % 11]);
            fix_draw(&view, &grid);
            gp_grid_fini(&grid);
        }
    fix_close(&view);
}

static void line_is(const struct gp_grid *grid, int y, const char *want)
{
    char line[512];
    fix_line(grid, y, line, sizeof(line));
    cr_assert_str_eq(line, want, "line %d is |%s|", y, line);
}

Test(site_model, a_frame)
{
    struct gp_grid grid = {0};
    view_open("dddd");
    cr_assert_eq(gp_grid_init(&grid, 16, 110, true), 0);
    fix_draw(&view, &grid);
    line_is(&grid, 0, "gpuprof top  3 call sites of 4711 train, live 400.0 MiB, host 64.00 MiB  every 1s");
    line_is(&grid, 1, "1 more process runs without stacks: " GP_SITE_HINT);
    line_is(&grid, 4, "  DEV KIND          -LIVE     PEAK  AT-PEAK  %PEAK  CALLS/S   DELTA/S SITE");
    line_is(&grid, 5, ">   0 linear         300M     400M     300M   60.0        -         - forward (model.py:10)");
    line_is(&grid, 6, "    0 pool           100M     100M     100M   20.0        -         - keep (model.py:42)");
    line_is(&grid, 7, " host pinned        64.0M    64.0M    64.0M  100.0        -         - load (data.py:7)");
    line_is(&grid, 11,
            "-- site 1 of 4711 train, the innermost call first "
            "------------------------------------------------------------");
    line_is(&grid, 12, "   forward (model.py:10)");
    line_is(&grid, 13, "   <module> (train.py:20)");
    line_is(&grid, 15, "F1Help F2Detail F3By sSites F4Filter /Search F5Tree F6Sort pReset ZPause F10Quit");
    gp_grid_fini(&grid);
    fix_close(&view);
}

Test(site_model, the_keys_are_those_of_the_other_views)
{
    view_open("dddd");
    fix_key(&view, 'P');
    cr_assert(gp_ui_sort(&view.ui) == GP_COLUMN_SITE_PEAK && view.ui.sort == GP_COLUMN_ALLOC, "a sort per view");
    fix_key(&view, 'I');
    cr_assert_eq(view.list.rows[0].site->site, 3, "the smallest peak first");
    fix_key(&view, 'I');
    fix_key(&view, '\\');
    for (const char *p = "model.py\n"; *p; p++)
        fix_key(&view, *p);
    cr_assert_eq(view.list.count, 2, "filtered by file");
    fix_key(&view, GP_KEY_ESCAPE);
    cr_assert(view.list.count == 3 && view.ui.by == GP_BY_SITE, "the first Escape clears the filter");
    fix_key(&view, '/');
    for (const char *p = "load"; *p; p++)
        fix_key(&view, *p);
    fix_key(&view, GP_KEY_ENTER);
    cr_assert_str_eq(view.list.rows[view.ui.cursor].site->name->function, "load");
    fix_key(&view, 'H');
    cr_assert_eq(view.list.count, 2, "host memory is hidden");
    fix_key(&view, GP_KEY_HOME);
    fix_key(&view, 'p');
    cr_assert(view.ui.mode == GP_MODE_CONFIRM && view.ui.target_count == 1 && view.ui.targets[0].pid == 4711);
    fix_key(&view, 'n');
    fix_key(&view, 't');
    cr_assert(view.list.count == 3 && view.list.rows[0].id.kind == GP_ROW_PROCESS && view.list.rows[1].depth == 1);
    fix_key(&view, 'Z');
    cr_assert(view.ui.paused);
    fix_key(&view, GP_KEY_ESCAPE);
    cr_assert_eq(view.ui.by, GP_BY_OWNER, "the second Escape leaves the call sites");
    fix_close(&view);
}

Test(site_model, s_shows_the_sites_of_the_selected_process_and_of_all)
{
    struct gp_grid grid = {0};
    char line[256];
    view_open("s");
    cr_assert(view.ui.by == GP_BY_SITE && view.ui.scoped && view.ui.scope.pid == 77, "the largest is selected");
    cr_assert_eq(view.list.count, 0);
    cr_assert_eq(gp_grid_init(&grid, 16, 110, true), 0);
    fix_draw(&view, &grid);
    line_is(&grid, 0, "gpuprof top  0 call sites of 77 serve  every 1s");
    fix_line(&grid, 6, line, sizeof(line));
    cr_assert(strstr(line, GP_SITE_HINT), "%s", line);
    fix_key(&view, 's');
    cr_assert(!view.ui.scoped && view.list.count == 3);
    fix_key(&view, 's');
    cr_assert(view.ui.scoped && view.ui.scope.pid == 4711 && view.list.count == 3);
    fix_key(&view, GP_KEY_ESCAPE);
    cr_assert_eq(view.ui.by, GP_BY_PROCESS);
    view.model.system->agent.present = true;
    fix_key(&view, 's');
    cr_assert(view.ui.by == GP_BY_PROCESS && view.ui.message_is_error, "the agent's tables have none");
    gp_grid_fini(&grid);
    fix_close(&view);
}

/* As many processes as are shown: one of the others goes for the one that the user looks for, and for no other reason. */
Test(site_model, a_full_set_makes_room_for_one_process)
{
    struct gp_site_set full = {.count = GP_SITE_PROCESSES};
    fix_open(&view, fix_typical, 2);
    full.generation = view.model.generation;
    for (int i = 0; i < GP_SITE_PROCESSES; i++) {
        full.models[i] = calloc(1, sizeof(*full.models[i]));
        full.models[i]->pid = 0x3fff0000 + i;
    }
    cr_expect_eq(gp_site_set_step(&full, &view.model, NULL), 0);
    cr_expect(full.count == GP_SITE_PROCESSES && full.beyond > 0 && full.refusal_count == 0);
    const struct gp_row *row = fix_row(&view.list, 77, 0);
    cr_assert(row);
    for (int i = 1; i < GP_SITE_PROCESSES; i++) { /* the first one alone is not looked for */
        full.models[i]->pid = 77;
        full.models[i]->start_time = row->id.start_time;
    }
    cr_expect_eq(gp_site_set_step(&full, &view.model, &row->id), 0);
    cr_expect_eq(full.count, GP_SITE_PROCESSES - 1);
    cr_expect_eq(gp_site_set_step(&full, &view.model, &row->id), 0);
    cr_expect_eq(full.count, GP_SITE_PROCESSES - 1, "there is room now");
    for (int i = 0; i < full.count; i++)
        cr_expect_eq(full.models[i]->pid, 77);
    gp_site_set_close(&full);
    fix_close(&view);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

Test(site_command, prints_sites_of_a_process, .timeout = 60)
{
    pid_t pid = gp_test_sites_process(), plain = start((struct gp_test_process_options){.devices = 1});
    cr_assert_gt(pid, 0);
    struct result r = run("top --by site --once -p %d", (int)pid);
    cr_assert(strstr(r.out, "CALLS/S") && strstr(r.out, "keep_inner (model.py:42)"), "%s%s", r.out, r.err);
    cr_assert(strstr(r.out, "load?[31m"), "no escape of the process reaches a terminal: %s", r.out);
    expect(r, 0, "linear", NULL);
    expect(run("top --by site -n 2 -d 0.3 --sort delta/s -p %d", (int)pid), 0, "+", NULL);
    expect(run("top --by site --once -p %d", (int)plain), 1, NULL, GP_SITE_HINT);
    expect(run("top --by site --once --sort lost -p %d", (int)pid), 2, NULL, "AT-PEAK");
    expect(run("top --by site --once -p %d,%d", (int)pid, (int)plain), 2, NULL, "one process");
    expect(run("top --by site --once -p 1"), 3, NULL, "pid 1");
    json_t *top = expect_json(run("top --by site --json -p %d", (int)pid), "gpuprof.top/1");
    json_t *rows = json_object_get(top, "sites"), *row;
    cr_assert_eq(json_array_size(rows), 4);
    row = json_array_get(rows, 0);
    cr_assert_eq(json_integer_value(json_object_get(row, "live_bytes")), 300 << 20);
    cr_assert_eq(json_integer_value(json_object_get(row, "line")), 10);
    cr_assert_eq(json_array_size(json_object_get(row, "frames")), 2);
    cr_assert_eq(json_array_size(json_object_get(top, "processes")), 1);
    row = json_array_get(rows, 3);
    cr_assert(strstr(json_string_value(json_object_get(row, "name")), "gp_test_sites_process"), "%s",
              json_string_value(json_object_get(row, "name")));
    json_decref(top);
    gp_test_process_stop(pid);
    gp_test_process_stop(plain);
}

/* Scripts read the columns of the printed tables: none is left out, and each has its place. */
Test(site_command, printed_tables_have_all_their_columns, .timeout = 60)
{
    pid_t pid = gp_test_sites_process();
    cr_assert_gt(pid, 0);
    expect(
        run("top --once -p %d", (int)pid), 0,
        "    PID USER      DEV     ALLOC      PEAK  RESERVED    R-PEAK  ALLOC/S   FREE/S   LOST UNTRACKED CONTAINER    "
        "STATE    COMMAND\n",
        NULL);
    expect(run("top --by site --once -p %d", (int)pid), 0,
           " DEV KIND             LIVE       PEAK    AT-PEAK  %PEAK  CALLS/S     DELTA/S SITE\n", NULL);
    gp_test_process_stop(pid);
}

/* On a terminal, a line takes one line. */
Test(site_command, printed_tables_fit_into_a_terminal, .timeout = 60)
{
    static const int widths[] = {40, 80, 120, 150};
    char line[64];
    pid_t pid = gp_test_sites_process();
    cr_assert_gt(pid, 0);
    for (size_t i = 0; i < GP_COUNT(widths); i++) {
        snprintf(line, sizeof(line), "top --once -p %d", (int)pid);
        char *out = run_terminal(widths[i], line);
        cr_expect(strstr(out, " PID ") && strstr(out, "ALLOC") && strstr(out, "COMMAND\n"), "%s", out);
        cr_expect_eq(strstr(out, "R-PEAK") != NULL, widths[i] >= 80, "%s", out);
        cr_expect_eq(strstr(out, "CONTAINER") != NULL, widths[i] >= 150, "it has no value: %s", out);
        free(out);
        snprintf(line, sizeof(line), "top --by site --once -p %d", (int)pid);
        out = run_terminal(widths[i], line);
        cr_expect(strstr(out, "LIVE") && strstr(out, " SITE\n") && strstr(out, "keep_inner"), "%s", out);
        free(out);
    }
    gp_test_process_stop(pid);
}
