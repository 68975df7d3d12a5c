/* SPDX-License-Identifier: MIT
 * opener.c: the thread that calls dlopen and dlsym during the start. */
#include "base/opener.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/loader.h"
#include "base/worker.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A thread that waits for cuInit with the lock held does nothing. One that loads PyTorch's libraries from a
 * cold disk holds the lock for a second, and computes, reads, or waits its turn on a loaded machine. So the
 * wait ends when the process has done none of it for so long, and at a deadline, since other threads may be
 * busy. */
#define GP_OPENER_IDLE_NS 200000000ull
#define GP_OPENER_LOCK_NS 2000000000ull
#define GP_OPENER_STEP_NS 50000000ull
/* Less processor time in a step is our own wait, and a thread of the program that polls. */
#define GP_OPENER_WORK_US 2000
#define GP_OPENER_THREADS 512 /* that one look at the states of threads reads */
/* Ten times the load time of the slowest CUPTI from a cold disk. */
#define GP_OPENER_LOAD_NS 5000000000ull

enum gp_opener_what { GP_OPENER_SYMBOL, GP_OPENER_OPEN, GP_OPENER_END };

/* One request at a time, from the one thread that starts the library. After a deadline
 * only the opener's thread uses it. */
static struct {
    uint32_t x_turn; /* odd: a request waits for its answer */
    bool running, stuck;
    enum gp_opener_what what;
    void *handle, *result;
    int flags;
    char name[PATH_MAX];
    char error[128]; /* the loader's message about the last library that could not be opened */
} opener;

static void *opener_call(enum gp_opener_what what, void *handle, const char *name, int flags)
{
    if (what != GP_OPENER_OPEN)
        return GP_LOADER(dlsym(handle, name));
    void *opened = GP_LOADER(dlopen(name, flags));
    const char *text = opened ? NULL : GP_LOADER(dlerror());
    snprintf(opener.error, sizeof(opener.error), "%s", text ? text : "");
    return opened;
}

static void *opener_main(void *arg)
{
    (void)arg;
    for (uint32_t turn = 1;; turn += 2) {
        /* [opener.A1] acquire: the request; pairs with [opener.R1]. */
        for (uint32_t seen; (seen = __atomic_load_n(&opener.x_turn, __ATOMIC_ACQUIRE)) != turn;)
            gp_futex_wait(&opener.x_turn, seen, UINT64_MAX);
        if (opener.what == GP_OPENER_END)
            return NULL;
        opener.result = opener_call(opener.what, opener.handle, opener.name, opener.flags);
        /* [opener.R2] release: the result; pairs with [opener.A2]. A request that came too late has
         * ended the turns: then this thread ends. */
        if (!__atomic_compare_exchange_n(&opener.x_turn, &(uint32_t){turn}, turn + 1, false, __ATOMIC_RELEASE,
                                         __ATOMIC_RELAXED))
            return NULL;
        gp_futex_wake(&opener.x_turn);
    }
}

/* Whether the process has computed or read since the last call with this state. */
static bool opener_works(struct rusage *last)
{
    struct rusage now = {0};
    getrusage(RUSAGE_SELF, &now);
    long us = (now.ru_utime.tv_sec - last->ru_utime.tv_sec + now.ru_stime.tv_sec - last->ru_stime.tv_sec) * 1000000 +
              (now.ru_utime.tv_usec - last->ru_utime.tv_usec + now.ru_stime.tv_usec - last->ru_stime.tv_usec);
    bool works = us >= GP_OPENER_WORK_US || now.ru_majflt != last->ru_majflt || now.ru_inblock != last->ru_inblock;
    *last = now;
    return works;
}

/* Whether a thread other than the caller waits for a processor or a disk. */
static bool opener_is_due(void)
{
    /* The kernel's own list: opendir takes memory. */
    struct entry {
        uint64_t inode;
        int64_t next;
        uint16_t bytes;
        uint8_t type;
        char name[];
    };
    _Alignas(struct entry) char list[1024];
    char text[64], path[32];
    long self = syscall(SYS_gettid), bytes = 0;
    int threads = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC), left = GP_OPENER_THREADS;
    bool due = false;
    while (threads >= 0 && !due && left > 0 && (bytes = syscall(SYS_getdents64, threads, list, sizeof(list))) > 0)
        for (long at = 0; at < bytes && !due && left-- > 0;
             at += ((const struct entry *)(const void *)(list + at))->bytes) {
            const struct entry *entry = (const void *)(list + at);
            snprintf(path, sizeof(path), "%.20s/stat", entry->name);
            int fd =
                entry->name[0] == '.' || atol(entry->name) == self ? -1 : openat(threads, path, O_RDONLY | O_CLOEXEC);
            ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
            text[got > 0 ? got : 0] = '\0';
            /* "123 (a name) R ..." */
            const char *state = strrchr(text, ')');
            due = state && (strncmp(state, ") R", 3) == 0 || strncmp(state, ") D", 3) == 0);
            if (fd >= 0)
                close(fd);
        }
    if (threads >= 0)
        close(threads);
    return due;
}

/* Returns false if the answer did not come in time; the opener's thread ends after its present call. */
static bool opener_wait(uint32_t turn, uint64_t patience_ns, uint64_t idle_ns)
{
    uint64_t now = gp_clock_ns(), deadline = now + patience_ns, worked = now;
    struct rusage usage = {0};
    opener_works(&usage);
    for (; now < deadline && now - worked < idle_ns; now = gp_clock_ns()) {
        /* [opener.A2] acquire: the result; pairs with [opener.R2]. */
        if (__atomic_load_n(&opener.x_turn, __ATOMIC_ACQUIRE) != turn)
            return true;
        gp_futex_wait(&opener.x_turn, turn, GP_OPENER_STEP_NS);
        if (opener_works(&usage) || (gp_clock_ns() - worked >= idle_ns && opener_is_due()))
            worked = gp_clock_ns();
    }
    return !__atomic_compare_exchange_n(&opener.x_turn, &(uint32_t){turn}, UINT32_MAX, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_ACQUIRE);
}

static void opener_post(enum gp_opener_what what, void *handle, const char *name, int flags, uint32_t turn)
{
    opener.what = what;
    opener.handle = handle;
    opener.flags = flags;
    snprintf(opener.name, sizeof(opener.name), "%s", name);
    __atomic_store_n(&opener.x_turn, turn, __ATOMIC_RELEASE); /* [opener.R1] pairs with [opener.A1] */
    gp_futex_wake(&opener.x_turn);
}

/* A call that opens a library begins with the lock free. */
static void *opener_ask(enum gp_opener_what what, void *handle, const char *name, int flags)
{
    bool opens = what == GP_OPENER_OPEN;
    if (opener.stuck)
        return NULL;
    if (!opener.running)
        return opener_call(what, handle, name, flags);
    uint32_t turn = __atomic_load_n(&opener.x_turn, __ATOMIC_RELAXED) + 1;
    opener_post(what, handle, name, flags, turn);
    opener.stuck = opens ? !opener_wait(turn, GP_OPENER_LOAD_NS, UINT64_MAX)
                         : !opener_wait(turn, GP_OPENER_LOCK_NS, GP_OPENER_IDLE_NS);
    return opener.stuck ? NULL : opener.result;
}

/* Any name will do: dlsym takes the lock before it looks. */
bool gp_opener_is_free(void)
{
    if (opener.running)
        opener_ask(GP_OPENER_SYMBOL, RTLD_DEFAULT, "dlopen", 0);
    return !opener.stuck;
}

bool gp_opener_is_stuck(void)
{
    return opener.stuck;
}

bool gp_opener_start(bool inside)
{
    /* Without the opener's thread, the caller makes the calls itself. */
    opener.running = !inside && gp_worker_start(opener_main, "gpuprof-load") == 0;
    return gp_opener_is_free();
}

void gp_opener_stop(void)
{
    if (opener.running && !opener.stuck)
        opener_post(GP_OPENER_END, NULL, "", 0, __atomic_load_n(&opener.x_turn, __ATOMIC_RELAXED) + 1);
    opener.running = false;
}

void *gp_opener_open(const char *path, int flags)
{
    return gp_opener_is_free() ? opener_ask(GP_OPENER_OPEN, NULL, path, flags) : NULL;
}

void *gp_opener_symbol(void *handle, const char *name)
{
    return opener_ask(GP_OPENER_SYMBOL, handle, name, 0);
}

const char *gp_opener_error(void)
{
    return opener.stuck ? "the loader's lock could not be had" : opener.error;
}
