/* SPDX-License-Identifier: MIT
 *
 * deaths.c: see deaths.h.  Three things happen here, all on the agent's one thread, in turns of bounded work:
 *
 *   the look    goes through the tables part by part.  A process that is not held yet is taken up: pidfd first, then
 *               its start time, so that a number that was given to another process meanwhile is noticed.
 *   an end      is a pidfd that became readable, or a process that the look did not find.  A moment later whatever the
 *               tables still hold of (tgid, start time) is taken out; the pair makes it safe at any time.
 *   containers  are at the end of each look: removed.h asks for their cgroups.
 */
#include <agent/deaths.h>
#include <agent/removed.h>
#include <base/clock.h>
#include <base/compiler.h>
#include <collect/procfs.h>
#include <common/agentlog.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <bpf/bpf.h>

/* The tracepoint comes before the pidfd becomes readable, unless it is missed; this leaves room for a program that is
 * at work on the same rows, and is short beside the second in which sums must heal. */
#define GP_DEATHS_WAIT_NS 10000000ull
/* Ends in one turn: about 5 us each. */
#define GP_DEATHS_ENDS 256
/* Above the kernel's pids, so a chain has one entry where each tgid is in use once. */
#define GP_DEATHS_BUCKETS 16384u

enum gp_life_state {
    GP_LIFE_FREE,
    GP_LIFE_HELD,  /* by a pidfd in the epoll */
    GP_LIFE_SEEN,  /* no descriptor for it: looked at each time */
    GP_LIFE_ENDED, /* waits for its last look */
};

struct gp_life {
    uint64_t start_ns, due_ns;
    uint32_t tgid, look; /* number of the look that last found it in the table */
    int pidfd;
    enum gp_life_state state;
    LIST_ENTRY(gp_life) same;  /* bucket */
    TAILQ_ENTRY(gp_life) near; /* in the list of its state; those held and seen are in one */
};
TAILQ_HEAD(gp_lives, gp_life);

struct gp_deaths {
    struct gp_bpf *bpf;
    int epoll, timer;
    struct gp_life *lives; /* those from `used` on were never touched */
    uint32_t used, most;
    LIST_HEAD(gp_bucket, gp_life) buckets[GP_DEATHS_BUCKETS];
    struct gp_lives unused, counted, ended; /* ended: in the order of due_ns */
    uint64_t most_held;                     /* by descriptors, in this look */
    uint64_t boot_ns;                       /* what /proc adds to start times for this process */
    uint64_t tick_ns;                       /* of the start times in /proc */
    uint32_t look;
    bool is_looking, has_said_short, has_said_table;
    uint64_t unknown; /* in this look */
    struct gp_bpf_walk walk;
    struct gp_removed *gone;
    struct gp_deaths_count count;
};

static void life_put(struct gp_deaths *deaths, struct gp_life *life)
{
    LIST_REMOVE(life, same);
    life->state = GP_LIFE_FREE;
    TAILQ_INSERT_HEAD(&deaths->unused, life, near);
}

static struct gp_bucket *life_bucket(struct gp_deaths *deaths, uint32_t tgid)
{
    return &deaths->buckets[tgid % GP_DEATHS_BUCKETS];
}

static struct gp_life *life_find(struct gp_deaths *deaths, uint32_t tgid)
{
    struct gp_life *life;
    LIST_FOREACH(life, life_bucket(deaths, tgid), same)
    {
        if (life->tgid == tgid)
            return life;
    }
    return NULL;
}

static struct gp_life *life_new(struct gp_deaths *deaths, uint32_t tgid)
{
    struct gp_life *life = TAILQ_FIRST(&deaths->unused);
    if (life)
        TAILQ_REMOVE(&deaths->unused, life, near);
    else if (deaths->used < deaths->most)
        life = &deaths->lives[deaths->used++];
    else
        return NULL;
    life->pidfd = -1;
    life->tgid = tgid;
    LIST_INSERT_HEAD(life_bucket(deaths, tgid), life, same);
    return life;
}

/* From any state but FREE: in no list of a state, without a descriptor. */
static void life_loosen(struct gp_deaths *deaths, struct gp_life *life)
{
    TAILQ_REMOVE(life->state == GP_LIFE_ENDED ? &deaths->ended : &deaths->counted, life, near);
    deaths->count.processes -= life->state == GP_LIFE_HELD;
    deaths->count.looked_at -= life->state == GP_LIFE_SEEN;
    if (life->pidfd >= 0)
        close(life->pidfd); /* leaves the epoll with it */
    life->pidfd = -1;
}

static void life_counted(struct gp_deaths *deaths, struct gp_life *life, enum gp_life_state state)
{
    life->state = state;
    deaths->count.processes += state == GP_LIFE_HELD;
    deaths->count.looked_at += state == GP_LIFE_SEEN;
    TAILQ_INSERT_TAIL(&deaths->counted, life, near);
}

static void life_end(struct gp_deaths *deaths, struct gp_life *life)
{
    life->state = GP_LIFE_ENDED;
    life->due_ns = gp_clock_ns() + GP_DEATHS_WAIT_NS;
    TAILQ_INSERT_TAIL(&deaths->ended, life, near);
}

/* ---- is it that process? ----------------------------------------------------------------------------------------- */

/* Start time in /proc is cut to clock ticks (10 ms): a number that comes round within one tick, while its first owner's
 * end was missed, is taken for the first owner until it ends too. */
static int life_is_same(const struct gp_deaths *deaths, uint32_t tgid, uint64_t start_ns)
{
    char path[32];
    struct gp_proc proc;
    snprintf(path, sizeof(path), "/proc/%u", tgid);
    int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC), error = dir < 0 ? -errno : gp_proc_stat(dir, &proc);
    if (dir >= 0)
        close(dir);
    if (error)
        return error == -ENOENT || error == -ESRCH ? 0 : error;
    return (start_ns + deaths->boot_ns) / deaths->tick_ns == proc.start_time;
}

/* A descriptor >= 0 of the living process; -ESRCH it has ended; another -errno: cannot be said. */
static int life_pidfd(const struct gp_deaths *deaths, uint32_t tgid, uint64_t start_ns)
{
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)tgid, 0);
    if (fd < 0) /* EINVAL, ENOENT: the number is a thread's of another process now */
        return errno == EINVAL || errno == ENOENT ? -ESRCH : -errno;
    int same = life_is_same(deaths, tgid, start_ns);
    struct pollfd end = {.fd = fd, .events = POLLIN};
    if (same == 1 && poll(&end, 1, 0) == 0)
        return fd;
    close(fd);
    return same < 0 ? same : -ESRCH;
}

static void deaths_short(struct gp_deaths *deaths, int error)
{
    deaths->unknown++;
    if (deaths->has_said_short)
        return;
    deaths->has_said_short = true;
    gp_agent_log(
        GP_AGENTLOG_WARNING,
        "cannot hold a counted process: %s; if its end is missed it stays in the sums: raise the limit of open files "
        "(LimitNOFILE=)",
        strerror(-error));
}

/* Puts a loose one where it belongs now. */
static void life_watch(struct gp_deaths *deaths, struct gp_life *life)
{
    int fd = life_pidfd(deaths, life->tgid, life->start_ns);
    if (fd == -ESRCH) {
        life_end(deaths, life);
        return;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = life};
    if (fd < 0)
        deaths_short(deaths, fd);
    else if (deaths->count.processes < deaths->most_held && epoll_ctl(deaths->epoll, EPOLL_CTL_ADD, fd, &event) == 0) {
        life->pidfd = fd;
        life_counted(deaths, life, GP_LIFE_HELD);
        return;
    } else
        close(fd);
    life_counted(deaths, life, GP_LIFE_SEEN);
}

/* ---- the look ---------------------------------------------------------------------------------------------------- */

static void look_at(struct gp_deaths *deaths, const struct gp_bpf_one *one)
{
    struct gp_life *life = life_find(deaths, one->tgid);
    if (!one->start_ns)
        return; /* its first batch is under way */
    if (life && life->start_ns == one->start_ns && life->state != GP_LIFE_SEEN) {
        life->look = deaths->look;
        return;
    }
    if (life) /* another's now: what the first owner had left with the first batch of the second */
        life_loosen(deaths, life);
    else if (!(life = life_new(deaths, one->tgid)))
        return; /* as many that have ended wait for their last look: the next look has room */
    life->start_ns = one->start_ns;
    life->look = deaths->look;
    life_watch(deaths, life);
}

/* Those that the whole look did not find are in no sum: exec took them out. */
static void look_done(struct gp_deaths *deaths)
{
    struct gp_life *life = TAILQ_FIRST(&deaths->counted), *next;
    for (; life; life = next) {
        next = TAILQ_NEXT(life, near);
        if (life->look == deaths->look)
            continue;
        life_loosen(deaths, life);
        life_put(deaths, life);
    }
    deaths->count.unknown = deaths->unknown;
    deaths->is_looking = false;
    gp_removed_begin(deaths->gone);
}

static void look_part(struct gp_deaths *deaths)
{
    struct gp_bpf_one some[GP_BPF_PART];
    uint32_t count;
    int more = gp_bpf_processes(deaths->bpf, &deaths->walk, some, &count);
    if (more < 0) {
        if (!deaths->has_said_table)
            gp_agent_log(GP_AGENTLOG_ERROR, "cannot read the table of processes: %s", strerror(-more));
        deaths->has_said_table = true;
        deaths->is_looking = false; /* nobody is let go: who was not found may be there */
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        look_at(deaths, &some[i]);
    if (!more)
        look_done(deaths);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static void end_one(struct gp_deaths *deaths, struct gp_life *life)
{
    int error = gp_bpf_gone(deaths->bpf, life->tgid, life->start_ns);
    TAILQ_REMOVE(&deaths->ended, life, near);
    if (error == -EAGAIN) {
        life_end(deaths, life);
        return;
    }
    if (error && error != -ENOENT && !deaths->has_said_table)
        gp_agent_log(GP_AGENTLOG_ERROR, "cannot take process %u out of the sums: %s", life->tgid, strerror(-error));
    deaths->has_said_table |= error && error != -ENOENT; /* the next look finds it again */
    deaths->count.taken += !error;
    life_put(deaths, life);
}

static void ends_due(struct gp_deaths *deaths)
{
    uint64_t now = gp_clock_ns();
    for (int i = 0; i < GP_DEATHS_ENDS; i++) {
        struct gp_life *first = TAILQ_FIRST(&deaths->ended);
        if (!first || first->due_ns > now)
            return;
        end_one(deaths, first);
    }
}

/* When the next turn must come without an event. */
static void deaths_arm(struct gp_deaths *deaths)
{
    struct itimerspec at = {{0, 0}, {0, 0}};
    const struct gp_life *first = TAILQ_FIRST(&deaths->ended);
    if (deaths->is_looking || gp_removed_is_busy(deaths->gone))
        at.it_value.tv_nsec = 1; /* at once, but after what else the loop has to do */
    else if (first) {
        at.it_value.tv_sec = (time_t)(first->due_ns / 1000000000u);
        at.it_value.tv_nsec = (long)(first->due_ns % 1000000000u);
    }
    timerfd_settime(deaths->timer, TFD_TIMER_ABSTIME, &at, NULL);
}

void gp_deaths_turn(struct gp_deaths *deaths)
{
    struct epoll_event events[GP_DEATHS_ENDS];
    int count = epoll_wait(deaths->epoll, events, GP_DEATHS_ENDS, 0);
    for (int i = 0; i < count; i++) {
        struct gp_life *life = events[i].data.ptr;
        if (!life)
            continue; /* the timer, which is set anew below */
        life_loosen(deaths, life);
        life_end(deaths, life);
    }
    /* Only now: what follows gives entries to others, and the list above may still name them. */
    ends_due(deaths);
    if (deaths->is_looking)
        look_part(deaths);
    else
        deaths->count.containers += gp_removed_turn(deaths->gone);
    deaths_arm(deaths);
}

void gp_deaths_second(struct gp_deaths *deaths)
{
    struct rlimit files;
    if (deaths->is_looking || gp_removed_is_busy(deaths->gone))
        return;
    /* The other half is for the rest of the agent: libraries hold a pidfd for each process that maps them, too. */
    deaths->most_held = getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur / 2 : 512;
    deaths->is_looking = true;
    deaths->walk = (struct gp_bpf_walk){.at = 0};
    deaths->unknown = 0;
    deaths->look++;
    deaths_arm(deaths);
}

/* ---- open, close ------------------------------------------------------------------------------------------------- */

/* /proc shows start times by the reader's clock of its time namespace (time_namespaces(7)). */
static uint64_t boot_offset(void)
{
    char text[256];
    long long seconds, ns;
    const char *at;
    if (gp_proc_read(-1, "/proc/self/timens_offsets", text, sizeof(text)) < 0 || !(at = strstr(text, "boottime")) ||
        sscanf(at, "boottime %lld %lld", &seconds, &ns) != 2)
        return 0;
    return (uint64_t)(seconds * 1000000000ll + ns); /* a negative one wraps, and back when it is added */
}

static int deaths_room(struct gp_deaths *deaths)
{
    struct bpf_map_info info = {0};
    uint32_t bytes = sizeof(info);
    int fd = gp_bpf_map(deaths->bpf, "process");
    if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &bytes))
        return fd < 0 ? fd : -errno;
    deaths->most = info.max_entries;
    deaths->lives = calloc(deaths->most, sizeof(*deaths->lives));
    return deaths->lives ? 0 : -ENOMEM;
}

int gp_deaths_open(struct gp_deaths **out, struct gp_bpf *bpf)
{
    struct gp_deaths *deaths = calloc(1, sizeof(*deaths));
    *out = NULL;
    if (!deaths)
        return -ENOMEM;
    deaths->bpf = bpf;
    TAILQ_INIT(&deaths->unused);
    TAILQ_INIT(&deaths->counted);
    TAILQ_INIT(&deaths->ended);
    deaths->boot_ns = boot_offset();
    deaths->tick_ns = 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK);
    deaths->epoll = epoll_create1(EPOLL_CLOEXEC);
    deaths->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    int error = 0;
    if (deaths->epoll < 0 || deaths->timer < 0 || epoll_ctl(deaths->epoll, EPOLL_CTL_ADD, deaths->timer, &event))
        error = -errno;
    if (!error)
        error = deaths_room(deaths);
    if (!error)
        error = gp_removed_open(&deaths->gone, bpf);
    if (error)
        gp_deaths_close(deaths);
    else
        *out = deaths;
    return error;
}

void gp_deaths_close(struct gp_deaths *deaths)
{
    if (!deaths)
        return;
    struct gp_life *life;
    TAILQ_FOREACH(life, &deaths->counted, near)
    {
        if (life->pidfd >= 0)
            close(life->pidfd);
    }
    if (deaths->timer >= 0)
        close(deaths->timer);
    if (deaths->epoll >= 0)
        close(deaths->epoll);
    gp_removed_close(deaths->gone);
    free(deaths->lives);
    free(deaths);
}

int gp_deaths_fd(const struct gp_deaths *deaths)
{
    return deaths->epoll;
}

struct gp_deaths_count gp_deaths_count(const struct gp_deaths *deaths)
{
    return deaths->count;
}
