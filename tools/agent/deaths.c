/* SPDX-License-Identifier: MIT
 *
 * deaths.c: see deaths.h. All work happens on the agent's one thread, in turns of bounded work:
 *
 *    scans       go through the tables part by part. A new process is tracked: pidfd first, then its
 *                start time, which shows whether its number was given to another process meanwhile.
 *    ends        A process ended if its pidfd became readable or a scan did not find it alive. A
 *                moment later whatever the tables still hold of (tgid, start time) is removed; the
 *                pair makes that safe at any time.
 *    containers  are checked after each scan: removed.h looks up their cgroups.
 */
#include <agent/deaths.h>
#include <agent/removed.h>
#include <base/clock.h>
#include <base/compiler.h>
#include <read/collect/peer.h>
#include <read/common/agentlog.h>

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

/* The tracepoint runs before the pidfd becomes readable, unless it is missed. The wait leaves time
 * for a program that is changing the same rows, and is short compared with the second in which sums
 * must be corrected. */
#define GP_DEATHS_WAIT_NS 10000000ull
/* Ends handled in one turn: about 5 us each. */
#define GP_DEATHS_ENDS 256
/* Large enough that a chain has one entry if each tgid is used once. */
#define GP_DEATHS_BUCKETS 16384u

enum gp_tracked_state {
    GP_TRACKED_FREE,
    GP_TRACKED_HELD,  /* tracked by a pidfd in the epoll */
    GP_TRACKED_SEEN,  /* no descriptor for it: checked in each scan */
    GP_TRACKED_ENDED, /* waits to be removed from the tables */
};

struct gp_tracked {
    uint64_t start_ns, due_ns;
    uint32_t tgid, scan; /* number of the scan that last found it in the table */
    int pidfd;
    enum gp_tracked_state state;
    LIST_ENTRY(gp_tracked) in_bucket;
    TAILQ_ENTRY(gp_tracked) link; /* in the list of its state; HELD and SEEN share one */
};
TAILQ_HEAD(gp_tracked_list, gp_tracked);

struct gp_deaths {
    struct gp_bpf *bpf;
    int epoll, timer;
    struct gp_tracked *tracked; /* entries from `used` on were never written */
    uint32_t used, capacity;
    LIST_HEAD(gp_bucket, gp_tracked) buckets[GP_DEATHS_BUCKETS];
    struct gp_tracked_list unused, counted, ended; /* ended: ordered by due_ns */
    uint64_t most_pidfds;                          /* limit of pidfds in this scan */
    uint64_t boot_ns;                              /* added to start times that this process reads in /proc */
    uint64_t tick_ns;                              /* of the start times in /proc */
    uint32_t scan;
    bool is_scanning, has_logged_short, has_logged_table;
    uint64_t unknown; /* in this scan */
    struct gp_bpf_walk walk;
    struct gp_removed *removed;
    struct gp_deaths_count count;
};

static void tracked_put(struct gp_deaths *deaths, struct gp_tracked *process)
{
    LIST_REMOVE(process, in_bucket);
    process->state = GP_TRACKED_FREE;
    TAILQ_INSERT_HEAD(&deaths->unused, process, link);
}

static struct gp_bucket *tracked_bucket(struct gp_deaths *deaths, uint32_t tgid)
{
    return &deaths->buckets[tgid % GP_DEATHS_BUCKETS];
}

static struct gp_tracked *tracked_find(struct gp_deaths *deaths, uint32_t tgid)
{
    struct gp_tracked *process;
    LIST_FOREACH(process, tracked_bucket(deaths, tgid), in_bucket)
    {
        if (process->tgid == tgid)
            return process;
    }
    return NULL;
}

static struct gp_tracked *tracked_new(struct gp_deaths *deaths, uint32_t tgid)
{
    struct gp_tracked *process = TAILQ_FIRST(&deaths->unused);
    if (process)
        TAILQ_REMOVE(&deaths->unused, process, link);
    else if (deaths->used < deaths->capacity)
        process = &deaths->tracked[deaths->used++];
    else
        return NULL;
    process->pidfd = -1;
    process->tgid = tgid;
    LIST_INSERT_HEAD(tracked_bucket(deaths, tgid), process, in_bucket);
    return process;
}

/* Takes an entry of any state but FREE out of its list and closes its descriptor. */
static void tracked_detach(struct gp_deaths *deaths, struct gp_tracked *process)
{
    TAILQ_REMOVE(process->state == GP_TRACKED_ENDED ? &deaths->ended : &deaths->counted, process, link);
    deaths->count.processes -= process->state == GP_TRACKED_HELD;
    deaths->count.polled -= process->state == GP_TRACKED_SEEN;
    if (process->pidfd >= 0)
        close(process->pidfd); /* leaves the epoll with it */
    process->pidfd = -1;
}

static void tracked_count(struct gp_deaths *deaths, struct gp_tracked *process, enum gp_tracked_state state)
{
    process->state = state;
    deaths->count.processes += state == GP_TRACKED_HELD;
    deaths->count.polled += state == GP_TRACKED_SEEN;
    TAILQ_INSERT_TAIL(&deaths->counted, process, link);
}

static void tracked_end(struct gp_deaths *deaths, struct gp_tracked *process)
{
    process->state = GP_TRACKED_ENDED;
    process->due_ns = gp_clock_ns() + GP_DEATHS_WAIT_NS;
    TAILQ_INSERT_TAIL(&deaths->ended, process, link);
}

/* ---- is it that process? ----------------------------------------------------------------------------------------- */

/* The start time in /proc is truncated to clock ticks (10 ms). If the end of a process was missed
 * and its tgid is reused within one tick, the second process is taken for the first until it ends
 * too. */
static int tracked_is_same(const struct gp_deaths *deaths, uint32_t tgid, uint64_t start_ns)
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

/* A descriptor >= 0 if the process lives; -ESRCH if it has ended; another -errno: unknown. */
static int tracked_pidfd(const struct gp_deaths *deaths, uint32_t tgid, uint64_t start_ns)
{
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)tgid, 0);
    if (fd < 0) /* EINVAL, ENOENT: the number is now a thread of another process */
        return errno == EINVAL || errno == ENOENT ? -ESRCH : -errno;
    int is_same = tracked_is_same(deaths, tgid, start_ns);
    struct pollfd end = {.fd = fd, .events = POLLIN};
    if (is_same == 1 && poll(&end, 1, 0) == 0)
        return fd;
    close(fd);
    return is_same < 0 ? is_same : -ESRCH;
}

static void deaths_log_short(struct gp_deaths *deaths, int error)
{
    deaths->unknown++;
    if (deaths->has_logged_short)
        return;
    deaths->has_logged_short = true;
    gp_agent_log(
        GP_AGENTLOG_WARNING,
        "cannot track a profiled process: %s; if its end is missed, it stays in the sums: raise the limit of open "
        "files (LimitNOFILE=)",
        strerror(-error));
}

/* Tracks a detached entry by the best means available now. */
static void tracked_watch(struct gp_deaths *deaths, struct gp_tracked *process)
{
    int fd = tracked_pidfd(deaths, process->tgid, process->start_ns);
    if (fd == -ESRCH) {
        tracked_end(deaths, process);
        return;
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = process};
    if (fd < 0)
        deaths_log_short(deaths, fd);
    else if (deaths->count.processes < deaths->most_pidfds &&
             epoll_ctl(deaths->epoll, EPOLL_CTL_ADD, fd, &event) == 0) {
        process->pidfd = fd;
        tracked_count(deaths, process, GP_TRACKED_HELD);
        return;
    } else
        close(fd);
    tracked_count(deaths, process, GP_TRACKED_SEEN);
}

/* ---- the scan ---------------------------------------------------------------------------------------------------- */

static void scan_row(struct gp_deaths *deaths, const struct gp_bpf_one *one)
{
    struct gp_tracked *process = tracked_find(deaths, one->tgid);
    if (!one->start_ns)
        return; /* its first batch is being processed */
    if (process && process->start_ns == one->start_ns && process->state != GP_TRACKED_SEEN) {
        process->scan = deaths->scan;
        return;
    }
    if (process) /* another process's now: the first one's rows were removed with the second one's first batch */
        tracked_detach(deaths, process);
    else if (!(process = tracked_new(deaths, one->tgid)))
        return; /* all entries wait for removal: the next scan has room */
    process->start_ns = one->start_ns;
    process->scan = deaths->scan;
    tracked_watch(deaths, process);
}

/* Processes that the complete scan did not find are in no sum: exec removed them. */
static void scan_done(struct gp_deaths *deaths)
{
    struct gp_tracked *process = TAILQ_FIRST(&deaths->counted), *next;
    for (; process; process = next) {
        next = TAILQ_NEXT(process, link);
        if (process->scan == deaths->scan)
            continue;
        tracked_detach(deaths, process);
        tracked_put(deaths, process);
    }
    deaths->count.unknown = deaths->unknown;
    deaths->is_scanning = false;
    gp_removed_begin(deaths->removed);
}

static void scan_part(struct gp_deaths *deaths)
{
    struct gp_bpf_one rows[GP_BPF_PART];
    uint32_t count;
    int more = gp_bpf_processes(deaths->bpf, &deaths->walk, rows, &count);
    if (more < 0) {
        if (!deaths->has_logged_table)
            gp_agent_log(GP_AGENTLOG_ERROR, "cannot read the table of processes: %s", strerror(-more));
        deaths->has_logged_table = true;
        deaths->is_scanning = false; /* no process is dropped: one that was not found may still be there */
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        scan_row(deaths, &rows[i]);
    if (!more)
        scan_done(deaths);
}

/* ---- ends -------------------------------------------------------------------------------------------------------- */

static void end_one(struct gp_deaths *deaths, struct gp_tracked *process)
{
    int error = gp_bpf_gone(deaths->bpf, process->tgid, process->start_ns);
    TAILQ_REMOVE(&deaths->ended, process, link);
    if (error == -EAGAIN) {
        tracked_end(deaths, process);
        return;
    }
    if (error && error != -ENOENT && !deaths->has_logged_table)
        gp_agent_log(GP_AGENTLOG_ERROR, "cannot remove process %u from the sums: %s", process->tgid, strerror(-error));
    deaths->has_logged_table |= error && error != -ENOENT; /* the next scan finds it again */
    deaths->count.removed_late += !error;
    tracked_put(deaths, process);
}

static void ends_due(struct gp_deaths *deaths)
{
    uint64_t now = gp_clock_ns();
    for (int i = 0; i < GP_DEATHS_ENDS; i++) {
        struct gp_tracked *first = TAILQ_FIRST(&deaths->ended);
        if (!first || first->due_ns > now)
            return;
        end_one(deaths, first);
    }
}

/* Sets the timer for the next turn that no event triggers. */
static void deaths_arm(struct gp_deaths *deaths)
{
    struct itimerspec at = {{0, 0}, {0, 0}};
    const struct gp_tracked *first = TAILQ_FIRST(&deaths->ended);
    if (deaths->is_scanning || gp_removed_is_busy(deaths->removed))
        at.it_value.tv_nsec = 1; /* at once, but after the loop's other work */
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
        struct gp_tracked *process = events[i].data.ptr;
        if (!process)
            continue; /* the timer, which is set again below */
        tracked_detach(deaths, process);
        tracked_end(deaths, process);
    }
    /* Not before this point: entries are reused below, and the events above may still refer to
     * them. */
    ends_due(deaths);
    if (deaths->is_scanning)
        scan_part(deaths);
    else
        deaths->count.containers += gp_removed_turn(deaths->removed);
    deaths_arm(deaths);
}

void gp_deaths_second(struct gp_deaths *deaths)
{
    struct rlimit files;
    if (deaths->is_scanning || gp_removed_is_busy(deaths->removed))
        return;
    /* The other half is for the rest of the agent: libraries also hold a pidfd for each process
     * that maps them. */
    deaths->most_pidfds = getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur / 2 : 512;
    deaths->is_scanning = true;
    deaths->walk = (struct gp_bpf_walk){.at = 0};
    deaths->unknown = 0;
    deaths->scan++;
    deaths_arm(deaths);
}

/* ---- open, close ------------------------------------------------------------------------------------------------- */

/* /proc shows start times in the reader's time namespace (time_namespaces(7)). */
static uint64_t boot_offset(void)
{
    char text[256];
    long long seconds, ns;
    const char *at;
    if (gp_proc_read(-1, "/proc/self/timens_offsets", text, sizeof(text)) < 0 || !(at = strstr(text, "boottime")) ||
        sscanf(at, "boottime %lld %lld", &seconds, &ns) != 2)
        return 0;
    return (uint64_t)(seconds * 1000000000ll + ns); /* a negative value wraps, and wraps back when it is added */
}

static int deaths_room(struct gp_deaths *deaths)
{
    struct bpf_map_info info = {0};
    uint32_t bytes = sizeof(info);
    int fd = gp_bpf_map(deaths->bpf, "process");
    if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &bytes))
        return fd < 0 ? fd : -errno;
    deaths->capacity = info.max_entries;
    deaths->tracked = calloc(deaths->capacity, sizeof(*deaths->tracked));
    return deaths->tracked ? 0 : -ENOMEM;
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
        error = gp_removed_open(&deaths->removed, bpf);
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
    struct gp_tracked *process;
    TAILQ_FOREACH(process, &deaths->counted, link)
    {
        if (process->pidfd >= 0)
            close(process->pidfd);
    }
    if (deaths->timer >= 0)
        close(deaths->timer);
    if (deaths->epoll >= 0)
        close(deaths->epoll);
    gp_removed_close(deaths->removed);
    free(deaths->tracked);
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
