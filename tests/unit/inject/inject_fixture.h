/* SPDX-License-Identifier: MIT
 *
 * inject_fixture.h: for test_inject_init.c and test_inject_attach.c: a stand-in for each stage of the library, which notes its call and may fail.
 */
#ifndef GP_TEST_UNIT_INJECT_FIXTURE_H
#define GP_TEST_UNIT_INJECT_FIXTURE_H

#include "account/feed/before.h"
#include "account/feed/feed.h"
#include "account/feed/start.h"
#include "account/feed/survey.h"
#include "account/feed/want.h"
#include "account/framework/framework.h"
#include "allocator/allocator.h"
#include "base/clock.h"
#include "base/kept.h"
#include "base/loader.h"
#include "base/opener.h"
#include "base/ring.h"
#include "base/thread.h"
#include "base/worker.h"
#include "inject/inject.h"
#include "lib/standin.h"
#include "session/batch.h"
#include "session/extents.h"
#include "session/session.h"
#include "source/hooks.h"
#include "source/source.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <gpuprof/gpuprof.h>
#include <gpuprof/wire.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

int InitializeInjection(void);
int gpuprof_attach(const char *settings);
extern struct gp_wire_attach_state gpuprof_attach_state;

/* ---- the stages -------------------------------------------------------------------------------------------------- */

static char *notes; /* shared with children */
static const char *failing;

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...)
{
    size_t used = strlen(notes);
    va_list args;
    va_start(args, format);
    vsnprintf(notes + used, 4096 - used, format, args);
    va_end(args);
}

/* Notes the call; its error. */
static inline int stage(const char *name)
{
    note("%s%s ", gp_thread.inside ? "*" : "", name);
    return failing && strcmp(failing, name) == 0 ? -ENOMEM : 0;
}

#define NOTED(_function, _name) STANDIN_PLAIN(void, _function, stage(_name), void)

static struct gp_wire_header header;
static struct gp_wire_before before;
static struct gp_wire_mailbox mailbox;
static struct gp_wire_cupti cupti;
static struct gp_session_hooks hooks;
static struct gp_feed_setup feed;
static struct gp_record_setup recorded;
static struct gp_source_status cupti_status, hooks_status;
static enum gp_cupti_form cupti_form;
static bool is_certain, is_stuck, is_used, hooks_are_there, kept_is_saved, sites_are_there = true, is_sourced = true;
static char site_room[16];

STANDIN_SAYS(bool, gp_nogpu_is_certain, is_certain, void);
STANDIN_SAYS(uint64_t, gp_site_bytes, 4096, void);

STANDIN(int, gp_session_open, struct gp_session *session, const struct gp_session_size *size)
{
    note("bytes=%lu,sites=%d,wide=%d ", size->sites_bytes, size->sites, size->wide);
    int error = stage("session");
    if (!error) {
        memset(&header, 0, sizeof(header));
        *session = (struct gp_session){.header = &header,
                                       .before = &before,
                                       .mailbox = &mailbox,
                                       .cupti = &cupti,
                                       .sites = site_room,
                                       .sites_bytes = sizeof(site_room)};
    }
    return error;
}

static bool is_in_loader;

STANDIN_SAYS(bool, gp_native_is_in_loader, is_in_loader, void);

STANDIN(bool, gp_opener_start, bool inside)
{
    if (inside)
        note("inside ");
    return stage("opener") == 0;
}

NOTED(gp_opener_stop, "opener_stop");
STANDIN_SAYS(bool, gp_opener_is_stuck, is_stuck, void);

STANDIN(void *, gp_opener_symbol, void *handle, const char *name)
{
    note("%s=%d ", name, handle == RTLD_DEFAULT);
    return NULL;
}

static int workers;
static void *(*worker_main)(void *);

STANDIN(void, gp_worker_sizes, void *taken)
{
    (void)taken;
    stage("sizes");
}

STANDIN(void, gp_worker_counts, void *count, const void *layout)
{
    (void)count;
    (void)layout;
    stage("counts");
}

STANDIN(int, gp_worker_start, void *(*main)(void *), const char *name)
{
    worker_main = main;
    return stage(name);
}

STANDIN(void, gp_worker_settle, uint64_t patience_ns)
{
    cr_expect_gt(patience_ns, 0);
}

STANDIN(uint32_t, gp_worker_count, void)
{
    return (uint32_t)workers;
}

NOTED(gp_worker_forget, "forget_workers");
NOTED(gp_session_listen_always, "listen_always");

STANDIN(int, gp_ring_init, struct gp_ring *ring, struct gp_wire_chunk *chunks, uint32_t chunk_count, uint64_t *lost)
{
    (void)ring, (void)chunks, (void)chunk_count;
    cr_expect_eq(lost, &header.lost[GP_LOST_RING]);
    return stage("ring");
}

STANDIN(int, gp_feed_start, const struct gp_feed_setup *setup)
{
    feed = *setup;
    return stage("feed");
}

NOTED(gp_feed_end, "feed_end");
NOTED(gp_feed_before_start, "before");
NOTED(gp_feed_before_stop, "before_stop");
NOTED(gp_feed_survey_stop, "survey_stop");

STANDIN(void, gp_feed_event, enum gp_wire_event_type type, const char *name)
{
    note("%sevent%d%s ", gp_thread.inside ? "*" : "", type, name);
}

STANDIN_SAYS(int, gp_owner_start, stage("owners"), void);
NOTED(gp_framework_start, "framework");
NOTED(gp_framework_stop, "framework_stop");
STANDIN_SAYS(int, gp_framework_survey, 0, void);

STANDIN(void, gp_site_explain_to, char *text, uint64_t bytes)
{
    cr_expect(text == header.stacks_detail && bytes == sizeof(header.stacks_detail));
}

STANDIN(int, gp_site_start, void *memory, uint64_t bytes, uint32_t modes)
{
    cr_expect(memory == site_room && bytes == sizeof(site_room));
    note("modes%u ", modes);
    return stage("sites");
}

STANDIN(int, gp_site_switch, void *memory, uint64_t bytes, uint32_t modes)
{
    cr_expect(memory == site_room && bytes == sizeof(site_room));
    note("to%u ", modes);
    return stage("switch");
}

STANDIN_IDLE(gp_site_settle, unsigned device, int64_t bytes, int64_t count);
STANDIN_SAYS(void *, gp_session_sites, sites_are_there ? session->sites : NULL, struct gp_session *session);

STANDIN(void, gp_session_show_sites, struct gp_session *session)
{
    session->header->sites_offset = 8;
    stage("show");
}

STANDIN_SAYS(bool, gp_session_sourced, is_sourced, void);

STANDIN(void, gp_session_mute, struct gp_session *session)
{
    cr_expect_eq(session, &gp_inject_session);
    stage("mute");
}

NOTED(gp_session_publish, "publish");

STANDIN(void, gp_session_close, struct gp_session *session)
{
    cr_expect_eq(session, &gp_inject_session);
    stage("close");
}

STANDIN(void, gp_session_drop, struct gp_session *session)
{
    cr_expect_eq(session, &gp_inject_session);
    stage("drop");
}

STANDIN(void, gp_session_forget, struct gp_session *session)
{
    cr_expect_eq(session, &gp_inject_session);
    stage("forget");
}

STANDIN(int, gp_drain_start, struct gp_session *session, const struct gp_session_hooks *given)
{
    cr_expect_eq(session, &gp_inject_session);
    hooks = *given;
    return stage("drain");
}

static void (*in_nvtx)(void); /* called there */

STANDIN(void, gp_nvtx_start, void)
{
    stage("nvtx");
    if (in_nvtx)
        in_nvtx();
}

STANDIN_SAYS(int, gp_poll_start, stage("poll"), const struct gp_poll_turns *turns);
STANDIN_IDLE(gp_poll_wake, void);
STANDIN_IDLE(gp_poll_expect, void);
STANDIN_SAYS(bool, gp_poll_now, timeout_ns > 0, uint64_t timeout_ns);

STANDIN(void, gp_poll_scan, uint64_t timeout_ns)
{
    note("%lu ", timeout_ns);
    stage("scan");
}

NOTED(gp_poll_stop, "poll_stop");
NOTED(gp_poll_end, "poll_end");
STANDIN_SAYS(uint32_t, gp_poll_driver_version, 0, void);

STANDIN(void, gp_cupti_start, enum gp_cupti_form form, struct gp_source_status *out, struct gp_wire_cupti *tried)
{
    cupti_form = form;
    cr_expect_eq(tried, &cupti);
    note("timed%d ", gp_call_timed);
    stage("cupti");
    *out = cupti_status;
}

STANDIN(bool, gp_cupti_yield, void)
{
    stage("yield");
    return true;
}

static void (*source_changes)(const struct gp_source_status *status);

STANDIN(void, gp_handover_start, void (*changed)(const struct gp_source_status *status))
{
    source_changes = changed;
}

STANDIN(bool, gp_handover_give, void)
{
    stage("give");
    return true;
}

STANDIN_SAYS(bool, gp_cupti_gone, false, void);
STANDIN_SAYS(bool, gp_hooks_past, false, char *text, size_t bytes);

STANDIN(bool, gp_cupti_gaps, char *text, size_t bytes)
{
    snprintf(text, bytes, "a gap");
    return true;
}

STANDIN_SAYS(bool, gp_feed_poll_silent, false, void);
STANDIN_SAYS(bool, gp_hooks_present, hooks_are_there, void);

STANDIN(bool, gp_hooks_start, struct gp_source_status *out)
{
    stage("hooks");
    uint32_t version = out->cupti_version;
    *out = hooks_status;
    out->cupti_version = version;
    return true;
}

STANDIN(bool, gp_allocator_start, const struct gp_allocator_setup *setup, char *why, size_t why_bytes)
{
    note("%s,%s,%lu ", setup->allocator ? setup->allocator : "-", setup->conf ? setup->conf : "-", setup->limit_bytes);
    snprintf(why, why_bytes, "its policy is unknown");
    return stage("allocator") == 0;
}

STANDIN_SAYS(const char *, gp_allocator_in_use, "some", void);
STANDIN_SAYS(bool, gp_allocator_is_used, is_used, void);
NOTED(gp_allocator_stop, "allocator_stop");

STANDIN(int, gp_record_start, const struct gp_record_setup *setup, char *why, size_t why_bytes)
{
    recorded = *setup;
    snprintf(why, why_bytes, "x.gpuprof: the reason");
    return stage("record");
}

STANDIN(void, gp_record_stop, bool detached)
{
    note("detached%d ", detached);
    stage("record_stop");
}

STANDIN_IDLE(gp_batch_coming, uint64_t time_ns);
STANDIN_IDLE(gp_batch_heard, void);
NOTED(gp_batch_last, "batch");
NOTED(gp_extents_fork_begin, "extents_begin");
NOTED(gp_extents_fork_end, "extents_end");
NOTED(gp_loader_fork_begin, "loader_begin");
NOTED(gp_loader_fork_end, "loader_end");

STANDIN(bool, gp_kept_save, void)
{
    kept_is_saved = stage("save") == 0;
    return kept_is_saved;
}

STANDIN_SAYS(bool, gp_kept_saved, kept_is_saved, void);

STANDIN(bool, gp_kept_restore, void)
{
    return stage("restore") == 0;
}

NOTED(gp_kept_unmap_all, "unmap");
/* Nothing here maps memory or looks at the loader's list. */
STANDIN(void *, gp_kept_map, size_t bytes, int flags)
{
    (void)bytes, (void)flags;
    abort();
}

STANDIN(void, gp_kept_unmap, void *at, size_t bytes)
{
    (void)at, (void)bytes;
    abort();
}

STANDIN(bool, gp_loader_look, int (*visit)(struct dl_phdr_info *info, size_t size, void *arg), void *arg)
{
    (void)visit, (void)arg;
    abort();
}

static void (*fork_begin)(void), (*fork_end)(void), (*fork_child)(void);

int __register_atfork(void (*begin)(void), void (*end)(void), void (*child)(void), void *library);
int __register_atfork(void (*begin)(void), void (*end)(void), void (*child)(void), void *library)
{
    (void)library;
    if (!notes) /* another one's, at the start of the process */
        return 0;
    fork_begin = begin;
    fork_end = end;
    fork_child = child;
    stage("atfork");
    return 0;
}

static bool cuda_is_there = true;

void *dlopen(const char *name, int flags)
{
    static void *(*real)(const char *, int);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "dlopen");
    if (strcmp(name ? name : "", "libcuda.so.1") == 0) {
        note("flags%d ", flags == (RTLD_LAZY | RTLD_NOLOAD));
        return cuda_is_there ? real(NULL, RTLD_LAZY) : NULL; /* without a function of the driver's */
    }
    return real(name, flags);
}

/* ---- */

#define MEMORY "Cannot allocate memory"

static inline void enter(void)
{
    notes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cupti_status = (struct gp_source_status){GP_SOURCE_CUPTI, 22, 33, "the path of CUPTI"};
    hooks_status = (struct gp_source_status){GP_SOURCE_HOOKS, 0, 44, "the hooks"};
    for (char **name = environ; *name;) /* no settings */
        if (strncmp(*name, "GPUPROF_", 8) == 0) {
            char key[128];
            snprintf(key, sizeof(key), "%.*s", (int)strcspn(*name, "="), *name);
            unsetenv(key);
            name = environ;
        } else {
            name++;
        }
    setenv("GPUPROF_LOG", "off", 1);
}

#define EXPECT_NOTES(_text)                                                                                            \
    do {                                                                                                               \
        cr_expect_str_eq(notes, _text, "%s", notes);                                                                   \
        notes[0] = '\0';                                                                                               \
    } while (0)

#endif
