/* SPDX-License-Identifier: MIT
 *
 * drain.c: answers the mailbox.  Viewers are not trusted: a slot is read once, its fields are
 * bounded, and no value of a viewer is used as an address or a length.
 */
#define _GNU_SOURCE /* F_OFD_GETLK */
#include "account/tap.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/futex.h"
#include "base/sandbox.h"
#include "base/thread.h"
#include "base/worker.h"
#include "session/batch.h"
#include "session/extents.h"
#include "session/session.h"
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/wire.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct gp_session *drained;
static struct gp_session_hooks hooks_of_session;

/* ---- readers of the ring --------------------------------------------------------------------------------------- */

enum { LISTENED_READER = 1, LISTENED_ALWAYS = 2 };

/* Threads of the program load it at every event: it changes when the first reader comes and when the
 * last has gone. */
GP_ALIGNED_LINE uint32_t gp_session_listened;

void gp_session_listen_always(void)
{
    __atomic_store_n(&gp_session_listened, LISTENED_ALWAYS, __ATOMIC_RELEASE);
}

/* [listen.R] the walk that the reader asks for comes later on this thread; pairs with [listen.A]. */
static void listen_begin(void)
{
    __atomic_fetch_or(&gp_session_listened, LISTENED_READER, __ATOMIC_RELEASE);
}

/* A reader holds a lock as long as it lives, also while it is stopped. If that cannot be asked,
 * because the program has closed the descriptor or is in a sandbox, readers are taken to be
 * there. */
static bool listen_held(void)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = GP_LISTEN_BYTE, .l_len = 1};
    return gp_sandboxed_now() || !gp_session_owns(drained) || fcntl(drained->fd, F_OFD_GETLK, &lock) != 0 ||
           lock.l_type != F_UNLCK;
}

/* Returns after how long to look again. */
static uint64_t listen_look(void)
{
    static uint64_t look_ns;
    uint32_t listened = __atomic_load_n(&gp_session_listened, __ATOMIC_RELAXED);
    uint64_t now = gp_clock_ns();
    if (!(listened & LISTENED_READER) || listened & LISTENED_ALWAYS) {
        look_ns = 0;
        return UINT64_MAX;
    }
    if (!look_ns)
        look_ns = now + GP_LISTEN_LOOK_NS;
    if (now < look_ns)
        return look_ns - now;
    look_ns = now + GP_LISTEN_LOOK_NS;
    if (listen_held())
        return GP_LISTEN_LOOK_NS;
    __atomic_fetch_and(&gp_session_listened, ~(uint32_t)LISTENED_READER, __ATOMIC_RELEASE);
    return UINT64_MAX;
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

static int answer_reset(uint32_t what, int32_t device, struct gp_wire_slot *slot)
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

/* A viewer ends a scope by its name, so it must not start a second one with the same name. */
static int answer_begin(const char *name)
{
    int handle = gp_session_scope_begin(name, false);
    return handle < 0 ? handle : 0;
}

static int answer_end(const char *name, struct gp_wire_slot *slot)
{
    struct gp_wire_scope_value peaks[GP_WIRE_DEVICES] = {0};
    int handle = gp_session_scope_find(name);
    int error = handle < 0 ? handle : gp_session_scope_end(handle, peaks);
    memcpy(slot->scope, peaks, sizeof(peaks));
    return error;
}

/* The slot whose viewer has the extents, and the id of its request. */
static struct {
    struct gp_wire_slot *slot;
    uint64_t request_id;
} gp_async_caller;

/* These answers need system calls that the program has no other use for. */
static bool drain_may(uint32_t command)
{
    return (command != GP_COMMAND_EXTENTS && command != GP_COMMAND_BLOCKS) || !gp_sandboxed_now();
}

static int answer_pieces(struct gp_wire_slot *slot)
{
    int fd = gp_extents_lay();
    if (fd < 0)
        return fd;
    slot->fd = fd;
    gp_async_caller.slot = slot;
    gp_async_caller.request_id = slot->request_id;
    return 0;
}

/* The viewer has opened them, or it died and the slot was taken back. */
static void extents_sweep(void)
{
    struct gp_wire_slot *slot = gp_async_caller.slot;
    if (!slot || (__atomic_load_n(&slot->state, __ATOMIC_ACQUIRE) == GP_SLOT_DONE &&
                  slot->request_id == gp_async_caller.request_id)) /* acquire: [mail.A] */
        return;
    gp_async_caller.slot = NULL;
    gp_extents_drop();
}

static int answer(struct gp_wire_slot *slot, uint32_t command)
{
    char name[sizeof(slot->name)];
    uint32_t what = slot->what;
    int32_t device = slot->device;
    int result = 0;
    memcpy(name, slot->name, sizeof(name));
    name[sizeof(name) - 1] = '\0';
    slot->reply_count = 0;
    if (command == GP_COMMAND_NONE || command >= GP_COMMANDS)
        return -EINVAL;
    if (command == GP_COMMAND_LISTEN) {
        listen_begin();
        return 0;
    }
    if (!drain_may(command))
        return -EPERM;
    gp_session_poll();
    switch (command) {
    case GP_COMMAND_RESET:
        result = answer_reset(what, device, slot);
        hooks_of_session.event(GP_EVENT_RESET, "");
        break;
    case GP_COMMAND_SCOPE_BEGIN:
        result = answer_begin(name);
        break;
    case GP_COMMAND_SCOPE_END:
        result = answer_end(name, slot);
        break;
    case GP_COMMAND_MARK:
        hooks_of_session.event(GP_EVENT_MARK, name);
        break;
    case GP_COMMAND_YIELD:
        if (!hooks_of_session.yield())
            result = -EOPNOTSUPP;
        else if (drained->header->source != GP_SOURCE_HOOKS) /* else the hooks count now */
            __atomic_fetch_or(&drained->header->flags, GP_SESSION_YIELDED, __ATOMIC_RELEASE);
        break;
    case GP_COMMAND_STACKS:
        result = hooks_of_session.stacks ? hooks_of_session.stacks(what, &slot->what) : -EOPNOTSUPP;
        break;
    case GP_COMMAND_EXTENTS:
        result = answer_pieces(slot);
        break;
    case GP_COMMAND_BLOCKS:
        result = hooks_of_session.blocks ? hooks_of_session.blocks() : -EOPNOTSUPP;
        break;
    case GP_COMMAND_DETACH:
        return hooks_of_session.leave ? hooks_of_session.leave() : -EOPNOTSUPP;
    default:
        break;
    }
    gp_session_publish();
    if (command == GP_COMMAND_SNAPSHOT)
        gp_batch_tell();
    return result;
}

static struct gp_wire_slot *drain_last; /* the request to detach, while it waits for its answer */

static void slot_serve(struct gp_wire_slot *slot)
{
    uint32_t requested = GP_SLOT_REQUESTED, command;
    /* [mail.A] acquire: the request's fields; pairs with the viewer's release of REQUESTED.  From
     * SERVING on the slot is ours: a viewer that gives up leaves it, so no other request can be in
     * the slot when this answer is written. */
    if (!__atomic_compare_exchange_n(&slot->state, &requested, GP_SLOT_SERVING, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return;
    command = slot->command;
    slot->result = answer(slot, command);
    if (command == GP_COMMAND_DETACH && slot->result == 0) {
        drain_last = slot;
        return;
    }
    /* [mail.R] release: the answer; pairs with the viewer's load of DONE. */
    __atomic_store_n(&slot->state, GP_SLOT_DONE, __ATOMIC_RELEASE);
    gp_futex_wake(&slot->state);
}

/* Takes back the slots of viewers that died: a request must be in one state for GP_SLOT_STALE_NS.
 * The id distinguishes a request from the next one in the same slot, which may be in the same
 * state. */
static bool slots_sweep(void)
{
    static struct {
        uint32_t state;
        uint64_t request_id;
        uint64_t since_ns;
    } seen[GP_WIRE_SLOTS];
    uint64_t now = gp_clock_ns();
    bool waiting = false;
    for (unsigned i = 0; i < GP_WIRE_SLOTS; i++) {
        struct gp_wire_slot *slot = &drained->mailbox->slots[i];
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

/* As soon as the slot is answered, the viewer may go on and the next life of the library may begin:
 * the code after that uses this function's own variables alone. */
static void drain_leave(void)
{
    struct gp_wire_slot *slot = drain_last;
    void *memory = drained->header;
    uint64_t bytes = drained->bytes;
    gp_extents_drop();
    gp_session_drop(drained);
    __atomic_store_n(&drained->mailbox->drain_tid, 0, __ATOMIC_RELEASE);
    bool is_clean = hooks_of_session.left();
    GP_TESTPOINT("drain.left");
    __atomic_store_n(&slot->state, GP_SLOT_DONE, __ATOMIC_RELEASE); /* [mail.R] */
    gp_futex_wake(&slot->state);
    if (is_clean)
        munmap(memory, bytes);
}

static void *drain_main(void *arg)
{
    struct gp_wire_mailbox *mailbox = drained->mailbox;
    (void)arg;
    __atomic_store_n(&mailbox->drain_tid, gp_thread.tid, __ATOMIC_RELEASE);
    while (gp_thread_life_on()) {
        uint32_t seen = __atomic_load_n(&mailbox->doorbell, __ATOMIC_ACQUIRE);
        for (unsigned i = 0; i < GP_WIRE_SLOTS; i++) {
            extents_sweep(); /* a waiting viewer gets the slot at once */
            slot_serve(&mailbox->slots[i]);
            if (drain_last) {
                drain_leave();
                return NULL;
            }
        }
        /* Without a request and without a listener: sleep until the bell rings. */
        bool waiting = slots_sweep();
        extents_sweep();
        uint64_t pause = gp_batch_work(), look = listen_look();
        pause = look < pause ? look : pause;
        gp_futex_wait(&mailbox->doorbell, seen, waiting && pause > GP_SLOT_STALE_NS ? GP_SLOT_STALE_NS : pause);
    }
    return NULL;
}

int gp_drain_start(struct gp_session *session, const struct gp_session_hooks *hooks)
{
    drained = session;
    hooks_of_session = *hooks;
    gp_session_share(session, hooks);
    gp_batch_start(session);
    return gp_worker_start(drain_main, "gpuprof-drain");
}
