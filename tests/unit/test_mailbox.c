/* SPDX-License-Identifier: MIT
 *
 * test_mailbox.c: a viewer's requests: every slot is used, and each state in which a slot can be when the patience ends has
 * one answer, after which the slot belongs to whom it should.
 */
#include <base/clock.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <lib/session.h>
#include <read/collect/peer.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SOON_NS  20000000
#define NEVER_NS 20000000000ull /* longer than a loaded machine lets a thread wait for a processor */

static struct gp_test_session shared;
static struct gp_peer session;
static struct gp_mailbox box;
static struct gp_wire_slot request, answer;

static void setup(void)
{
    char problem[GP_PROBLEM_BYTES];
    cr_assert_eq(gp_test_session_make(&shared, 8, true), 0);
    shared.mailbox->drain_tid = 1;
    cr_assert_eq(gp_peer_adopt(&session, dup(shared.fd), problem), 0);
    cr_assert_eq(gp_mailbox_open(&box, &session), 0);
    request.command = GP_COMMAND_RESET;
    request.what = GP_RESET_PEAKS;
    request.device = -1;
    strcpy(request.name, "a name");
}

TestSuite(mailbox, .init = setup, .timeout = 30);

Test(mailbox, takes_any_slot_that_is_free_and_no_other)
{
    for (int only = 0; only < (int)GP_WIRE_SLOTS; only++) {
        static struct gp_wire_slot taken;
        memset(&taken, 0x5a, sizeof(taken));
        for (int i = 0; i < (int)GP_WIRE_SLOTS; i++) {
            taken.state = 1 + (uint32_t)(only + i) % GP_SLOT_DONE; /* each state but free */
            shared.mailbox->slots[i] = taken;
        }
        cr_assert_eq(gp_mailbox_post(&box, &request), -EAGAIN);
        shared.mailbox->slots[only].state = GP_SLOT_FREE;
        uint32_t rang = shared.mailbox->doorbell;
        cr_assert_eq(gp_mailbox_post(&box, &request), 0);
        cr_assert_eq(shared.mailbox->doorbell, rang + 1);
        cr_assert_eq(box.slot, only);
        const struct gp_wire_slot *slot = &shared.mailbox->slots[only];
        cr_assert_eq(slot->state, GP_SLOT_REQUESTED);
        cr_assert_eq(slot->command, GP_COMMAND_RESET);
        cr_assert_eq(slot->what, GP_RESET_PEAKS);
        cr_assert_eq(slot->device, -1);
        cr_assert_eq(slot->viewer_pid, (uint32_t)getpid());
        cr_assert_eq(slot->result, 0);
        cr_assert_eq(slot->reply_count, 0);
        cr_assert_eq(slot->request_id, box.request_id);
        cr_assert_str_eq(slot->name, "a name");
        for (int i = 0; i < (int)GP_WIRE_SLOTS; i++) {
            taken.state = shared.mailbox->slots[i].state;
            cr_assert(i == only || memcmp(&taken, &shared.mailbox->slots[i], sizeof(taken)) == 0, "slot %d", i);
        }
        box.slot = -1;
    }
}

/* A request whose slot has reached `state` when the patience ends. */
static int wait_for(uint32_t state, int32_t result)
{
    memset(shared.mailbox->slots, 0, sizeof(shared.mailbox->slots));
    cr_assert_eq(gp_mailbox_post(&box, &request), 0);
    shared.mailbox->slots[0].result = result;
    shared.mailbox->slots[0].state = state;
    bool waits = state == GP_SLOT_REQUESTED || state == GP_SLOT_SERVING;
    uint64_t patience = waits ? SOON_NS : NEVER_NS, begin = gp_clock_ns();
    int rc = gp_mailbox_wait(&box, &answer, begin + patience);
    cr_expect_eq(gp_clock_ns() - begin >= patience, waits, "state %u", state);
    cr_expect_eq(box.slot, box.keeps && state == GP_SLOT_DONE ? 0 : -1);
    return rc;
}

Test(mailbox, each_state_of_the_slot_has_its_answer)
{
    const struct gp_wire_slot *slot = shared.mailbox->slots;
    cr_expect_eq(wait_for(GP_SLOT_REQUESTED, 0), -ETIMEDOUT);
    cr_expect_eq(slot->state, GP_SLOT_FREE, "taken back");
    cr_expect_eq(wait_for(GP_SLOT_SERVING, 0), -ETIMEDOUT);
    cr_expect_eq(slot->state, GP_SLOT_SERVING, "the process takes it back");
    cr_expect_eq(wait_for(GP_SLOT_DONE, 0), 0);
    cr_expect_eq(slot->state, GP_SLOT_FREE);
    cr_expect_eq(wait_for(GP_SLOT_DONE, -EBUSY), -EBUSY);
    cr_expect_eq(wait_for(GP_SLOT_DONE, -4095), -4095);
    cr_expect_eq(wait_for(GP_SLOT_DONE, -4096), -EPROTO);
    cr_expect_eq(wait_for(GP_SLOT_DONE, 1), -EPROTO);
    cr_expect_eq(wait_for(GP_SLOT_FREE, 0), -EPROTO);
    cr_expect_eq(wait_for(GP_SLOT_CLAIMED, 0), -EPROTO);
    cr_expect_eq(wait_for(77, 0), -EPROTO);
}

Test(mailbox, a_slot_that_is_kept_is_given_back_if_it_is_still_ours)
{
    struct gp_wire_slot *slot = shared.mailbox->slots;
    box.keeps = true;
    cr_assert_eq(wait_for(GP_SLOT_DONE, 0), 0);
    cr_expect_eq(slot->state, GP_SLOT_DONE);
    uint32_t rang = shared.mailbox->doorbell;
    gp_mailbox_done(&box);
    cr_expect_eq(slot->state, GP_SLOT_FREE);
    cr_expect_eq(shared.mailbox->doorbell, rang + 1);
    gp_mailbox_done(&box);
    cr_expect_eq(shared.mailbox->doorbell, rang + 1, "once");
    cr_assert_eq(wait_for(GP_SLOT_DONE, 0), 0);
    slot->request_id++; /* another viewer's by now, answered */
    gp_mailbox_done(&box);
    cr_expect_eq(slot->state, GP_SLOT_DONE);
    cr_assert_eq(wait_for(GP_SLOT_DONE, 0), 0);
    slot->state = GP_SLOT_CLAIMED;
    gp_mailbox_done(&box);
    cr_expect_eq(slot->state, GP_SLOT_CLAIMED);
}

Test(mailbox, an_answer_has_all_its_rows_checked)
{
    struct gp_wire_slot *slot = shared.mailbox->slots;
    for (unsigned last = 0; last <= GP_WIRE_DEVICES; last++)
        for (unsigned bad = 0; bad < 4; bad++) {
            memset(shared.mailbox->slots, 0, sizeof(shared.mailbox->slots));
            cr_assert_eq(gp_mailbox_post(&box, &request), 0);
            slot->reply_count = last;
            slot->reply[GP_WIRE_DEVICES - 1].device = (int32_t)GP_WIRE_DEVICES - 1;
            struct gp_wire_before_after *row = last ? &slot->reply[last - 1] : NULL;
            if (row && bad == 1)
                row->device = GP_WIRE_DEVICES;
            if (row && bad == 2)
                row->after[GP_STATS - 1].freed = -1;
            if (bad == 3)
                slot->scope[last ? last - 1 : 0].reserved_peak_bytes = -1;
            slot->state = GP_SLOT_DONE;
            int rc = gp_mailbox_wait(&box, &answer, gp_clock_ns());
            cr_expect_eq(rc, bad && (row || bad == 3) ? -EPROTO : 0, "%u rows, %u: %d", last, bad, rc);
        }
}
