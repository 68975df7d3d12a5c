/* SPDX-License-Identifier: MIT
 *
 * finder.c: see find.h. Only this thread uses the libraries and the search; other threads see
 * copies of the counts, which it makes after each round.
 */
#include <agent/find/discover.h>
#include <agent/find/find.h>
#include <agent/find/library.h>
#include <read/common/agentlog.h>

#include <base/clock.h>
#include <base/compiler.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define GP_FINDER_SECOND  1000000000ull
#define GP_FINDER_TICK_MS 500
/* The longest pause between two tries at a file that cannot be armed. */
#define GP_FINDER_AGAIN_NS (10 * GP_FINDER_SECOND)
/* A round arms a few files (10 ms each) and sweeps for 0.3 s; the rest is for a machine that is
 * short of CPUs. */
#define GP_FINDER_HANGS_NS (5 * GP_FINDER_SECOND)

struct gp_finder_file { /* a library with a path, as it was when last checked */
    char *path;         /* a copy: the thread may outlive the options */
    dev_t device;
    ino_t inode;
    struct timespec changed;
    int error;                   /* 0: armed */
    uint64_t pause_ns, again_ns; /* of the next try at a file that could not be armed */
    bool is_installed;
};

struct gp_finder {
    struct gp_finder_options options;
    struct gp_libraries *libraries;
    struct gp_discover *discover;                         /* NULL: named files only */
    struct gp_finder_file files[GP_FINDER_LIBRARIES + 1]; /* the installed one is the last */
    unsigned file_count;
    int epoll, stop;
    uint64_t second_ns, sweep_ns; /* sweep_ns: no sweep before */
    uint64_t again_ns;            /* no sweep for blocked files before */
    pthread_t thread;
    bool is_running;
    pthread_mutex_t mutex; /* protects the fields below; held only to copy them */
    struct gp_finder_count count;
    uint64_t round_ns; /* start of the current round; 0: no round is running */
};

static int finder_fail(char *why, size_t why_bytes, int error, const char *what)
{
    snprintf(why, why_bytes, "%s: %s", what, strerror(-error));
    return error;
}

/* ---- libraries with a path --------------------------------------------------------------------------------------- */

static bool finder_file_changed(struct gp_finder_file *file)
{
    struct stat about = {0}; /* no file counts as a file of zeros */
    if (stat(file->path, &about) != 0)
        about = (struct stat){0};
    bool changed = about.st_dev != file->device || about.st_ino != file->inode ||
                   about.st_ctim.tv_sec != file->changed.tv_sec || about.st_ctim.tv_nsec != file->changed.tv_nsec;
    file->device = about.st_dev;
    file->inode = about.st_ino;
    file->changed = about.st_ctim;
    return changed;
}

static int finder_file_arm(struct gp_finder *finder, struct gp_finder_file *file, char *why, size_t why_bytes)
{
    file->error = gp_libraries_keep(finder->libraries, file->path, why, why_bytes);
    if (!file->error)
        gp_agent_log(GP_AGENTLOG_INFO, "armed %s", file->path);
    return file->error;
}

/* After a failed try: what prevents it may go, as a probe of another tracer does. */
static void finder_file_later(struct gp_finder_file *file, uint64_t now)
{
    file->pause_ns = file->pause_ns ? file->pause_ns * 2 : GP_FINDER_SECOND;
    if (file->pause_ns > GP_FINDER_AGAIN_NS)
        file->pause_ns = GP_FINDER_AGAIN_NS;
    file->again_ns = now + file->pause_ns;
}

/* A package upgrade puts another file there, which new programs load. The old file stays armed for
 * programs that run. */
static void finder_files_check(struct gp_finder *finder)
{
    char why[512];
    uint64_t now = gp_clock_ns();
    for (unsigned i = 0; i < finder->file_count; i++) {
        struct gp_finder_file *file = &finder->files[i];
        bool is_changed = finder_file_changed(file);
        if (is_changed)
            file->pause_ns = 0;
        if (!file->inode || (!is_changed && (!file->error || now < file->again_ns)))
            continue;
        bool again = file->error && !is_changed;
        if (!finder_file_arm(finder, file, why, sizeof(why))) {
            file->pause_ns = 0;
            if (again && finder->discover) /* programs that load it already */
                gp_discover_sweep(finder->discover);
            continue;
        }
        if (!file->pause_ns) /* the first of a row of tries */
            gp_agent_log(GP_AGENTLOG_WARNING, "not armed: %s; tried again", why);
        finder_file_later(file, now);
    }
}

static unsigned finder_files_unarmed(const struct gp_finder *finder)
{
    unsigned count = 0;
    for (unsigned i = 0; i < finder->file_count; i++)
        count += finder->files[i].inode && finder->files[i].error;
    return count;
}

static int finder_files(struct gp_finder *finder, char *why, size_t why_bytes)
{
    const struct gp_finder_options *options = &finder->options;
    for (unsigned i = 0; i <= options->library_count && i <= GP_FINDER_LIBRARIES; i++) {
        const char *path = i < options->library_count ? options->libraries[i] : options->installed;
        if (!path)
            break;
        struct gp_finder_file *file = &finder->files[finder->file_count];
        file->path = strdup(path);
        if (!file->path)
            return finder_fail(why, why_bytes, -ENOMEM, "the libraries");
        file->is_installed = i == options->library_count;
        finder->file_count++;
    }
    for (unsigned i = 0; i < finder->file_count; i++) {
        struct gp_finder_file *file = &finder->files[i];
        finder_file_changed(file);
        if (!finder_file_arm(finder, file, why, why_bytes))
            continue;
        /* -EACCES from the kernel applies to every file; what -EUSERS says ends with another tracer. */
        if ((!file->is_installed && file->error != -EUSERS) || file->error == -EACCES)
            return file->error == -EACCES ? file->error : -EINVAL;
        gp_agent_log(GP_AGENTLOG_WARNING, "%s; %s", why,
                     file->inode ? "programs that load it are not counted, and it is tried again"
                                 : "the agent waits for programs that load another copy");
        finder_file_later(file, gp_clock_ns());
    }
    return 0;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* Offers files again whose probe another tracer had, and disarms files whose processes have ended. A forked child maps a file without a record, so all
 * processes are swept before a file is disarmed: at most once a second, and for at most a twentieth
 * of the time. */
static void finder_idle(struct gp_finder *finder)
{
    uint64_t now = gp_clock_ns();
    bool is_blocked = gp_libraries_blocked(finder->libraries) && now >= finder->again_ns;
    if (!finder->discover || (!gp_libraries_idle(finder->libraries) && !is_blocked) || now < finder->sweep_ns)
        return;
    finder->again_ns = now + GP_FINDER_AGAIN_NS;
    bool is_whole = gp_discover_sweep(finder->discover) >= 0;
    uint64_t took = gp_clock_ns() - now;
    finder->sweep_ns = now + (took > GP_FINDER_SECOND / 20 ? took * 20 : GP_FINDER_SECOND);
    if (is_whole)
        gp_libraries_disarm_idle(finder->libraries);
}

static void finder_publish(struct gp_finder *finder, uint64_t round_ns)
{
    struct gp_finder_count count = {.libraries = gp_libraries_count(finder->libraries),
                                    .unarmed = finder_files_unarmed(finder),
                                    .is_searching = finder->discover != NULL};
    if (finder->discover)
        count.discover = gp_discover_count(finder->discover);
    pthread_mutex_lock(&finder->mutex);
    finder->count = count;
    finder->round_ns = round_ns;
    pthread_mutex_unlock(&finder->mutex);
}

static void finder_round(struct gp_finder *finder)
{
    uint64_t now = gp_clock_ns();
    finder_publish(finder, now);
    gp_libraries_turn(finder->libraries);
    if (finder->discover)
        gp_discover_turn(finder->discover);
    finder_idle(finder);
    if (now - finder->second_ns >= GP_FINDER_SECOND) {
        finder->second_ns = now;
        finder_files_check(finder);
    }
    finder_publish(finder, 0);
}

static void *finder_main(void *arg)
{
    struct gp_finder *finder = arg;
    struct epoll_event events[4];
    pthread_setname_np(pthread_self(), "gpuprof-find");
    for (bool is_ending = false; !is_ending;) {
        int count = epoll_wait(finder->epoll, events, GP_COUNT(events), GP_FINDER_TICK_MS);
        for (int i = 0; i < count; i++)
            is_ending |= events[i].data.fd == finder->stop;
        if (!is_ending)
            finder_round(finder);
    }
    return NULL;
}

struct gp_finder_count gp_finder_count(struct gp_finder *finder)
{
    pthread_mutex_lock(&finder->mutex);
    struct gp_finder_count count = finder->count;
    uint64_t since = finder->round_ns;
    pthread_mutex_unlock(&finder->mutex);
    uint64_t now = gp_clock_ns();
    if (!since || now - since < finder->options.hangs_ns)
        return count;
    count.hangs_ns = now - since;
    count.at = finder->discover ? gp_discover_current(finder->discover) : 0;
    return count;
}

/* ---- open, close ------------------------------------------------------------------------------------------------- */

static int finder_search(struct gp_finder *finder, char *why, size_t why_bytes)
{
    if (finder->options.no_discover)
        return 0;
    struct gp_discover_options options = {.libraries = finder->libraries,
                                          .mapped = finder->options.mapped,
                                          .arg = finder->options.arg,
                                          .slow_ns = finder->options.slow_ns};
    int error = gp_discover_open(&finder->discover, &options, why, why_bytes);
    if (!error)
        return 0;
    if (!gp_libraries_count(finder->libraries).armed) /* no file is armed, and none can be found later */
        return error;
    gp_agent_log(GP_AGENTLOG_WARNING, "%s; only the named copies of the library are used", why);
    return 0;
}

static int finder_start(struct gp_finder *finder, char *why, size_t why_bytes)
{
    int fds[] = {finder->stop, gp_libraries_fd(finder->libraries),
                 finder->discover ? gp_discover_fd(finder->discover) : -1};
    int error = finder->epoll < 0 || finder->stop < 0 ? -EMFILE : 0;
    for (size_t i = 0; !error && i < GP_COUNT(fds); i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        if (fds[i] >= 0 && epoll_ctl(finder->epoll, EPOLL_CTL_ADD, fds[i], &event))
            error = -errno;
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the loop handles signals */
    if (!error)
        error = -pthread_create(&finder->thread, NULL, finder_main, finder);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    finder->is_running = !error;
    return error ? finder_fail(why, why_bytes, error, "the finder thread") : 0;
}

int gp_finder_open(struct gp_finder **out, const struct gp_finder_options *options, char *why, size_t why_bytes)
{
    struct gp_finder *finder = calloc(1, sizeof(*finder));
    *out = NULL;
    if (!finder)
        return finder_fail(why, why_bytes, -ENOMEM, "the libraries");
    finder->options = *options;
    if (!finder->options.hangs_ns)
        finder->options.hangs_ns = GP_FINDER_HANGS_NS;
    pthread_mutex_init(&finder->mutex, NULL);
    finder->epoll = epoll_create1(EPOLL_CLOEXEC);
    finder->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int error = gp_libraries_open(&finder->libraries, options->bpf);
    if (error)
        finder_fail(why, why_bytes, error, "the libraries");
    if (!error)
        error = finder_files(finder, why, why_bytes);
    if (!error)
        error = finder_search(finder, why, why_bytes);
    if (!error) {
        finder_publish(finder, 0);
        error = finder_start(finder, why, why_bytes);
    }
    if (error)
        gp_finder_close(finder);
    else
        *out = finder;
    return error;
}

static bool finder_join(struct gp_finder *finder)
{
    eventfd_write(finder->stop, 1);
    uint64_t until = gp_clock_ns() + 2 * GP_FINDER_SECOND;
    struct timespec at = {(time_t)(until / GP_FINDER_SECOND), (long)(until % GP_FINDER_SECOND)};
    return pthread_clockjoin_np(finder->thread, NULL, CLOCK_MONOTONIC, &at) == 0;
}

bool gp_finder_close(struct gp_finder *finder)
{
    if (!finder)
        return true;
    if (finder->is_running && !finder_join(finder)) {
        gp_agent_log(GP_AGENTLOG_WARNING,
                     "reading the files of process %d blocks the finder thread: it is left running",
                     finder->discover ? (int)gp_discover_current(finder->discover) : 0);
        return false;
    }
    gp_discover_close(finder->discover);
    gp_libraries_close(finder->libraries);
    for (unsigned i = 0; i < finder->file_count; i++)
        free(finder->files[i].path);
    if (finder->epoll >= 0)
        close(finder->epoll);
    if (finder->stop >= 0)
        close(finder->stop);
    pthread_mutex_destroy(&finder->mutex);
    free(finder);
    return true;
}
