/* SPDX-License-Identifier: MIT
 *
 * test_inject_attach.c: attach and detach of the library (src/inject/attach.c, leave.c), on top of its start (init.c).
 * Every stage is a stand-in here that notes its call, and may fail; the order of the calls and what the session then says are compared.
 */
#include "inject_fixture.h"

TestSuite(inject_attach, .timeout = 60);

/* ---- attach and detach ------------------------------------------------------------------------------------------- */

#define ATTACHED "bytes=4096,sites=0,wide=0 session opener __pthread_get_minstack=1 sizes __nptl_nthreads=1 counts "
#define REST     "ring feed before owners framework *event12 nvtx poll timed0 cupti "

static void attach_is(uint32_t state, int error, const char *text)
{
    cr_expect_eq(gpuprof_attach_state.state, state, "state %u", gpuprof_attach_state.state);
    cr_expect_eq(gpuprof_attach_state.error, error, "error %d", gpuprof_attach_state.error);
    cr_expect_str_eq(gpuprof_attach_state.text, text);
}

static void attach(void)
{
    errno = 77;
    cr_expect_eq(gpuprof_attach(""), 0);
    cr_expect_eq(errno, 77);
    EXPECT_NOTES("gpuprof-attach ");
    attach_is(GP_ATTACH_STARTING, 0, "");
    cr_expect_null(worker_main(NULL));
}

Test(inject_attach, an_attach_and_a_detach, .init = enter)
{
    attach();
    EXPECT_NOTES("save flags1 " ATTACHED "atfork " REST "-,-,0 allocator 1500000000 scan drain *publish opener_stop ");
    attach_is(GP_ATTACH_IN, 0, "");
    cr_expect(before.attached && feed.late);
    cr_expect_eq(gpuprof_attach(NULL), -EALREADY);
    is_used = true;
    cr_expect_eq(hooks.leave(), -EBUSY);
    EXPECT_NOTES("");
    is_used = false;
    workers = 1;
    cr_expect_eq(hooks.leave(), 0);
    EXPECT_NOTES("yield framework_stop detached1 record_stop close batch poll_end ");
    cr_expect(!gp_thread_life_on() && !gp_thread_life_ours());
    cr_expect(hooks.left());
    EXPECT_NOTES("feed_end before_stop survey_stop unmap ");
    attach_is(GP_ATTACH_OUT, 0, "");
    cr_expect_null(gp_inject_session.header);
    workers = 0;
    attach();
    EXPECT_NOTES("feed_end before_stop survey_stop restore flags1 " ATTACHED REST
                 "-,-,0 allocator 1500000000 scan drain *publish opener_stop ");
    attach_is(GP_ATTACH_IN, 0, "");
}

Test(inject_attach, a_detach_before_the_start_is_over, .init = enter)
{
    cr_expect_eq(gp_inject_leave(), -EAGAIN);
    EXPECT_NOTES("");
}

static uint32_t x_inside;

static void *stay_inside(void *arg)
{
    cr_expect(gp_thread_enter());
    __atomic_store_n(&x_inside, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&x_inside, __ATOMIC_SEQ_CST) == 1)
        sched_yield();
    gp_thread_leave();
    return arg;
}

/* Stranded: nothing is unmapped, and the next attach waits until all are out. */
Test(inject_attach, a_detach_with_a_thread_inside, .init = enter)
{
    pthread_t thread;
    attach();
    cr_assert_eq(pthread_create(&thread, NULL, stay_inside, NULL), 0);
    while (!__atomic_load_n(&x_inside, __ATOMIC_SEQ_CST))
        sched_yield();
    cr_expect_eq(hooks.leave(), 0);
    notes[0] = '\0';
    cr_expect(!hooks.left());
    EXPECT_NOTES("");
    attach_is(GP_ATTACH_STRANDED, 0, "a thread of the program is still inside the library");
    cr_expect_not_null(gp_inject_session.header);
    cr_expect_eq(gpuprof_attach(""), -EBUSY);
    attach_is(GP_ATTACH_STRANDED, 0, "a thread of the program is still inside the library");
    __atomic_store_n(&x_inside, 2, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
    workers = 1;
    cr_expect_eq(gpuprof_attach(""), -EBUSY);
    workers = 0;
    cr_expect_eq(gpuprof_attach(""), 0);
    attach_is(GP_ATTACH_STARTING, 0, "a thread of the program is still inside the library");
}

Test(inject_attach, a_detach_with_a_thread_of_ours_left, .init = enter)
{
    attach();
    workers = 2;
    cr_expect_eq(hooks.leave(), 0);
    cr_expect(!hooks.left());
    attach_is(GP_ATTACH_STRANDED, 0, "a thread of the library has not ended");
    workers = 0;
    gpuprof_attach_state.state = GP_ATTACH_OUT;
    cr_expect_eq(gpuprof_attach(""), 0);
    workers = 2;
    notes[0] = '\0';
    cr_expect_null(worker_main(NULL));
    EXPECT_NOTES("");
    attach_is(GP_ATTACH_STRANDED, -EBUSY, "a thread of the last attach has not ended");
}

/* An attach that comes to nothing undoes what it began. */
static void fails_to_attach(const char *name, int error, const char *text, const char *end)
{
    failing = name;
    attach();
    attach_is(GP_ATTACH_OUT, error, text);
    cr_expect(!gp_thread_life_on() && !gp_thread_life_ours());
    const char *tail = strlen(notes) > strlen(end) ? notes + strlen(notes) - strlen(end) : notes;
    cr_expect_str_eq(tail, end, "%s", notes);
}

Test(inject_attach, an_attach_without_memory, .init = enter)
{
    fails_to_attach("save", -ENOMEM, "no memory for a copy of the library's variables", "save ");
}

Test(inject_attach, an_attach_without_cuda, .init = enter)
{
    cuda_is_there = false;
    fails_to_attach(NULL, -ENODEV, "libcuda.so.1 is not loaded: the program does not use CUDA, or not yet",
                    "save flags1 ");
}

Test(inject_attach, an_attach_without_a_session, .init = enter)
{
    fails_to_attach("session", -ENODEV, "no session: see the log", "session opener_stop poll_end ");
}

Test(inject_attach, an_attach_without_accounts, .init = enter)
{
    fails_to_attach("feed", -ENOTSUP, "no accounts: " MEMORY, "feed mute opener_stop poll_end drop ");
}

Test(inject_attach, an_attach_without_a_source, .init = enter)
{
    cupti_status = (struct gp_source_status){GP_SOURCE_NONE, 22, 0, "another tool has it"};
    fails_to_attach(NULL, -ENOTSUP, "another tool has it", "cupti opener_stop poll_end drop ");
}

Test(inject_attach, an_attach_without_a_thread, .init = enter)
{
    failing = "gpuprof-attach";
    cr_expect_eq(gpuprof_attach(""), -ENOMEM);
    attach_is(GP_ATTACH_OUT, -ENOMEM, MEMORY);
    failing = NULL;
    cr_expect_eq(gpuprof_attach(""), 0);
    worker_main(NULL);
    attach_is(GP_ATTACH_IN, 0, "");
}

Test(inject_attach, settings_of_an_attach, .init = enter)
{
    static char text[5000];
    setenv("GPUPROF_STACKS", "all", 1); /* the environment is not looked at */
    cr_expect_eq(gpuprof_attach("GPUPROF_ALLOCATOR=caching\nGPUPROF_MEMORY_LIMIT=2K\n"), 0);
    worker_main(NULL);
    cr_expect_not_null(strstr(notes, "caching,-,2048 allocator"), "%s", notes);
    cr_expect_not_null(strstr(notes, "sites=0,wide=0"));
    hooks.leave();
    hooks.left();
    memset(text, 'x', sizeof(text) - 1);
    cr_expect_eq(gpuprof_attach(text), -E2BIG);
    attach_is(GP_ATTACH_OUT, -E2BIG, strerror(E2BIG));
    text[4095] = '\0';
    cr_expect_eq(gpuprof_attach(text), -E2BIG);
    text[4094] = '\0';
    cr_expect_eq(gpuprof_attach(text), 0);
    cr_expect_eq(gpuprof_attach(""), -EBUSY, "it is under way");
}

/* In a forked child the attach of the parent is over. */
Test(inject_attach, an_attach_in_a_child, .init = enter)
{
    int status;
    attach();
    gpuprof_attach_state.state = GP_ATTACH_STRANDED;
    workers = 1; /* of the parent */
    notes[0] = '\0';
    pid_t child = fork();
    if (child == 0) {
        int error = gpuprof_attach("");
        _exit(error == 0 && strstr(notes, "forget_workers gpuprof-attach ") ? 0 : 1);
    }
    waitpid(child, &status, 0);
    cr_expect_eq(status, 0, "%s", notes);
}
