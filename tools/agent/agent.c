/* SPDX-License-Identifier: MIT
 *
 * agent.c: see agent.h.  One thread waits for everything (epoll); each part has a descriptor and a turn of bounded
 * work.  Nothing in this loop waits for another process.
 */
#include <agent/agent.h>
#include <agent/failures.h>
#include <agent/log.h>
#include <agent/notify.h>
#include <base/clock.h>
#include <bpf/loader.h>
#include <collect/procfs.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Viewers call an agent dead after 5 s without a heartbeat (GP_SYSTEM_ALIVE_NS): a loaded machine may delay ten. */
#define GP_AGENT_TICK_NS 500000000l
#define GP_AGENT_SECOND  1000000000ull

struct gp_daemon {
    const struct gp_agent_options *options;
    char *why; /* of gp_agent_run */
    size_t why_bytes;
    sigset_t signals, signals_before;
    int epoll, signal, timer, lock;
    bool is_pinned, is_ending;
    struct gp_bpf *bpf;
    struct gp_failures *failures;
    struct gp_metrics *metrics;
    struct gp_http *http;
    uint64_t second_ns, watchdog_ns, watched_ns;
    char status[128];
    struct {
        int fd, link;
    } armed[16];
    unsigned armed_count;
};

static int gp_daemon_fail(struct gp_daemon *daemon, int error, const char *what)
{
    snprintf(daemon->why, daemon->why_bytes, "%s: %s", what, strerror(-error));
    return error;
}

/* ---- what happens -------------------------------------------------------------------------------------------------
 */

static void gp_daemon_status(struct gp_daemon *daemon)
{
    char status[sizeof(daemon->status)];
    snprintf(status, sizeof(status), "%u libraries armed", daemon->armed_count);
    if (strcmp(status, daemon->status) != 0)
        gp_notify("STATUS=%s", status);
    memcpy(daemon->status, status, sizeof(status));
}

static void gp_daemon_beat(struct gp_daemon *daemon, uint64_t now)
{
    /* relaxed: readers compare it with their clock and take nothing else from it */
    __atomic_store_n(&gp_bpf_meta(daemon->bpf)->heartbeat_ns, now, __ATOMIC_RELAXED);
    if (daemon->watchdog_ns && now - daemon->watched_ns + GP_AGENT_TICK_NS > daemon->watchdog_ns) {
        gp_notify("WATCHDOG=1");
        daemon->watched_ns = now;
    }
}

static void gp_daemon_tick(struct gp_daemon *daemon)
{
    uint64_t expired, now = gp_clock_ns();
    if (read(daemon->timer, &expired, sizeof(expired)) < 0)
        return;
    gp_daemon_beat(daemon, now);
    gp_failures_turn(daemon->failures);
    if (now - daemon->second_ns < GP_AGENT_SECOND)
        return;
    daemon->second_ns = now;
    gp_daemon_status(daemon);
}

static void gp_daemon_signal(struct gp_daemon *daemon)
{
    struct signalfd_siginfo got;
    if (read(daemon->signal, &got, sizeof(got)) != sizeof(got))
        return;
    gp_log(GP_LOG_NOTICE, "ending: %s", strsignal((int)got.ssi_signo));
    daemon->is_ending = true;
}

static void gp_daemon_failures(struct gp_daemon *daemon)
{
    gp_failures_turn(daemon->failures);
}

/* What an epoll event stands for. */
typedef void gp_daemon_turn(struct gp_daemon *daemon);

static int gp_daemon_watch(struct gp_daemon *daemon, int fd, gp_daemon_turn **turn)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = turn};
    return epoll_ctl(daemon->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int gp_daemon_loop(struct gp_daemon *daemon)
{
    static gp_daemon_turn *tick = gp_daemon_tick, *signal = gp_daemon_signal, *failures = gp_daemon_failures;
    int error = gp_daemon_watch(daemon, daemon->signal, &signal);
    if (!error)
        error = gp_daemon_watch(daemon, daemon->timer, &tick);
    if (!error)
        error = gp_daemon_watch(daemon, gp_failures_fd(daemon->failures), &failures);
    if (error)
        return gp_daemon_fail(daemon, error, "epoll");
    gp_notify("READY=1");
    gp_daemon_status(daemon);
    while (!daemon->is_ending) {
        struct epoll_event events[8];
        int count = epoll_wait(daemon->epoll, events, GP_COUNT(events), -1);
        if (count < 0 && errno != EINTR)
            return gp_daemon_fail(daemon, -errno, "epoll");
        for (int i = 0; i < count; i++)
            (*(gp_daemon_turn **)events[i].data.ptr)(daemon);
    }
    return 0;
}

/* ---- begin --------------------------------------------------------------------------------------------------------
 */

/* Threads inherit the mask, so that every signal comes to the loop.  What was ignored on purpose (nohup) stays so. */
static int gp_daemon_signals(struct gp_daemon *daemon)
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
        return gp_daemon_fail(daemon, -errno, "descriptors");
    return 0;
}

/* A descriptor for each process that is held: thousands are no rarity on a machine with a queue of short jobs. */
static void gp_daemon_limits(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static int gp_daemon_group(struct gp_daemon *daemon, gid_t *gid)
{
    *gid = (gid_t)-1;
    if (!daemon->options->group)
        return 0;
    struct group *group = getgrnam(daemon->options->group);
    if (!group) {
        snprintf(daemon->why, daemon->why_bytes, "%s: no such group", daemon->options->group);
        return -EINVAL;
    }
    *gid = group->gr_gid;
    return 0;
}

static int gp_daemon_maps(struct gp_daemon *daemon)
{
    const struct gp_agent_options *asked = daemon->options;
    struct gp_bpf_options options = {.processes = asked->processes,
                                     .containers = asked->containers,
                                     .ring_bytes = asked->ring_bytes,
                                     .verbose = asked->verbose};
    gid_t group;
    int error = gp_daemon_group(daemon, &group);
    if (!error)
        error = gp_bpf_open(&daemon->bpf, &options, daemon->why, daemon->why_bytes);
    if (error)
        return error;
    daemon->lock = gp_bpf_pins_lock(asked->pins, daemon->why, daemon->why_bytes);
    if (daemon->lock < 0)
        return daemon->lock;
    error = gp_bpf_pin(daemon->bpf, asked->pins, group, daemon->why, daemon->why_bytes);
    daemon->is_pinned = true; /* the directory at least */
    char foreign[64] = "";
    if (!error && gp_bpf_pins_foreign(asked->pins, foreign, sizeof(foreign)) > 0)
        gp_log(GP_LOG_NOTICE, "%s has names that are not gpuprof's (%s): left alone", asked->pins, foreign);
    return error;
}

static int gp_daemon_arm(struct gp_daemon *daemon, const char *path)
{
    struct gp_bpf_probe probe;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int error = fd < 0 ? -errno : gp_bpf_probe_find(fd, &probe);
    if (error) {
        if (fd >= 0)
            close(fd);
        gp_daemon_fail(daemon, error, path);
        return -EINVAL;
    }
    int link = gp_bpf_attach(daemon->bpf, fd, &probe, daemon->why, daemon->why_bytes);
    close(fd);
    if (link < 0)
        return link;
    daemon->armed[daemon->armed_count].fd = -1;
    daemon->armed[daemon->armed_count++].link = link;
    gp_log(GP_LOG_INFO, "armed %s", path);
    return 0;
}

static int gp_daemon_read(void *arg, struct gp_system_view **out, char *why, size_t why_bytes)
{
    return gp_system_view_read(out, arg, why, why_bytes);
}

static int gp_daemon_serve(struct gp_daemon *daemon)
{
    const struct gp_http_address *listen = daemon->options->listen;
    if (!listen)
        return 0;
    struct gp_metrics_source source = {.read = gp_daemon_read,
                                       .free = gp_system_view_free,
                                       .gpus = gp_nvml_read,
                                       .arg = (void *)daemon->options->pins};
    int error = gp_metrics_open(&daemon->metrics, &daemon->options->metrics, &source);
    if (error)
        return gp_daemon_fail(daemon, error, "metrics");
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
    gp_log(GP_LOG_INFO, is_v6 ? "metrics at http://[%s]:%u/metrics" : "metrics at http://%s:%u/metrics", host,
           gp_http_port(daemon->http));
    return 0;
}

static int gp_daemon_begin(struct gp_daemon *daemon)
{
    if (!gp_proc_host_pids()) {
        snprintf(daemon->why, daemon->why_bytes,
                 "the kernel counts by the machine's own pids, which cannot be seen from this pid namespace: run it on "
                 "the host, or with hostPID: true (Kubernetes), --pid=host (Docker, Podman)");
        return -ENOTSUP;
    }
    gp_daemon_limits();
    int error = gp_daemon_signals(daemon);
    if (!error)
        error = gp_daemon_maps(daemon);
    if (!error && (error = gp_failures_open(&daemon->failures, daemon->bpf)))
        gp_daemon_fail(daemon, error, "the ring of events");
    for (unsigned i = 0; !error && i < daemon->options->library_count && i < GP_COUNT(daemon->armed); i++)
        error = gp_daemon_arm(daemon, daemon->options->libraries[i]);
    if (!error)
        error = gp_daemon_serve(daemon);
    return error;
}

/* ---- end ----------------------------------------------------------------------------------------------------------
 */

static void gp_daemon_end(struct gp_daemon *daemon)
{
    gp_notify("STOPPING=1");
    gp_http_stop(daemon->http);
    gp_metrics_close(daemon->metrics);
    for (unsigned i = 0; i < daemon->armed_count; i++)
        close(daemon->armed[i].link);
    gp_failures_close(daemon->failures);
    if (daemon->is_pinned) { /* before the lock goes: another agent's pins may be there the next instant */
        int error = gp_bpf_unpin(daemon->options->pins);
        if (error)
            gp_log(GP_LOG_WARNING, "cannot take away the pins in %s: %s", daemon->options->pins, strerror(-error));
    }
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
                               .watchdog_ns = gp_notify_watchdog_ns()};
    sigprocmask(SIG_SETMASK, NULL, &daemon.signals_before);
    int error = gp_daemon_begin(&daemon);
    if (!error)
        error = gp_daemon_loop(&daemon);
    if (error)
        gp_notify("STATUS=%s\nERRNO=%d", why, -error);
    gp_daemon_end(&daemon);
    return error;
}
