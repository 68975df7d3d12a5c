/* SPDX-License-Identifier: MIT
 *
 * test_mailbox.c: a viewer's requests: each state in which a slot can be when the patience ends has one answer, after which
 * the slot belongs to whom it should.
 */
#include <base/clock.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <lib/session.h>
#include <read/collect/mailbox.h>
#include <read/collect/peer.h>
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
