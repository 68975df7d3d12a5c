/* SPDX-License-Identifier: MIT
 *
 * test_framework.c: PyTorch's caching allocator seen from inside, with stand-ins for its libraries (tests/framework).
 * tests/programs/framework.c compares gpuprof's numbers with the allocator's after every operation; here the same
 * program runs without gpuprof too, and held, for what only other processes see.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <fcntl.h>
#include <gpuprof/wire.h>
#include <read/collect/peer.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/ledger.h"
#include "lib/paths.h"
#include "lib/same.h"
#include "lib/spawn.h"

#define SIM "memory=1GiB"
#define MIB (1024ll * 1024)

TestSuite(framework, .timeout = 90);

struct framework_case {
    const char *mode, *built; /* as the folders in BUILD/tests/framework */
    const char *when;         /* "late": the library is opened after cuInit; "linked": preloaded, so there at start */
    const char *source;
    const char *setting;
};

#define ROW(_mode, _built, ...)                                                                                        \
    {                                                                                                                  \
        .mode = _mode, .built = _built, __VA_ARGS__                                                                    \
    }

/* clang-format off */
static const struct framework_case cases[] = {
    /* Each way to link. */
    ROW("walk", "unsigned-now"),                ROW("walk", "unsigned-now", .when = "late"),                ROW("walk", "unsigned-now", .when = "linked"),
    ROW("walk", "unsigned-lazy"),               ROW("walk", "unsigned-lazy", .when = "late"),               ROW("walk", "unsigned-lazy", .when = "linked"),
    ROW("walk", "unsigned-now-norelro"),        ROW("walk", "unsigned-now-norelro", .when = "late"),
    ROW("walk", "unsigned-lazy-norelro"),       ROW("walk", "unsigned-lazy-norelro", .when = "late"),
    ROW("walk", "unsigned-now-noplt"),          ROW("walk", "unsigned-now-noplt", .when = "late"),          ROW("walk", "unsigned-now-noplt", .when = "linked"),
    ROW("walk", "unsigned-lazy-noplt"),         ROW("walk", "unsigned-lazy-noplt", .when = "late"),
    ROW("walk", "unsigned-now-norelro-noplt"),  ROW("walk", "unsigned-now-norelro-noplt", .when = "late"),
    ROW("walk", "unsigned-lazy-norelro-noplt"), ROW("walk", "unsigned-lazy-norelro-noplt", .when = "late"),
    /* Each age. */
    ROW("walk", "signed-now"),                  ROW("walk", "signed-lazy-norelro", .when = "late"),
    ROW("walk", "old-now"),                     ROW("walk", "old-lazy-norelro", .when = "late"),
    ROW("expandable", "signed-now", .when = "late"),    ROW("expandable", "old-now"),
    ROW("oom", "signed-now"),                   ROW("oom", "old-now"),
    ROW("throw", "signed-now"),                 ROW("throw", "old-lazy-norelro"),
    /* Each thing that can happen. */
    ROW("walk", "unsigned-now-rt"),             ROW("walk", "unsigned-now-rt", .when = "late"),
    ROW("sleep", "unsigned-now"),               ROW("sleep", "unsigned-lazy", .when = "late", .source = "hooks"),
    ROW("expandable", "unsigned-lazy"),         ROW("expandable", "unsigned-now", .source = "hooks"),
    ROW("others", "unsigned-now"),              ROW("others", "unsigned-lazy", .when = "late", .source = "hooks"),
    ROW("oom", "unsigned-now"),                 ROW("oom", "unsigned-now-rt", .source = "hooks"),
    ROW("lie", "unsigned-now"),
    ROW("uncached", "unsigned-now", .setting = "PYTORCH_NO_CUDA_MEMORY_CACHING=1"),
    ROW("uncached", "unsigned-lazy", .when = "late", .source = "hooks", .setting = "PYTORCH_NO_CUDA_MEMORY_CACHING=1"),
    ROW("fork", "unsigned-now"),                ROW("fork", "unsigned-lazy", .when = "late"),               ROW("fork", "unsigned-now", .source = "hooks"),
    ROW("throw", "unsigned-now"),               ROW("throw", "unsigned-lazy", .when = "late"),              ROW("throw", "unsigned-now-noplt"),
    ROW("pools", "unsigned-now"),               ROW("pools", "unsigned-now", .when = "late", .source = "hooks"),
    /* Loaded again elsewhere; and an allocation while the loader relocates it. */
    ROW("again", "unsigned-now"),               ROW("again", "unsigned-lazy"),                              ROW("again", "old-now", .source = "hooks"),
    ROW("early", "unsigned-now-early"),         ROW("early", "unsigned-now-norelro-early"),                 ROW("early", "unsigned-lazy-early"),
    ROW("owners", "unsigned-now"),              ROW("owners", "unsigned-lazy", .when = "late", .source = "hooks"),
    ROW("walk", "unsigned-now", .source = "hooks"), ROW("walk", "unsigned-lazy", .when = "late", .source = "hooks"),
};
/* clang-format on */

/* argv and env point into these. */
struct framework_run {
    char folder[4096], preload[8192];
    const char *argv[6], *env[5];
    struct spawn_options options;
};

static void framework_options(struct framework_run *run, const struct framework_case *one)
{
    int used = 0;
    memset(run, 0, sizeof(*run));
    snprintf(run->folder, sizeof(run->folder), "%s/../framework/%s", path_program("."), one->built);
    run->argv[0] = path_program("framework");
    run->argv[1] = one->mode;
    run->argv[2] = run->folder;
    run->argv[3] = one->when;
    if (one->when != NULL && strcmp(one->when, "linked") == 0) {
        snprintf(run->preload, sizeof(run->preload), "LD_PRELOAD=%s/libc10_cuda.so", run->folder);
        run->env[used++] = run->preload;
    }
    run->env[used++] = one->setting;
    run->options = (struct spawn_options){.argv = run->argv, .env = run->env, .sim = SIM, .source = one->source};
}

static const char *framework_title(const struct framework_case *one)
{
    static char title[256];
    snprintf(title, sizeof(title), "%s %s %s %s", one->mode, one->built, one->when ? one->when : "",
             one->source ? one->source : "");
    return title;
}

/* ---- the program itself -------------------------------------------------------------------------------------- */

ParameterizedTestParameters(framework, numbers_are_the_allocators_own_and_output_stays)
{
    int count = (int)(sizeof(cases) / sizeof(cases[0])), *index = cr_malloc(sizeof(*index) * (size_t)count);
    for (int i = 0; i < count; i++)
        index[i] = i;
    return cr_make_param_array(int, index, count, (void (*)(struct criterion_test_params *))NULL);
}

ParameterizedTest(int *index, framework, numbers_are_the_allocators_own_and_output_stays)
{
    const struct framework_case *one = &cases[*index];
    struct framework_run run;
    framework_options(&run, one);
    same_expect(framework_title(one), &run.options, one->source, run.env);
}

/* ---- what other processes see -------------------------------------------------------------------------------- */

struct framework_held {
    struct framework_run run;
    struct spawn spawn;
    char form[64];
    json_t *process, *ledger;
};

static void held_look(struct framework_held *held)
{
    struct ledger_diff diff = {0};
    json_decref(held->process);
    json_decref(held->ledger);
    held->process = ledger_stat(&diff, held->spawn.held[0]);
    held->ledger = ledger_load(&diff, held->form, held->spawn.held[0]);
    cr_assert_not_null(held->process, "%s", diff.text);
}

static void held_start_as(struct framework_held *held, const struct framework_case *one, bool is_injected)
{
    char setting[96];
    int used = 0;
    memset(held, 0, sizeof(*held));
    framework_options(&held->run, one);
    snprintf(held->form, sizeof(held->form), "/tmp/gpuprof-framework-%s-%d.%%p", one->mode, (int)getpid());
    snprintf(setting, sizeof(setting), "GPUPROF_TEST_LEDGER=%s", held->form);
    while (held->run.env[used] != NULL)
        used++;
    held->run.env[used] = setting;
    held->run.options.want_library = is_injected;
    held->run.options.want_hold = true;
    cr_assert_eq(spawn_start(&held->spawn, &held->run.options), 0);
    cr_assert_eq(spawn_wait_held(&held->spawn, 1), 0);
    held_look(held);
}

static void held_end(struct framework_held *held)
{
    struct spawn_result result = {0};
    char path[128];
    snprintf(path, sizeof(path), "%.*s.%d", (int)strcspn(held->form, "."), held->form, (int)held->spawn.held[0]);
    spawn_finish(&held->spawn, &result);
    unlink(path);
    cr_expect(WIFEXITED(result.status) && WEXITSTATUS(result.status) == 0, "%s\n%s%s", spawn_status_text(&result),
              result.out, result.err);
    spawn_result_free(&result);
    json_decref(held->process);
    json_decref(held->ledger);
}

static void held_start(struct framework_held *held, const struct framework_case *one)
{
    held_start_as(held, one, true);
}

static long long held_at(const struct framework_held *held, const char *path)
{
    return json_at(held->process, path, -77);
}

#define HELD(_path, _wanted)                                                                                           \
    cr_expect_eq(held_at(&held, _path), _wanted, "%s: %lld, not %lld", _path, held_at(&held, _path),                   \
                 (long long)(_wanted))
#define FRAMEWORK(_key) "devices/0/frameworks/0/" _key

static bool held_agrees(const struct framework_held *held)
{
    const json_t *device = json_array_get(json_object_get(held->process, "devices"), 0);
    return json_is_true(json_object_get(json_array_get(json_object_get(device, "frameworks"), 0), "agrees"));
}

static const json_t *held_owner(const struct framework_held *held, const char *name)
{
    const json_t *device = json_array_get(json_object_get(held->process, "devices"), 0), *owner;
    size_t i;
    json_array_foreach(json_object_get(device, "owners"), i, owner)
    {
        if (strcmp(json_string_value(json_object_get(owner, "owner")), name) == 0)
            return owner;
    }
    return NULL;
}

/* The ledger knows segments only. */
static void held_ledger(const struct framework_held *held)
{
    static const char *const keys[][2] = {{"devices/0/reserved_bytes/current", "reserved_bytes.all.current"},
                                          {"devices/0/reserved_bytes/peak", "reserved_bytes.all.peak"}};
    for (size_t i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof(path), "devices/0/stats/%s", keys[i][1]);
        cr_expect_eq(held_at(held, path), json_at(held->ledger, keys[i][0], -1), "%s %lld, ledger %lld", keys[i][1],
                     held_at(held, path), json_at(held->ledger, keys[i][0], -1));
    }
}

static void held_walk(const struct framework_case *one)
{
    struct framework_held held;
    const json_t *pytorch;
    held_start(&held, one);
    held_ledger(&held);
    cr_expect(held_agrees(&held), "%s", framework_title(one));
    HELD(FRAMEWORK("allocated_differs"), 0);
    HELD(FRAMEWORK("reserved_differs"), 0);
    HELD(FRAMEWORK("allocated_bytes"), held_at(&held, "devices/0/stats/allocated_bytes.all.current"));
    HELD(FRAMEWORK("reserved_bytes"), held_at(&held, "devices/0/stats/reserved_bytes.all.current"));
    HELD(FRAMEWORK("blocks"), held_at(&held, "devices/0/stats/allocation.all.current"));
    HELD(FRAMEWORK("segments"), held_at(&held, "devices/0/stats/segment.all.current"));
    pytorch = held_owner(&held, "pytorch");
    cr_expect_eq(json_at(pytorch, "reserved_bytes", -1), held_at(&held, FRAMEWORK("reserved_bytes")));
    cr_expect_eq(json_at(pytorch, "allocated_bytes", -1), held_at(&held, FRAMEWORK("allocated_bytes")));
    cr_expect_eq(json_at(pytorch, "live", -1), held_at(&held, FRAMEWORK("blocks")));
    cr_expect_null(held_owner(&held, "shared"));
    held_end(&held);
}

Test(framework, other_processes_see_segments_and_blocks)
{
    held_walk(&(struct framework_case)ROW("walk", "unsigned-now"));
    held_walk(&(struct framework_case)ROW("walk", "signed-now", .source = "hooks"));
    held_walk(&(struct framework_case)ROW("walk", "old-now", .when = "late"));
    held_walk(&(struct framework_case)ROW("expandable", "unsigned-lazy", .when = "late"));
}

Test(framework, a_failure_that_the_cache_answers_is_a_retry)
{
    static const struct framework_case ways[] = {ROW("oom", "unsigned-now"),
                                                 ROW("oom", "signed-now", .source = "hooks")};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct framework_held held;
        held_start(&held, &ways[i]);
        HELD(FRAMEWORK("retries"), 2);
        HELD(FRAMEWORK("ooms"), 1);
        HELD("devices/0/stats/num_alloc_retries", 2);
        HELD("devices/0/stats/num_ooms", 1);
        held_ledger(&held);
        held_end(&held);
    }
}

Test(framework, totals_that_differ_are_shown)
{
    struct framework_held held;
    held_start(&held, &(struct framework_case)ROW("lie", "unsigned-now"));
    cr_expect(held_agrees(&held));
    cr_assert_eq(spawn_step(&held.spawn), 0);
    held_look(&held);
    cr_expect(!held_agrees(&held));
    HELD(FRAMEWORK("allocated_differs"), 1);
    HELD(FRAMEWORK("reserved_differs"), 0);
    held_end(&held);
}

Test(framework, a_reset_from_outside_restarts_both_peaks)
{
    struct framework_held held;
    struct spawn_result command = {0};
    char pid[16];
    held_start(&held, &(struct framework_case)ROW("peaks", "unsigned-now"));
    HELD("devices/0/stats/allocated_bytes.all.peak", 30 * MIB);
    HELD("devices/0/stats/reserved_bytes.all.peak", 30 * MIB);
    snprintf(pid, sizeof(pid), "%d", (int)held.spawn.held[0]);
    cr_assert_eq(spawn_command(&command, "reset", "--peaks", "-p", pid, NULL), 0);
    cr_expect_eq(command.status, 0, "%s", command.err);
    spawn_result_free(&command);
    cr_assert_eq(spawn_step(&held.spawn), 0); /* the program compares every peak from here on */
    held_look(&held);
    HELD("devices/0/stats/allocated_bytes.all.peak", 6 * MIB);
    HELD("devices/0/stats/reserved_bytes.all.peak", 20 * MIB);
    held_end(&held);
}

/* What a thread takes between the begin and the end of its MemPool, and what is captured while a graph has a pool. */
Test(framework, segments_of_private_pools_are_known)
{
    struct framework_held held;

    held_start(&held, &(struct framework_case)ROW("pools", "unsigned-now"));
    HELD(FRAMEWORK("private_bytes"), 100 * MIB);
    HELD(FRAMEWORK("reserved_bytes"), (12 + 30 + 12 + 50 + 14 + 70 + 14 + 16) * MIB); /* in units of 2 MiB */
    held_end(&held);
}

/* Without its cache PyTorch reports no blocks, and what it asks the driver for is allocated. */
Test(framework, an_uncached_framework_allocates)
{
    struct framework_held held;
    held_start(&held,
               &(struct framework_case)ROW("uncached", "unsigned-now", .setting = "PYTORCH_NO_CUDA_MEMORY_CACHING=1"));
    HELD("devices/0/stats/allocated_bytes.all.current", 7 * MIB);
    HELD("devices/0/stats/reserved_bytes.all.current", 7 * MIB);
    HELD(FRAMEWORK("events"), -77);
    cr_expect_eq(json_at(held_owner(&held, "pytorch"), "allocated_bytes", -1), 7 * MIB);
    held_end(&held);
}

static void held_owns(const struct framework_held *held, const char *name, long long reserved, long long allocated,
                      long long live)
{
    const json_t *owner = held_owner(held, name);
    cr_assert_not_null(owner, "no owner %s", name);
    cr_expect_eq(json_at(owner, "reserved_bytes", -1), reserved, "%s: %lld", name,
                 json_at(owner, "reserved_bytes", -1));
    cr_expect_eq(json_at(owner, "allocated_bytes", -1), allocated, "%s: %lld", name,
                 json_at(owner, "allocated_bytes", -1));
    cr_expect_eq(json_at(owner, "live", -1), live, "%s: %lld", name, json_at(owner, "live", -1));
}

/* The framework, a library with the static runtime inside, and the program, which also has memory of a pool and
 * managed memory, which no total counts. Our own cache and the pool's reserve are of no library. Together: all. */
Test(framework, owners_add_up_to_the_device)
{
    static const char *const keys[][2] = {{"reserved_bytes", "devices/0/stats/reserved_bytes.all.current"},
                                          {"allocated_bytes", "devices/0/stats/allocated_bytes.all.current"},
                                          {"live", "devices/0/stats/allocation.all.current"}};
    static const char *const sources[] = {NULL, "hooks"};
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        struct framework_held held;
        const json_t *shared;
        held_start(&held, &(struct framework_case)ROW("owners", "unsigned-now", .source = sources[i]));
        held_owns(&held, "pytorch", 32 * MIB, MIB, 1);
        held_owns(&held, "libengine.so", 5 * MIB, 5 * MIB, 1);
        held_owns(&held, "program", 3 * MIB, (3 + 11) * MIB, 2);
        shared = held_owner(&held, "shared");
        cr_expect_eq(json_at(shared, "allocated_bytes", -1), 13 * MIB);
        cr_expect_geq(json_at(shared, "reserved_bytes", -1), (13 + 11) * MIB);
        cr_expect(json_is_null(json_object_get(shared, "reserved_peak_bytes")));
        for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
            const json_t *device = json_array_get(json_object_get(held.process, "devices"), 0), *owner;
            long long sum = 0;
            size_t n;
            json_array_foreach(json_object_get(device, "owners"), n, owner)
            {
                sum += json_at(owner, keys[k][0], -1);
                cr_expect_geq(json_at(owner, keys[k][0], -1), 0);
            }
            HELD(keys[k][1], sum);
        }
        held_end(&held);
    }
}

/* gpuprof comes when blocks are there: their bytes count, their number is not known. */
Test(framework, blocks_from_before_leave_with_their_bytes)
{
    static char library[4200];
    struct framework_held held;
    snprintf(library, sizeof(library), "GPUPROF_TEST_LIBRARY=%s", path_library());
    held_start_as(&held, &(struct framework_case)ROW("before", "unsigned-now", .setting = library), false);
    HELD(FRAMEWORK("allocated_bytes"), 64 * MIB);
    HELD(FRAMEWORK("allocated_differs"), 0);
    HELD(FRAMEWORK("blocks"), 1);
    HELD(FRAMEWORK("segments"), 1);
    HELD("devices/0/stats/allocated_bytes.all.current", 64 * MIB);
    HELD("devices/0/stats/allocated_bytes.all.peak", 67 * MIB);
    HELD("devices/0/stats/allocation.all.current", 1);
    HELD("lost/unknown_free", 0);
    held_end(&held);
}

/* The program has taken the memory away below two blocks. */
Test(framework, blocks_without_memory_are_asleep)
{
    struct framework_held held;
    struct spawn_result command = {0};
    char pid[16];
    held_start(&held, &(struct framework_case)ROW("sleep", "unsigned-now"));
    HELD("devices/0/stats/allocated_bytes.all.current", 0);
    HELD("devices/0/stats/reserved_bytes.all.current", 0);
    HELD("devices/0/stats/asleep_bytes.current", 7 * MIB);
    HELD(FRAMEWORK("asleep_bytes"), 7 * MIB);
    HELD(FRAMEWORK("allocated_bytes"), 0);
    HELD(FRAMEWORK("blocks"), 2);
    HELD("devices/0/owners/0/asleep_bytes", 7 * MIB);
    cr_expect(held_agrees(&held));
    snprintf(pid, sizeof(pid), "%d", (int)held.spawn.held[0]);
    cr_assert_eq(spawn_command(&command, "reset", "--peaks", "-p", pid, NULL), 0);
    cr_expect(strstr(command.out, "asleep_bytes.peak  ") && strstr(command.out, "7.000 MiB -> 7.000 MiB\n"), "%s",
              command.out);
    spawn_result_free(&command);
    held_end(&held);
}

/* ---- readers of events ------------------------------------------------------------------------------------------ */

#define READER_MS 20000

static bool reader_is_there(int fd)
{
    struct flock held = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = GP_LISTEN_BYTE, .l_len = 1};
    return fcntl(fd, F_OFD_GETLK, &held) == 0 && held.l_type != F_UNLCK;
}

static void reader_pause(int milliseconds)
{
    nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000l}, NULL);
}

/* The reader holds its lock, and has had the time for its request; or it has gone, and the process has noticed. */
static void reader_wait(const struct framework_held *held, bool is_there)
{
    struct gp_peer session;
    char problem[GP_PROBLEM_BYTES];
    int left = READER_MS;
    cr_assert_eq(gp_peer_open_pid(&session, held->spawn.held[0], problem), 0, "%s", problem);
    while (reader_is_there(session.fd) != is_there && left > 0) {
        reader_pause(10);
        left -= 10;
    }
    cr_assert(left > 0, "a reader is%s there", is_there ? " not" : "");
    gp_peer_close(&session);
    reader_pause(is_there ? 500 : 2500);
}

struct reader {
    char path[64];
    pid_t pid;
};

static void reader_start_as(struct reader *reader, const struct framework_held *held, const char *command,
                            const char *more)
{
    char pid[16];
    snprintf(reader->path, sizeof(reader->path), "/tmp/gpuprof-reader-%d", (int)getpid());
    snprintf(pid, sizeof(pid), "%d", (int)held->spawn.held[0]);
    unlink(reader->path);
    reader->pid = fork();
    if (reader->pid == 0) {
        execl(path_command(), "gpuprof", command, "-p", pid, "-o", reader->path, more, more ? "--json" : NULL,
              (char *)NULL);
        _exit(127);
    }
    reader_wait(held, true);
}

static void reader_start(struct reader *reader, const struct framework_held *held, const char *more)
{
    reader_start_as(reader, held, "trace", more);
}

static void reader_end(struct reader *reader, int signal)
{
    kill(reader->pid, signal);
    waitpid(reader->pid, NULL, 0);
}

/* How many allocations of that many bytes `trace --json` has written. */
static int reader_saw(const struct reader *reader, long long bytes)
{
    FILE *file = fopen(reader->path, "r");
    char line[1024], form[64];
    int count = 0;
    cr_assert_not_null(file);
    snprintf(form, sizeof(form), "\"size_bytes\":%lld,", bytes);
    while (fgets(line, sizeof(line), file) != NULL)
        count += strstr(line, "\"event\":\"alloc\"") != NULL && strstr(line, form) != NULL;
    fclose(file);
    return count;
}

/* Without a reader a block is no event; with one each is, also while the reader is stopped for longer than the process
 * waits before it looks for readers; and after a reader that was killed none is. */
Test(framework, blocks_are_events_while_a_viewer_reads)
{
    struct framework_held held;
    struct reader reader;
    held_start(&held, &(struct framework_case)ROW("readers", "unsigned-now"));
    reader_start(&reader, &held, "--json");
    kill(reader.pid, SIGSTOP);
    reader_pause(2500);
    cr_assert_eq(spawn_step(&held.spawn), 0);
    kill(reader.pid, SIGCONT);
    reader_pause(500);
    reader_end(&reader, SIGKILL);
    cr_expect_eq(reader_saw(&reader, 2 * MIB), 1);
    reader_wait(&held, false);
    cr_assert_eq(spawn_step(&held.spawn), 0);
    unlink(reader.path);
    reader_start(&reader, &held, "--backlog");
    cr_assert_eq(spawn_step(&held.spawn), 0);
    reader_pause(500);
    reader_end(&reader, SIGINT);
    for (int i = 1; i <= 4; i++)
        cr_expect_eq(reader_saw(&reader, i * MIB), i == 2 || i == 4, "%d MiB", i);
    unlink(reader.path);
    held_end(&held);
}

Test(framework, blocks_are_always_events_if_the_user_says_so)
{
    struct framework_held held;
    struct reader reader;
    held_start(&held, &(struct framework_case)ROW("readers", "unsigned-now", .setting = "GPUPROF_RING=always"));
    reader_start(&reader, &held, "--backlog");
    reader_pause(500);
    reader_end(&reader, SIGINT);
    cr_expect_eq(reader_saw(&reader, 1 * MIB), 1);
    unlink(reader.path);
    held_end(&held);
}

static void expect_asleep_budget(const char *file, long long bytes, bool within)
{
    struct spawn_result command = {0};
    char budgets[] = "/tmp/gpuprof-budgets.XXXXXX", option[64];
    int fd = mkstemp(budgets);
    cr_assert(fd >= 0 && dprintf(fd, "asleep %lldB\n", bytes) > 0);
    close(fd);
    snprintf(option, sizeof(option), "--budgets=%s", budgets);
    cr_assert_eq(spawn_command(&command, "check", "--json", option, file, (char *)NULL), 0);
    cr_expect_str_eq(spawn_status_text(&command), within ? "exit 0" : "exit 3", "%s", command.err);
    json_t *verdict = json_loads(command.out, 0, NULL);
    cr_expect_eq(json_at(verdict, "peak_bytes", -1), within ? bytes : bytes + 1, "%s", command.out);
    cr_expect_eq(json_at(verdict, "culprit/bytes", -1), within ? -1 : 2 * MIB, "%s", command.out);
    json_decref(verdict);
    spawn_result_free(&command);
    unlink(budgets);
}

/* A recording tells what fell asleep, and from where. */
Test(framework, a_report_has_the_times_of_sleep)
{
    struct framework_held held;
    struct spawn_result command = {0};
    struct reader reader;
    held_start(&held, &(struct framework_case)ROW("naps", "unsigned-now"));
    reader_start_as(&reader, &held, "record", NULL);
    cr_assert_eq(spawn_step(&held.spawn), 0);
    reader_pause(500);
    reader_end(&reader, SIGINT);
    cr_assert_eq(spawn_command(&command, "report", "--json", reader.path, (char *)NULL), 0);
    json_t *report = json_loads(command.out, 0, NULL);
    cr_expect_eq(json_at(report, "devices/0/sleeps/0/asleep_bytes", -1), 7 * MIB, "%.2000s", command.out);
    cr_expect_eq(json_at(report, "devices/0/sleeps/0/woken_bytes", -1), 7 * MIB);
    cr_expect_eq(json_at(report, "devices/0/sleeps/0/late_bytes", -1), 0);
    cr_expect_eq(json_at(report, "devices/0/sleeps/1/asleep_bytes", -1), 4 * MIB);
    cr_expect_eq(json_at(report, "devices/0/sleeps/1/freed_asleep_bytes", -1), 4 * MIB);
    cr_expect_eq(json_at(report, "devices/0/sleeps/1/stayed/0/bytes", -1), 2 * MIB);
    cr_expect_eq(json_at(report, "devices/0/peak/bytes", -1), 9 * MIB);
    /* The first time the memory has a second reference, and stays. */
    cr_expect_eq(json_at(report, "devices/0/sleeps/0/reserved_bytes", -1), 22 * MIB, "%.2000s", command.out);
    cr_expect_eq(json_at(report, "devices/0/sleeps/1/reserved_bytes", -1), 2 * MIB);
    json_decref(report);
    spawn_result_free(&command);
    expect_asleep_budget(reader.path, 22 * MIB, true);
    expect_asleep_budget(reader.path, 22 * MIB - 1, false);
    unlink(reader.path);
    held_end(&held);
}

/* The recording begins with what lives, and the frees of that are events. */
Test(framework, a_recording_has_the_blocks_from_before_it)
{
    struct framework_held held;
    struct spawn_result command = {0};
    struct reader reader;
    held_start(&held, &(struct framework_case)ROW("readers", "unsigned-now"));
    reader_start_as(&reader, &held, "record", NULL);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(spawn_step(&held.spawn), 0);
    reader_pause(500);
    reader_end(&reader, SIGINT);
    cr_assert_eq(spawn_command(&command, "report", "--json", reader.path, (char *)NULL), 0);
    json_t *report = json_loads(command.out, 0, NULL);
    cr_expect_eq(json_at(report, "devices/0/peak/bytes", -1), 11 * MIB, "%.2000s", command.out);
    json_decref(report);
    spawn_result_free(&command);
    unlink(reader.path);
    held_end(&held);
}
