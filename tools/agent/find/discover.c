/* SPDX-License-Identifier: MIT
 *
 * discover.c: see discover.h. The records come from the kernel, but the names in them do not: they
 * can be any bytes of any length.
 *
 * Each CPU has a ring of 64 KiB. An exec makes about five executable mappings of 150 bytes each, so
 * a CPU that only execs (2000/s) fills half of the ring, the watermark, in 20 ms; the other half is
 * for the time until the finder wakes up. Records below the watermark are read five times a second.
 */
#include <agent/find/discover.h>
#include <agent/find/library.h>
#include <read/common/agentlog.h>
#include <read/common/foreign.h>

#include <base/clock.h>
#include <base/vma.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define RING_BYTES     (64u << 10)
#define CPUS_MOST      8192u
#define POLL_NS        200000000l     /* below the watermark; a copy should be armed within a second of its start */
#define CPUS_NS        1000000000ull  /* how often new CPUs are looked for */
#define SWEEP_NS       1000000000ull  /* minimum time between sweeps started by losses */
#define SLOW_NS        60000000000ull /* between regular sweeps, which find processes that execed */
#define LOG_NS         60000000000ull /* between log lines about losses */
#define POSTPONED_NS   10000000000ull
#define TURN_UNITS     8192         /* records per turn: about 10 ms */
#define CANDIDATE_COST 32           /* for opening a candidate */
#define ARMED_COST     2048         /* the kernel waits for all CPUs: some 10 ms each */
#define MAPS_MOST      (8u << 20)   /* bytes of one process's maps: 80 000 mappings, above the kernel's default limit */
#define QUERIES_MOST   65536        /* per process: the kernel's default limit of mappings */
#define SWEEP_MOST_NS  300000000ull /* per call, so that a stalled sweep can be told from a long one */

/* From <linux/fs.h> of Linux 6.11. */
struct procmap_query {
    uint64_t size, flags, address;                             /* in */
    uint64_t start, end, vma_flags, page_bytes, offset, inode; /* out */
    uint32_t major, minor, name_bytes, id_bytes;
    uint64_t name_at, id_at;
};
#define PROCMAP_QUERY    _IOWR('f', 17, struct procmap_query)
#define QUERY_EXECUTABLE 0x04u
#define QUERY_NEXT       0x10u /* the mapping at the address, or the next one */
#define QUERY_FILE       0x20u

struct ring {
    int fd; /* -1: no such CPU, or it is offline */
    struct perf_event_mmap_page *page;
};

struct gp_discover {
    struct gp_discover_options options;
    struct gp_procopen *procopen; /* of what the kernel may block in */
    int epoll, timer;
    long page_bytes;
    struct ring *rings;
    unsigned ring_count, next_ring;
    char online[512];
    bool want_sweep, is_in_sweep, no_map_files;
    pid_t resume; /* the pid at which an interrupted sweep continues; 0: no sweep is open */
    int mappers;  /* processes found by this sweep */
    pid_t current;
    uint64_t cpus_at_ns, swept_at_ns, postponed, logged_lost, log_after_ns, stall_after_ns;
    struct gp_discover_count count;
    _Alignas(8) uint8_t record[65536]; /* a record's length has 16 bits */
    char maps[65536];
};

/* ---- one mapping ----------------------------------------------------------------------------------------------- */

struct mapping {
    pid_t pid;
    int proc; /* directory /proc/PID, bound to the process */
    uint64_t start, end;
    char *name;
    struct gp_library_id id;
};

static size_t name_base(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? (size_t)(slash - name) + 1 : 0;
}

/* The kernel appends this to the name of a deleted file. */
static size_t name_bytes(const char *name)
{
    static const char deleted[] = " (deleted)";
    size_t n = strlen(name), tail = sizeof(deleted) - 1;
    return n > tail && !strcmp(name + n - tail, deleted) ? n - tail : n;
}

static bool is_candidate(const struct gp_discover *d, const char *name, const struct gp_library_id *id)
{
    size_t base = name_base(name), n = name_bytes(name);
    return gp_libraries_knows_id(d->options.libraries, id) ||
           (*name == '/' && n > base && gp_libraries_knows_name(d->options.libraries, name + base, n - base));
}

/* The file with that name in the process's root; O_PATH, so a FIFO or a device there is not opened. */
static int open_by_name(const struct mapping *mapping)
{
    struct gp_asuser as;
    int root = openat(mapping->proc, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -errno;
    int fd = gp_asuser_begin(&as, mapping->proc);
    if (!fd) {
        /* cached: never asks a file system's server, which could block. All names of a mapped file are
         * cached. */
        fd = gp_foreign_hold(root, mapping->name, true);
        gp_asuser_end(&as);
    }
    close(root);
    return fd;
}

/* Opens what belongs to the process's memory. The kernel blocks there while the process is in a call
 * of exec that does not end, as when it holds a file whose FUSE server does not answer: then the
 * process counts as one that cannot be examined. A descriptor or -errno. */
static int open_bounded(struct gp_discover *d, const struct mapping *mapping, const char *name, int flags)
{
    int fd = gp_procopen_open(d->procopen, mapping->proc, name, flags);
    if (fd != -ETIMEDOUT)
        return fd;
    uint64_t now = gp_clock_ns();
    d->count.stalls++;
    if (now >= d->stall_after_ns) {
        d->stall_after_ns = now + LOG_NS;
        gp_agent_log(GP_AGENTLOG_WARNING,
                     "the kernel does not answer for the memory of process %d (it may be in exec with a file whose "
                     "server hangs): the process is left out until the next sweep",
                     (int)mapping->pid);
    }
    return fd;
}

static int open_mapped(struct gp_discover *d, const struct mapping *mapping)
{
    char path[64];
    snprintf(path, sizeof(path), "map_files/%" PRIx64 "-%" PRIx64, mapping->start, mapping->end);
    int fd = d->no_map_files ? -EPERM : open_bounded(d, mapping, path, O_PATH);
    if (fd >= 0 || fd == -ETIMEDOUT)
        return fd;
    /* ENOENT: the mapping was split or is gone. EACCES: this process cannot be examined; EPERM: no
     * process can. */
    if (!d->no_map_files && fd == -EPERM) {
        d->no_map_files = true;
        gp_agent_log(GP_AGENTLOG_INFO,
                     "cannot open /proc/PID/map_files without CAP_CHECKPOINT_RESTORE: files are opened by their paths, "
                     "with the rights of their processes");
    }
    return open_by_name(mapping);
}

/* 1: the process maps a file that was armed now; 0: one that was armed before; -errno: the file is
 * not armed, or unknown. */
static int mapping_offer(struct gp_discover *d, const struct mapping *mapping)
{
    int fd = open_mapped(d, mapping);
    if (fd < 0) {
        if (d->is_in_sweep)
            gp_libraries_sweep_keep(d->options.libraries, mapping->pid);
        return fd;
    }
    struct gp_library_offer offer = {
        .fd = fd, .proc = mapping->proc, .pid = mapping->pid, .name = mapping->name, .id = &mapping->id};
    int answer = gp_libraries_offer(d->options.libraries, &offer);
    close(fd);
    d->count.candidates++;
    if (answer < 0)
        return answer;
    if (d->options.mapped)
        d->options.mapped(d->options.arg, mapping->pid);
    return answer;
}

static int proc_open(struct gp_discover *d, pid_t pid)
{
    /* relaxed: only the number is reported, and nothing else is read by it */
    __atomic_store_n(&d->current, pid, __ATOMIC_RELAXED);
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* ---- records --------------------------------------------------------------------------------------------------- */

struct mmap2 { /* PERF_RECORD_MMAP2, behind its header; the name follows */
    uint32_t pid, tid;
    uint64_t addr, len, pgoff;
    union {
        struct {
            uint8_t build_id_bytes, pad[3], build_id[20];
        };
        struct {
            uint32_t major, minor;
            uint64_t inode, generation;
        };
    };
    uint32_t prot, flags;
    char name[];
};

/* The record has been copied out of the ring. Returns units of work. */
static int record_mmap2(struct gp_discover *d, const struct perf_event_header *header, struct mmap2 *body, size_t bytes)
{
    d->count.records++;
    if (bytes <= sizeof(*body))
        return 1;
    body->name[bytes - sizeof(*body) - 1] = '\0';
    struct mapping mapping = {
        .pid = (pid_t)body->pid, .start = body->addr, .end = body->addr + body->len, .name = body->name};
    if (header->misc & PERF_RECORD_MISC_MMAP_BUILD_ID && body->build_id_bytes <= GP_LIBRARY_ID) {
        mapping.id.bytes = body->build_id_bytes;
        memcpy(mapping.id.id, body->build_id, body->build_id_bytes);
    }
    if (mapping.pid <= 0 || !is_candidate(d, mapping.name, &mapping.id))
        return 1;
    mapping.proc = proc_open(d, mapping.pid);
    if (mapping.proc < 0)
        return CANDIDATE_COST;
    bool is_new = mapping_offer(d, &mapping) > 0;
    close(mapping.proc);
    return is_new ? ARMED_COST : CANDIDATE_COST;
}

static int record(struct gp_discover *d, size_t bytes)
{
    struct perf_event_header header;
    memcpy(&header, d->record, sizeof(header));
    uint8_t *body = d->record + sizeof(header);
    if (header.type == PERF_RECORD_MMAP2)
        return record_mmap2(d, &header, (struct mmap2 *)body, bytes - sizeof(header));
    if (header.type == PERF_RECORD_LOST && bytes >= sizeof(header) + 16) {
        uint64_t lost;
        memcpy(&lost, body + 8, sizeof(lost));
        d->count.lost += lost;
        d->want_sweep = true;
    }
    if (header.type == PERF_RECORD_THROTTLE)
        d->want_sweep = true;
    return 1;
}

static void ring_copy(const struct ring *ring, const struct gp_discover *d, uint64_t at, void *to, size_t bytes)
{
    const uint8_t *data = (const uint8_t *)ring->page + d->page_bytes;
    size_t from = at % RING_BYTES, first = RING_BYTES - from < bytes ? RING_BYTES - from : bytes;
    memcpy(to, data + from, first);
    memcpy((uint8_t *)to + first, data, bytes - first);
}

/* Reads records while there are some and units are left. Returns the units left. */
static int ring_read(struct gp_discover *d, const struct ring *ring, int units)
{
    /* Acquire: pairs with the kernel's store of data_head after the records' bytes
     * (perf_output_put_handle). */
    uint64_t head = __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE), tail = ring->page->data_tail;
    while (units > 0 && head - tail >= sizeof(struct perf_event_header)) {
        struct perf_event_header header;
        ring_copy(ring, d, tail, &header, sizeof(header));
        if (header.size < sizeof(header) || header.size > head - tail) { /* the kernel writes no such record */
            tail = head;
            d->want_sweep = true;
            break;
        }
        ring_copy(ring, d, tail, d->record, header.size);
        tail += header.size;
        /* Release: the kernel may now overwrite the copied bytes; pairs with its read of data_tail
         * before it writes. */
        __atomic_store_n(&ring->page->data_tail, tail, __ATOMIC_RELEASE);
        units -= record(d, header.size);
    }
    __atomic_store_n(&ring->page->data_tail, tail, __ATOMIC_RELEASE); /* as above */
    return units;
}

/* ---- CPUs ------------------------------------------------------------------------------------------------------ */

static int event_open(unsigned cpu, bool want_ids)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof(attr),
        .config = PERF_COUNT_SW_DUMMY,
        .mmap = 1, /* only executable mappings, as mmap_data is not set */
        .mmap2 = 1,
        .build_id = want_ids,
        .watermark = 1,
        .wakeup_watermark = RING_BYTES / 2,
    };
    int fd = (int)syscall(SYS_perf_event_open, &attr, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static void ring_close(struct gp_discover *d, struct ring *ring)
{
    if (ring->fd < 0)
        return;
    munmap(ring->page, (size_t)d->page_bytes + RING_BYTES);
    close(ring->fd);
    ring->fd = -1;
    d->count.cpus--;
}

static int ring_open(struct gp_discover *d, unsigned cpu)
{
    int fd = event_open(cpu, d->count.has_build_ids);
    if (fd == -EINVAL && d->count.has_build_ids) { /* below 5.12: names only */
        fd = event_open(cpu, false);
        d->count.has_build_ids = fd < 0;
    }
    if (fd < 0)
        return fd;
    void *page = mmap(NULL, (size_t)d->page_bytes + RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = cpu};
    if (page == MAP_FAILED || epoll_ctl(d->epoll, EPOLL_CTL_ADD, fd, &event)) {
        int error = -errno;
        if (page != MAP_FAILED)
            munmap(page, (size_t)d->page_bytes + RING_BYTES);
        close(fd);
        return error;
    }
    d->rings[cpu] = (struct ring){fd, page};
    d->count.cpus++;
    return 0;
}

static int rings_grow(struct gp_discover *d, unsigned count)
{
    if (count <= d->ring_count)
        return 0;
    struct ring *more = realloc(d->rings, count * sizeof(*more));
    if (!more)
        return -ENOMEM;
    for (unsigned i = d->ring_count; i < count; i++)
        more[i] = (struct ring){.fd = -1};
    d->rings = more;
    d->ring_count = count;
    return 0;
}

static int online_read(char *text, size_t bytes)
{
    int fd = open("/sys/devices/system/cpu/online", O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, bytes - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got > 0 ? 0 : -EIO;
}

static bool online_has(const char *list, unsigned cpu)
{
    unsigned from, to;
    int n;
    for (; sscanf(list, "%u%n", &from, &n) == 1; list += n + (list[n] == ',')) {
        to = from;
        if (list[n] == '-' && sscanf(list + n + 1, "%u", &to) == 1)
            n += 1 + (int)strspn(list + n + 1, "0123456789");
        if (cpu >= from && cpu <= to)
            return true;
    }
    return false;
}

/* One past the highest number in the list, which is sorted. */
static unsigned online_end(const char *list)
{
    size_t n = strlen(list);
    while (n && (list[n - 1] < '0' || list[n - 1] > '9'))
        n--;
    while (n && list[n - 1] >= '0' && list[n - 1] <= '9')
        n--;
    unsigned long last = strtoul(list + n, NULL, 10);
    return last < CPUS_MOST ? (unsigned)last + 1 : CPUS_MOST;
}

/* Opens and closes rings to follow the CPUs that are online. 0 or the first -errno. */
static int cpus_follow(struct gp_discover *d)
{
    char online[sizeof(d->online)];
    int error = online_read(online, sizeof(online));
    if (error || !strcmp(online, d->online))
        return error;
    error = rings_grow(d, online_end(online));
    for (unsigned cpu = 0; cpu < d->ring_count; cpu++) {
        bool is_on = online_has(online, cpu);
        if (!is_on)
            ring_close(d, &d->rings[cpu]);
        else if (d->rings[cpu].fd < 0) {
            int failed = ring_open(d, cpu);
            error = error ? error : failed;
            d->want_sweep |= !failed;
        }
    }
    if (!error)
        memcpy(d->online, online, sizeof(online)); /* else tried again next time */
    return error;
}

/* ---- /proc ----------------------------------------------------------------------------------------------------- */

struct maps_reader {
    struct gp_discover *discover;
    struct mapping *mapping;
    bool is_any, is_mapper;
};

static bool maps_take(void *context, const struct gp_vma *vma)
{
    struct maps_reader *reader = context;
    struct gp_discover *d = reader->discover;
    struct mapping *mapping = reader->mapping;
    reader->is_any = true;
    if (vma->rights[2] != 'x' || vma->path[0] != '/')
        return true;
    mapping->start = vma->start;
    mapping->end = vma->end;
    mapping->name = d->maps + (vma->path - d->maps);
    char *to = mapping->name; /* line feeds are written as "\012"; nothing else is escaped */
    for (const char *from = mapping->name; *from; to++) {
        bool is_feed = !strncmp(from, "\\012", 4);
        *to = is_feed ? '\n' : *from;
        from += is_feed ? 4 : 1;
    }
    *to = '\0';
    reader->is_mapper |= is_candidate(d, mapping->name, &mapping->id) && mapping_offer(d, mapping) >= 0;
    return true;
}

/* Reads maps as text, for kernels without PROCMAP_QUERY. Returns whether the process maps an armed
 * file. */
static int maps_read(struct gp_discover *d, struct mapping *mapping, int fd)
{
    struct maps_reader reader = {d, mapping, false, false};
    int rc = gp_vma_walk(fd, d->maps, sizeof(d->maps), MAPS_MOST, maps_take, &reader);
    if (!reader.is_any || rc == -EFBIG) /* no text: see proc_examine */
        gp_libraries_sweep_keep(d->options.libraries, mapping->pid);
    return reader.is_mapper;
}

/* Queries only the executable mappings of files (Linux 6.11), at a quarter of the text's cost. 1:
 * the process maps an armed file; 0; -ENOTTY: the kernel has no PROCMAP_QUERY. */
static int maps_query(struct gp_discover *d, struct mapping *mapping, int fd)
{
    int is_mapper = 0;
    uint64_t at = 0;
    for (unsigned i = 0; i < QUERIES_MOST; i++) {
        struct procmap_query query = {
            .size = sizeof(query),
            .flags = QUERY_EXECUTABLE | QUERY_NEXT | QUERY_FILE,
            .address = at,
            .name_bytes = PATH_MAX + 16, /* "(deleted)" */
            .name_at = (uintptr_t)d->maps,
        };
        d->maps[0] = '\0';
        int error = ioctl(fd, PROCMAP_QUERY, &query) ? errno : 0;
        if (error == ENOTTY)
            return -ENOTTY;
        if (error == ENOENT) /* no more mappings */
            return is_mapper;
        if (error && error != ENAMETOOLONG)
            break;
        if (query.end <= at) /* the name is too long, so the query failed; the kernel's paths are shorter */
            break;
        at = query.end;
        mapping->start = query.start;
        mapping->end = query.end;
        mapping->name = d->maps;
        d->maps[PATH_MAX + 16] = '\0';
        if (is_candidate(d, mapping->name, &mapping->id))
            is_mapper |= mapping_offer(d, mapping) >= 0;
    }
    gp_libraries_sweep_keep(d->options.libraries, mapping->pid);
    return is_mapper;
}

/* A process that cannot be examined is assumed to map the same files as before: its maps are hidden
 * when its first thread has ended and others run on, and we may be out of descriptors. A pidfd
 * shows when a process has ended. */
static int proc_examine(struct gp_discover *d, pid_t pid)
{
    struct mapping mapping = {.pid = pid, .proc = proc_open(d, pid)};
    int fd = mapping.proc < 0 ? -1 : open_bounded(d, &mapping, "maps", O_RDONLY);
    int is_mapper = fd < 0 ? 0 : -ENOTTY;
    if (fd < 0)
        gp_libraries_sweep_keep(d->options.libraries, pid);
    if (fd >= 0 && !d->options.no_query)
        is_mapper = maps_query(d, &mapping, fd);
    if (is_mapper == -ENOTTY)
        is_mapper = maps_read(d, &mapping, fd);
    if (fd >= 0)
        close(fd);
    if (mapping.proc >= 0)
        close(mapping.proc);
    return is_mapper;
}

/* Walks /proc in the order of pids, which is the kernel's. */
static int proc_walk(struct gp_discover *d, DIR *proc)
{
    uint64_t until = gp_clock_ns() + SWEEP_MOST_NS;
    for (struct dirent *entry; (entry = readdir(proc));) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        if (*end || pid <= 0 || pid > INT32_MAX || pid < d->resume)
            continue;
        d->mappers += proc_examine(d, (pid_t)pid);
        if (gp_clock_ns() > until) {
            d->resume = (pid_t)pid + 1;
            return -ETIME;
        }
    }
    d->resume = 0;
    return d->mappers;
}

int gp_discover_sweep(struct gp_discover *d)
{
    uint64_t start = gp_clock_ns();
    DIR *proc = opendir("/proc");
    if (!proc)
        return -errno;
    d->is_in_sweep = true;
    if (!d->resume) {
        d->mappers = 0;
        gp_libraries_sweep_begin(d->options.libraries);
    }
    int mappers = proc_walk(d, proc);
    if (mappers >= 0)
        gp_libraries_sweep_end(d->options.libraries);
    d->want_sweep = mappers < 0;
    d->is_in_sweep = false;
    closedir(proc);
    d->swept_at_ns = gp_clock_ns();
    d->count.sweeps++;
    d->count.sweep_ns = d->swept_at_ns - start;
    return mappers;
}

/* ---- the turn -------------------------------------------------------------------------------------------------- */

static int timer_set(const struct gp_discover *d, long first_ns)
{
    struct itimerspec when = {.it_value.tv_nsec = first_ns, .it_interval.tv_nsec = POLL_NS};
    return timerfd_settime(d->timer, 0, &when, NULL) ? -errno : 0;
}

/* A sweep makes up for losses, so this is not a warning, and a flood of mappings must not flood the
 * log. */
static void lost_log(struct gp_discover *d, uint64_t now)
{
    if (d->count.lost == d->logged_lost || now < d->log_after_ns)
        return;
    gp_agent_log(GP_AGENTLOG_INFO, "%" PRIu64 " mapping records were lost; sweeping /proc",
                 d->count.lost - d->logged_lost);
    d->logged_lost = d->count.lost;
    d->log_after_ns = now + LOG_NS;
}

static void sweep_if_due(struct gp_discover *d, uint64_t now)
{
    /* Postponed files are offered again later, so that a process that creates thousands does not
     * keep us busy. */
    uint64_t postponed = gp_libraries_count(d->options.libraries).postponed;
    bool is_due = (d->want_sweep && now - d->swept_at_ns >= SWEEP_NS) || now - d->swept_at_ns >= d->options.slow_ns;
    if (!is_due && (postponed == d->postponed || now - d->swept_at_ns < POSTPONED_NS))
        return;
    d->postponed = postponed;
    gp_discover_sweep(d);
}

void gp_discover_turn(struct gp_discover *d)
{
    uint64_t expired, now = gp_clock_ns();
    int units = TURN_UNITS;
    /* epoll reports a ring's readiness only once, and the timer's until it is read. So every turn
     * reads all rings. */
    if (read(d->timer, &expired, sizeof(expired)) < 0 && errno != EAGAIN)
        d->want_sweep = true;
    if (now - d->cpus_at_ns >= CPUS_NS) {
        d->cpus_at_ns = now;
        cpus_follow(d);
    }
    for (unsigned i = 0; i < d->ring_count && units > 0; i++) {
        const struct ring *ring = &d->rings[d->next_ring++ % d->ring_count];
        if (ring->fd >= 0)
            units = ring_read(d, ring, units);
    }
    lost_log(d, now);
    sweep_if_due(d, now);
    if (units <= 0)
        timer_set(d, 1); /* a ring reports only once that it is half full */
}

int gp_discover_fd(const struct gp_discover *d)
{
    return d->epoll;
}

pid_t gp_discover_current(const struct gp_discover *d)
{
    return __atomic_load_n(&d->current, __ATOMIC_RELAXED); /* as in proc_open */
}

struct gp_discover_count gp_discover_count(const struct gp_discover *d)
{
    struct gp_discover_count count = d->count;
    count.has_map_files = !d->no_map_files;
    return count;
}

/* ---- open, close ----------------------------------------------------------------------------------------------- */

static int open_all(struct gp_discover *d)
{
    d->page_bytes = sysconf(_SC_PAGESIZE);
    d->procopen = gp_procopen_new();
    if (!d->procopen)
        return -ENOMEM;
    d->count.has_build_ids = true;
    d->epoll = epoll_create1(EPOLL_CLOEXEC);
    d->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = UINT32_MAX};
    if (d->epoll < 0 || d->timer < 0 || epoll_ctl(d->epoll, EPOLL_CTL_ADD, d->timer, &event))
        return -errno;
    int error = cpus_follow(d);
    return error ? error : timer_set(d, POLL_NS);
}

int gp_discover_open(struct gp_discover **out, const struct gp_discover_options *options, char *why, size_t why_bytes)
{
    struct gp_discover *d = calloc(1, sizeof(*d));
    *out = NULL;
    if (!d) {
        snprintf(why, why_bytes, "out of memory");
        return -ENOMEM;
    }
    d->options = *options;
    if (!d->options.slow_ns)
        d->options.slow_ns = SLOW_NS;
    d->epoll = d->timer = -1;
    int error = open_all(d);
    if (error) {
        snprintf(why, why_bytes, "cannot watch the mappings of processes: %s%s", strerror(-error),
                 error == -EPERM || error == -EACCES ? " (CAP_PERFMON is needed)" : "");
        gp_discover_close(d);
        return error;
    }
    d->want_sweep = true; /* the first turn finds the copies that are mapped already */
    *out = d;
    return 0;
}

void gp_discover_close(struct gp_discover *d)
{
    if (!d)
        return;
    for (unsigned i = 0; i < d->ring_count; i++)
        ring_close(d, &d->rings[i]);
    free(d->rings);
    gp_procopen_free(d->procopen);
    if (d->timer >= 0)
        close(d->timer);
    if (d->epoll >= 0)
        close(d->epoll);
    free(d);
}
