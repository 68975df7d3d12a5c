/* SPDX-License-Identifier: MIT
 *
 * publish.c: publishes the numbers that viewers read, and keeps the table of scopes.  Called by
 * drain.c for viewers, by scope.c for the program, and by inject/ at the start and the end.  It never waits for a viewer.
 */
#include "account/tap.h"
#include "base/clock.h"
#include "base/lock.h"
#include "session/session.h"
#include "stack/stack.h"
#include <errno.h>
#include <gpuprof/wire.h>
#include <string.h>

/* The driver may hold its locks during a long call; the viewer's own deadline is one second. */
#define GP_POLL_PATIENCE_NS 50000000ull

static struct gp_session *x_session;
static struct gp_session_hooks publish_hooks;
static struct gp_lock publish_lock = GP_LOCK_INIT(GP_RANK_PUBLISH);

void gp_session_share(struct gp_session *session, const struct gp_session_hooks *hooks)
{
    publish_hooks = *hooks;
    /* [session.R] release: the hooks, the accounts, the source's name; pairs with [session.A]. */
    __atomic_store_n(&x_session, session, __ATOMIC_RELEASE);
}

static struct gp_session *publish_session(void)
{
    return __atomic_load_n(&x_session, __ATOMIC_ACQUIRE); /* [session.A] acquire: pairs with [session.R] */
}

bool gp_session_ready(void)
{
    return publish_session() != NULL;
}

bool gp_session_sourced(void)
{
    const struct gp_wire_header *header = publish_session()->header;
    return header->source != GP_SOURCE_NONE &&
           !(__atomic_load_n(&header->flags, __ATOMIC_RELAXED) & (GP_SESSION_YIELDED | GP_SESSION_GONE));
}

void gp_session_poll(void)
{
    if (publish_hooks.poll_now)
        publish_hooks.poll_now(GP_POLL_PATIENCE_NS);
}

/* ---- publishing ----------------------------------------------------------------------------------------------- */

/* Between these two calls devices[] and scopes[] change.  Readers copy between two equal even
 * values of publish_seq.  The words that change are plain: readers throw a torn copy away. */
static struct gp_session *publish_begin(void)
{
    struct gp_session *session = publish_session();
    gp_lock_take(&publish_lock);
    /* [publish.W] the odd value must be seen before any word changes: exchange is a full barrier;
     * pairs with the reader's first load. */
    __atomic_exchange_n(&session->header->publish_seq, session->header->publish_seq + 1, __ATOMIC_SEQ_CST);
    return session;
}

static void publish_end(struct gp_session *session)
{
    /* [publish.R] release: the words; pairs with the reader's second load. */
    __atomic_store_n(&session->header->publish_seq, session->header->publish_seq + 1, __ATOMIC_RELEASE);
    gp_lock_give(&publish_lock);
}

/* A trouble of the start stays. */
static void publish_trouble(struct gp_wire_header *header)
{
    static bool is_source; /* under the lock */
    char text[sizeof(header->trouble)] = "";
    if ((!header->trouble[0] || is_source) && publish_hooks.trouble && publish_hooks.trouble(text, sizeof(text))) {
        memcpy(header->trouble, text, sizeof(text));
        is_source = true;
    }
}

/* A program that calls the C interface has an allocator from its first call on. */
static void publish_allocator(struct gp_wire_header *header)
{
    const char *name = publish_hooks.allocator();
    for (unsigned i = 0; i + 1 < sizeof(header->allocator); i++) {
        header->allocator[i] = name[i];
        if (!name[i])
            return;
    }
}

void gp_session_publish(void)
{
    static struct gp_wire_device device; /* 2 KiB, too much for a small stack; under the lock */
    struct gp_session *session = publish_begin();
    struct gp_wire_owners *owners = session->owners;
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
        if (!gp_tap_owned(i, &device, owners->values[i]))
            continue;
        session->devices[i] = device;
        if (publish_hooks.settle)
            publish_hooks.settle(i, gp_tap_site_bytes(i, &device),
                                 device.stats[GP_STAT_ALLOCATION][GP_POOL_ALL].current);
        if (i < GP_WIRE_GPUS)
            gp_tap_framework(i, &owners->frameworks[i], &owners->heaps[i]);
        if (i < GP_WIRE_GPUS && session->before->attached)
            gp_tap_before(i, &session->before->devices[i]);
    }
    if (session->before->attached)
        gp_tap_before_blocks(session->blocks);
    owners->count = gp_owner_rows(owners->rows);
    gp_tap_doors(session->doors);
    session->header->events = gp_tap_events();
    if (publish_hooks.driver_version)
        session->header->driver_version = publish_hooks.driver_version();
    if (publish_hooks.allocator)
        publish_allocator(session->header);
    if (publish_hooks.gone && publish_hooks.gone())
        __atomic_fetch_or(&session->header->flags, GP_SESSION_GONE, __ATOMIC_RELEASE);
    else
        __atomic_fetch_and(&session->header->flags, ~GP_SESSION_GONE, __ATOMIC_RELEASE);
    publish_trouble(session->header);
    session->header->publish_ns = gp_clock_ns();
    publish_end(session);
}

void gp_session_close(struct gp_session *session)
{
    gp_session_publish();
    __atomic_fetch_or(&session->header->flags, GP_SESSION_CLOSED, __ATOMIC_RELEASE);
}

/* ---- scopes --------------------------------------------------------------------------------------------------- */

/* handle = use count of the row x GP_WIRE_SCOPES + row.  The count has 27 bits: an old handle is
 * mistaken for a new one only after 134 million uses of its row. */
#define GP_SCOPE_TURNS (1u << 27)

static uint32_t scope_turns[GP_WIRE_SCOPES]; /* under the lock, as all below */

static int scope_handle(unsigned row)
{
    return (int)(scope_turns[row] * GP_WIRE_SCOPES + row);
}

static struct gp_wire_scope *scope_row(struct gp_session *session, int handle)
{
    unsigned row = (unsigned)handle % GP_WIRE_SCOPES;
    bool open = handle >= 0 && session->scopes[row].in_use && scope_handle(row) == handle;
    return open ? &session->scopes[row] : NULL;
}

static int scope_named(const struct gp_session *session, const char *name)
{
    int newest = -ENOENT;
    uint64_t begin_ns = 0;
    for (unsigned i = 0; i < GP_WIRE_SCOPES; i++) {
        const struct gp_wire_scope *scope = &session->scopes[i];
        if (!scope->in_use || scope->begin_ns < begin_ns || strncmp(scope->name, name, sizeof(scope->name)) != 0)
            continue;
        newest = scope_handle(i);
        begin_ns = scope->begin_ns;
    }
    return newest;
}

static int scope_take(struct gp_session *session, const char *name)
{
    for (unsigned i = 0; i < GP_WIRE_SCOPES; i++) {
        struct gp_wire_scope *scope = &session->scopes[i];
        if (scope->in_use)
            continue;
        int error = gp_tap_scope_begin(i);
        if (error)
            return error;
        scope_turns[i] = (scope_turns[i] + 1) % GP_SCOPE_TURNS;
        memset(scope->name, 0, sizeof(scope->name));
        memcpy(scope->name, name, strnlen(name, sizeof(scope->name) - 1));
        scope->begin_ns = gp_clock_ns();
        scope->in_use = 1;
        return scope_handle(i);
    }
    return -ENOSPC;
}

int gp_session_scope_begin(const char *name, bool twin)
{
    if (!*name)
        return -EINVAL;
    struct gp_session *session = publish_begin();
    int handle = !twin && scope_named(session, name) >= 0 ? -EEXIST : scope_take(session, name);
    publish_end(session);
    return handle;
}

int gp_session_scope_find(const char *name)
{
    gp_lock_take(&publish_lock);
    int handle = scope_named(publish_session(), name);
    gp_lock_give(&publish_lock);
    return handle;
}

int gp_session_scope_read(int handle, unsigned index, struct gp_wire_scope_value *out)
{
    gp_lock_take(&publish_lock);
    bool open = scope_row(publish_session(), handle) != NULL;
    int error = open ? gp_tap_scope_read((unsigned)handle % GP_WIRE_SCOPES, index, out) : -ENOENT;
    gp_lock_give(&publish_lock);
    return error;
}

int gp_session_scope_end(int handle, struct gp_wire_scope_value out[GP_WIRE_DEVICES])
{
    int error = -ENOENT;
    struct gp_session *session = publish_begin();
    struct gp_wire_scope *scope = scope_row(session, handle);
    if (scope) {
        error = gp_tap_scope_end((unsigned)handle % GP_WIRE_SCOPES, out);
        scope->in_use = 0;
    }
    publish_end(session);
    return error;
}
