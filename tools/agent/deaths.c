/* SPDX-License-Identifier: MIT
 *
 * deaths.c: removes ended processes whose exit the kernel's programs missed (deaths.h). All work
 * happens on the agent's one thread, in turns of bounded work:
 *
 *    scans       go through the tables part by part. A new process is tracked: pidfd first, then its
 *                start time, which shows whether its number was given to another process meanwhile.
 *    ends        A process ended if its pidfd became readable or a scan did not find it alive. A
 *                moment later whatever the tables still hold of (tgid, start time) is removed; the
 *                pair makes that safe at any time.
 *    containers  are checked after each scan: deaths.h looks up their cgroups.
 */
#include <agent/deaths.h>
#include <agent/kernel/bpf.h>
#include <base/clock.h>
#include <base/compiler.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <gpuprof/maps.h>
#include <mntent.h>
#include <poll.h>
#include <read/collect/procfs.h>
#include <read/common/agentlog.h>
#include <read/common/hash.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* ==== removed containers ========================================================================================== */
/* A cgroup's number is never reused, so one that cannot be opened by its number is gone for good.
 * Its rows are freed when two scans in a row find it removed: a BPF program that started while the
 * cgroup existed may still use one of its rows, and the kernel reuses a deleted row's memory at
 * once. */

#define GP_REMOVED_FORGET 512 /* per turn: a walk through the sums and two system calls each, about 1 ms */
/* Sums whose container has no row (the table of containers was full) are rare: two scans of eight
 * look for them. */
#define GP_REMOVED_SUMS_OF  8
#define GP_REMOVED_SUMS_FOR 2

/* The file handle type by which a cgroup is opened by number; the kernel's public headers lack it. */
#define GP_FILEID_KERNFS 0xfe

enum gp_removed_phase { GP_REMOVED_IDLE, GP_REMOVED_CONTAINERS, GP_REMOVED_SUMS, GP_REMOVED_FORGETTING };

struct gp_ids { /* the first `sorted` ids are in order */
    uint32_t count, sorted;
    uint64_t *id;
};

enum { GP_HIERARCHY_V2, GP_HIERARCHY_MEMORY, GP_HIERARCHY_PIDS, GP_HIERARCHIES };

struct gp_hierarchy {
    char path[256]; /* "": not found */
    int fd;         /* open during a scan; -1 not opened yet, -2 failed */
};

struct gp_removed {
    struct gp_bpf *bpf;
    enum gp_removed_phase phase;
    uint32_t scan, capacity, at;
    struct gp_bpf_walk walk;
    struct gp_ids found, before; /* by this scan, by the previous hierarchy */
    uint64_t *due;               /* in both */
    uint32_t due_count;
    struct gp_hierarchy hierarchies[GP_HIERARCHIES];
    bool has_logged;
};

static bool ids_has(const struct gp_ids *ids, uint64_t id)
{
    return ids->sorted && bsearch(&id, ids->id, ids->sorted, sizeof(id), gp_order_u64);
}

static void ids_sort(struct gp_ids *ids)
{
    qsort(ids->id, ids->count, sizeof(*ids->id), gp_order_u64);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < ids->count; i++) {
        if (kept == 0 || ids->id[kept - 1] != ids->id[i])
            ids->id[kept++] = ids->id[i];
    }
    ids->count = ids->sorted = kept;
}

/* ---- does the cgroup exist? -------------------------------------------------------------------------------------- */

static int hierarchy_of(const struct mntent *entry)
{
    if (!strcmp(entry->mnt_type, "cgroup2"))
        return GP_HIERARCHY_V2;
    if (strcmp(entry->mnt_type, "cgroup") != 0)
        return -1;
    return hasmntopt(entry, "memory") ? GP_HIERARCHY_MEMORY : hasmntopt(entry, "pids") ? GP_HIERARCHY_PIDS : -1;
}

static void hierarchies_find(struct gp_removed *removed)
{
    char line[4096];
    struct mntent entry;
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    for (int i = 0; i < GP_HIERARCHIES; i++)
        removed->hierarchies[i].path[0] = '\0';
    while (mounts && getmntent_r(mounts, &entry, line, sizeof(line))) {
        int which = hierarchy_of(&entry);
        if (which >= 0 && !removed->hierarchies[which].path[0] &&
            strlen(entry.mnt_dir) < sizeof(removed->hierarchies->path))
            strcpy(removed->hierarchies[which].path, entry.mnt_dir);
    }
    if (mounts)
        endmntent(mounts);
}

static void removed_log(struct gp_removed *removed, int error)
{
    if (removed->has_logged)
        return;
    removed->has_logged = true;
    gp_agent_log(
        GP_AGENTLOG_WARNING,
        "cannot tell whether a container was removed (%s), so removed containers keep their rows in the tables: the "
        "agent needs CAP_DAC_READ_SEARCH and a mounted cgroup file system",
        strerror(-error));
}

/* Open only during a scan: a descriptor held all the time would keep the file system from being
 * unmounted. */
static int hierarchy_fd(struct gp_removed *removed, struct gp_hierarchy *hierarchy)
{
    if (hierarchy->fd != -1)
        return hierarchy->fd;
    if (!hierarchy->path[0] || (hierarchy->fd = open(hierarchy->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        hierarchies_find(removed);
        hierarchy->fd = hierarchy->path[0] ? open(hierarchy->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    }
    if (hierarchy->fd < 0) {
        removed_log(removed, hierarchy->path[0] ? -errno : -ENOENT);
        hierarchy->fd = -2;
    }
    return hierarchy->fd;
}

static void hierarchies_close(struct gp_removed *removed)
{
    for (int i = 0; i < GP_HIERARCHIES; i++) {
        if (removed->hierarchies[i].fd >= 0)
            close(removed->hierarchies[i].fd);
        removed->hierarchies[i].fd = -1;
    }
}

static struct gp_hierarchy *hierarchy_with(struct gp_removed *removed, uint64_t id)
{
    switch (id & GP_MAP_CGROUP_V1_PIDS) {
    case 0:
        return &removed->hierarchies[GP_HIERARCHY_V2];
    case GP_MAP_CGROUP_V1:
        return &removed->hierarchies[GP_HIERARCHY_MEMORY];
    default:
        return &removed->hierarchies[GP_HIERARCHY_PIDS];
    }
}

static bool cgroup_is_removed(struct gp_removed *removed, uint64_t id)
{
    if (ids_has(&removed->before, id))
        return true;
    int mount = hierarchy_fd(removed, hierarchy_with(removed, id));
    if (mount < 0)
        return false;
    union {
        struct file_handle head;
        char bytes[sizeof(struct file_handle) + sizeof(id)];
    } handle = {.head = {.handle_bytes = sizeof(id), .handle_type = GP_FILEID_KERNFS}};
    id &= GP_MAP_CGROUP_V1 - 1;
    memcpy(handle.head.f_handle, &id, sizeof(id));
    int fd = open_by_handle_at(mount, &handle.head, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ESTALE)
            removed_log(removed, -errno);
        return errno == ESTALE;
    }
    /* Some kernels open a removed cgroup that memory is still charged to; it has no files any more. */
    struct stat about;
    bool is_removed = fstatat(fd, "cgroup.procs", &about, 0) && errno == ENOENT;
    close(fd);
    return is_removed;
}

/* ---- the scan ---------------------------------------------------------------------------------------------------- */

/* starts a scan */
static void removed_begin(struct gp_removed *removed)
{
    removed->phase = GP_REMOVED_CONTAINERS;
    removed->walk = (struct gp_bpf_walk){.at = 0};
    removed->found.count = removed->found.sorted = 0;
    removed->scan++;
}

static bool removed_is_busy(const struct gp_removed *removed)
{
    return removed->phase != GP_REMOVED_IDLE;
}

static void removed_end(struct gp_removed *removed)
{
    struct gp_ids was = removed->before;
    removed->before = removed->found;
    removed->found = was;
    removed->phase = GP_REMOVED_IDLE;
    hierarchies_close(removed);
}

static void removed_choose(struct gp_removed *removed)
{
    ids_sort(&removed->found);
    removed->due_count = removed->at = 0;
    for (uint32_t i = 0; i < removed->found.count; i++) {
        if (ids_has(&removed->before, removed->found.id[i]))
            removed->due[removed->due_count++] = removed->found.id[i];
    }
    removed->phase = GP_REMOVED_FORGETTING;
}

static void removed_scan(struct gp_removed *removed)
{
    uint64_t ids[GP_BPF_PART], last = 0;
    uint32_t count;
    bool is_sums = removed->phase == GP_REMOVED_SUMS;
    int more = is_sums ? gp_bpf_idle_sums(removed->bpf, &removed->walk, ids, &count)
                       : gp_bpf_idle_containers(removed->bpf, &removed->walk, ids, &count);
    if (more < 0) {
        removed_log(removed, more);
        removed_end(removed);
        return;
    }
    for (uint32_t i = 0; i < count && removed->found.count < removed->capacity; i++) {
        if (ids[i] == last || ids_has(&removed->found, ids[i]))
            continue;
        last = ids[i];
        if (cgroup_is_removed(removed, ids[i]))
            removed->found.id[removed->found.count++] = ids[i];
    }
    if (more)
        return;
    if (is_sums || removed->scan % GP_REMOVED_SUMS_OF >= GP_REMOVED_SUMS_FOR) {
        removed_choose(removed);
        return;
    }
    ids_sort(&removed->found);
    removed->phase = GP_REMOVED_SUMS;
    removed->walk = (struct gp_bpf_walk){.at = 0};
}

static unsigned removed_forget(struct gp_removed *removed)
{
    uint32_t some = removed->due_count - removed->at, forgotten = 0;
    if (some > GP_REMOVED_FORGET)
        some = GP_REMOVED_FORGET;
    if (some) {
        int rows = gp_bpf_forget_containers(removed->bpf, removed->due + removed->at, some, &forgotten);
        if (rows < 0)
            removed_log(removed, rows);
    }
    removed->at += some;
    if (removed->at == removed->due_count)
        removed_end(removed);
    return forgotten;
}

/* bounded work; returns the cgroups whose rows were freed */
static unsigned removed_turn(struct gp_removed *removed)
{
    if (removed->phase == GP_REMOVED_FORGETTING)
        return removed_forget(removed);
    if (removed->phase != GP_REMOVED_IDLE)
        removed_scan(removed);
    return 0;
}

/* ---- open, close ------------------------------------------------------------------------------------------------- */

static int removed_room(const struct gp_bpf *bpf, const char *name, uint32_t *room)
{
    struct bpf_map_info info = {0};
    uint32_t bytes = sizeof(info);
    int fd = gp_bpf_map(bpf, name);
    if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &bytes))
        return fd < 0 ? fd : -errno;
    *room += info.max_entries;
    return 0;
}

static void removed_close(struct gp_removed *gone);

/* bpf must outlive it.  0 or -errno */
static int removed_open(struct gp_removed **out, struct gp_bpf *bpf)
{
    struct gp_removed *removed = calloc(1, sizeof(*removed));
    *out = NULL;
    if (!removed)
        return -ENOMEM;
    removed->bpf = bpf;
    for (int i = 0; i < GP_HIERARCHIES; i++)
        removed->hierarchies[i].fd = -1;
    int error = removed_room(bpf, "container", &removed->capacity);
    if (!error)
        error = removed_room(bpf, "container_device", &removed->capacity);
    removed->found.id = calloc(removed->capacity, sizeof(uint64_t));
    removed->before.id = calloc(removed->capacity, sizeof(uint64_t));
    removed->due = calloc(removed->capacity, sizeof(uint64_t));
    if (!error && (!removed->found.id || !removed->before.id || !removed->due))
        error = -ENOMEM;
    if (error)
        removed_close(removed);
    else
        *out = removed;
    return error;
}

static void removed_close(struct gp_removed *removed)
{
    if (!removed)
        return;
    hierarchies_close(removed);
    free(removed->found.id);
    free(removed->before.id);
    free(removed->due);
    free(removed);
}

/* ==== ended processes ============================================================================================= */

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
    removed_begin(deaths->removed);
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
    if (deaths->is_scanning || removed_is_busy(deaths->removed))
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
        deaths->count.containers += removed_turn(deaths->removed);
    deaths_arm(deaths);
}

void gp_deaths_second(struct gp_deaths *deaths)
{
    struct rlimit files;
    if (deaths->is_scanning || removed_is_busy(deaths->removed))
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
        error = removed_open(&deaths->removed, bpf);
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
    removed_close(deaths->removed);
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
