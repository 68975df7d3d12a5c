/* SPDX-License-Identifier: MIT
 *
 * drain.c: publishes numbers and answers the mailbox.  Viewers are not trusted either: a slot is read once, its fields
 * are bounded, and nothing that a viewer writes is used as an address or a length.
 */
#include "account/tap.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/lock.h"
#include "base/thread.h"
#include "base/worker.h"
#include "export/session.h"
#include <errno.h>
#include <string.h>

/* The driver may hold its locks for a long call; the viewer's own deadline is a second. */
#define GP_POLL_PATIENCE_NS 50000000ull

static struct gp_session *gp_session;
static struct gp_session_hooks gp_hooks_of_session;
static struct gp_lock gp_publish_lock = GP_LOCK_INIT(GP_RANK_PUBLISH);

/* ---- publishing ----------------------------------------------------------------------------------------------- */

/* Readers copy between two equal even values of publish_seq.  The words in between are plain: a torn copy is thrown
 * away. */
void gp_session_publish(void)
{
    static struct gp_wire_device
        device; /* 2 KiB, too much for a small thread's stack beside the rest; under the lock */
    struct gp_wire_header *header = gp_session->header;
    gp_lock_take(&gp_publish_lock);
    uint64_t seq = header->publish_seq;
    /* [publish.W] the odd value must be seen before any word changes: exchange is a full barrier; pairs with the
     * reader's first load. */
    __atomic_exchange_n(&header->publish_seq, seq + 1, __ATOMIC_SEQ_CST);
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++)
        if (gp_tap_device(i, &device))
            gp_session->devices[i] = device;
    header->events = gp_tap_events();
    if (gp_hooks_of_session.driver_version)
        header->driver_version = gp_hooks_of_session.driver_version();
    header->publish_ns = gp_clock_ns();
    /* [publish.R] release: the words; pairs with the reader's second load. */
    __atomic_store_n(&header->publish_seq, seq + 2, __ATOMIC_RELEASE);
    gp_lock_give(&gp_publish_lock);
}

void gp_session_close(struct gp_session *session)
{
    gp_session_publish();
    __atomic_fetch_or(&session->header->flags, GP_SESSION_CLOSED, __ATOMIC_RELEASE);
}

/* ---- scopes --------------------------------------------------------------------------------------------------- */

static int gp_scope_find(const char *name)
{
    for (int i = 0; i < (int)GP_WIRE_SCOPES; i++)
        if (gp_session->scopes[i].in_use &&
            strncmp(gp_session->scopes[i].name, name, sizeof(gp_session->scopes[i].name)) == 0)
            return i;
    return -1;
}

static int gp_scope_begin(const char *name)
{
    if (!*name)
        return -EINVAL;
    if (gp_scope_find(name) >= 0)
        return -EEXIST;
    for (unsigned i = 0; i < GP_WIRE_SCOPES; i++) {
        struct gp_wire_scope *scope = &gp_session->scopes[i];
        if (scope->in_use)
            continue;
        int error = gp_tap_scope_begin(i);
        if (error)
            return error;
        memcpy(scope->name, name, sizeof(scope->name));
        scope->begin_ns = gp_clock_ns();
        __atomic_store_n(&scope->in_use, 1, __ATOMIC_RELEASE);
        return 0;
    }
    return -ENOSPC;
}

static int gp_scope_end(const char *name, struct gp_wire_slot *slot)
{
    struct gp_wire_scope_value peaks[GP_WIRE_DEVICES] = {0};
    int index = gp_scope_find(name);
    if (index < 0)
        return -ENOENT;
    int error = gp_tap_scope_end((unsigned)index, peaks);
    memcpy(slot->scope, peaks, sizeof(peaks));
    __atomic_store_n(&gp_session->scopes[index].in_use, 0, __ATOMIC_RELEASE);
    return error;
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

static int gp_answer_reset(uint32_t what, int32_t device, struct gp_wire_slot *slot)
{
    uint32_t count = 0;
    if (what < GP_RESET_ALLOCATED || what > GP_RESET_ACCUMULATED)
        return -EINVAL;
    if (device < -1 || device >= (int32_t)GP_WIRE_DEVICES)
        return -ENODEV;
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
        struct gp_wire_before_after row;
        if (device >= 0 && device != (int32_t)i)
            continue;
        if (gp_tap_reset(i, what, &row))
            slot->reply[count++] = row;
    }
    slot->reply_count = count;
    return count || device < 0 ? 0 : -ENODEV;
}

static int gp_answer(struct gp_wire_slot *slot)
{
    char name[sizeof(slot->name)];
    uint32_t command = slot->command, what = slot->what;
    int32_t device = slot->device;
    int result = 0;
    memcpy(name, slot->name, sizeof(name));
    name[sizeof(name) - 1] = '\0';
    slot->reply_count = 0;
    if (command == GP_COMMAND_NONE || command >= GP_COMMANDS)
        return -EINVAL;
    if (gp_hooks_of_session.poll_now)
        gp_hooks_of_session.poll_now(GP_POLL_PATIENCE_NS);
    switch (command) {
    case GP_COMMAND_RESET:
        result = gp_answer_reset(what, device, slot);
        gp_hooks_of_session.event(GP_EVENT_RESET, "");
        break;
    case GP_COMMAND_SCOPE_BEGIN:
        result = gp_scope_begin(name);
        break;
    case GP_COMMAND_SCOPE_END:
        result = gp_scope_end(name, slot);
        break;
    case GP_COMMAND_MARK:
        gp_hooks_of_session.event(GP_EVENT_MARK, name);
        break;
    case GP_COMMAND_YIELD:
        if (gp_hooks_of_session.yield())
            __atomic_fetch_or(&gp_session->header->flags, GP_SESSION_YIELDED, __ATOMIC_RELEASE);
        else
            result = -EOPNOTSUPP;
        break;
    default:
        break;
    }
    gp_session_publish();
    return result;
}

static void gp_slot_serve(struct gp_wire_slot *slot)
{
    uint32_t requested = GP_SLOT_REQUESTED;
    /* [mail.A] acquire: the request's fields; pairs with the viewer's release of REQUESTED.  From SERVING on the slot
     * is ours: a viewer that gives up leaves it, so no other one's request can stand where this answer is written. */
    if (!__atomic_compare_exchange_n(&slot->state, &requested, GP_SLOT_SERVING, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return;
    slot->result = gp_answer(slot);
    /* [mail.R] release: the answer; pairs with the viewer's load of DONE. */
    __atomic_store_n(&slot->state, GP_SLOT_DONE, __ATOMIC_RELEASE);
    gp_futex_wake(&slot->state);
}

/* Takes back slots whose viewer died: one request must stand in one state for GP_SLOT_STALE_NS.  The id tells a request
 * from the next one in the same slot, which a sweep may find in the same state. */
static bool gp_slots_sweep(void)
{
    static struct {
        uint32_t state;
        uint64_t request_id;
        uint64_t since_ns;
    } seen[GP_WIRE_SLOTS];
    uint64_t now = gp_clock_ns();
    bool waiting = false;
    for (unsigned i = 0; i < GP_WIRE_SLOTS; i++) {
        struct gp_wire_slot *slot = &gp_session->mailbox->slots[i];
        uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE);
        uint64_t request_id = slot->request_id;
        if (state != seen[i].state || request_id != seen[i].request_id) {
            seen[i].state = state;
            seen[i].request_id = request_id;
            seen[i].since_ns = now;
        } else if (state != GP_SLOT_FREE && now - seen[i].since_ns > GP_SLOT_STALE_NS) {
            __atomic_compare_exchange_n(&slot->state, &state, GP_SLOT_FREE, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
        }
        waiting |= state != GP_SLOT_FREE;
    }
    return waiting;
}

static void *gp_drain_main(void *arg)
{
    struct gp_wire_mailbox *mailbox = gp_session->mailbox;
    (void)arg;
    __atomic_store_n(&mailbox->drain_tid, gp_thread.tid, __ATOMIC_RELEASE);
    while (gp_life_on()) {
        uint32_t seen = __atomic_load_n(&mailbox->doorbell, __ATOMIC_ACQUIRE);
        for (unsigned i = 0; i < GP_WIRE_SLOTS; i++)
            gp_slot_serve(&mailbox->slots[i]);
        /* No request under way: sleep until the bell rings, however long. */
        bool waiting = gp_slots_sweep();
        gp_futex_wait(&mailbox->doorbell, seen, waiting ? GP_SLOT_STALE_NS : UINT64_MAX);
    }
    return NULL;
}

int gp_drain_start(struct gp_session *session, const struct gp_session_hooks *hooks)
{
    gp_session = session;
    gp_hooks_of_session = *hooks;
    return gp_worker_start(gp_drain_main, "gpuprof-drain");
}
