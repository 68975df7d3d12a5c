/* SPDX-License-Identifier: MIT
 *
 * mailbox.c: see mailbox.h.
 *
 * Memory order. [mailbox.R1] the viewer's release store of REQUESTED pairs with the drain thread's
 * acquire load of `state`: it sees the whole request. [mailbox.A1] the viewer's acquire load of
 * DONE pairs with the drain thread's release store: the viewer sees the whole reply. [mailbox.A2]
 * the acquire in the claim pairs with [mailbox.R2], the release store of FREE by the slot's last
 * owner: the viewer's writes come after that owner's reads. [mailbox.R3] the release add on
 * `doorbell` pairs with the drain thread's acquire load of it: it finds the request.
 */
#include <gpuprof/wire.h>
#include <read/collect/mailbox.h>
#include <read/collect/peer.h>

#include <base/clock.h>
#include <base/futex.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* Waiting for a free slot has no futex: all slots are taken only with nine viewers at once. */
#define GP_SLOT_RETRY_NS 1000000

int gp_mailbox_open(struct gp_mailbox *box, const struct gp_peer *session)
{
    memset(box, 0, sizeof(*box));
    box->slot = -1;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t begin = session->mailbox_offset & ~(page - 1);
    box->map_bytes = (size_t)(session->mailbox_offset - begin + sizeof(struct gp_wire_mailbox));
    void *map = mmap(NULL, box->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, session->fd, (off_t)begin);
    if (map == MAP_FAILED)
        return errno == ENOMEM ? -ENOMEM : -EPROTO;
    box->map = map;
    box->shared = (void *)((char *)map + (session->mailbox_offset - begin));
    if (__atomic_load_n(&box->shared->drain_tid, __ATOMIC_RELAXED) == 0) {
        gp_mailbox_close(box);
        return -ETIMEDOUT;
    }
    return 0;
}

void gp_mailbox_close(struct gp_mailbox *box)
{
    gp_mailbox_done(box);
    if (box->map)
        munmap(box->map, box->map_bytes);
    box->map = NULL;
    box->slot = -1;
}

static uint64_t request_new_id(void)
{
    uint64_t id = 0;
    if (getrandom(&id, sizeof(id), GRND_NONBLOCK) != sizeof(id))
        id = gp_clock_ns() ^ ((uint64_t)getpid() << 40);
    return id;
}

int gp_mailbox_post(struct gp_mailbox *box, const struct gp_wire_slot *request)
{
    struct gp_wire_slot *slot = NULL;
    for (unsigned i = 0; i < GP_WIRE_SLOTS && !slot; i++) {
        uint32_t was = GP_SLOT_FREE;
        if (__atomic_compare_exchange_n(&box->shared->slots[i].state, &was, GP_SLOT_CLAIMED, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) { /* [mailbox.A2] */
            slot = &box->shared->slots[i];
            box->slot = (int)i;
        }
    }
    if (!slot)
        return -EAGAIN;
    box->request_id = request_new_id();
    box->command = request->command;
    slot->command = request->command;
    slot->what = request->what;
    slot->device = request->device;
    slot->viewer_pid = (uint32_t)getpid();
    slot->result = 0;
    slot->request_id = box->request_id;
    slot->reply_count = 0;
    memcpy(slot->name, request->name, sizeof(slot->name));
    slot->name[sizeof(slot->name) - 1] = '\0';
    __atomic_store_n(&slot->state, GP_SLOT_REQUESTED, __ATOMIC_RELEASE); /* [mailbox.R1] */
    __atomic_fetch_add(&box->shared->doorbell, 1, __ATOMIC_RELEASE);     /* [mailbox.R3] */
    gp_futex_wake(&box->shared->doorbell);
    return 0;
}

static bool value_sane(const struct gp_wire_value *value)
{
    return value->current >= 0 && value->peak >= 0 && value->allocated >= 0 && value->freed >= 0;
}

/* Checks a private copy of an answer. */
static int answer_check(const struct gp_mailbox *box, struct gp_wire_slot *answer)
{
    if (answer->request_id != box->request_id || answer->command != box->command)
        return -EPROTO;
    if (answer->result < -4095 || answer->result > 0 || answer->reply_count > GP_WIRE_DEVICES)
        return -EPROTO;
    for (uint32_t i = 0; i < answer->reply_count; i++) {
        const struct gp_wire_before_after *reply = &answer->reply[i];
        if (reply->device < 0 || reply->device >= (int32_t)GP_WIRE_DEVICES)
            return -EPROTO;
        if (!value_sane(&reply->asleep_before) || !value_sane(&reply->asleep_after))
            return -EPROTO;
        for (int k = 0; k < GP_STATS; k++) {
            if (!value_sane(&reply->before[k]) || !value_sane(&reply->after[k]))
                return -EPROTO;
        }
    }
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++) {
        if (answer->scope[i].allocated_peak_bytes < 0 || answer->scope[i].reserved_peak_bytes < 0)
            return -EPROTO;
    }
    answer->name[sizeof(answer->name) - 1] = '\0';
    return 0;
}

static int mailbox_take(struct gp_mailbox *box, struct gp_wire_slot *slot, struct gp_wire_slot *answer)
{
    /* Copied once: no code below reads the shared bytes again. */
    memcpy(answer, slot, sizeof(*answer));
    if (box->keeps)
        box->slot = (int)(slot - box->shared->slots);
    else
        __atomic_store_n(&slot->state, GP_SLOT_FREE, __ATOMIC_RELEASE); /* [mailbox.R2] */
    int rc = answer_check(box, answer);
    return rc ? rc : answer->result;
}

void gp_mailbox_done(struct gp_mailbox *box)
{
    if (!box->map || box->slot < 0)
        return;
    struct gp_wire_slot *slot = &box->shared->slots[box->slot];
    uint32_t done = GP_SLOT_DONE;
    box->slot = -1;
    /* A slot that was kept too long was taken back, and may have another owner by now. */
    if (__atomic_load_n(&slot->request_id, __ATOMIC_RELAXED) == box->request_id)
        __atomic_compare_exchange_n(&slot->state, &done, GP_SLOT_FREE, false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED);               /* [mailbox.R2] */
    __atomic_fetch_add(&box->shared->doorbell, 1, __ATOMIC_RELEASE); /* [mailbox.R3] */
    gp_futex_wake(&box->shared->doorbell);
}

int gp_mailbox_wait(struct gp_mailbox *box, struct gp_wire_slot *answer, uint64_t deadline)
{
    struct gp_wire_slot *slot = &box->shared->slots[box->slot];
    box->slot = -1;
    for (;;) {
        uint32_t state = __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE); /* [mailbox.A1] */
        if (state == GP_SLOT_DONE)
            return mailbox_take(box, slot, answer);
        if (state != GP_SLOT_REQUESTED && state != GP_SLOT_SERVING)
            return -EPROTO; /* only this viewer may take it back this early */
        uint64_t now = gp_clock_ns();
        if (now >= deadline)
            break;
        gp_futex_wait(&slot->state, state, deadline - now);
    }
    uint32_t was = GP_SLOT_REQUESTED;
    if (__atomic_compare_exchange_n(&slot->state, &was, GP_SLOT_FREE, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return -ETIMEDOUT;
    if (was == GP_SLOT_SERVING)
        return -ETIMEDOUT; /* the answer comes too late; the drain thread takes the slot back */
    return was == GP_SLOT_DONE ? mailbox_take(box, slot, answer) : -EPROTO; /* answered just before the timeout */
}

int gp_mailbox_call(const struct gp_peer *session, struct gp_wire_slot *slot, uint64_t deadline)
{
    struct gp_mailbox box;
    int rc = gp_mailbox_open(&box, session);
    if (rc)
        return rc;
    while ((rc = gp_mailbox_post(&box, slot)) == -EAGAIN) {
        if (gp_clock_ns() >= deadline)
            break;
        /* The drain thread frees the slots of dead viewers when it wakes. */
        __atomic_fetch_add(&box.shared->doorbell, 1, __ATOMIC_RELEASE);
        gp_futex_wake(&box.shared->doorbell);
        nanosleep(&(struct timespec){0, GP_SLOT_RETRY_NS}, NULL);
    }
    rc = rc ? -ETIMEDOUT : gp_mailbox_wait(&box, slot, deadline);
    gp_mailbox_close(&box);
    return rc;
}
