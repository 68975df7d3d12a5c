/* SPDX-License-Identifier: MIT
 *
 * agent.c: see agent.h. One thread waits for all parts (epoll). Each part has a descriptor and a
 * function that does a bounded amount of work. Nothing in this loop waits for another process.
 */
#include <agent/agent.h>
#include <agent/attacher.h>
#include <agent/deaths.h>
#include <agent/failures.h>
#include <agent/find/find.h>
#include <agent/internal.h>
#include <agent/kernel/bpf.h>
#include <agent/query.h>
#include <arpa/inet.h>
#include <base/clock.h>
#include <base/compiler.h>
#include <errno.h>
#include <gpuprof/maps.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <read/collect/collect.h>
#include <read/collect/procfs.h>
#include <read/common/agentlog.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Viewers treat an agent as dead after 5 s without a heartbeat (GP_SYSTEM_ALIVE_NS), so a loaded
 * machine may miss ten. */
#define GP_AGENT_TICK_NS  500000000l
#define GP_AGENT_SECOND   1000000000ull
#define GP_AGENT_STATS_NS 60000000000ull

struct gp_daemon {
    const struct gp_agent_options *options;
    char *why; /* of gp_agent_run */
    size_t why_bytes;
    sigset_t signals, signals_before;
    int epoll, signal, timer, lock;
    void (*parts[8])(struct gp_daemon *); /* called when its descriptor is readable */
    uint32_t part_count;
    gid_t group;
    bool is_ending;
    int error; /* why the agent ends; 0: a signal */
    struct gp_bpf *bpf;
    struct gp_failures *failures;
    struct gp_metrics *metrics;
    struct gp_http *http;
    uint64_t stats_ns, second_ns, watchdog_ns, watched_ns;
    char status[256];
    struct gp_finder *finder;
    pid_t stalled_by; /* the process logged as stalling the finder; -1 an unknown one, 0 none */
    struct gp_querier *querier;
    struct gp_deaths *deaths;
    struct gp_attacher *attacher; /* NULL: without --attach-containers */
};

static int daemon_fail(struct gp_daemon *daemon, int error, const char *what)
{
    snprintf(daemon->why, daemon->why_bytes, "%s: %s", what, strerror(-error));
    return error;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* One line for `systemctl status`. The manager broadcasts it on the bus, so it is sent only when it
 * changes. */
static void daemon_status(struct gp_daemon *daemon)
{
    struct gp_deaths_count deaths = gp_deaths_count(daemon->deaths);
    struct gp_failures_count failures = gp_failures_count(daemon->failures);
    struct gp_finder_count found = gp_finder_count(daemon->finder);
    char status[sizeof(daemon->status)];
    int n = snprintf(status, sizeof(status),
                     "libraries armed: %u, refused: %" PRIu64 ", postponed: %" PRIu64 ", processes: %" PRIu64
                     ", failed allocations: %" PRIu64,
                     found.libraries.armed, found.libraries.refused, found.libraries.postponed,
                     deaths.processes + deaths.polled, failures.failures);
    if (found.discover.lost)
        n += snprintf(status + n, sizeof(status) - (size_t)n, ", lost mapping records: %" PRIu64, found.discover.lost);
    if (found.hangs_ns)
        snprintf(status + n, sizeof(status) - (size_t)n, "; discovery stalled by process %d", (int)found.at);
    if (strcmp(status, daemon->status) != 0)
        gp_agent_notify("STATUS=%s", status);
    memcpy(daemon->status, status, sizeof(status));
}

static void daemon_log_stall(struct gp_daemon *daemon)
{
    struct gp_finder_count found = gp_finder_count(daemon->finder);
    pid_t at = !found.hangs_ns ? 0 : found.at > 0 ? found.at : -1;
    if (at == daemon->stalled_by)
        return;
    if (at > 0)
        gp_agent_log(
            GP_AGENTLOG_WARNING,
            "reading /proc/%d/maps blocks: discovery of new library copies is stalled until that process exits",
            (int)at);
    else if (at)
        gp_agent_log(GP_AGENTLOG_WARNING, "discovery of library copies is stalled: new copies are not found");
    else
        gp_agent_log(GP_AGENTLOG_NOTICE, "discovery of library copies works again");
    daemon->stalled_by = at;
}

static void daemon_deaths(struct gp_daemon *daemon)
{
    gp_deaths_turn(daemon->deaths);
}

/* Logs the counters of the parts, including losses: at the end, and once a minute with -v. */
static void daemon_log_stats(struct gp_daemon *daemon, enum gp_agentlog_level level)
{
    struct gp_failures_count failures = gp_failures_count(daemon->failures);
    struct gp_finder_count found = gp_finder_count(daemon->finder);
    struct gp_deaths_count deaths = gp_deaths_count(daemon->deaths);
    struct gp_query_count querier = gp_query_count(daemon->querier);
    gp_agent_log(level,
                 "stats: events %" PRIu64 ", malformed records %" PRIu64 ", failed allocations %" PRIu64
                 " (suppressed %" PRIu64 "); libraries armed %u, refused %" PRIu64 ", postponed %" PRIu64
                 ", mapping records lost %" PRIu64,
                 failures.events, failures.malformed, failures.failures, failures.suppressed, found.libraries.armed,
                 found.libraries.refused, found.libraries.postponed, found.discover.lost);
    gp_agent_log(level,
                 "stats: processes tracked by pidfd %" PRIu64 ", polled %" PRIu64 ", untracked %" PRIu64
                 ", removed late %" PRIu64 "; containers removed %" PRIu64 "; queried %" PRIu64 ", no answer %" PRIu64
                 ", over limit %" PRIu64,
                 deaths.processes, deaths.polled, deaths.unknown, deaths.removed_late, deaths.containers,
                 querier.answered, querier.silent, querier.refused);
}

static void daemon_heartbeat(struct gp_daemon *daemon, uint64_t now)
{
    /* relaxed: readers compare it with their clock and read nothing else by it */
    __atomic_store_n(&gp_bpf_meta(daemon->bpf)->heartbeat_ns, now, __ATOMIC_RELAXED);
    if (daemon->watchdog_ns && now - daemon->watched_ns + GP_AGENT_TICK_NS > daemon->watchdog_ns) {
        gp_agent_notify("WATCHDOG=1");
        daemon->watched_ns = now;
    }
}

/* If another process removed the pins, no viewer sees the tables, and another agent may have
 * started there. The agent ends; its service manager restarts it. */
static bool daemon_has_pins(struct gp_daemon *daemon)
{
    struct gp_map_meta meta;
    const char *pins = daemon->options->pins;
    if (gp_bpf_pins_held(pins, daemon->lock) && gp_bpf_pinned_meta(pins, &meta) == 0 &&
        meta.agent_pid == (uint32_t)getpid())
        return true;
    snprintf(daemon->why, daemon->why_bytes, "another process removed the pins in %s", pins);
    daemon->error = -ESTALE;
    daemon->is_ending = true;
    return false;
}

static void daemon_tick(struct gp_daemon *daemon)
{
    uint64_t expired, now = gp_clock_ns();
    if (read(daemon->timer, &expired, sizeof(expired)) < 0)
        return;
    daemon_heartbeat(daemon, now);
    gp_failures_turn(daemon->failures);
    if (now - daemon->second_ns < GP_AGENT_SECOND)
        return;
    daemon->second_ns = now;
    if (!daemon_has_pins(daemon))
        return;
    gp_deaths_second(daemon->deaths);
    daemon_log_stall(daemon);
    daemon_status(daemon);
    if (now - daemon->stats_ns >= GP_AGENT_STATS_NS) {
        daemon_log_stats(daemon, GP_AGENTLOG_DEBUG);
        daemon->stats_ns = now;
    }
}

static void daemon_signal(struct gp_daemon *daemon)
{
    struct signalfd_siginfo got;
    if (read(daemon->signal, &got, sizeof(got)) != sizeof(got))
        return;
    gp_agent_log(GP_AGENTLOG_NOTICE, "ending: %s", strsignal((int)got.ssi_signo));
    daemon->is_ending = true;
}

static void daemon_failures(struct gp_daemon *daemon)
{
    gp_failures_turn(daemon->failures);
}

static int daemon_watch(struct gp_daemon *daemon, int fd, void (*turn)(struct gp_daemon *))
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = daemon->part_count};
    daemon->parts[daemon->part_count++] = turn;
    return epoll_ctl(daemon->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int daemon_watch_all(struct gp_daemon *daemon)
{
    int error = daemon_watch(daemon, daemon->signal, daemon_signal);
    if (!error)
        error = daemon_watch(daemon, daemon->timer, daemon_tick);
    if (!error)
        error = daemon_watch(daemon, gp_failures_fd(daemon->failures), daemon_failures);
    if (!error)
        error = daemon_watch(daemon, gp_deaths_fd(daemon->deaths), daemon_deaths);
    return error;
}

static int daemon_loop(struct gp_daemon *daemon)
{
    int error = daemon_watch_all(daemon);
    if (error)
        return daemon_fail(daemon, error, "epoll");
    gp_agent_log(GP_AGENTLOG_INFO, "ready: tables in %s, probes by %s", daemon->options->pins,
                 gp_bpf_is_multi(daemon->bpf) ? "uprobe_multi" : "perf");
    gp_agent_notify("READY=1");
    daemon_status(daemon);
    daemon->stats_ns = gp_clock_ns();
    while (!daemon->is_ending) {
        struct epoll_event events[8];
        int count = epoll_wait(daemon->epoll, events, GP_COUNT(events), -1);
        if (count < 0 && errno != EINTR)
            return daemon_fail(daemon, -errno, "epoll");
        for (int i = 0; i < count; i++)
            daemon->parts[events[i].data.u32](daemon);
    }
    daemon_log_stats(daemon, GP_AGENTLOG_INFO);
    return daemon->error;
}

/* ---- start ------------------------------------------------------------------------------------------------------- */

/* Threads inherit the mask, so every signal reaches the loop. A signal that was ignored on purpose
 * (nohup) stays ignored. */
static int daemon_signals(struct gp_daemon *daemon)
{
    static const int ends[] = {SIGTERM, SIGINT, SIGHUP};
    sigemptyset(&daemon->signals);
    for (size_t i = 0; i < GP_COUNT(ends); i++) {
        struct sigaction now;
        if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&daemon->signals, ends[i]);
    }
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &daemon->signals, &daemon->signals_before);
    daemon->epoll = epoll_create1(EPOLL_CLOEXEC);
    daemon->signal = signalfd(-1, &daemon->signals, SFD_CLOEXEC | SFD_NONBLOCK);
    daemon->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct itimerspec every = {{0, GP_AGENT_TICK_NS}, {0, GP_AGENT_TICK_NS}};
    if (daemon->epoll < 0 || daemon->signal < 0 || daemon->timer < 0 || timerfd_settime(daemon->timer, 0, &every, NULL))
        return daemon_fail(daemon, -errno, "descriptors");
    return 0;
}

/* Each tracked process takes a descriptor, and a machine with a queue of short jobs may have
 * thousands. */
static void daemon_limits(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static int daemon_group(struct gp_daemon *daemon)
{
    daemon->group = (gid_t)-1;
    if (!daemon->options->group)
        return 0;
    struct group *group = getgrnam(daemon->options->group);
    if (!group) {
        snprintf(daemon->why, daemon->why_bytes, "%s: no such group", daemon->options->group);
        return -EINVAL;
    }
    daemon->group = group->gr_gid;
    return 0;
}

/* systemd mounts the BPF file system with mode 0700: then only root reaches the tables, whatever
 * their modes are. */
static void daemon_log_closed_path(const char *pins)
{
    char path[PATH_MAX];
    struct stat st;
    snprintf(path, sizeof(path), "%s", pins);
    for (char *slash = strrchr(path, '/'); slash && slash > path; slash = strrchr(path, '/')) {
        *slash = '\0';
        if (stat(path, &st) == 0 && !(st.st_mode & S_IXOTH)) {
            gp_agent_log(GP_AGENTLOG_INFO,
                         "only root can reach the tables: other users cannot enter %s ('chmod o+x %s' lets them)", path,
                         path);
            return;
        }
    }
}

static int daemon_mount(struct gp_daemon *daemon)
{
    int mounted = gp_bpf_mount(daemon->options->pins, daemon->why, daemon->why_bytes);
    if (mounted > 0)
        gp_agent_log(GP_AGENTLOG_NOTICE, "mounted a BPF file system at /sys/fs/bpf (mode " GP_BPF_MOUNT_MODE ")");
    return mounted < 0 ? mounted : 0;
}

static int daemon_maps(struct gp_daemon *daemon)
{
    const struct gp_agent_options *asked = daemon->options;
    struct gp_bpf_options options = {.processes = asked->processes,
                                     .containers = asked->containers,
                                     .ring_bytes = asked->ring_bytes,
                                     .verbose = asked->verbose};
    int error = gp_bpf_open(&daemon->bpf, &options, daemon->why, daemon->why_bytes);
    if (error)
        return error;
    error = daemon_mount(daemon);
    if (error)
        return error;
    daemon->lock = gp_bpf_pins_lock(asked->pins, daemon->why, daemon->why_bytes);
    if (daemon->lock < 0)
        return daemon->lock;
    error = gp_bpf_pin(daemon->bpf, asked->pins, daemon->group, daemon->why, daemon->why_bytes);
    char foreign[64] = "";
    if (!error && gp_bpf_pins_foreign(asked->pins, foreign, sizeof(foreign)) > 0)
        gp_agent_log(GP_AGENTLOG_NOTICE, "%s has entries that are not gpuprof's (%s); the agent does not touch them",
                     asked->pins, foreign);
    if (!error)
        daemon_log_closed_path(asked->pins);
    return error;
}

static int daemon_read(void *arg, struct gp_system_view **out, char *why, size_t why_bytes)
{
    return gp_system_view_read(out, arg, why, why_bytes);
}

/* A process that runs answers in microseconds; a stopped one delays the page by this and shows what
 * it published last. */
#define DAEMON_ANSWER_NS 5000000ull

static int daemon_sessions(const pid_t *pids, int count, struct gp_system **out)
{
    struct gp_collect_options options = {
        .pids = pids, .pid_count = count, .exact = true, .deadline_ns = DAEMON_ANSWER_NS};
    return gp_collect(&options, out);
}

static void daemon_parts(void *arg, struct gp_metrics_agent *out)
{
    const struct gp_daemon *daemon = arg;
    struct gp_finder_count found = gp_finder_count(daemon->finder);
    out->attached = out->attach_refused = 0;
    if (daemon->attacher) {
        struct gp_attacher_count attaches = gp_attacher_count(daemon->attacher);
        out->attached = (int64_t)attaches.attached;
        out->attach_refused = (int64_t)attaches.refused;
    }
    out->armed = found.libraries.armed;
    out->unarmed = found.unarmed;
    out->refused = (int64_t)found.libraries.refused;
    out->postponed = (int64_t)found.libraries.postponed;
    if (!found.is_searching)
        return;
    out->records_lost = (int64_t)found.discover.lost;
    out->searching = !found.hangs_ns;
}

/* Who reaches the server: a bare PORT is easily taken for every address. */
static const char *daemon_reach(const struct gp_http_address *listen)
{
    static const char only_here[] = " (only from this machine: --listen :PORT for others)";
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&listen->address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&listen->address;
    if (listen->address.ss_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr)      ? only_here
               : IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr) ? " (every address of this machine)"
                                                         : "";
    return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET ? only_here
           : v4->sin_addr.s_addr == htonl(INADDR_ANY)         ? " (every IPv4 address of this machine)"
                                                              : "";
}

static int daemon_serve(struct gp_daemon *daemon)
{
    const struct gp_http_address *listen = daemon->options->listen;
    if (!listen)
        return 0;
    struct gp_metrics_source source = {.read = daemon_read,
                                       .free = gp_system_view_free,
                                       .gpus = gp_nvml_read,
                                       .sessions = daemon_sessions,
                                       .arg = (void *)daemon->options->pins,
                                       .agent = daemon_parts,
                                       .agent_arg = daemon};
    int error = gp_metrics_open(&daemon->metrics, &daemon->options->metrics, &source);
    if (error)
        return daemon_fail(daemon, error, "metrics");
    char why[256], host[INET6_ADDRSTRLEN] = "?";
    error = gp_http_start(&daemon->http, listen, daemon->metrics, why, sizeof(why));
    if (error) {
        snprintf(daemon->why, daemon->why_bytes, "metrics: %s", why);
        return error;
    }
    bool is_v6 = listen->address.ss_family == AF_INET6;
    inet_ntop(listen->address.ss_family,
              is_v6 ? (const void *)&((const struct sockaddr_in6 *)&listen->address)->sin6_addr
                    : (const void *)&((const struct sockaddr_in *)&listen->address)->sin_addr,
              host, sizeof(host));
    unsigned port = gp_http_port(daemon->http);
    gp_agent_log(GP_AGENTLOG_INFO, "metrics at http://%s%s%s:%u/metrics%s", is_v6 ? "[" : "", host, is_v6 ? "]" : "",
                 port, daemon_reach(listen));
    return 0;
}

static void daemon_mapped(void *arg, pid_t pid)
{
    gp_query_add(arg, pid);
}

/* Without discovery no part reports which processes map a library, so the processes that have a
 * session now are queried. */
static void daemon_query_all(struct gp_daemon *daemon)
{
    struct gp_collect_options options = {.exact = false};
    struct gp_system *system;
    int error = gp_collect(&options, &system);
    if (error) {
        gp_agent_log(GP_AGENTLOG_WARNING, "cannot search for profiled processes: %s", strerror(-error));
        return;
    }
    for (int i = 0; i < system->process_count; i++)
        gp_query_add(daemon->querier, system->processes[i].pid);
    gp_system_free(system);
}

static int daemon_find(struct gp_daemon *daemon)
{
    const struct gp_agent_options *asked = daemon->options;
    int error = gp_query_open(&daemon->querier);
    if (error)
        return daemon_fail(daemon, error, "the query thread");
    struct gp_finder_options options = {.bpf = daemon->bpf,
                                        .libraries = asked->libraries,
                                        .library_count = asked->library_count,
                                        .installed = asked->installed,
                                        .no_discover = asked->no_discover,
                                        .mapped = daemon_mapped,
                                        .arg = daemon->querier};
    error = gp_finder_open(&daemon->finder, &options, daemon->why, daemon->why_bytes);
    if (!error && !gp_finder_count(daemon->finder).is_searching)
        daemon_query_all(daemon);
    return error;
}

static int daemon_attach(struct gp_daemon *daemon)
{
    const struct gp_agent_options *asked = daemon->options;
    struct gp_attacher_options options = {.pattern = asked->attach,
                                          .library = asked->library_count ? asked->libraries[0] : NULL};
    if (!asked->attach)
        return 0;
    int error = gp_attacher_open(&daemon->attacher, &options, daemon->why, daemon->why_bytes);
    if (!error)
        gp_agent_log(GP_AGENTLOG_NOTICE, "attaches to programs in containers that match %s", asked->attach);
    return error;
}

static int daemon_start(struct gp_daemon *daemon)
{
    int error = daemon_group(daemon);
    if (error)
        return error;
    if (!gp_proc_host_pids()) {
        snprintf(daemon->why, daemon->why_bytes,
                 "the agent needs the host's pids, which this pid namespace hides: run it on the host, or with "
                 "hostPID: true (Kubernetes) or --pid=host (Docker, Podman)");
        return -ENOTSUP;
    }
    daemon_limits();
    error = daemon_signals(daemon);
    if (!error)
        error = daemon_maps(daemon);
    if (!error && (error = gp_failures_open(&daemon->failures, daemon->bpf)))
        daemon_fail(daemon, error, "the ring of events");
    if (!error && (error = gp_deaths_open(&daemon->deaths, daemon->bpf)))
        daemon_fail(daemon, error, "the list of processes");
    if (!error)
        error = daemon_find(daemon);
    if (!error)
        error = daemon_attach(daemon);
    if (!error)
        error = daemon_serve(daemon);
    return error;
}

/* ---- end --------------------------------------------------------------------------------------------------------- */

static void daemon_end(struct gp_daemon *daemon)
{
    gp_agent_notify("STOPPING=1");
    gp_http_stop(daemon->http);
    gp_metrics_close(daemon->metrics);
    gp_attacher_close(daemon->attacher);
    bool is_joined = gp_finder_close(daemon->finder); /* before the querier, which it calls */
    if (is_joined)
        gp_query_close(daemon->querier);
    gp_deaths_close(daemon->deaths);
    gp_failures_close(daemon->failures);
    /* Before the lock is released: from then on another agent's pins may be there. */
    if (daemon->lock >= 0 && gp_bpf_pins_held(daemon->options->pins, daemon->lock)) {
        int error = gp_bpf_unpin(daemon->options->pins);
        if (error)
            gp_agent_log(GP_AGENTLOG_WARNING, "cannot remove the pins in %s: %s", daemon->options->pins,
                         strerror(-error));
    }
    if (is_joined)
        gp_bpf_close(daemon->bpf);
    int fds[] = {daemon->lock, daemon->timer, daemon->signal, daemon->epoll};
    for (size_t i = 0; i < GP_COUNT(fds); i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    sigprocmask(SIG_SETMASK, &daemon->signals_before, NULL);
}

int gp_agent_run(const struct gp_agent_options *options, char *why, size_t why_bytes)
{
    struct gp_daemon daemon = {.options = options,
                               .why = why,
                               .why_bytes = why_bytes,
                               .epoll = -1,
                               .signal = -1,
                               .timer = -1,
                               .lock = -1,
                               .watchdog_ns = gp_agent_watchdog_ns()};
    sigprocmask(SIG_SETMASK, NULL, &daemon.signals_before);
    int error = daemon_start(&daemon);
    if (!error)
        error = daemon_loop(&daemon);
    if (error)
        gp_agent_notify("STATUS=%s\nERRNO=%d", why, -error);
    daemon_end(&daemon);
    return error;
}
