/* SPDX-License-Identifier: MIT
 *
 * query.c: asks running processes for their numbers (query.h). The thread owns a target while it
 * is ASKED; the mutex protects all other fields and is never held across a system call about a
 * process.
 *
 * Each process may be hostile. It costs at most three searches of its descriptors (gp_peer_open is
 * bounded) and three seconds in which one or two pages of its mailbox are mapped. Of the answer
 * only the state is read, since the totals come from the batches that the process fires. Pages that
 * the agent does not touch are not charged to it.
 */
#include <agent/query.h>
#include <base/clock.h>
#include <base/compiler.h>
#include <gpuprof/maps.h>
#include <gpuprof/wire.h>
#include <read/collect/mailbox.h>
#include <read/collect/peer.h>
#include <read/collect/procfs.h>
#include <read/common/agentlog.h>

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
/* When a process that did not answer may be asked again. This keeps its cost below a thousandth of
 * a CPU. */
#define GP_QUERY_SILENT_NS (60 * GP_SECOND_NS)
/* Requests open at once. If all of these never answer, the others wait for a second; each costs
 * some 8 KiB of mappings. */
#define GP_QUERY_REQUESTS 512
/* How often answers are polled, since no futex waits for many words. Recent requests are polled
 * often, old ones rarely. */
#define GP_QUERY_POLL_LEAST_NS 1000000ull
#define GP_QUERY_POLL_MOST_NS  20000000ull
/* Ended processes are searched among those asked when three quarters of the room are in use, at
 * most this often. */
#define GP_QUERY_SWEEP_NS (10 * GP_SECOND_NS)
#define GP_QUERY_BUCKETS  16384u
/* A process with a larger descriptor table (FDSize in /proc) is asked after the others, as the
 * search takes 5 us per descriptor. A profiled process has room for 1024 at least, since its
 * session's descriptor is near 800. */
#define GP_QUERY_LARGE 4096u

static const uint64_t query_pause_ns[GP_QUERY_TRIES - 1] = {GP_SECOND_NS, 4 * GP_SECOND_NS};

enum gp_query_state {
    GP_QUERY_STATE_READY,
    GP_QUERY_STATE_ASKED,
    GP_QUERY_STATE_PAUSED,
    GP_QUERY_STATE_ANSWERED,
    GP_QUERY_STATE_SILENT
};

struct gp_query_target {
    pid_t pid;
    uint64_t start_time; /* with pid, the identity; 0: not read yet */
    uint64_t due_ns;     /* end of the pause */
    enum gp_query_state state;
    enum gp_query_state before_check; /* with is_check: the state to return to */
    unsigned tries;
    bool is_check;    /* was asked before: only check that it is still the same process */
    bool is_deferred; /* has so many descriptors that others come first */
    LIST_ENTRY(gp_query_target) in_bucket;
    TAILQ_ENTRY(gp_query_target) link;
};
TAILQ_HEAD(gp_query_targets, gp_query_target);

struct gp_query_request {
    struct gp_query_target *target;
    struct gp_mailbox box;
    uint64_t deadline;
};

enum gp_asked { GP_ASKED_POSTED, GP_ASKED_FAILED, GP_ASKED_DEAD, GP_ASKED_SAME, GP_ASKED_DEFERRED };

struct gp_querier {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t thread;
    bool is_ending, want_sweep;
    uint64_t swept_ns;
    struct gp_query_count count;
    struct gp_query_target *targets; /* entries from `used` on were never written */
    uint32_t used, living;           /* living: entries not in `unused` */
    LIST_HEAD(gp_query_bucket, gp_query_target) buckets[GP_QUERY_BUCKETS];
    struct gp_query_targets unused, ready, deferred, done;
    struct gp_query_targets paused[GP_QUERY_TRIES - 1]; /* one list per length of pause, each ordered by due_ns */
    /* Used only by the thread. */
    struct gp_query_request requests[GP_QUERY_REQUESTS];
    unsigned request_count;
    uint64_t posted_ns; /* when the last request was posted */
    struct gp_wire_slot answer;
};

/* ---- targets, under the mutex ------------------------------------------------------------------------------------ */

static struct gp_query_target *target_find(struct gp_querier *querier, pid_t pid)
{
    struct gp_query_target *target;
    LIST_FOREACH(target, &querier->buckets[(uint32_t)pid % GP_QUERY_BUCKETS], in_bucket)
    {
        if (target->pid == pid)
            return target;
    }
    return NULL;
}

static struct gp_query_target *target_new(struct gp_querier *querier, pid_t pid)
{
    struct gp_query_target *target = TAILQ_FIRST(&querier->unused);
    if (target)
        TAILQ_REMOVE(&querier->unused, target, link);
    else if (querier->used < GP_MAPS_PROCESSES)
        target = &querier->targets[querier->used++];
    else
        return NULL;
    *target = (struct gp_query_target){.pid = pid};
    LIST_INSERT_HEAD(&querier->buckets[(uint32_t)pid % GP_QUERY_BUCKETS], target, in_bucket);
    querier->living++;
    return target;
}

/* Queues a target that is in no list, to be asked or (is_check) only checked. */
static void target_ready(struct gp_querier *querier, struct gp_query_target *target, bool is_check)
{
    target->is_check = is_check;
    target->before_check = target->state;
    target->state = GP_QUERY_STATE_READY;
    if (!is_check) {
        target->tries = 0;
        querier->count.waiting++;
    }
    TAILQ_INSERT_TAIL(&querier->ready, target, link);
}

static void target_done(struct gp_querier *querier, struct gp_query_target *target, enum gp_query_state state)
{
    querier->count.waiting -= !target->is_check;
    target->is_check = false;
    target->state = state;
    TAILQ_INSERT_TAIL(&querier->done, target, link);
}

static void target_dead(struct gp_querier *querier, struct gp_query_target *target)
{
    querier->count.waiting -= !target->is_check;
    querier->living--;
    LIST_REMOVE(target, in_bucket);
    TAILQ_INSERT_HEAD(&querier->unused, target, link);
}

static void target_answered(struct gp_querier *querier, struct gp_query_target *target)
{
    querier->count.answered++;
    target_done(querier, target, GP_QUERY_STATE_ANSWERED);
}

static void target_failed(struct gp_querier *querier, struct gp_query_target *target)
{
    uint64_t now = gp_clock_ns();
    if (++target->tries == GP_QUERY_TRIES) {
        querier->count.silent++;
        target->due_ns = now + GP_QUERY_SILENT_NS;
        target_done(querier, target, GP_QUERY_STATE_SILENT);
        return;
    }
    target->due_ns = now + query_pause_ns[target->tries - 1];
    target->state = GP_QUERY_STATE_PAUSED;
    TAILQ_INSERT_TAIL(&querier->paused[target->tries - 1], target, link);
}

void gp_query_add(struct gp_querier *querier, pid_t pid)
{
    if (pid <= 0)
        return;
    pthread_mutex_lock(&querier->mutex);
    struct gp_query_target *target = target_find(querier, pid);
    bool is_known = target != NULL, is_changed = true;
    if (!is_known)
        target = target_new(querier, pid);
    querier->want_sweep |= querier->living >= GP_MAPS_PROCESSES / 4 * 3;
    if (!target) {
        querier->count.refused++;
    } else if (!is_known) {
        target_ready(querier, target, false);
    } else if (target->state == GP_QUERY_STATE_ANSWERED || target->state == GP_QUERY_STATE_SILENT) {
        bool again = target->state == GP_QUERY_STATE_SILENT && gp_clock_ns() >= target->due_ns;
        TAILQ_REMOVE(&querier->done, target, link);
        target_ready(querier, target, !again);
    } else
        is_changed = false;
    if (is_changed)
        pthread_cond_signal(&querier->changed);
    pthread_mutex_unlock(&querier->mutex);
}

struct gp_query_count gp_query_count(struct gp_querier *querier)
{
    pthread_mutex_lock(&querier->mutex);
    struct gp_query_count count = querier->count;
    pthread_mutex_unlock(&querier->mutex);
    return count;
}

/* ---- asking, without the mutex ----------------------------------------------------------------------------------- */

/* Whether a drain thread serves the mailbox. This reads the file instead of a mapping: touching a
 * hole of the file through a mapping allocates a page that is charged to the agent. */
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

static enum gp_asked query_ask(struct gp_query_target *target, struct gp_mailbox *box)
{
    struct gp_proc proc;
    struct gp_peer session;
    char problem[GP_PROBLEM_BYTES];
    int error = gp_proc_open(&proc, target->pid);
    if (error)
        return error == -ESRCH ? GP_ASKED_DEAD : GP_ASKED_FAILED;
    bool is_same = target->start_time == proc.start_time;
    target->start_time = proc.start_time;
    if (target->is_check && is_same) {
        gp_proc_close(&proc);
        return GP_ASKED_SAME;
    }
    if (!target->is_deferred && query_is_large(&proc)) {
        target->is_deferred = true;
        gp_proc_close(&proc);
        return GP_ASKED_DEFERRED;
    }
    error = gp_peer_open(&session, &proc, problem);
    gp_proc_close(&proc);
    if (!error)
        error = query_post(box, &session);
    gp_peer_close(&session); /* the mapping stays open */
    return error == -ESRCH ? GP_ASKED_DEAD : error ? GP_ASKED_FAILED : GP_ASKED_POSTED;
}

enum gp_outcome { GP_OUTCOME_PENDING, GP_OUTCOME_ANSWERED, GP_OUTCOME_FAILED };

static enum gp_outcome request_check(struct gp_querier *querier, struct gp_query_request *request, uint64_t now)
{
    struct gp_wire_slot *slot = &request->box.shared->slots[request->box.slot];
    uint32_t state =
        __atomic_load_n(&slot->state, __ATOMIC_ACQUIRE); /* pairs with drain.c's release of DONE [mail.R] */
    bool is_late = now >= request->deadline, is_last = request->target->tries + 1 == GP_QUERY_TRIES;
    enum gp_outcome outcome = GP_OUTCOME_FAILED;
    if (state == GP_SLOT_DONE)
        outcome = GP_OUTCOME_ANSWERED;
    else if ((state == GP_SLOT_REQUESTED || state == GP_SLOT_SERVING) && !is_late)
        return GP_OUTCOME_PENDING;
    else if (!is_last && gp_mailbox_wait(&request->box, &querier->answer, 0) == 0) /* withdraws the request */
        outcome = GP_OUTCOME_ANSWERED;
    gp_mailbox_close(&request->box); /* frees a slot that is DONE, leaves any other */
    return outcome;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void query_settle(struct gp_querier *querier, struct gp_query_target *target, enum gp_asked asked)
{
    switch (asked) {
    case GP_ASKED_POSTED:
        querier->requests[querier->request_count].target = target;
        querier->posted_ns = gp_clock_ns();
        querier->requests[querier->request_count++].deadline = querier->posted_ns + GP_QUERY_ANSWER_NS;
        break;
    case GP_ASKED_FAILED:
        target_failed(querier, target);
        break;
    case GP_ASKED_DEAD:
        target_dead(querier, target);
        break;
    case GP_ASKED_SAME:
        target_done(querier, target, target->before_check);
        break;
    case GP_ASKED_DEFERRED:
        target->state = GP_QUERY_STATE_READY;
        TAILQ_INSERT_TAIL(&querier->deferred, target, link);
        break;
    }
}

/* The next target, removed from its list; NULL: none is queued. */
static struct gp_query_target *target_next(struct gp_querier *querier)
{
    struct gp_query_targets *from = TAILQ_EMPTY(&querier->ready) ? &querier->deferred : &querier->ready;
    struct gp_query_target *target = TAILQ_FIRST(from);
    if (target)
        TAILQ_REMOVE(from, target, link);
    return target;
}

/* Asks queued targets until none is left or open requests must be polled. */
static void query_ask_queued(struct gp_querier *querier)
{
    uint64_t until = gp_clock_ns() + GP_QUERY_POLL_LEAST_NS;
    struct gp_query_target *target;
    while (querier->request_count < GP_QUERY_REQUESTS && (target = target_next(querier))) {
        target->state = GP_QUERY_STATE_ASKED;
        uint64_t start_time = target->start_time;
        pthread_mutex_unlock(&querier->mutex);
        enum gp_asked asked = query_ask(target, &querier->requests[querier->request_count].box);
        pthread_mutex_lock(&querier->mutex);
        if (start_time && start_time != target->start_time &&
            asked != GP_ASKED_DEAD) { /* the pid is another process's now */
            querier->count.waiting += target->is_check;
            target->is_check = false;
            target->tries = 0;
        }
        query_settle(querier, target, asked);
        if (querier->is_ending || gp_clock_ns() >= until)
            return;
    }
}

static void query_collect(struct gp_querier *querier)
{
    uint64_t now = gp_clock_ns();
    for (unsigned i = 0; i < querier->request_count;) {
        struct gp_query_request *request = &querier->requests[i];
        pthread_mutex_unlock(&querier->mutex);
        enum gp_outcome outcome = request_check(querier, request, now);
        pthread_mutex_lock(&querier->mutex);
        if (outcome == GP_OUTCOME_PENDING) {
            i++;
            continue;
        }
        if (outcome == GP_OUTCOME_ANSWERED)
            target_answered(querier, request->target);
        else
            target_failed(querier, request->target);
        *request = querier->requests[--querier->request_count];
    }
}

static void query_sweep(struct gp_querier *querier, uint64_t now)
{
    querier->want_sweep = false;
    if (now - querier->swept_ns < GP_QUERY_SWEEP_NS)
        return;
    querier->swept_ns = now;
    struct gp_query_target *target;
    while ((target = TAILQ_FIRST(&querier->done))) {
        TAILQ_REMOVE(&querier->done, target, link);
        target_ready(querier, target, true);
    }
}

/* Queues targets whose pause is over. Returns when the next pause ends; UINT64_MAX: there is none. */
static uint64_t query_wake(struct gp_querier *querier, uint64_t now)
{
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; i < GP_COUNT(querier->paused); i++) {
        struct gp_query_target *target;
        while ((target = TAILQ_FIRST(&querier->paused[i])) && target->due_ns <= now) {
            TAILQ_REMOVE(&querier->paused[i], target, link);
            target->state = GP_QUERY_STATE_READY;
            TAILQ_INSERT_TAIL(target->is_deferred ? &querier->deferred : &querier->ready, target, link);
        }
        if (target && target->due_ns < next)
            next = target->due_ns;
    }
    return next;
}

static void query_wait(struct gp_querier *querier)
{
    uint64_t now = gp_clock_ns(), next = query_wake(querier, now);
    bool is_idle = TAILQ_EMPTY(&querier->ready) && TAILQ_EMPTY(&querier->deferred);
    if (!is_idle && querier->request_count < GP_QUERY_REQUESTS)
        return;
    if (querier->request_count) {
        uint64_t pause = (now - querier->posted_ns) / 8;
        pause = pause < GP_QUERY_POLL_LEAST_NS ? GP_QUERY_POLL_LEAST_NS : pause;
        pause = pause > GP_QUERY_POLL_MOST_NS ? GP_QUERY_POLL_MOST_NS : pause;
        next = now + pause < next ? now + pause : next;
    }
    struct timespec at = {(time_t)(next / GP_SECOND_NS), (long)(next % GP_SECOND_NS)};
    if (next == UINT64_MAX)
        pthread_cond_wait(&querier->changed, &querier->mutex);
    else
        pthread_cond_timedwait(&querier->changed, &querier->mutex, &at);
}

static void *query_main(void *arg)
{
    struct gp_querier *querier = arg;
    pthread_setname_np(pthread_self(), "gpuprof-query");
    pthread_mutex_lock(&querier->mutex);
    while (!querier->is_ending) {
        if (querier->want_sweep)
            query_sweep(querier, gp_clock_ns());
        query_ask_queued(querier);
        query_collect(querier);
        if (!querier->is_ending)
            query_wait(querier);
    }
    while (querier->request_count) { /* frees our slots at once, and not when the drain threads find the agent gone */
        struct gp_query_request *request = &querier->requests[--querier->request_count];
        gp_mailbox_wait(&request->box, &querier->answer, 0);
        gp_mailbox_close(&request->box);
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
    pthread_cond_init(&querier->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the loop handles signals */
    int error = -pthread_create(&querier->thread, NULL, query_main, querier);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int gp_query_open(struct gp_querier **out)
{
    struct gp_querier *querier = calloc(1, sizeof(*querier));
    *out = NULL;
    if (!querier)
        return -ENOMEM;
    TAILQ_INIT(&querier->unused);
    TAILQ_INIT(&querier->ready);
    TAILQ_INIT(&querier->deferred);
    TAILQ_INIT(&querier->done);
    for (size_t i = 0; i < GP_COUNT(querier->paused); i++)
        TAILQ_INIT(&querier->paused[i]);
    querier->targets = calloc(GP_MAPS_PROCESSES, sizeof(*querier->targets));
    int error = querier->targets ? querier_start(querier) : -ENOMEM;
    if (error) {
        free(querier->targets);
        free(querier);
        return error;
    }
    *out = querier;
    return 0;
}

void gp_query_close(struct gp_querier *querier)
{
    if (!querier)
        return;
    pthread_mutex_lock(&querier->mutex);
    querier->is_ending = true;
    pthread_cond_signal(&querier->changed);
    pthread_mutex_unlock(&querier->mutex);
    uint64_t until = gp_clock_ns() + 2 * GP_SECOND_NS;
    struct timespec at = {(time_t)(until / GP_SECOND_NS), (long)(until % GP_SECOND_NS)};
    if (pthread_clockjoin_np(querier->thread, NULL, CLOCK_MONOTONIC, &at) != 0) {
        gp_agent_log(GP_AGENTLOG_WARNING,
                     "the query thread hangs while it reads a process's files: it is left running");
        return; /* and its memory stays allocated */
    }
    pthread_cond_destroy(&querier->changed);
    pthread_mutex_destroy(&querier->mutex);
    free(querier->targets);
    free(querier);
}
