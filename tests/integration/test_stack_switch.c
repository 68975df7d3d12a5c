/* SPDX-License-Identifier: MIT
 *
 * test_stack_switch.c: stacks switched on and off in a running program. Whatever happens, the summed
 * sites of a device, with "before stacks", hold exactly what is allocated.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "lib/build.h"
#include "read/collect/collect.h"
#include "read/collect/sites.h"
#include "read/recording/recording.h"
#include "symbol/symbol.h"

#include "integration/command.h" /* after recording.h, which has a 'said' of its own */

TestSuite(stack_switch, .timeout = 120);

enum { PHASES = 6 };

static int switch_to(pid_t pid, uint32_t modes, uint32_t *before)
{
    struct gp_wire_slot *slot = calloc(1, sizeof(*slot));
    slot->command = GP_COMMAND_STACKS;
    slot->what = modes;
    slot->device = -1;
    int rc = gp_request(pid, slot, 0);
    *before = slot->what;
    free(slot);
    return rc;
}

struct sums {
    int64_t allocated, before, others; /* of device 0 */
    unsigned sites, leftover;          /* with a stack; with live bytes */
};

static struct gp_symbols *symbols_of(const struct gp_sites *sites)
{
    struct gp_symbols *symbols;
    struct gp_symbol_source source = GP_SYMBOL_SOURCE(sites, sites->root);
    cr_assert_eq(gp_symbols_new(&symbols, &source), 0);
    return symbols;
}

static int64_t allocated_of(pid_t pid)
{
    struct gp_collect_options options = {.pids = &pid, .pid_count = 1, .exact = true};
    struct gp_system *system;
    int64_t bytes = -1;
    cr_assert_eq(gp_collect(&options, &system), 0);
    for (int d = 0; system->process_count && d < system->processes[0].device_count; d++)
        if (system->processes[0].devices[d].index == 0)
            bytes = system->processes[0].devices[d].wire.stats[GP_STAT_ALLOCATED_BYTES][GP_POOL_ALL].current;
    gp_system_free(system);
    return bytes;
}

/* The program is quiet. */
static struct sums sums_of(pid_t pid)
{
    struct sums sums = {.allocated = allocated_of(pid)};
    char problem[GP_PROBLEM_BYTES] = "";
    struct gp_sites *sites;
    int rc = gp_sites_open(&sites, pid, problem);
    if (rc == -ENOENT)
        return sums;
    cr_assert_eq(rc, 0, "%s", problem);
    struct gp_symbols *symbols = symbols_of(sites);
    for (uint32_t id = 1; id < sites->site_count; id++) {
        const struct gp_rec_site *site = &sites->sites[id];
        if (site->device != 0)
            continue;
        if (strcmp(gp_symbols_name(symbols, id)->function, "before stacks") == 0) {
            cr_assert_eq(site->kind, GP_KIND_NONE);
            sums.before += site->live_bytes; /* its number of blocks is not corrected (docs/understand/sites.md) */
            sums.leftover += site->live_bytes != 0;
        } else {
            sums.leftover += site->live_bytes || site->live_count;
            sums.sites++;
            sums.others += site->live_bytes;
        }
    }
    cr_assert_eq(sums.before + sums.others, sites->devices[0].live_bytes);
    gp_symbols_free(symbols);
    gp_sites_close(sites);
    return sums;
}

/* What the program printed: after each phase, the live bytes of each phase, then how many of them are
 * not mapped. */
static void parse(const char *out, int64_t live[PHASES][PHASES + 1])
{
    for (unsigned phase = 0; phase < PHASES; phase++) {
        char want[16];
        snprintf(want, sizeof(want), "phase %u:", phase);
        const char *at = strstr(out, want);
        cr_assert(at, "%s", out);
        at += strlen(want);
        for (unsigned p = 0; p < PHASES; p++)
            live[phase][p] = strtoll(at, (char **)&at, 10);
        cr_assert_eq(sscanf(at, " unmapped %" SCNd64, &live[phase][PHASES]), 1);
    }
}

/* Starts the program and waits until it holds. */
static void held(struct spawn *spawn, const struct spawn_options *how, const char *const *argv)
{
    struct spawn_options options = *how;
    options.argv = argv;
    options.want_library = true;
    program_hold(spawn, &options);
}

/* modes[p]: in phase p. */
static void in_phases(const struct spawn_options *how, const uint32_t modes[PHASES])
{
    const char *argv[] = {path_program("stack_switch"), NULL};
    struct sums sums[PHASES];
    int64_t live[PHASES][PHASES + 1];
    struct spawn spawn;
    uint32_t before;
    held(&spawn, how, argv);
    for (unsigned phase = 0; phase < PHASES; phase++) {
        sums[phase] = sums_of(spawn.held[0]);
        if (phase + 1 < PHASES) {
            cr_assert_eq(switch_to(spawn.held[0], modes[phase + 1], &before), 0);
            cr_assert_eq(before, modes[phase]);
        }
        cr_assert_eq(spawn_step(&spawn), 0);
    }
    program_end(&spawn);
    parse(said.out, live);
    bool ever = false;
    for (unsigned phase = 0; phase < PHASES; phase++) {
        int64_t without = 0, with = 0;
        for (unsigned p = 0; p <= phase; p++)
            *(modes[p] ? &with : &without) += live[phase][p];
        ever |= modes[phase] != 0;
        cr_assert_eq(sums[phase].allocated, without + with - live[phase][PHASES], "phase %u", phase);
        if (!ever)
            continue;
        cr_assert_eq(sums[phase].before, without, "phase %u: %" PRId64 " before", phase, sums[phase].before);
        cr_assert_eq(sums[phase].others, with, "phase %u: %" PRId64 " with stacks", phase, sums[phase].others);
        cr_assert_geq(sums[phase].sites, 2);
    }
}

static const uint32_t late[PHASES] = {0, GP_SITES_NATIVE, GP_SITES_NATIVE, 0, GP_SITES_NATIVE | GP_SITES_PYTHON, 0};
static const uint32_t early[PHASES] = {GP_SITES_NATIVE, 0, 0, GP_SITES_NATIVE, GP_SITES_PYTHON, GP_SITES_NATIVE};

Test(stack_switch, on_late)
{
    in_phases(&(struct spawn_options){0}, late);
}

Test(stack_switch, on_late_with_driver_hooks)
{
    in_phases(&(struct spawn_options){.source = "hooks"}, late);
}

Test(stack_switch, on_from_the_start)
{
    const char *env[] = {"GPUPROF_STACKS=native", NULL};
    in_phases(&(struct spawn_options){.env = env}, early);
}

/* Blocks in a cache keep their site in the cache's own records. */
Test(stack_switch, with_an_allocator)
{
    const char *env[] = {"GPUPROF_ALLOCATOR=pytorch", NULL};
    in_phases(&(struct spawn_options){.source = "hooks", .env = env}, late);
}

static void nap(unsigned ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000l}, NULL);
}

Test(stack_switch, what_is_no_mode)
{
    const char *argv[] = {path_program("steps"), NULL};
    struct spawn spawn;
    uint32_t before = 7;
    held(&spawn, &(struct spawn_options){0}, argv);
    cr_assert_eq(switch_to(spawn.held[0], 8, &before), -EINVAL);
    cr_assert_eq(before, 0);
    cr_assert_eq(switch_to(spawn.held[0], 0, &before), 0, "they are off");
    cr_assert_eq(sums_of(spawn.held[0]).sites, 0);
    program_end(&spawn);
}

/* The command with and without a mode: it says nothing of any process, and switches none. */
static void no_process(const char *pids, const char *why)
{
    static const char *const modes[] = {"off", "all", NULL};
    for (unsigned i = 0; i < 3; i++) {
        command(3, "stacks", "--json", "-p", pids, modes[i], NULL);
        WARNS(why);
        cr_expect_str_eq(said.out, "", "%s", said_by);
    }
}

Test(stack_switch, of_no_profiled_process)
{
    const char *argv[] = {path_program("steps"), NULL};
    char pid[16], two[32];
    struct spawn spawn;
    uint32_t before;
    pid_t ended = fork();
    if (ended == 0)
        _exit(0);
    cr_assert_eq(waitpid(ended, NULL, 0), ended);
    no_process(pid_text(ended), "no such process");
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    no_process(pid, "not profiled");
    held(&spawn, &(struct spawn_options){0}, argv);
    snprintf(two, sizeof(two), "%d,%s", (int)spawn.held[0], pid);
    no_process(two, "not profiled");
    cr_assert_eq(switch_to(spawn.held[0], 0, &before), 0);
    cr_expect_eq(before, 0, "the first was switched");
    program_end(&spawn);
}

/* Switches while threads are inside allocations, beside a reader. At the end all is freed, so that a
 * block that was counted twice or not at all leaves a number behind. */
static void under_load(const struct spawn_options *how)
{
    static const uint32_t modes[] = {GP_SITES_NATIVE, 0, GP_SITES_PYTHON, GP_SITES_NATIVE, 0};
    const char *argv[] = {path_program("stack_switch"), "load", NULL};
    char problem[GP_PROBLEM_BYTES] = "";
    struct gp_sites *sites = NULL;
    struct spawn spawn;
    uint32_t before;
    held(&spawn, how, argv);
    pid_t pid = spawn.held[0];
    spawn.held_count = 0;
    cr_assert_eq(write(spawn.go_fd, "g", 1), 1);
    unsigned switched = 0;
    for (time_t end = time(NULL) + 2; time(NULL) < end || switched < 20; switched++) {
        cr_assert_eq(switch_to(pid, modes[switched % 5], &before), 0);
        nap(switched % 7);
        int rc = sites ? gp_sites_update(sites, problem) : gp_sites_open(&sites, pid, problem);
        cr_assert_eq(rc, 0, "%s: %s", strerror(-rc), problem);
    }
    gp_sites_close(sites);
    cr_assert_eq(spawn_wait_held(&spawn, 1), 0);
    struct sums sums = sums_of(pid);
    cr_assert(sums.allocated == 0 && sums.before == 0 && sums.others == 0 && sums.leftover == 0,
              "%" PRId64 " before, %" PRId64 " others, %u sites hold memory", sums.before, sums.others, sums.leftover);
    cr_assert_geq(sums.sites, 3);
    program_end(&spawn);
}

Test(stack_switch, under_load_by_callbacks)
{
    under_load(&(struct spawn_options){0});
}

Test(stack_switch, under_load_with_driver_hooks)
{
    under_load(&(struct spawn_options){.source = "hooks"});
}

Test(stack_switch, under_load_with_an_allocator)
{
    const char *env[] = {"GPUPROF_ALLOCATOR=pytorch", NULL};
    under_load(&(struct spawn_options){.source = "hooks", .env = env});
}

/* ---- recordings --------------------------------------------------------------------------------------------------- */

static bool lives(const struct gp_recording *recording, const struct gp_rec_event *event, size_t index)
{
    bool block = event->type == GP_EVENT_ALLOC && (event->kind == GP_KIND_LINEAR || event->kind == GP_KIND_POOL);
    bool handle = event->type == GP_EVENT_SEGMENT_ALLOC && event->kind == GP_KIND_VMM;
    return (block || handle) && recording->peer[index] == GP_REC_NONE;
}

/* Sums what is live at the end by site: without a stack, and with one. */
static void sum_recording(const char *path, int64_t *without, int64_t *with, const char **name)
{
    static char kept[64];
    struct gp_recording *recording;
    struct gp_symbols *symbols;
    char why[160] = "";
    cr_assert_eq(gp_recording_open(&recording, path, why, sizeof(why), NULL, NULL), 0, "%s", why);
    cr_assert(recording->complete && recording->dropped == 0);
    *without = *with = 0;
    for (size_t i = 0; i < recording->event_count; i++)
        if (lives(recording, &recording->events[i], i))
            *(recording->events[i].site ? with : without) += (int64_t)recording->events[i].bytes;
    for (size_t i = 0; i < recording->baseline_count; i++)
        if (recording->baseline[i].type == GP_EVENT_ALLOC) {
            bool freed = false;
            for (size_t k = 0; k < recording->event_count && !freed; k++)
                freed = recording->peer[k] == recording->event_count + i;
            if (!freed)
                *(recording->baseline[i].site ? with : without) += (int64_t)recording->baseline[i].bytes;
        }
    struct gp_symbol_source source = gp_symbol_source_of(recording, "");
    cr_assert_eq(gp_symbols_new(&symbols, &source), 0);
    snprintf(kept, sizeof(kept), "%s", gp_symbols_name(symbols, 0)->function);
    *name = kept;
    gp_symbols_free(symbols);
    gp_recording_free(recording);
}

static pid_t start_recorder(pid_t pid, const char *file)
{
    pid_t recorder = fork();
    if (recorder == 0) {
        execl(path_command(), "gpuprof", "record", "-p", pid_text(pid), "-q", "-o", file, (char *)NULL);
        _exit(99);
    }
    return recorder;
}

/* The recording starts while stacks are off; they come and go. outside: another process records. */
static void recorded(bool outside)
{
    char *folder = build_folder(), file[256], variable[300];
    const char *argv[] = {path_program("stack_switch"), NULL};
    const char *env[] = {"GPUPROF_STACKS=off", outside ? NULL : variable, NULL};
    struct spawn spawn;
    int64_t live[PHASES][PHASES + 1], without = 0, with = 0, wanted[2] = {0};
    const char *name;
    uint32_t before;
    pid_t recorder = 0;
    int status;
    snprintf(file, sizeof(file), "%s/r.gpuprof", folder);
    snprintf(variable, sizeof(variable), "GPUPROF_RECORD=%s", file);
    held(&spawn, &(struct spawn_options){.env = env}, argv);
    if (outside)
        recorder = start_recorder(spawn.held[0], file);
    nap(1200); /* past the first second, in which a recorder reads the tables anyway */
    for (unsigned phase = 1; phase < PHASES; phase++) {
        cr_assert_eq(switch_to(spawn.held[0], late[phase], &before), 0);
        cr_assert_eq(spawn_step(&spawn), 0);
    }
    nap(100);
    program_end(&spawn);
    if (outside)
        cr_assert(waitpid(recorder, &status, 0) == recorder && status == 0);
    parse(said.out, live);
    for (unsigned p = 0; p < PHASES; p++)
        wanted[late[p] != 0] += live[PHASES - 1][p];
    sum_recording(file, &without, &with, &name);
    cr_assert_eq(with, wanted[1], "%" PRId64 " with stacks instead of %" PRId64, with, wanted[1]);
    /* Handles that are not mapped are no blocks of the baseline. */
    cr_assert(without <= wanted[0] && without >= wanted[0] - (outside ? live[0][PHASES] : 0),
              "%" PRId64 " without stacks instead of %" PRId64, without, wanted[0]);
    cr_assert_str_eq(name, "before stacks");
    build_remove(folder);
}

Test(stack_switch, in_a_recording_from_outside)
{
    recorded(true);
}

Test(stack_switch, in_a_recording_of_the_process_itself)
{
    recorded(false);
}

/* ---- the command -------------------------------------------------------------------------------------------------- */

Test(stack_switch, the_command)
{
    const char *argv[] = {path_program("steps"), NULL};
    struct spawn spawn[2];
    char pids[32];
    for (unsigned i = 0; i < 2; i++)
        held(&spawn[i], &(struct spawn_options){0}, argv);
    const char *one = pid_text(spawn[0].held[0]);
    snprintf(pids, sizeof(pids), "%s,%d", one, (int)spawn[1].held[0]);
    command(1, "top", "--by=site", "--once", "-p", one, NULL);
    WARNS("'gpuprof stacks all -p ");
    command(0, "record", "--duration=1", "-p", one, "-o", "/dev/null", NULL);
    WARNS("'gpuprof stacks all -p ");
    command(0, "stacks", "native", "--json", "-p", pids, NULL);
    json_t *top = said_json(), *row;
    size_t i;
    cr_assert_str_eq(json_string_value(json_object_get(top, "schema")), "gpuprof.stacks/1");
    cr_assert_eq(json_array_size(json_object_get(top, "processes")), 2);
    json_array_foreach(json_object_get(top, "processes"), i, row)
    {
        cr_assert_str_eq(json_string_value(json_object_get(row, "before")), "off");
        cr_assert_str_eq(json_string_value(json_object_get(row, "stacks")), "native");
        cr_assert_str_eq(json_string_value(json_object_get(row, "comm")), "steps");
    }
    json_decref(top);
    command(0, "stacks", "-p", one, NULL);
    SAYS("stacks native\n");
    command(0, "top", "--by=site", "--once", "-p", one, NULL);
    SAYS("1.0M");
    SAYS("before stacks");
    command(2, "stacks", "some", "-p", one, NULL);
    for (i = 0; i < 2; i++)
        program_end(&spawn[i]);
}
