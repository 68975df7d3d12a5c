/* SPDX-License-Identifier: MIT
 *
 * test_drain.c: the answers of the drain thread to each request (src/session/drain.c), how long it sleeps, the slots of
 * viewers that died, readers of the ring, and a detach.
 */
#include "session/session.h"
#include "session_fixture.h"
#include <fcntl.h>

TestSuite(drain, .timeout = 60);

static struct gp_wire_slot *slot_of(unsigned i)
{
    return &test_session.mailbox->slots[i];
}

static void post(unsigned i, uint32_t command, uint32_t what, int32_t device, const char *name)
{
    struct gp_wire_slot *slot = slot_of(i);
    memset(slot, 0, sizeof(*slot));
    slot->command = command;
    slot->what = what;
    slot->device = device;
    slot->request_id = 1000 + test_step;
    slot->reply_count = 77;
    memset(slot->scope, 0x55, sizeof(slot->scope));
    memcpy(slot->name, name, strnlen(name, sizeof(slot->name)));
    slot->state = GP_SLOT_REQUESTED;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

#define POLL "poll 50000000\n"
#define LONG "0123456789012345678901234567890123456789"

static int stacks_result;

static int change_stacks(uint32_t modes, uint32_t *before)
{
    test_note("stacks %u\n", modes);
    *before = 3;
    return stacks_result;
}

static int ask_blocks(void)
{
    test_note("ask\n");
    return -ENODATA;
}

static int stay(void)
{
    return -EBUSY;
}

/* The requests are made one after the other; each answer is there at the next sleep. */
static const struct request {
    uint32_t command, what;
    int32_t device;
    const char *name;
    int result;
    uint32_t reply_count;
    const char *notes;
} requests[] = {
    {GP_COMMAND_SNAPSHOT, 0, 0, "", 0, 0, POLL},
    {GP_COMMAND_NONE, 0, 0, "", -EINVAL, 0, ""},
    {GP_COMMANDS, 0, 0, "", -EINVAL, 0, ""},
    {UINT32_MAX, 0, 0, "", -EINVAL, 0, ""},
    {GP_COMMAND_RESET, 3, -1, "", 0, 3, POLL "reset 0 3\nreset 5 3\nreset 64 3\nevent 10 ''\n"},
    {GP_COMMAND_RESET, 1, 5, "", 0, 1, POLL "reset 5 1\nevent 10 ''\n"},
    {GP_COMMAND_RESET, 4, 0, "", 0, 1, POLL "reset 0 4\nevent 10 ''\n"},
    {GP_COMMAND_RESET, 4, 64, "", 0, 1, POLL "reset 64 4\nevent 10 ''\n"},
    {GP_COMMAND_RESET, 4, 6, "", -ENODEV, 0, POLL "event 10 ''\n"},
    {GP_COMMAND_RESET, 4, 65, "", -ENODEV, 0, POLL "event 10 ''\n"},
    {GP_COMMAND_RESET, 4, -2, "", -ENODEV, 0, POLL "event 10 ''\n"},
    {GP_COMMAND_RESET, 0, -1, "", -EINVAL, 0, POLL "event 10 ''\n"},
    {GP_COMMAND_RESET, 5, -1, "", -EINVAL, 0, POLL "event 10 ''\n"},
    {GP_COMMAND_SCOPE_BEGIN, 0, 0, "", -EINVAL, 0, POLL},
    {GP_COMMAND_SCOPE_BEGIN, 0, 0, "a", 0, 0, POLL},
    {GP_COMMAND_SCOPE_BEGIN, 0, 0, "b", 0, 0, POLL},
    {GP_COMMAND_SCOPE_BEGIN, 0, 0, "a", -EEXIST, 0, POLL},
    {GP_COMMAND_SCOPE_END, 0, 0, "b", 0, 0, POLL},
    {GP_COMMAND_SCOPE_END, 0, 0, "b", -ENOENT, 0, POLL},
    {GP_COMMAND_MARK, 0, 0, "a mark", 0, 0, POLL "event 9 'a mark'\n"},
    {GP_COMMAND_MARK, 0, 0, LONG, 0, 0, POLL "event 9 '012345678901234567890123456789012345678'\n"},
    {GP_COMMAND_STACKS, 2, 0, "", 0, 0, POLL "stacks 2\n"},
    {GP_COMMAND_BLOCKS, 0, 0, "", -ENODATA, 0, POLL "ask\n"},
    {GP_COMMAND_DETACH, 0, 0, "", -EBUSY, 0, POLL},
    {GP_COMMAND_YIELD, 0, 0, "", -EOPNOTSUPP, 0, POLL},
};
#define REQUESTS (sizeof(requests) / sizeof(requests[0]))

static uint64_t published;

static void check_request(unsigned n)
{
    const struct request *r = &requests[n];
    struct gp_wire_slot *slot = slot_of(n % GP_WIRE_SLOTS);
    bool publishes = r->command && r->command < GP_COMMANDS && r->command != GP_COMMAND_DETACH;
    cr_expect(slot->state == GP_SLOT_DONE && slot->result == r->result && slot->reply_count == r->reply_count,
              "%u: %u %d %u", n, slot->state, slot->result, slot->reply_count);
    cr_expect_str_eq(test_notes, r->notes, "%u: %s", n, test_notes);
    /* Each publication adds 2, and so does a change of the scopes. */
    bool begins = r->command == GP_COMMAND_SCOPE_BEGIN && r->name[0],
         ends = r->command == GP_COMMAND_SCOPE_END && r->result == 0;
    cr_expect_eq(test_session.header->publish_seq - published, 2 * (publishes + begins + ends), "%u", n);
    cr_expect_eq(test_woken, &slot->state, "%u", n);
    cr_expect_eq(test_wakes, 1, "%u", n);
    if (n == 4)
        cr_expect(slot->reply[0].device == 0 && slot->reply[1].device == 5 && slot->reply[2].device == 64);
    if (n == 17)
        cr_expect(slot->scope[7].allocated_peak_bytes == 107 && slot->scope[64].reserved_peak_bytes == 1064);
    if (n == 18)
        cr_expect(slot->scope[7].allocated_peak_bytes == 0);
    if (r->command == GP_COMMAND_STACKS)
        cr_expect_eq(slot->what, 3);
}

static void ask_all(unsigned step, uint64_t pause_ns)
{
    if (step > 0) {
        check_request(step - 1);
        cr_expect_eq(pause_ns, 5 * SECOND, "the slot has an answer that was not taken");
        slot_of((step - 1) % GP_WIRE_SLOTS)->state = GP_SLOT_FREE;
    } else {
        cr_expect_eq(pause_ns, UINT64_MAX);
        cr_expect_eq(test_session.mailbox->drain_tid, gp_thread.tid);
    }
    if (step == REQUESTS) {
        cr_expect(!(test_session.header->flags & GP_SESSION_YIELDED));
        test_stop();
        return;
    }
    test_notes[0] = '\0';
    test_wakes = 0;
    published = test_session.header->publish_seq;
    post(step % GP_WIRE_SLOTS, requests[step].command, requests[step].what, requests[step].device, requests[step].name);
}

Test(drain, each_request_is_answered)
{
    struct gp_session_hooks hooks = test_hooks();
    hooks.stacks = change_stacks;
    hooks.blocks = ask_blocks;
    hooks.leave = stay;
    test_open(&hooks);
    gp_thread_enrol();
    test_run(ask_all);
}

static void ask_lacking(unsigned step, uint64_t pause_ns)
{
    static const uint32_t commands[] = {GP_COMMAND_STACKS, GP_COMMAND_BLOCKS, GP_COMMAND_DETACH, GP_COMMAND_YIELD};
    (void)pause_ns;
    if (step == 0) {
        for (unsigned i = 0; i < 4; i++)
            post(2 * i, commands[i], 1, 0, "");
        test_yes = true;
        return;
    }
    for (unsigned i = 0; i < 4; i++)
        cr_expect_eq(slot_of(2 * i)->result, i < 3 ? -EOPNOTSUPP : 0, "%u", i);
    cr_expect_eq(test_session.header->flags, GP_SESSION_YIELDED);
    test_stop();
}

Test(drain, what_the_library_lacks)
{
    struct gp_session_hooks hooks = test_hooks();
    test_open(&hooks);
    test_run(ask_lacking);
}

static void reset_nothing(unsigned step, uint64_t pause_ns)
{
    (void)pause_ns;
    memset(test_present, 0, sizeof(test_present));
    if (step == 0) {
        post(0, GP_COMMAND_RESET, 1, -1, "");
        post(1, GP_COMMAND_RESET, 1, 0, "");
        return;
    }
    cr_expect(slot_of(0)->result == 0 && slot_of(0)->reply_count == 0);
    cr_expect_eq(slot_of(1)->result, -ENODEV);
    test_stop();
}

Test(drain, a_reset_without_devices)
{
    struct gp_session_hooks hooks = test_hooks();
    test_open(&hooks);
    test_run(reset_nothing);
}

/* ---- viewers that died ------------------------------------------------------------------------------------------- */

/* A slot is free after more than five seconds in one state with one request. */
static void let_viewers_die(unsigned step, uint64_t pause_ns)
{
    cr_expect_eq(pause_ns, step == 0 || step == 6 ? UINT64_MAX : 5 * SECOND, "%u: %lu", step, pause_ns);
    switch (step) {
    case 0:
        slot_of(1)->state = GP_SLOT_CLAIMED;
        slot_of(7)->state = GP_SLOT_DONE;
        slot_of(3)->state = GP_SLOT_CLAIMED;
        break;
    case 1: /* it was seen now */
        test_now += 5 * SECOND;
        break;
    case 2:
        cr_expect(slot_of(1)->state == GP_SLOT_CLAIMED && slot_of(7)->state == GP_SLOT_DONE, "not longer than that");
        test_now += 1;
        slot_of(3)->request_id++;
        break;
    case 3:
        cr_expect(slot_of(1)->state == GP_SLOT_FREE && slot_of(7)->state == GP_SLOT_FREE);
        cr_expect_eq(slot_of(3)->state, GP_SLOT_CLAIMED, "it is another request");
        test_now += 4 * SECOND;
        slot_of(3)->state = GP_SLOT_DONE;
        break;
    case 4: /* it is another state */
        test_now += 5 * SECOND + 1;
        break;
    case 5:
        cr_expect_eq(slot_of(3)->state, GP_SLOT_FREE);
        break;
    default:
        test_stop();
    }
}

Test(drain, slots_of_viewers_that_died)
{
    struct gp_session_hooks hooks = test_hooks();
    test_open(&hooks);
    test_run(let_viewers_die);
}

/* ---- readers of the ring ----------------------------------------------------------------------------------------- */

static int reader = -1;

static void read_lock(short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = GP_LISTEN_BYTE, .l_len = 1};
    cr_assert_eq(fcntl(reader, F_OFD_SETLK, &lock), 0);
}

/* As long as the lock is held, it is looked at once a second; when it is gone, no more. */
static void listen_for_a_while(unsigned step, uint64_t pause_ns)
{
    static const uint64_t pauses[] = {UINT64_MAX, SECOND,     SECOND / 2, 1,         SECOND,
                                      SECOND,     UINT64_MAX, SECOND,     UINT64_MAX};
    cr_expect_eq(pause_ns, pauses[step], "%u: %lu", step, pause_ns);
    cr_expect_eq(gp_session_listened, step == 0 || step == 6 || step == 8 ? 0 : 1, "%u", step);
    switch (step) {
    case 0:
    case 6:
        read_lock(F_RDLCK);
        test_notes[0] = '\0';
        post(0, GP_COMMAND_LISTEN, 0, 0, "");
        break;
    case 1:
    case 7:
        cr_expect(slot_of(0)->state == GP_SLOT_DONE && slot_of(0)->result == 0 && !test_notes[0]);
        slot_of(0)->state = GP_SLOT_FREE;
        test_now += step == 1 ? SECOND / 2 : SECOND;
        if (step == 7)
            read_lock(F_UNLCK);
        break;
    case 2:
        test_now += SECOND / 2 - 1;
        break;
    case 3:
        test_now += 1;
        break;
    case 4:
        test_now += 2 * SECOND;
        break;
    case 5:
        read_lock(F_UNLCK);
        test_now += SECOND;
        break;
    default:
        test_stop();
    }
}

static void open_reader(void)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", test_session.fd);
    reader = open(path, O_RDONLY);
    cr_assert_geq(reader, 0);
}

Test(drain, readers_hold_a_lock)
{
    struct gp_session_hooks hooks = test_hooks();
    test_open(&hooks);
    open_reader();
    test_run(listen_for_a_while);
}

static void listen_without_end(unsigned step, uint64_t pause_ns)
{
    if (step == 0)
        post(0, GP_COMMAND_LISTEN, 0, 0, "");
    if (step == 1) {
        slot_of(0)->state = GP_SLOT_FREE;
        close(test_session.fd); /* as a program does that closes all */
    }
    if (step > 0)
        cr_expect(pause_ns == SECOND && gp_session_listened == 1, "%u: %lu", step, pause_ns);
    test_now += SECOND;
    if (step == 3)
        test_stop();
}

Test(drain, a_lock_that_cannot_be_asked_for)
{
    struct gp_session_hooks hooks = test_hooks();
    test_open(&hooks);
    test_run(listen_without_end);
}

static void listen_always(unsigned step, uint64_t pause_ns)
{
    if (step == 0)
        post(0, GP_COMMAND_LISTEN, 0, 0, "");
    if (step == 1)
        slot_of(0)->state = GP_SLOT_FREE;
    test_now += 2 * SECOND;
    cr_expect_eq(gp_session_listened, step == 0 ? 2 : 3);
    cr_expect_eq(pause_ns, step == 1 ? 5 * SECOND : UINT64_MAX);
    if (step == 4)
        test_stop();
}

Test(drain, a_reader_that_is_always_there)
{
    struct gp_session_hooks hooks = test_hooks();
    gp_session_listen_always();
    test_open(&hooks);
    test_run(listen_always);
}

/* ---- extents ----------------------------------------------------------------------------------------------------- */

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

/* One viewer has them at a time, until it has taken them or its slot has another request. */
static void lend_extents(unsigned step, uint64_t pause_ns)
{
    static int fd;
    (void)pause_ns;
    struct gp_wire_slot *slot = slot_of(2);
    switch (step) {
    case 0:
        post(2, GP_COMMAND_EXTENTS, 0, 0, "");
        post(4, GP_COMMAND_EXTENTS, 0, 0, "");
        break;
    case 1:
        cr_expect(slot->result == 0 && slot->state == GP_SLOT_DONE && is_open(slot->fd));
        cr_expect_eq(slot_of(4)->result, -EBUSY);
        slot_of(4)->state = GP_SLOT_FREE;
        fd = slot->fd;
        break;
    case 2:
        cr_expect(is_open(fd));
        slot->state = GP_SLOT_FREE;
        break;
    case 3:
        cr_expect(!is_open(fd));
        post(2, GP_COMMAND_EXTENTS, 0, 0, "");
        break;
    case 4:
        cr_expect(slot->result == 0 && is_open(slot->fd));
        fd = slot->fd;
        slot->request_id++;
        break;
    default:
        cr_expect(!is_open(fd));
        test_stop();
    }
}

Test(drain, extents_are_lent_to_one_viewer)
{
    struct gp_session_hooks hooks = test_hooks();
    test_open(&hooks);
    test_run(lend_extents);
}

/* ---- leaving ----------------------------------------------------------------------------------------------------- */

static struct gp_wire_mailbox *mailbox;
static bool is_clean;
static int session_fd, extents_fd;

static int leave_now(void)
{
    test_note("leave\n");
    return 0;
}

static bool left(void)
{
    test_note("left\n");
    cr_expect_eq(mailbox->slots[3].state, GP_SLOT_SERVING);
    cr_expect_eq(mailbox->slots[4].state, GP_SLOT_REQUESTED);
    cr_expect_eq(mailbox->drain_tid, 0);
    cr_expect(!is_open(session_fd) && !is_open(extents_fd));
    return is_clean;
}

static void ask_to_leave(unsigned step, uint64_t pause_ns)
{
    (void)pause_ns;
    if (step == 0) {
        post(0, GP_COMMAND_EXTENTS, 0, 0, "");
        return;
    }
    cr_assert_eq(step, 1);
    session_fd = test_session.fd;
    extents_fd = slot_of(0)->fd;
    cr_expect(is_open(session_fd) && is_open(extents_fd));
    test_notes[0] = '\0';
    test_wakes = 0;
    post(3, GP_COMMAND_DETACH, 0, 0, "");
    post(4, GP_COMMAND_SNAPSHOT, 0, 0, "");
}

/* The answer comes last. The memory of the session ends if no thread is inside. */
Test(drain, a_detach)
{
    struct gp_session_hooks hooks = test_hooks();
    hooks.leave = leave_now;
    hooks.left = left;
    test_open(&hooks);
    mailbox = test_session.mailbox;
    test_run(ask_to_leave);
    cr_expect_str_eq(test_notes, POLL "leave\nleft\n");
    cr_expect(mailbox->slots[3].state == GP_SLOT_DONE && mailbox->slots[3].result == 0);
    cr_expect(test_wakes == 1 && test_woken == &mailbox->slots[3].state);
    cr_expect_eq(test_session.fd, -1);
}

Test(drain, a_detach_with_nothing_left)
{
    unsigned char there;
    struct gp_session_hooks hooks = test_hooks();
    hooks.leave = leave_now;
    hooks.left = left;
    is_clean = true;
    test_open(&hooks);
    mailbox = test_session.mailbox;
    void *memory = test_session.header;
    cr_expect_eq(mincore(memory, 4096, &there), 0);
    test_run(ask_to_leave);
    cr_expect_str_eq(test_notes, POLL "leave\nleft\n");
    cr_expect_neq(mincore(memory, 4096, &there), 0);
    cr_expect_neq(mincore((char *)memory + test_session.bytes - 4096, 4096, &there), 0);
}

Test(drain, a_thread_that_cannot_be_had)
{
    struct gp_session_hooks hooks = test_hooks();
    test_worker_error = -EAGAIN;
    cr_assert_eq(gp_session_open(&test_session, &(struct gp_session_size){.sites_bytes = 0}), 0);
    cr_expect_eq(gp_drain_start(&test_session, &hooks), -EAGAIN);
    cr_expect_str_eq(test_notes, "thread gpuprof-drain\n");
    cr_expect(gp_session_ready(), "numbers can be published all the same");
    cr_expect_neq(test_session.mailbox->drain_tid, 0);
    gp_session_mute(&test_session);
    cr_expect_eq(test_session.mailbox->drain_tid, 0);
}
