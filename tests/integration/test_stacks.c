/* SPDX-License-Identifier: MIT
 *
 * test_stacks.c: the call sites of a running program, by name, and their bytes at the peak; from
 * every source, and off by default.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/build.h"
#include "lib/paths.h"
#include "lib/spawn.h"
#include "read/collect/sites.h"
#include "symbol/symbol.h"

TestSuite(stacks, .timeout = 120);

#define MIB (1024 * 1024)

struct look {
    struct gp_sites *sites;
    struct gp_symbols *symbols;
};

static struct spawn_options program(const char *stacks, const char *source)
{
    static const char *argv[2], *env[2];
    argv[0] = path_program("stacks");
    env[0] = stacks;
    return (struct spawn_options){.argv = argv, .env = env, .want_library = true, .source = source, .want_hold = true};
}

static bool in_stack(const struct look *look, uint32_t site, const char *function)
{
    const struct gp_frame_text *frames;
    uint32_t n = gp_symbols_site(look->symbols, site, &frames);
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(frames[i].function, function) == 0)
            return true;
    return false;
}

/* The numbers of the site whose stack has that function, summed if there are several. */
static struct gp_rec_site site_with(const struct look *look, const char *function, unsigned *count)
{
    struct gp_rec_site sum = {0};
    *count = 0;
    for (uint32_t id = 1; id < look->sites->site_count; id++) {
        const struct gp_rec_site *site = &look->sites->sites[id];
        if (!in_stack(look, id, function) || site->kind != GP_KIND_LINEAR)
            continue;
        sum.live_bytes += site->live_bytes;
        sum.at_peak_bytes += site->at_peak_bytes;
        sum.allocated_bytes += site->allocated_bytes;
        sum.calls += site->calls;
        sum.frame_count = site->frame_count;
        ++*count;
    }
    return sum;
}

static void expect(const struct look *look, const char *function, unsigned sites, int64_t live, int64_t at_peak,
                   int64_t calls)
{
    unsigned count;
    struct gp_rec_site site = site_with(look, function, &count);
    cr_assert_eq(count, sites, "%s: %u sites", function, count);
    cr_assert_eq(site.live_bytes, live, "%s: %ld live", function, (long)site.live_bytes);
    cr_assert_eq(site.at_peak_bytes, at_peak, "%s: %ld at the peak", function, (long)site.at_peak_bytes);
    cr_assert_eq(site.calls, calls, "%s: %ld calls", function, (long)site.calls);
}

static void expect_all(const struct look *look)
{
    const struct gp_wire_site_device *device = &look->sites->devices[0];
    unsigned count;
    expect(look, "weights", 1, 4 * MIB, 4 * MIB, 1);
    expect(look, "activations", 1, 0, 8 * MIB, 8);
    expect(look, "scratch", 1, 1 * MIB, 0, 4);
    cr_assert_eq(device->live_bytes, 5 * MIB);
    cr_assert_eq(device->peak_bytes, 12 * MIB);
    /* The stack reaches the outermost frame, through libc's callback and ten frames without frame
     * pointers. */
    expect(look, "main", 2, 4 * MIB, 12 * MIB, 9);
    expect(look, "order", 1, 4 * MIB, 4 * MIB, 1);
    cr_assert_geq(site_with(look, "activations", &count).frame_count, 12);
}

static void look_at(pid_t pid, void (*judge)(const struct look *look))
{
    char problem[GP_PROBLEM_BYTES] = "";
    struct look look;
    int rc = gp_sites_open(&look.sites, pid, problem);
    cr_assert_eq(rc, 0, "%s: %s", strerror(-rc), problem);
    struct gp_symbol_source source = GP_SYMBOL_SOURCE(look.sites, look.sites->root);
    cr_assert_eq(gp_symbols_new(&look.symbols, &source), 0);
    judge(&look);
    gp_symbols_free(look.symbols);
    gp_sites_close(look.sites);
}

static const char *deleted; /* once it runs */

static void held(const struct spawn_options *options, void (*judge)(const struct look *look))
{
    struct spawn spawn;
    struct spawn_result r;
    cr_assert_eq(spawn_start(&spawn, options), 0);
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
    if (deleted)
        cr_assert_eq(unlink(deleted), 0);
    look_at(spawn.held[0], judge);
    spawn_finish(&spawn, &r);
    cr_assert(WIFEXITED(r.status) && WEXITSTATUS(r.status) == 0, "%s\n%s%s", spawn_status_text(&r), r.out, r.err);
    cr_assert_str_eq(r.out, "stacks done\n");
    spawn_result_free(&r);
}

Test(stacks, native_by_callbacks)
{
    struct spawn_options options = program("GPUPROF_STACKS=native", NULL);
    held(&options, expect_all);
}

Test(stacks, native_by_hooks)
{
    struct spawn_options options = program("GPUPROF_STACKS=native", "hooks");
    held(&options, expect_all);
}

/* Only /proc/PID/map_files still has the file, and its build ID. */
Test(stacks, of_a_program_that_was_deleted)
{
    if (geteuid() != 0)
        cr_skip_test("needs CAP_CHECKPOINT_RESTORE");
    char *folder = build_folder(), path[256];
    snprintf(path, sizeof(path), "%s/stacks", folder);
    cr_assert_eq(build_copy(path_program("stacks"), path), 0);
    cr_assert_eq(chmod(path, 0755), 0);
    struct spawn_options options = program("GPUPROF_STACKS=native", NULL);
    const char *argv[] = {path, NULL};
    options.argv = argv;
    deleted = path;
    held(&options, expect_all);
    build_remove(folder);
}

Test(stacks, off_by_default)
{
    struct spawn_options options = program(NULL, NULL);
    char problem[GP_PROBLEM_BYTES] = "";
    struct gp_sites *sites;
    struct spawn spawn;
    struct spawn_result r;
    cr_assert_eq(spawn_start(&spawn, &options), 0);
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
    cr_assert_eq(gp_sites_open(&sites, spawn.held[0], problem), -ENOENT);
    spawn_finish(&spawn, &r);
    spawn_result_free(&r);
}

/* docs/limits.md: what our code uses of the stack of a program's thread. The simulator's own frames, less than 1 KiB, are in
 * the number too. */
#define STACK_BOUND (6ul << 10)

Test(stacks, threads_with_the_smallest_stacks_may_allocate)
{
    static const char *const kinds[] = {"off", "native", "python", "all"};
    static const char *argv[2], *env[] = {NULL, "LD_BIND_NOW=1", NULL};
    argv[0] = path_program("small_stack");
    for (unsigned i = 0; i < 8; i++) {
        char stacks[32];
        struct spawn_options options = {.argv = argv, .env = env, .want_library = true};
        struct spawn_result r;
        size_t used = 0;
        snprintf(stacks, sizeof(stacks), "GPUPROF_STACKS=%s", kinds[i / 2]);
        env[0] = stacks;
        options.source = i % 2 ? "hooks" : NULL;
        cr_assert_eq(spawn_run(&options, &r), 0);
        cr_expect_eq(r.status, 0, "%s: %s\n%s%s", stacks, spawn_status_text(&r), r.out, r.err);
        cr_expect(sscanf(r.out, "used %zu", &used) == 1 && used < STACK_BOUND, "%s: %s", stacks, r.out);
        spawn_result_free(&r);
    }
}
