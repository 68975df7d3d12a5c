/* SPDX-License-Identifier: MIT
 *
 * init.c: puts the stages together, and handles start, fork and exit inside the profiled process.
 *
 *   Start    InitializeInjection runs inside the first cuInit, on a thread of the program: session,
 *            accounts, the source, then our threads.  A failure before the source switches gpuprof
 *            off and is written into the session if there is one.
 *            The driver holds its own lock during the start, and a thread that holds the loader's may
 *            wait for it in cuInit: everything that needs the loader goes through base/opener.h.
 *   Late     gpuprof_attach (attach.c) makes the same start on a thread of ours, in a program that
 *            uses CUDA already, and GP_COMMAND_DETACH ends it (leave.c); both any number of times.
 *   No GPU   cuInit injects before it searches for devices.  In a process without a GPU nothing is
 *            started: a session and two threads would be idle, and CUPTI, which can only refuse,
 *            would start a thread and set CUPTI_PROFILE_MODE for every child.
 *   Spared   Nothing is started either in NVIDIA's own services and tools (base/spared.h).
 *   Fork     CUDA is unusable in a forked child, and so is gpuprof: gp_thread_life_on() is false there,
 *            also after a raw fork, since the kernel clears its page.  The atfork handler only
 *            closes the child's copy of the descriptor, so no viewer finds the session twice.
 *   Exec     The descriptor is close-on-exec; the new program starts again.
 *   Threads  A thread that ends needs no cleanup: counters are shared by number, and any thread may
 *            take over a ring chunk.
 *   dlclose  The library is linked nodelete: callbacks may run when the last handle is closed.
 *   Exit     The destructor runs after every atexit handler of the program, publishes the final
 *            numbers and switches gpuprof off.  It calls neither CUDA nor CUPTI: the driver may be
 *            gone.  _exit and signals skip it, and the session ends with the process.  Destructors of
 *            other libraries may follow, so the cache takes its blocks back even then: to the driver
 *            the address of a block may be a whole segment in which other blocks live.
 */
#include "account/feed/before.h"
#include "account/feed/feed.h"
#include "account/feed/start.h"
#include "account/feed/want.h"
#include "account/framework/framework.h"
#include "allocator/allocator.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/futex.h"
#include "base/kept.h"
#include "base/loader.h"
#include "base/log.h"
#include "base/opener.h"
#include "base/ring.h"
#include "base/spared.h"
#include "base/thread.h"
#include "base/worker.h"
#include "inject/inject.h"
#include "session/batch.h"
#include "session/extents.h"
#include "session/session.h"
#include "source/hooks.h"
#include "source/source.h"
#include "stack/stack.h"
#include <dlfcn.h>
#include <errno.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 2^24 live allocations take at most 2.6 GB of our own memory.  No sensible program has so many,
 * and it is a bound. */
#define GP_MAP_LIMIT (1ull << 24)

/* The first numbers that a viewer sees have what was there before, unless the driver is slow. */
#define GP_SCAN_NS 1500000000ull

/* The threads begin while the start goes on, so it waits for them on a busy machine only. */
#define GP_SETTLE_NS 100000000ull

static struct gp_ring ring_mine;
static uint64_t x_starter; /* process << 32 | thread that starts gpuprof; 0: none yet */
GP_KEEP(x_starter);
static uint32_t x_through; /* the start is over, successful or not */
GP_KEEP(x_through);
static uint32_t x_once; /* the handlers of fork and exit are registered */
GP_KEEP(x_once);

static void inject_trouble(const char *what, int error)
{
    struct gp_wire_header *header = gp_inject_session.header;
    gp_log(GP_LOG_ERROR, "%s: %s: switched off", what, strerror(-error));
    gp_thread_life_end();
    if (!header)
        return;
    gp_session_mute(&gp_inject_session);
    snprintf(header->trouble, sizeof(header->trouble), "%s: %s", what, strerror(-error));
    __atomic_fetch_or(&header->flags, GP_SESSION_DISABLED, __ATOMIC_RELEASE);
}

static int inject_accounts(void)
{
    struct gp_wire_header *header = gp_inject_session.header;
    int error =
        gp_ring_init(&ring_mine, gp_inject_session.chunks, gp_inject_session.chunk_count, &header->lost[GP_LOST_RING]);
    if (error)
        return error;
    gp_thread_nested = &header->lost[GP_LOST_NESTED];
    return gp_feed_start(&(struct gp_feed_setup){
        .ring = &ring_mine,
        .lost = header->lost,
        .failures = gp_inject_session.failures,
        .oom = gp_inject_session.oom,
        .oom_framework = gp_inject_session.oom_framework,
        .wake_poller = gp_poll_wake,
        .poll_now = gp_poll_now,
        .map_limit = GP_MAP_LIMIT,
        .armed = gp_batch_armed_word(),
        .coming = gp_batch_coming,
        .heard = gp_batch_heard,
        .listened = &gp_session_listened,
        .late = gp_inject_session.before->attached,
    });
}

static void inject_poller(void)
{
    static const struct gp_poll_turns turns = {gp_handover_look, gp_cupti_beat, gp_cupti_gap_holds};
    int error = gp_poll_start(&turns);
    if (error)
        gp_log(GP_LOG_WARN, "no poll thread: %s: pools and graphs stay unknown", strerror(-error));
}

/* A viewer switches stacks while the program runs; on the drain thread. */
static int inject_switch(uint32_t modes, uint32_t *before)
{
    bool shown = gp_inject_session.header->sites_offset != 0;
    *before = gp_site_modes;
    if (modes & ~(GP_SITES_NATIVE | GP_SITES_PYTHON))
        return -EINVAL;
    if (!gp_session_sourced())
        return -ENODATA; /* there are no events, so there would be no stacks */
    if (!shown && !modes)
        return 0;
    void *sites = gp_session_sites(&gp_inject_session);
    if (!sites)
        return -ENOSPC;
    int error = gp_site_switch(sites, gp_inject_session.sites_bytes, modes);
    if (!error && !shown)
        gp_session_show_sites(&gp_inject_session);
    return error;
}

static bool inject_unseen(char *text, size_t bytes)
{
    if (gp_hooks_past(text, bytes) || gp_cupti_gaps(text, bytes))
        return true;
    if (gp_feed_poll_silent())
        snprintf(
            text, bytes,
            "a stream capture failed while gpuprof asked the driver: what pools and graphs hold is not asked any more");
    else if (gp_batch_withheld())
        snprintf(text, bytes, "Valgrind runs this program, and would run an agent's breakpoint: no agent counts it");
    return text[0] != '\0';
}

/* A hand-over; on any thread. */
static void inject_changed(const struct gp_source_status *status)
{
    struct gp_wire_header *header = gp_inject_session.header;
    if (status->source == GP_SOURCE_NONE) {
        __atomic_fetch_or(&header->flags, GP_SESSION_YIELDED, __ATOMIC_RELEASE);
        return;
    }
    memcpy(header->source_detail, status->detail, sizeof(header->source_detail));
    header->enabled_callbacks = status->enabled;
    __atomic_store_n(&header->source, status->source, __ATOMIC_RELEASE);
}

/* After the source: a viewer may ask for the subscriber to be given up. */
static void inject_drain(void)
{
    const struct gp_session_hooks hooks = {.poll_now = gp_poll_now,
                                           .driver_version = gp_poll_driver_version,
                                           .yield = gp_handover_give,
                                           .event = gp_feed_event,
                                           .gone = gp_cupti_gone,
                                           .trouble = inject_unseen,
                                           .allocator = gp_allocator_in_use,
                                           .stacks = inject_switch,
                                           .leave = gp_inject_leave,
                                           .left = gp_inject_left,
                                           .blocks = gp_framework_survey,
                                           .settle = gp_site_settle};
    struct gp_wire_header *header = gp_inject_session.header;
    gp_handover_start(inject_changed);
    int error = gp_drain_start(&gp_inject_session, &hooks);
    if (!error)
        return;
    gp_session_listen_always(); /* no reader can announce itself */
    gp_session_mute(&gp_inject_session);
    gp_log(GP_LOG_WARN, "no drain thread: %s: viewers see only the final numbers", strerror(-error));
    snprintf(header->trouble, sizeof(header->trouble), "no thread to answer viewers: %s", strerror(-error));
}

/* base/opener.h. */
static const char inject_stuck[] = "a thread that loads a library did not let us load CUPTI: does it call cuInit?";

/* auto: CUPTI, which sees more; without it the hooks, if they are in front of the driver anyway. */
static void inject_source(const struct gp_options *options)
{
    enum gp_option_source wanted = options->source;
    struct gp_wire_header *header = gp_inject_session.header;
    struct gp_source_status status = {0};
    if (wanted == GP_OPTION_HOOKS)
        gp_hooks_start(&status);
    else
        gp_cupti_start(options->cupti, &status, gp_inject_session.cupti);
    if (gp_opener_is_stuck())
        snprintf(status.detail, sizeof(status.detail), "%s", inject_stuck);
    else if (wanted == GP_OPTION_AUTO && status.source == GP_SOURCE_NONE && gp_hooks_present()) {
        struct gp_source_status hooks = {.cupti_version = status.cupti_version};
        gp_hooks_start(&hooks);
        snprintf(hooks.detail, sizeof(hooks.detail), "driver hooks (%.110s)", status.detail);
        status = hooks;
    }
    header->source = status.source;
    header->cupti_version = status.cupti_version;
    header->enabled_callbacks = status.enabled;
    memcpy(header->source_detail, status.detail, sizeof(header->source_detail));
    gp_log(status.source ? GP_LOG_INFO : GP_LOG_WARN, "source: %s", status.detail);
    if (!status.source)
        gp_log(GP_LOG_WARN, "no events: %s",
               wanted == GP_OPTION_CUPTI
                   ? "unset GPUPROF_SOURCE, and 'gpuprof run' counts with driver hooks instead"
                   : "start the program with 'gpuprof run', which counts with driver hooks instead");
}

static void inject_shim(const struct gp_options *options)
{
    struct gp_wire_header *header = gp_inject_session.header;
    struct gp_allocator_setup setup = {options->allocator, options->conf, options->limit_bytes};
    char why[96] = "";
    if (gp_opener_is_stuck())
        return;
    if (!gp_allocator_start(&setup, why, sizeof(why)))
        gp_option_complain(header->options, sizeof(header->options), why);
    snprintf(header->allocator, sizeof(header->allocator), "%s", gp_allocator_in_use());
}

/* A recording needs call sites, so it has all stacks unless the user chose otherwise. */
static uint32_t inject_stacks(const struct gp_options *options)
{
    return options->stacks_set || !options->record ? options->stacks : GP_SITES_NATIVE | GP_SITES_PYTHON;
}

static void inject_sites(uint32_t modes)
{
    struct gp_wire_header *header = gp_inject_session.header;
    gp_site_explain_to(header->stacks_detail, sizeof(header->stacks_detail));
    int error = modes ? gp_site_start(gp_inject_session.sites, gp_inject_session.sites_bytes, modes) : 0;
    if (!error && modes)
        gp_session_show_sites(&gp_inject_session);
    if (!error)
        return;
    gp_log(GP_LOG_WARN, "no stacks: %s", strerror(-error));
    snprintf(header->trouble, sizeof(header->trouble), "no stacks: %s", strerror(-error));
}

static void inject_owners(void)
{
    int error = gp_owner_start();
    if (error)
        gp_log(GP_LOG_WARN, "no owners: %s: the library that allocates is unknown", strerror(-error));
    else
        gp_framework_start();
}

static void inject_record(const struct gp_options *options)
{
    struct gp_wire_header *header = gp_inject_session.header;
    struct gp_record_setup setup = {options->record, header,     gp_session_publish,
                                    gp_poll_wake,    &ring_mine, options->record_since_ns};
    char why[96] = "", said[112];
    if (!options->record)
        return;
    if (gp_record_start(&setup, why, sizeof(why)) == 0)
        return;
    snprintf(said, sizeof(said), "GPUPROF_RECORD: %s", why);
    gp_log(GP_LOG_ERROR, "%s: nothing is recorded", said);
    snprintf(header->trouble, sizeof(header->trouble), "%s", said);
}

static void inject_fork_begin(void)
{
    gp_extents_fork_begin();
    gp_loader_fork_begin();
}

static void inject_fork_end(void)
{
    gp_loader_fork_end();
    gp_extents_fork_end();
}

static void inject_fork_child(void)
{
    gp_session_forget(&gp_inject_session);
}

static void inject_exit(void)
{
    if (!gp_thread_life_on())
        return;
    gp_allocator_stop();
    gp_poll_stop();
}

/* What libc's pthread_atfork calls, which no header declares.  Weak (base/glibc.h), since musl lacks it. */
int __register_atfork(void (*begin)(void), void (*end)(void), void (*child)(void), void *library);
extern void *__dso_handle __attribute__((visibility("hidden")));

static void inject_once(void)
{
    if (__atomic_exchange_n(&x_once, 1, __ATOMIC_RELAXED))
        return;
    if (__register_atfork)
        __register_atfork(inject_fork_begin, inject_fork_end, inject_fork_child, __dso_handle);
    atexit(inject_exit);
}

/* What this program is, if gpuprof does not start in it. */
static const char *inject_spared(void)
{
    static char path[4096]; /* of the one thread that starts us */
    ssize_t bytes = readlink("/proc/self/exe", path, sizeof(path) - 1);
    path[bytes > 0 ? bytes : 0] = '\0';
    return gp_spared(path);
}

void gp_inject_start(const char *settings)
{
    char complaint[sizeof(gp_inject_session.header->options)];
    struct gp_options options;
    gp_options_read(&options, settings, complaint, sizeof(complaint));
    const char *spared = inject_spared();
    if (spared) {
        gp_log(GP_LOG_INFO, "not started: this is %s", spared);
        gp_log_close();
        return;
    }
    if (gp_nogpu_is_certain()) {
        gp_log(GP_LOG_INFO, "no GPU here: switched off");
        gp_log_close();
        return;
    }
    int error = gp_thread_life_start();
    if (error) {
        gp_log(GP_LOG_ERROR, "no memory for a page: %s: switched off", strerror(-error));
        return;
    }
    gp_thread_enrol();
    uint32_t stacks = inject_stacks(&options);
    struct gp_session_size size = {.sites_bytes = gp_site_bytes(), .sites = stacks, .wide = options.record};
    error = gp_session_open(&gp_inject_session, &size);
    if (error) {
        inject_trouble("no session", error);
        return;
    }
    memcpy(gp_inject_session.header->options, complaint, sizeof(complaint));
    gp_inject_session.before->attached = settings != NULL;
    if (!gp_opener_start(gp_native_is_in_loader())) {
        inject_trouble("a thread that loads a library holds the loader's lock: does it call cuInit?", -EDEADLK);
        return;
    }
    gp_worker_sizes(gp_opener_symbol(RTLD_DEFAULT, "__pthread_get_minstack"));
    void *threads = gp_opener_symbol(RTLD_DEFAULT, "__nptl_nthreads");
    gp_worker_counts(threads, threads ? gp_opener_symbol(RTLD_DEFAULT, "_thread_db___nptl_nthreads") : NULL);
    inject_once();
    if (options.record || options.ring_always)
        gp_session_listen_always();
    error = inject_accounts();
    if (error) {
        inject_trouble("no accounts", error);
        return;
    }
    if (settings)
        gp_feed_before_start();
    inject_owners();
    inject_sites(stacks);
    bool inside = gp_thread_enter();
    gp_feed_event(GP_EVENT_PROCESS_START, "");
    if (inside)
        gp_thread_leave();
    gp_nvtx_start();
    inject_poller();
    gp_call_x_captures = settings != NULL; /* attached late, perhaps during one */
    gp_call_timed = options.record; /* a recording has the duration of a call, at the cost of two clock readings */
    inject_source(&options);
    if (settings && gp_inject_session.header->source == GP_SOURCE_NONE)
        return; /* attach.c says why, and leaves */
    inject_shim(&options);
    if (settings)
        gp_poll_scan(GP_SCAN_NS);
    inject_drain();
    inject_record(&options);
    gp_worker_settle(GP_SETTLE_NS);
    inside = gp_thread_enter();
    gp_session_publish(); /* from here on viewers see known zeros, and the source */
    if (inside)
        gp_thread_leave();
    gp_inject_set_ready();
}

/* Waits for another thread's start, since the caller may allocate at once and those calls count
 * too.  The wait is bounded, because the start opens CUPTI, and this thread may be in a constructor
 * that holds the loader's lock. */
static void inject_wait(void)
{
    const uint64_t patience_ns = 5000000000ull; /* ten times the load time of the slowest CUPTI from a cold disk */
    uint64_t now = gp_clock_ns(), deadline = now + patience_ns;
    /* [through.A] acquire: pairs with [through.R]. */
    while (!__atomic_load_n(&x_through, __ATOMIC_ACQUIRE) && now < deadline) {
        gp_futex_wait(&x_through, 0, deadline - now);
        now = gp_clock_ns();
    }
}

static void inject_through(void)
{
    /* [through.R] release: the state that the start made; pairs with [through.A]. */
    __atomic_store_n(&x_through, 1, __ATOMIC_RELEASE);
    gp_futex_wake(&x_through);
}

bool gp_inject_claim(void)
{
    uint64_t me = (uint64_t)getpid() << 32 | (uint32_t)syscall(SYS_gettid), starter = 0;
    if (__atomic_compare_exchange_n(&x_starter, &starter, me, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        inject_through(); /* no cuInit waits for a start that is not its own */
        return true;
    }
    return __atomic_load_n(&x_through, __ATOMIC_ACQUIRE); /* [through.A] */
}

GP_EXPORT int InitializeInjection(void)
{
    if (gp_thread.starts_later || __atomic_load_n(&x_through, __ATOMIC_ACQUIRE)) /* [through.A] */
        return 1;
    int saved_errno = errno;
    uint64_t process = (uint64_t)getpid() << 32, me = process | (uint32_t)syscall(SYS_gettid), starter = 0;
    if (__atomic_compare_exchange_n(&x_starter, &starter, me, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        gp_kept_save();
        gp_inject_start(NULL);
        gp_opener_stop();
        inject_through();
    } else if (starter != me &&
               starter >> 32 == process >> 32) { /* not the cuInit of our own start, nor a forked child */
        inject_wait();
    }
    errno = saved_errno;
    return 1;
}

GP_EXPORT const char *gpuprof_version(void)
{
    return GPUPROF_VERSION;
}

__attribute__((destructor)) static void gp_inject_end(void)
{
    int saved_errno = errno;
    /* A signal handler that calls exit() may have interrupted our own code, which holds locks: then
     * gp_thread_enter fails. */
    /* Another thread may still be in the first cuInit. */
    if (gp_inject_is_ready() && gp_thread_enter()) {
        gp_feed_event(GP_EVENT_PROCESS_EXIT, "");
        gp_record_stop(false); /* a closed session has final numbers */
        gp_session_close(&gp_inject_session);
        gp_batch_last();
        gp_allocator_stop();
        gp_thread_life_end();
        gp_thread_leave();
    }
    errno = saved_errno;
}
