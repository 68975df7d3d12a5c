/* SPDX-License-Identifier: MIT
 *
 * test_collect_faults.c: each system call and each allocation of the readers of sessions (tools/read/collect) fails in turn.
 * Whatever fails, nothing is left behind, and the answer is an error or the same as without a failure, in all that
 * matters.  This process is its own profiled process.
 */
#include <base/clock.h>
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <gpuprof/wire.h>
#include <lib/build.h>
#include <lib/lackcalls.h>
#include <lib/lackmemory.h>
#include <lib/sitesession.h>
#include <pthread.h>
#include <pwd.h>
#include <read/collect/collect.h>
#include <read/collect/mailbox.h>
#include <read/collect/peer.h>
#include <read/collect/sites.h>
#include <read/collect/watch.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* ---- the profiled process ---------------------------------------------------------------------------------------- */

static struct gp_test_session session;
static struct gp_test_sites sites;
static int extents_fd, x_result, x_answers;
static char problem[GP_PROBLEM_BYTES], why[200];

/* Answers every request at once. */
static void *drain(void *unused)
{
    for (;;) {
        uint32_t bell = __atomic_load_n(&session.mailbox->doorbell, __ATOMIC_ACQUIRE);
        for (unsigned i = 0; i < GP_WIRE_SLOTS; i++) {
            struct gp_wire_slot *slot = &session.mailbox->slots[i];
            uint32_t was = GP_SLOT_REQUESTED;
            if (!__atomic_compare_exchange_n(&slot->state, &was, GP_SLOT_SERVING, false, __ATOMIC_ACQUIRE,
                                             __ATOMIC_RELAXED))
                continue;
            slot->result = __atomic_load_n(&x_result, __ATOMIC_RELAXED);
            slot->fd = extents_fd;
            __atomic_fetch_add(&x_answers, 1, __ATOMIC_RELAXED);
            __atomic_store_n(&slot->state, GP_SLOT_DONE, __ATOMIC_RELEASE);
            syscall(SYS_futex, &slot->state, 1 /* wake */, 1000, NULL, NULL, 0);
        }
        struct timespec nap = {0, 20000000};
        syscall(SYS_futex, &session.mailbox->doorbell, 0 /* wait */, bell, &nap, NULL, 0);
    }
    return unused;
}

static void make_extents(void)
{
    struct gp_wire_extents head = {
        .magic = GP_WIRE_MAGIC, .piece_bytes = sizeof(struct gp_wire_extent), .count = 1, .begin_ns = 1, .end_ns = 2};
    struct gp_wire_extent one = {
        .what = GP_EXTENT_WHOLE, .kind = GP_KIND_LINEAR, .address = 4096, .bytes = 512, .requested_bytes = 500};
    extents_fd = memfd_create(GP_WIRE_EXTENTS_NAME, MFD_ALLOW_SEALING | MFD_CLOEXEC);
    cr_assert_eq(write(extents_fd, &head, sizeof(head)), sizeof(head));
    cr_assert_eq(write(extents_fd, &one, sizeof(one)), sizeof(one));
    cr_assert_eq(fcntl(extents_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
}

static void begin(void)
{
    pthread_t thread;
    cr_assert_eq(gp_test_session_make(&session, 64, false), 0);
    cr_assert_eq(gp_test_sites_make(&session, &sites, GP_SITES_NATIVE), 0);
    gp_test_session_device(&session, 0, "Simulated GPU 0", 1 << 20);
    gp_test_session_device(&session, 3, "Simulated GPU 3", 1 << 20);
    gp_test_session_publish(&session);
    gp_test_sites_python(&sites, "f", "a.py", 3);
    gp_test_sites_native(&sites, (uint64_t)(uintptr_t)begin + 1);
    gp_test_sites_end(&sites, 0, GP_KIND_LINEAR, 100, 200);
    cr_assert_eq(fcntl(session.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    make_extents();
    session.mailbox->drain_tid = (uint32_t)getpid();
    cr_assert_eq(pthread_create(&thread, NULL, drain, NULL), 0);
}

/* The C library's keeps memory from call to call. */
int getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t bytes, struct passwd **found)
{
    (void)uid, (void)entry, (void)buffer, (void)bytes;
    *found = NULL;
    return 0;
}

/* ---- what is tried ----------------------------------------------------------------------------------------------- */

#define LEFT_OUT 1 /* as a process that has ended, or is not profiled: no error says so */
#define WRONG    2 /* part of an answer is missing */

/* 0: everything is there; -errno; or one of the above. */
static int try_collect(void)
{
    const pid_t pid = getpid();
    const struct gp_collect_options options = {.pids = &pid, .pid_count = 1, .exact = true};
    struct gp_system *system = NULL;
    int rc = gp_collect(&options, &system);
    if (rc) {
        cr_expect_null(system);
        return rc;
    }
    const struct gp_process *p = system->processes;
    if (system->process_count != 1)
        rc = system->process_count ? WRONG : LEFT_OUT;
    else if (p->state == GP_PROCESS_DAMAGED)
        rc = p->problem[0] && p->device_count == 0 ? -EPROTO : WRONG;
    else if (p->state == GP_PROCESS_STALE)
        rc = -ETIMEDOUT; /* the mailbox could not be opened: the numbers are the last ones */
    else
        rc = p->state == GP_PROCESS_LIVE && p->device_count == 2 && system->gpu_count == 2 && p->pid == pid &&
                     p->start_time
                 ? 0
                 : WRONG;
    gp_system_free(system);
    return rc;
}

static int try_sites(void)
{
    struct gp_sites *s;
    int rc = gp_sites_open(&s, getpid(), problem);
    if (rc) {
        cr_expect_null(s);
        return rc;
    }
    rc = gp_sites_update(s, problem);
    if (!rc)
        rc = s->site_count == 2 && s->frame_count == 2 && s->sites[1].live_bytes == 100 &&
                     strcmp(s->strings + s->frames[0].function, "f") == 0 &&
                     (s->frames[1].module != GP_REC_NONE || call_failed || memory_failed)
                 ? 0
                 : WRONG;
    gp_sites_close(s);
    return rc;
}

static int try_modes(void)
{
    uint32_t modes = 99;
    int rc = gp_sites_modes(getpid(), &modes, problem);
    return rc ? rc : modes == GP_SITES_NATIVE ? 0 : WRONG;
}

static int try_extents(void)
{
    struct gp_extents extents;
    int rc = gp_extents_take(getpid(), &extents, 0, why, sizeof(why));
    cr_expect(rc <= 0 && (rc == 0) == (extents.pieces != NULL));
    if (rc == 0)
        rc = extents.count == 1 && extents.pieces[0].bytes == 512 && extents.begin_ns == 1 && extents.end_ns == 2
                 ? 0
                 : WRONG;
    gp_extents_free(&extents);
    return rc;
}

static int try_request(void)
{
    static struct gp_wire_slot slot;
    slot = (struct gp_wire_slot){.command = GP_COMMAND_SNAPSHOT, .device = -1};
    return gp_request(getpid(), &slot, 0);
}

/* What cannot be held now is found the next time. */
static int try_watch(void)
{
    struct gp_watch watch = {0};
    int found = gp_watch_look(&watch, getpid(), true), rc = found == 1 ? 0 : found == 0 ? LEFT_OUT : WRONG;
    if (found == 1) {
        rc = gp_watch_read(watch.watched[0]);
        const struct gp_process *p = &watch.watched[0]->process;
        if (!rc)
            rc = p->state == GP_PROCESS_DAMAGED ? (p->device_count ? WRONG : -EPROTO)
                 : p->device_count == 2         ? 0
                                                : WRONG;
    }
    gp_watch_free(&watch);
    cr_expect_eq(watch.count, 0);
    return rc;
}

static int try_listen(void)
{
    struct gp_peer peer;
    struct gp_listen listen;
    int rc = gp_peer_open_pid(&peer, getpid(), problem);
    if (rc) {
        cr_expect_eq(peer.fd, -1);
        return rc;
    }
    gp_listen(&listen, &peer);
    rc = listen.heard ? 0 : WRONG;
    gp_peer_close(&peer);
    return rc;
}

static int try_explain(void)
{
    enum gp_pid_problem result = gp_collect_explain_pid(getpid(), why, sizeof(why));
    if (result == GP_PID_OK)
        return why[0] ? WRONG : 0;
    return why[0] ? -EAGAIN : WRONG;
}

static char *folder;

static int try_reserve(void)
{
    struct gp_reserve one, other;
    char path[300];
    /* A record that could not be ended counts as long as this process lives. */
    snprintf(path, sizeof(path), "%s/wait-%u", folder, (unsigned)geteuid());
    unlink(path);
    snprintf(path, sizeof(path), "%s/wait", folder);
    unlink(path);
    int rc = gp_reserve_open(&one, folder);
    if (rc) {
        cr_expect_eq(one.fd, -1);
        return rc;
    }
    rc = gp_reserve_open(&other, folder);
    if (!rc && !gp_reserve_lock(&one))
        rc = -EAGAIN;
    if (!rc)
        rc = gp_reserve_take(&one, "GPU-0", 100, 1ull << 50);
    cr_expect_eq(one.slot >= 0, rc == 0);
    if (!rc) {
        gp_reserve_unlock(&one);
        int64_t sum = gp_reserve_outstanding(&other, "GPU-0");
        rc = sum == 100 ? 0 : sum == 0 ? -EAGAIN : WRONG;
        if (!gp_reserve_update(&one, getpid(), 30))
            rc = -EAGAIN;
        sum = gp_reserve_outstanding(&other, "GPU-0");
        rc = rc ? rc : sum == 70 ? 0 : sum == 0 || sum == 100 ? -EAGAIN : WRONG;
        gp_reserve_end(&one);
        cr_expect_eq(one.slot, -1);
    }
    gp_reserve_close(&other);
    gp_reserve_close(&one);
    return rc;
}

static const struct {
    const char *name;
    int (*act)(void);
    unsigned calls; /* at least so many can fail */
    bool once;      /* with one error, as it makes hundreds of calls */
} rows[] = {
    {"collect", try_collect, 20, false}, {"sites", try_sites, 20, true},      {"modes", try_modes, 12, false},
    {"extents", try_extents, 20, false}, {"request", try_request, 12, false}, {"watch", try_watch, 20, false},
    {"listen", try_listen, 12, false},   {"explain", try_explain, 10, false}, {"reserve", try_reserve, 15, false},
};

TestSuite(collect_faults, .init = begin, .timeout = 120);

/* ---- the tests --------------------------------------------------------------------------------------------------- */

static void each_call(size_t row, int error)
{
    unsigned before = call_held(), number = 0;
    for (call_failed = ""; call_failed;) {
        long memory = memory_held();
        call_failed = NULL;
        call_error = error;
        call_fails = ++number;
        int rc = rows[row].act();
        call_fails = 0;
        cr_expect_eq(call_held(), before, "%s, errno %d, call %u (%s): something is left open", rows[row].name, error,
                     number, call_failed ? call_failed : "none");
        cr_expect(!MEMORY_IS_COUNTED || memory_held() == memory, "%s, errno %d, call %u (%s): memory is left",
                  rows[row].name, error, number, call_failed ? call_failed : "none");
        /* A lack of descriptors is one of this program, not a property of the process. */
        bool lack = call_failed && error == EMFILE &&
                    (strncmp(call_failed, "open", 4) == 0 || strcmp(call_failed, "memfd_create") == 0);
        bool silent = rc == LEFT_OUT && call_failed && (!lack || rows[row].act == try_watch);
        bool again =
            call_failed && error == EINTR && (strcmp(call_failed, "read") == 0 || strcmp(call_failed, "pread") == 0);
        cr_expect(!again || rc == 0 || rows[row].act == try_reserve, "%s, call %u (%s): %d instead of another try",
                  rows[row].name, number, call_failed, rc);
        bool named = rc == -EMFILE || rc == 0 || rows[row].act == try_watch || rows[row].act == try_explain ||
                     rows[row].act == try_reserve;
        cr_expect(!lack || named, "%s, call %u (%s): %d instead of EMFILE", rows[row].name, number, call_failed, rc);
        cr_expect(rc <= 0 || silent, "%s, errno %d, call %u (%s): %d", rows[row].name, error, number,
                  call_failed ? call_failed : "none", rc);
        cr_expect(call_failed || rc == 0, "%s: %d without a failure", rows[row].name, rc);
    }
    cr_expect_geq(number - 1, rows[row].calls, "%s: %u calls", rows[row].name, number - 1);
}

Test(collect_faults, each_system_call)
{
    static const int errors[] = {EIO, EMFILE, EINTR, 0};
    folder = build_folder();
    for (size_t row = 0; row < GP_COUNT(rows); row++) {
        cr_assert_eq(rows[row].act(), 0, "%s", rows[row].name);
        for (size_t e = 0; e < (rows[row].once ? 1 : GP_COUNT(errors)); e++)
            if (errors[e] != EINTR || row == 0) /* the same function reads for all of them */
                each_call(row, errors[e]);
    }
    build_remove(folder);
}

static void *free_soon(void *unused)
{
    usleep(30000);
    for (unsigned i = 0; i < GP_WIRE_SLOTS; i++)
        __atomic_store_n(&session.mailbox->slots[i].state, GP_SLOT_FREE, __ATOMIC_RELEASE);
    return unused;
}

/* Other viewers have all slots, for a moment: the numbers are exact nevertheless. */
Test(collect_faults, slots_that_are_taken)
{
    pthread_t thread;
    for (unsigned i = 0; i < GP_WIRE_SLOTS; i++)
        session.mailbox->slots[i].state = GP_SLOT_CLAIMED;
    cr_assert_eq(pthread_create(&thread, NULL, free_soon, NULL), 0);
    cr_expect_eq(try_collect(), 0);
    pthread_join(thread, NULL);
}

/* A session for each process is held while they are read. */
Test(collect_faults, the_limit_of_descriptors_is_raised)
{
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlim_t most = limit.rlim_max;
    limit.rlim_cur = most - 1 < 100 ? most - 1 : 100;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_expect_eq(try_collect(), 0);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_expect(limit.rlim_cur == most && limit.rlim_max == most);
}

/* A process that was too busy is asked again, half a second later at the earliest, until it has heard. */
Test(collect_faults, a_listener_asks_until_it_is_heard)
{
    struct gp_peer peer;
    struct gp_listen listen;
    cr_assert_eq(gp_peer_open_pid(&peer, getpid(), problem), 0);
    x_result = -EOPNOTSUPP; /* an older library, which writes all events */
    gp_listen(&listen, &peer);
    cr_expect(listen.heard && x_answers == 1);
    x_result = -ETIMEDOUT;
    gp_listen(&listen, &peer);
    uint64_t asked = gp_clock_ns();
    cr_expect(!listen.heard && x_answers == 2 && listen.again_ns <= asked + 500000000 && listen.again_ns > asked);
    gp_listen_again(&listen);
    cr_expect(gp_clock_ns() >= listen.again_ns || x_answers == 2, "too soon");
    for (int round = 0; round < 2; round++) {
        int before = x_answers;
        listen.again_ns = gp_clock_ns();
        __atomic_store_n(&x_result, round ? 0 : -ETIMEDOUT, __ATOMIC_RELAXED);
        gp_listen_again(&listen);
        cr_expect_eq(x_answers, before + 1);
        cr_expect_eq(listen.heard, round == 1);
    }
    int before = x_answers;
    listen.again_ns = 0;
    gp_listen_again(&listen);
    cr_expect_eq(x_answers, before, "it has heard");
    gp_listen_again(&(struct gp_listen){.session = NULL});
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = GP_LISTEN_BYTE, .l_len = 1};
    cr_expect(fcntl(session.fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_RDLCK,
              "the process can see that it is listened to");
    gp_peer_close(&peer);
    lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = GP_LISTEN_BYTE, .l_len = 1};
    cr_expect(fcntl(session.fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK);
}

/* Number 0 is a descriptor as any other. */
Test(collect_faults, without_standard_input)
{
    int kept = dup(0);
    folder = build_folder();
    close(0);
    for (size_t row = 0; row < GP_COUNT(rows); row++) {
        cr_expect_eq(rows[row].act(), 0, "%s", rows[row].name);
        cr_expect_eq(fcntl(0, F_GETFD), -1, "%s", rows[row].name);
        for (unsigned number = 1; number < 40; number++) { /* nor after a failure */
            call_error = EIO;
            call_fails = number;
            rows[row].act();
            call_fails = 0;
            cr_expect_eq(fcntl(0, F_GETFD), -1, "%s, call %u", rows[row].name, number);
        }
    }
    if (kept >= 0)
        dup2(kept, 0);
    build_remove(folder);
}

static int act_memory(void *arg)
{
    int rc = rows[*(const size_t *)arg].act();
    return rc == -EAGAIN || rc == -ETIMEDOUT || rc == LEFT_OUT ? -ENOMEM : rc;
}

Test(collect_faults, each_allocation)
{
    if (!MEMORY_IS_COUNTED)
        cr_skip("a sanitizer's allocator");
    folder = build_folder();
    for (size_t row = 0; row < GP_COUNT(rows); row++) {
        cr_assert_eq(rows[row].act(), 0);
        unsigned before = call_held();
        struct memory_tried tried = memory_each(act_memory, &row);
        cr_expect_eq(tried.wrong, 0, "%s: %u of %u", rows[row].name, tried.wrong, tried.calls);
        cr_expect_eq(tried.kept, 0, "%s: %u of %u", rows[row].name, tried.kept, tried.calls);
        cr_expect_eq(call_held(), before, "%s", rows[row].name);
    }
    build_remove(folder);
}
