/* SPDX-License-Identifier: MIT
 *
 * test_inject_init.c: the start and the end of the library, and a fork (src/inject/init.c). Every stage is a stand-in here
 * that notes its call, and may fail; the order of the calls and what the session then says are compared.
 */
#include "account/feed/feed.h"
#include "inject_fixture.h"
#include <criterion/parameterized.h>

TestSuite(inject_init, .timeout = 60);

#define OPEN(_sites, _wide)                                                                                            \
    "bytes=4096,sites=" _sites ",wide=" _wide                                                                          \
    " session opener __pthread_get_minstack=1 sizes __nptl_nthreads=1 counts atfork "

/* Without any setting. */
Test(inject_init, a_plain_start, .init = enter)
{
    errno = 77;
    cr_expect_eq(InitializeInjection(), 1);
    cr_expect_eq(errno, 77);
    EXPECT_NOTES(
        "save " OPEN("0", "0") "ring feed owners framework *event12 nvtx poll timed0 cupti -,-,0 allocator drain "
                               "*publish opener_stop ");
    cr_expect(gp_inject_is_ready() && gp_thread_life_on() && !gp_thread.inside && gp_thread.life);
    cr_expect(header.source == GP_SOURCE_CUPTI && header.cupti_version == 22 && header.enabled_callbacks == 33);
    cr_expect_str_eq(header.source_detail, "the path of CUPTI");
    cr_expect_str_eq(header.allocator, "some");
    cr_expect(!header.trouble[0] && !header.options[0] && !header.flags && !before.attached);
    cr_expect(feed.late == false && feed.map_limit == 1ull << 24 && feed.listened == &gp_session_listened);
    cr_expect(feed.armed == &gpuprof_batch_semaphore && feed.lost == header.lost);
    cr_expect_eq(gp_thread_nested, &header.lost[GP_LOST_NESTED]);
    cr_expect_eq(InitializeInjection(), 1);
    EXPECT_NOTES(""); /* once */
    gp_thread.starts_later = 0;
    fork_begin();
    fork_end();
    fork_child();
    EXPECT_NOTES("extents_begin loader_begin loader_end extents_end forget ");
    cr_expect_not(gp_inject_claim() == false, "the start is over");
}

Test(inject_init, the_form_of_the_subscription, .init = enter)
{
    setenv("GPUPROF_CUPTI", "v2", 1);
    InitializeInjection();
    cr_expect_eq(cupti_form, GP_CUPTI_V2);
}

Test(inject_init, all_settings, .init = enter)
{
    setenv("GPUPROF_RECORD", "a.gpuprof", 1);
    setenv("GPUPROF_RECORD_SINCE", "1234", 1);
    setenv("GPUPROF_ALLOCATOR", "caching", 1);
    setenv("GPUPROF_ALLOC_CONF", "key:1", 1);
    setenv("GPUPROF_MEMORY_LIMIT", "1KiB", 1);
    setenv("GPUPROF_SOURCE", "hooks", 1);
    InitializeInjection();
    EXPECT_NOTES("save " OPEN("1", "1") "listen_always ring feed owners framework modes3 sites show *event12 nvtx poll "
                                        "hooks caching,key:1,1024 allocator drain record *publish opener_stop ");
    cr_expect_str_eq(recorded.path, "a.gpuprof");
    cr_expect(recorded.since_unix_ns == 1234 && recorded.publish == gp_session_publish &&
              recorded.appeared == gp_poll_wake && recorded.header == &header);
    cr_expect(gp_call_timed && header.source == GP_SOURCE_HOOKS);
    cr_expect_str_eq(header.source_detail, "the hooks");
}

Test(inject_init, without_a_gpu, .init = enter)
{
    is_certain = true;
    InitializeInjection();
    EXPECT_NOTES("save opener_stop ");
    cr_expect(!gp_inject_is_ready() && !gp_thread_life_on());
}

/* ---- settings, stages that fail, and the source ------------------------------------------------------------------- */

#define TAKEN       "another tool has it" /* CUPTI's subscriber */
#define FROM_SOURCE "*event12 nvtx poll timed0 cupti -,-,0 allocator drain *publish opener_stop "

/* What the session says of each start, and the stages that it had, did not have, and ended with. */
static const struct start {
    const char *failing, *settings[2], *values[2];
    bool is_taken, has_hooks, is_stuck;
    bool is_off; /* the library is off then */
    const char *trouble, *options, *source;
    const char *has[3], *lacks, *end;
} start_cases[] = {
    {.settings = {"GPUPROF_RECORD", "GPUPROF_STACKS"},
     .values = {"a.gpuprof", "off"},
     .has = {"sites=0,wide=1", "timed1 "},
     .lacks = "modes"},
    {.settings = {"GPUPROF_STACKS"},
     .values = {"python"},
     .has = {"sites=1,wide=0", "modes2 sites show "},
     .lacks = "listen_always"},
    {.settings = {"GPUPROF_RING"}, .values = {"always"}, .has = {"listen_always ring"}},
    {.settings = {"GPUPROF_SOURCE"},
     .values = {"magic"},
     .options = "GPUPROF_SOURCE=magic must be auto, cupti or hooks"},
    {.failing = "allocator", .options = "its policy is unknown"},
    {.failing = "session", .is_off = true, .end = "session opener_stop "},
    {.failing = "opener",
     .is_off = true,
     .trouble =
         "a thread that loads a library holds the loader's lock: does it call cuInit?: Resource deadlock avoided",
     .end = "opener mute opener_stop "},
    {.failing = "ring", .is_off = true, .trouble = "no accounts: " MEMORY, .end = "ring mute opener_stop "},
    {.failing = "feed", .is_off = true, .trouble = "no accounts: " MEMORY, .end = "feed mute opener_stop "},
    {.failing = "owners", .end = "owners " FROM_SOURCE},
    {.failing = "poll", .end = "poll timed0 cupti -,-,0 allocator drain *publish opener_stop "},
    {.failing = "drain",
     .trouble = "no thread to answer viewers: " MEMORY,
     .end = "drain listen_always mute *publish opener_stop "},
    {.failing = "sites",
     .settings = {"GPUPROF_STACKS"},
     .values = {"all"},
     .trouble = "no stacks: " MEMORY,
     .end = "modes3 sites " FROM_SOURCE},
    {.failing = "record",
     .settings = {"GPUPROF_RECORD"},
     .values = {"x.gpuprof"},
     .trouble = "GPUPROF_RECORD: x.gpuprof: the reason",
     .end = "record *publish opener_stop "},
    {.is_taken = true, .has_hooks = true, .source = "driver hooks (" TAKEN ")"},
    {.is_taken = true,
     .has_hooks = true,
     .settings = {"GPUPROF_SOURCE"},
     .values = {"cupti"},
     .source = TAKEN,
     .lacks = "hooks"},
    {.is_taken = true, .source = TAKEN},
    {.has_hooks = true, .lacks = "hooks"},
    {.is_taken = true,
     .has_hooks = true,
     .is_stuck = true,
     .source = "a thread that loads a library did not let us load CUPTI: does it call cuInit?",
     .lacks = "allocator"},
};

ParameterizedTestParameters(inject_init, a_start)
{
    static unsigned rows[GP_COUNT(start_cases)];
    for (unsigned i = 0; i < GP_COUNT(start_cases); i++)
        rows[i] = i;
    return cr_make_param_array(unsigned, rows, GP_COUNT(start_cases));
}

ParameterizedTest(unsigned *row, inject_init, a_start, .init = enter)
{
    const struct start *start = &start_cases[*row];
    const char *trouble = start->trouble ? start->trouble : "";
    for (unsigned i = 0; i < 2 && start->settings[i]; i++)
        setenv(start->settings[i], start->values[i], 1);
    failing = start->failing;
    hooks_are_there = start->has_hooks;
    is_stuck = start->is_stuck;
    if (start->is_taken)
        cupti_status = (struct gp_source_status){GP_SOURCE_NONE, 22, 0, TAKEN};
    InitializeInjection();
    cr_expect(gp_inject_is_ready() == !start->is_off && gp_thread_life_on() == !start->is_off, "start %u", *row);
    cr_expect_str_eq(header.trouble, trouble);
    cr_expect_eq(header.flags, start->is_off && trouble[0] ? GP_SESSION_DISABLED : 0);
    cr_expect_str_eq(header.options, start->options ? start->options : "");
    if (!start->is_off) {
        uint32_t source = !start->source || !start->is_taken         ? GP_SOURCE_CUPTI
                          : strncmp(start->source, "driver", 6) == 0 ? GP_SOURCE_HOOKS
                                                                     : GP_SOURCE_NONE;
        cr_expect_str_eq(header.source_detail, start->source ? start->source : "the path of CUPTI");
        cr_expect_eq(header.source, source, "start %u", *row);
        cr_expect(source != GP_SOURCE_HOOKS || (header.cupti_version == 22 && header.enabled_callbacks == 44));
        cr_expect_str_eq(header.allocator, start->is_stuck ? "" : "some");
    }
    for (unsigned i = 0; i < 3 && start->has[i]; i++)
        cr_expect_not_null(strstr(notes, start->has[i]), "start %u: %s", *row, notes);
    cr_expect(!start->lacks || !strstr(notes, start->lacks), "start %u: %s", *row, notes);
    const char *end = start->end ? start->end : "opener_stop ";
    const char *tail = strlen(notes) > strlen(end) ? notes + strlen(notes) - strlen(end) : notes;
    cr_expect_str_eq(tail, end, "start %u: %s", *row, notes);
}

/* ---- stacks while the program runs ------------------------------------------------------------------------------- */

Test(inject_init, stacks_are_switched, .init = enter)
{
    uint32_t was = 99;
    char why[16] = "";
    InitializeInjection();
    notes[0] = '\0';
    gp_site_modes = 2;
    cr_expect_eq(hooks.stacks(4, &was), -EINVAL);
    cr_expect_eq(was, 2);
    is_sourced = false;
    cr_expect_eq(hooks.stacks(3, &was), -ENODATA);
    is_sourced = true;
    cr_expect_eq(hooks.stacks(0, &was), 0);
    EXPECT_NOTES("");
    sites_are_there = false;
    cr_expect_eq(hooks.stacks(3, &was), -ENOSPC);
    sites_are_there = true;
    failing = "switch";
    cr_expect_eq(hooks.stacks(1, &was), -ENOMEM);
    EXPECT_NOTES("to1 switch ");
    failing = NULL;
    cr_expect_eq(hooks.stacks(3, &was), 0);
    cr_expect_eq(hooks.stacks(0, &was), 0);
    EXPECT_NOTES("to3 switch show to0 switch ");
    cr_expect(hooks.yield == gp_handover_give && hooks.event == gp_feed_event && hooks.gone == gp_cupti_gone &&
              hooks.trouble(why, sizeof(why)) && strcmp(why, "a gap") == 0 && hooks.poll_now == gp_poll_now &&
              hooks.settle == gp_site_settle && hooks.blocks == gp_framework_survey);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void expect_end(bool starts, bool inside, bool ends, const char *text)
{
    int status;
    if (starts)
        InitializeInjection();
    notes[0] = '\0';
    pid_t child = fork();
    if (child == 0) {
        if (gp_thread_life_start() != 0 || !gp_thread_life_on())
            _exit(99);
        if (inside && !gp_thread_enter())
            _exit(98);
        if (ends)
            gp_thread_life_end();
        exit(5);
    }
    waitpid(child, &status, 0);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 5, "%x", status);
    const char *at = strstr(notes, inside ? "*allocator_stop *poll_stop "
                                          : "allocator_stop poll_stop "); /* the handler of exit; forks are noted too */
    cr_expect_eq(at != NULL, starts && !ends, "%s", notes);
    at = strstr(notes, "event13");
    cr_expect_str_eq(at ? at - 1 : "", text, "%s", notes);
}

Test(inject_init, the_end_of_the_program, .init = enter)
{
    expect_end(true, false, false, "*event13 detached0 *record_stop *close *batch *allocator_stop ");
}

Test(inject_init, an_end_inside_our_own_code, .init = enter)
{
    expect_end(true, true, false, "");
}

Test(inject_init, an_end_after_the_library_was_switched_off, .init = enter)
{
    expect_end(true, false, true, "");
}

Test(inject_init, an_end_without_a_start, .init = enter)
{
    expect_end(false, false, false, "");
}

/* ---- several at once ------------------------------------------------------------------------------------------- */

static void *claim(void *arg)
{
    return gp_inject_claim() ? arg : NULL;
}

/* The first cuInit of another thread, and the start of an attach, exclude each other. */
Test(inject_init, one_start_at_a_time, .init = enter)
{
    cr_expect(gp_inject_claim());
    EXPECT_NOTES("");
    InitializeInjection(); /* no start of its own: the attach has it */
    EXPECT_NOTES("");
    pthread_t thread;
    void *result;
    cr_assert_eq(pthread_create(&thread, NULL, claim, notes), 0);
    pthread_join(thread, &result);
    cr_expect_eq(result, notes);
}

Test(inject_init, a_start_that_waits_for_the_end_of_cuinit, .init = enter)
{
    gp_thread.starts_later = 1;
    cr_expect_eq(InitializeInjection(), 1);
    EXPECT_NOTES("");
    gp_thread.starts_later = 0;
    InitializeInjection();
    cr_expect_not_null(strstr(notes, "publish"));
}

static uint32_t x_waiting, x_through;

static void *initialize(void *arg)
{
    __atomic_store_n(&x_waiting, 1, __ATOMIC_SEQ_CST);
    InitializeInjection();
    __atomic_store_n(&x_through, 1, __ATOMIC_SEQ_CST);
    return arg;
}

static pthread_t other_cuinit;

/* In the middle of the start: another thread comes, and this one again. */
static void come_twice(void)
{
    cr_assert_eq(pthread_create(&other_cuinit, NULL, initialize, NULL), 0);
    while (!__atomic_load_n(&x_waiting, __ATOMIC_SEQ_CST))
        sched_yield();
    uint64_t begin = gp_clock_ns();
    InitializeInjection(); /* our own start may call cuInit */
    cr_expect_lt(gp_clock_ns() - begin, 4 * 1000000000ull);
    cr_expect(!gp_inject_claim());
    int status;
    pid_t child = fork();
    if (child == 0) {
        alarm(4);
        InitializeInjection(); /* no thread goes on there */
        _exit(7);
    }
    waitpid(child, &status, 0);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 7, "%x", status);
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    cr_expect(!__atomic_load_n(&x_through, __ATOMIC_SEQ_CST), "it waits");
}

/* A thread that comes while another one starts waits for the end of that start. */
Test(inject_init, a_start_of_another_thread_is_waited_for, .init = enter)
{
    in_nvtx = come_twice;
    InitializeInjection();
    pthread_join(other_cuinit, NULL);
    cr_expect_eq(x_through, 1);
    cr_expect_null(strstr(strstr(notes, "session") + 1, "session"), "there is one start");
}
