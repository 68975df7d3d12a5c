/* SPDX-License-Identifier: MIT
 *
 * query.c: see query.h.  The thread owns a guest while it is ASKED; all other fields are under the mutex, which is
 * never held across a system call about a process.
 *
 * Each process may be hostile.  It costs at most three searches through its descriptors (gp_peer_open is bounded) and
 * three seconds in which a page or two of its mailbox are mapped.  Of the answer only the state is looked at: what
 * counts are the batches that it fired, and pages that are not touched cannot be charged to the agent.
 */
#include <agent/query.h>
#include <base/clock.h>
#include <base/compiler.h>
#include <collect/mailbox.h>
#include <collect/peer.h>
#include <collect/procfs.h>
#include <common/agentlog.h>
#include <gpuprof/maps.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define GP_SECOND_NS   1000000000ull
#define GP_QUERY_TRIES 3
/* A drain thread answers in microseconds; the rest is for a machine that is short of CPUs. */
#define GP_QUERY_ANSWER_NS GP_SECOND_NS
/* When a silent one may be asked again, if somebody wants it: what it costs is then below a thousandth of a CPU. */
#define GP_QUERY_SILENT_NS (60 * GP_SECOND_NS)
/* Asked at once.  So many that never answer hold up the others for a second; they cost some 8 KiB of mappings each. */
#define GP_QUERY_FLIGHTS 512
/* How often answers are looked for: no futex waits for many.  Young requests are answered soon, old ones hardly. */
#define GP_QUERY_NAP_LEAST_NS 1000000ull
#define GP_QUERY_NAP_MOST_NS  20000000ull
/* Of those who were asked the dead are found when three quarters of the room are in use, at most so often. */
#define GP_QUERY_SWEEP_NS (10 * GP_SECOND_NS)
#define GP_QUERY_BUCKETS  16384u
/* Room for descriptors, as /proc says, above which a search may take long (5 us each).  A profiled process has room for
 * 1024 at least, as its session's number is near 800. */
#define GP_QUERY_LARGE 4096u

static const uint64_t query_pause_ns[GP_QUERY_TRIES - 1] = {GP_SECOND_NS, 4 * GP_SECOND_NS};

enum gp_guest_state { GP_GUEST_READY, GP_GUEST_ASKED, GP_GUEST_PAUSED, GP_GUEST_ANSWERED, GP_GUEST_SILENT };

struct gp_guest {
    pid_t pid;
    uint64_t start_time; /* with pid, the identity; 0 not looked at yet */
    uint64_t due_ns;     /* end of the pause */
    enum gp_guest_state state;
    enum gp_guest_state rested; /* is_check: what it goes back to */
    unsigned tries;
    bool is_check;             /* was asked: is it still the same process? */
    bool is_late;              /* has so many descriptors that others come first */
    LIST_ENTRY(gp_guest) same; /* bucket */
    TAILQ_ENTRY(gp_guest) near;
};
TAILQ_HEAD(gp_guests, gp_guest);

struct gp_flight {
    struct gp_guest *guest;
    struct gp_mailbox box;
    uint64_t deadline;
};

enum gp_asked { GP_ASKED_POSTED, GP_ASKED_FAILED, GP_ASKED_DEAD, GP_ASKED_SAME, GP_ASKED_LATE };

struct gp_querier {
    pthread_mutex_t mutex;
    pthread_cond_t news;
    pthread_t thread;
    bool is_ending, want_sweep;
    uint64_t swept_ns;
    struct gp_querier_count count;
    struct gp_guest *guests; /* those from `used` on were never touched */
    uint32_t used, living;   /* living: not in `unused` */
    LIST_HEAD(gp_guest_bucket, gp_guest) buckets[GP_QUERY_BUCKETS];
    struct gp_guests unused, ready, late, resting;
    struct gp_guests paused[GP_QUERY_TRIES - 1]; /* one a length of pause: each in the order of due_ns */
    /* The thread's alone. */
    struct gp_flight flights[GP_QUERY_FLIGHTS];
    unsigned flying;
    uint64_t posted_ns; /* the last one */
    struct gp_wire_slot answer;
};

/* ---- guests, under the mutex ------------------------------------------------------------------------------------- */

static struct gp_guest *guest_find(struct gp_querier *querier, pid_t pid)
{
    struct gp_guest *guest;
    LIST_FOREACH(guest, &querier->buckets[(uint32_t)pid % GP_QUERY_BUCKETS], same)
    {
        if (guest->pid == pid)
            return guest;
    }
    return NULL;
}

static struct gp_guest *guest_new(struct gp_querier *querier, pid_t pid)
{
    struct gp_guest *guest = TAILQ_FIRST(&querier->unused);
    if (guest)
        TAILQ_REMOVE(&querier->unused, guest, near);
    else if (querier->used < GP_MAPS_PROCESSES)
        guest = &querier->guests[querier->used++];
    else
        return NULL;
    *guest = (struct gp_guest){.pid = pid};
    LIST_INSERT_HEAD(&querier->buckets[(uint32_t)pid % GP_QUERY_BUCKETS], guest, same);
    querier->living++;
    return guest;
}

/* A loose one is to be asked, or (is_check) only looked at. */
static void guest_ready(struct gp_querier *querier, struct gp_guest *guest, bool is_check)
{
    guest->is_check = is_check;
    guest->rested = guest->state;
    guest->state = GP_GUEST_READY;
    if (!is_check) {
        guest->tries = 0;
        querier->count.waiting++;
    }
    TAILQ_INSERT_TAIL(&querier->ready, guest, near);
}

static void guest_rest(struct gp_querier *querier, struct gp_guest *guest, enum gp_guest_state state)
{
    querier->count.waiting -= !guest->is_check;
    guest->is_check = false;
    guest->state = state;
    TAILQ_INSERT_TAIL(&querier->resting, guest, near);
}

static void guest_dead(struct gp_querier *querier, struct gp_guest *guest)
{
    querier->count.waiting -= !guest->is_check;
    querier->living--;
    LIST_REMOVE(guest, same);
    TAILQ_INSERT_HEAD(&querier->unused, guest, near);
}

static void guest_answered(struct gp_querier *querier, struct gp_guest *guest)
{
    querier->count.answered++;
    guest_rest(querier, guest, GP_GUEST_ANSWERED);
}

static void guest_failed(struct gp_querier *querier, struct gp_guest *guest)
{
    uint64_t now = gp_clock_ns();
    if (++guest->tries == GP_QUERY_TRIES) {
        querier->count.silent++;
        guest->due_ns = now + GP_QUERY_SILENT_NS;
        guest_rest(querier, guest, GP_GUEST_SILENT);
        return;
    }
    guest->due_ns = now + query_pause_ns[guest->tries - 1];
    guest->state = GP_GUEST_PAUSED;
    TAILQ_INSERT_TAIL(&querier->paused[guest->tries - 1], guest, near);
}

void gp_querier_add(struct gp_querier *querier, pid_t pid)
{
    if (pid <= 0)
        return;
    pthread_mutex_lock(&querier->mutex);
    struct gp_guest *guest = guest_find(querier, pid);
    bool is_known = guest != NULL, is_news = true;
    if (!is_known)
        guest = guest_new(querier, pid);
    querier->want_sweep |= querier->living >= GP_MAPS_PROCESSES / 4 * 3;
    if (!guest) {
        querier->count.refused++;
    } else if (!is_known) {
        guest_ready(querier, guest, false);
    } else if (guest->state == GP_GUEST_ANSWERED || guest->state == GP_GUEST_SILENT) {
        bool again = guest->state == GP_GUEST_SILENT && gp_clock_ns() >= guest->due_ns;
        TAILQ_REMOVE(&querier->resting, guest, near);
        guest_ready(querier, guest, !again);
    } else
        is_news = false;
    if (is_news)
        pthread_cond_signal(&querier->news);
    pthread_mutex_unlock(&querier->mutex);
}

struct gp_querier_count gp_querier_count(struct gp_querier *querier)
{
    pthread_mutex_lock(&querier->mutex);
    struct gp_querier_count count = querier->count;
    pthread_mutex_unlock(&querier->mutex);
    return count;
}

/* ---- asking, without the mutex ----------------------------------------------------------------------------------- */

/* Whether anybody answers there, read and not mapped: a hole of the file that is touched through a mapping becomes a
 * page that we pay for. */
static bool query_has_drain(const struct gp_peer *session)
{
    struct {
        uint32_t doorbell, drain_tid;
    } head;
    return gp_peer_fetch(session, &head, sizeof(head), session->mailbox_offset) == 0 && head.drain_tid != 0;
}

static int query_post(struct gp_mailbox *box, const struct gp_peer *session)
{
    static const struct gp_wire_slot snapshot = {.command = GP_COMMAND_SNAPSHOT, .device = -1};
    int error = query_has_drain(session) ? gp_mailbox_open(box, session) : -ETIMEDOUT;
    if (error)
        return error;
    error = gp_mailbox_post(box, &snapshot);
    if (error)
        gp_mailbox_close(box);
    return error;
}

static bool query_is_large(const struct gp_proc *proc)
{
    char text[4096];
    unsigned long room;
    const char *at = gp_proc_read(proc->dir, "status", text, sizeof(text)) > 0 ? strstr(text, "\nFDSize:") : NULL;
    return at && sscanf(at, "\nFDSize: %lu", &room) == 1 && room > GP_QUERY_LARGE;
}

static enum gp_asked query_ask(struct gp_guest *guest, struct gp_mailbox *box)
{
    struct gp_proc proc;
    struct gp_peer session;
    char problem[GP_PROBLEM_BYTES];
    int error = gp_proc_open(&proc, guest->pid);
    if (error)
        return error == -ESRCH ? GP_ASKED_DEAD : GP_ASKED_FAILED;
    bool is_same = guest->start_time == proc.start_time;
    guest->start_time = proc.start_time;
    if (guest->is_check && is_same) {
        gp_proc_close(&proc);
        return GP_ASKED_SAME;
    }
    if (!guest->is_late && query_is_large(&proc)) {
        guest->is_late = true;
        gp_proc_close(&proc);
        return GP_ASKED_LATE;
    }
    error = gp_peer_open(&session, &proc, problem);
    gp_proc_close(&proc);
    if (!error)
        error = query_post(box, &session);
    gp_peer_close(&session); /* the mapping stays */
    return error == -ESRCH ? GP_ASKED_DEAD : error ? GP_ASKED_FAILED : GP_ASKED_POSTED;
}

enum gp_landed { GP_LANDED_NOT, GP_LANDED_ANSWERED, GP_LANDED_FAILED };

static enum gp_landed flight_look(struct gp_querier *querier, struct gp_flight *flight, uint64_t now)
{
    struct gp_wire_slot *slot = &flight->box.shared->slots[flight->box.slot];
    uint32_t state =
        __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE); /* pairs with drain.c's release of DONE [mail.R] */
    bool is_late = now >= flight->deadline, is_last = flight->guest->tries + 1 == GP_QUERY_TRIES;
    enum gp_landed landed = GP_LANDED_FAILED;
    if (state == GP_SLOT_DONE)
        landed = GP_LANDED_ANSWERED;
    else if ((state == GP_SLOT_REQUESTED || state == GP_SLOT_SERVING) && !is_late)
        return GP_LANDED_NOT;
    else if (!is_last && gp_mailbox_wait(&flight->box, &querier->answer, 0) == 0) /* takes the request back */
        landed = GP_LANDED_ANSWERED;
    gp_mailbox_close(&flight->box); /* frees a slot that is DONE, leaves one that is not */
    return landed;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void query_settle(struct gp_querier *querier, struct gp_guest *guest, enum gp_asked asked)
{
    switch (asked) {
    case GP_ASKED_POSTED:
        querier->flights[querier->flying].guest = guest;
        querier->posted_ns = gp_clock_ns();
        querier->flights[querier->flying++].deadline = querier->posted_ns + GP_QUERY_ANSWER_NS;
        break;
    case GP_ASKED_FAILED:
        guest_failed(querier, guest);
        break;
    case GP_ASKED_DEAD:
        guest_dead(querier, guest);
        break;
    case GP_ASKED_SAME:
        guest_rest(querier, guest, guest->rested);
        break;
    case GP_ASKED_LATE:
        guest->state = GP_GUEST_READY;
        TAILQ_INSERT_TAIL(&querier->late, guest, near);
        break;
    }
}

/* The next one to be asked, taken out of its list; NULL: there is none. */
static struct gp_guest *guest_next(struct gp_querier *querier)
{
    struct gp_guests *from = TAILQ_EMPTY(&querier->ready) ? &querier->late : &querier->ready;
    struct gp_guest *guest = TAILQ_FIRST(from);
    if (guest)
        TAILQ_REMOVE(from, guest, near);
    return guest;
}

/* Until nobody is ready, or for as long as answers may wait. */
static void query_some(struct gp_querier *querier)
{
    uint64_t until = gp_clock_ns() + GP_QUERY_NAP_LEAST_NS;
    struct gp_guest *guest;
    while (querier->flying < GP_QUERY_FLIGHTS && (guest = guest_next(querier))) {
        guest->state = GP_GUEST_ASKED;
        uint64_t start_time = guest->start_time;
        pthread_mutex_unlock(&querier->mutex);
        enum gp_asked asked = query_ask(guest, &querier->flights[querier->flying].box);
        pthread_mutex_lock(&querier->mutex);
        if (start_time && start_time != guest->start_time &&
            asked != GP_ASKED_DEAD) { /* another process's number now */
            querier->count.waiting += guest->is_check;
            guest->is_check = false;
            guest->tries = 0;
        }
        query_settle(querier, guest, asked);
        if (querier->is_ending || gp_clock_ns() >= until)
            return;
    }
}

static void query_land(struct gp_querier *querier)
{
    uint64_t now = gp_clock_ns();
    for (unsigned i = 0; i < querier->flying;) {
        struct gp_flight *flight = &querier->flights[i];
        pthread_mutex_unlock(&querier->mutex);
        enum gp_landed landed = flight_look(querier, flight, now);
        pthread_mutex_lock(&querier->mutex);
        if (landed == GP_LANDED_NOT) {
            i++;
            continue;
        }
        if (landed == GP_LANDED_ANSWERED)
            guest_answered(querier, flight->guest);
        else
            guest_failed(querier, flight->guest);
        *flight = querier->flights[--querier->flying];
    }
}

static void query_sweep(struct gp_querier *querier, uint64_t now)
{
    querier->want_sweep = false;
    if (now - querier->swept_ns < GP_QUERY_SWEEP_NS)
        return;
    querier->swept_ns = now;
    struct gp_guest *guest;
    while ((guest = TAILQ_FIRST(&querier->resting))) {
        TAILQ_REMOVE(&querier->resting, guest, near);
        guest_ready(querier, guest, true);
    }
}

/* Pauses that are over.  When the next one is; UINT64_MAX: there is none. */
static uint64_t query_wake(struct gp_querier *querier, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; i < GP_COUNT(querier->paused); i++) {
        struct gp_guest *guest;
        while ((guest = TAILQ_FIRST(&querier->paused[i])) && guest->due_ns <= now) {
            TAILQ_REMOVE(&querier->paused[i], guest, near);
            guest->state = GP_GUEST_READY;
            TAILQ_INSERT_TAIL(guest->is_late ? &querier->late : &querier->ready, guest, near);
        }
        if (guest && guest->due_ns < next)
            next = guest->due_ns;
    }
    return next;
}

static void query_wait(struct gp_querier *querier)
{
    uint64_t now = gp_clock_ns(), next = query_wake(querier, now);
    bool is_idle = TAILQ_EMPTY(&querier->ready) && TAILQ_EMPTY(&querier->late);
    if (!is_idle && querier->flying < GP_QUERY_FLIGHTS)
        return;
    if (querier->flying) {
        uint64_t nap = (now - querier->posted_ns) / 8;
        nap = nap < GP_QUERY_NAP_LEAST_NS ? GP_QUERY_NAP_LEAST_NS : nap;
        nap = nap > GP_QUERY_NAP_MOST_NS ? GP_QUERY_NAP_MOST_NS : nap;
        next = now + nap < next ? now + nap : next;
    }
    struct timespec at = {(time_t)(next / GP_SECOND_NS), (long)(next % GP_SECOND_NS)};
    if (next == UINT64_MAX)
        pthread_cond_wait(&querier->news, &querier->mutex);
    else
        pthread_cond_timedwait(&querier->news, &querier->mutex, &at);
}

static void *query_main(void *arg)
{
    struct gp_querier *querier = arg;
    pthread_setname_np(pthread_self(), "gpuprof-greet");
    pthread_mutex_lock(&querier->mutex);
    while (!querier->is_ending) {
        if (querier->want_sweep)
            query_sweep(querier, gp_clock_ns());
        query_some(querier);
        query_land(querier);
        if (!querier->is_ending)
            query_wait(querier);
    }
    while (querier->flying) { /* our slots are free for others at once, not when the drain threads find us dead */
        struct gp_flight *flight = &querier->flights[--querier->flying];
        gp_mailbox_wait(&flight->box, &querier->answer, 0);
        gp_mailbox_close(&flight->box);
    }
    pthread_mutex_unlock(&querier->mutex);
    return NULL;
}

/* ---- open, close ------------------------------------------------------------------------------------------------- */

static int querier_start(struct gp_querier *querier)
{
    pthread_condattr_t monotonic;
    sigset_t all, before;
    pthread_mutex_init(&querier->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&querier->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the loop's */
    int error = -pthread_create(&querier->thread, NULL, query_main, querier);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int gp_querier_open(struct gp_querier **out)
{
    struct gp_querier *querier = calloc(1, sizeof(*querier));
    *out = NULL;
    if (!querier)
        return -ENOMEM;
    TAILQ_INIT(&querier->unused);
    TAILQ_INIT(&querier->ready);
    TAILQ_INIT(&querier->late);
    TAILQ_INIT(&querier->resting);
    for (size_t i = 0; i < GP_COUNT(querier->paused); i++)
        TAILQ_INIT(&querier->paused[i]);
    querier->guests = calloc(GP_MAPS_PROCESSES, sizeof(*querier->guests));
    int error = querier->guests ? querier_start(querier) : -ENOMEM;
    if (error) {
        free(querier->guests);
        free(querier);
        return error;
    }
    *out = querier;
    return 0;
}

void gp_querier_close(struct gp_querier *querier)
{
    if (!querier)
        return;
    pthread_mutex_lock(&querier->mutex);
    querier->is_ending = true;
    pthread_cond_signal(&querier->news);
    pthread_mutex_unlock(&querier->mutex);
    uint64_t until = gp_clock_ns() + 2 * GP_SECOND_NS;
    struct timespec at = {(time_t)(until / GP_SECOND_NS), (long)(until % GP_SECOND_NS)};
    if (pthread_clockjoin_np(querier->thread, NULL, CLOCK_MONOTONIC, &at) != 0) {
        gp_agent_log(GP_AGENTLOG_WARNING, "a process's files keep a thread waiting: it is left behind");
        return; /* with its memory */
    }
    pthread_cond_destroy(&querier->news);
    pthread_mutex_destroy(&querier->mutex);
    free(querier->guests);
    free(querier);
}
