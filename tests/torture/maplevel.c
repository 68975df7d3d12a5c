/* SPDX-License-Identifier: MIT
 *
 * maplevel.c: threads take and give one level. Run by `make check`; usage: maplevel [seconds] [seed].
 *
 * Each user writes into its part of the level and finds there what it wrote, until it gives the level back. At the end
 * nobody uses it, and it is unmapped. The control is the same level without its lock: the test is valid only if the control
 * fails.
 */
#include "base/maplevel.h"
#include "base/compiler.h"
#include "lib/random.h"
#include "torture/yield.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define gp_maplevel_map                 control_maplevel_map
#define gp_maplevel_unmap               control_maplevel_unmap
#define gp_maplevel_take                control_maplevel_take
#define gp_maplevel_give                control_maplevel_give
#define __atomic_exchange_n(_word, ...) ((void)(_word), 0)
void *control_maplevel_map(size_t bytes);
void control_maplevel_unmap(void *memory, size_t bytes);
bool control_maplevel_take(struct gp_maplevel *level, size_t bytes);
void control_maplevel_give(struct gp_maplevel *level, size_t bytes, void *part, size_t part_bytes);
#include "../../core/base/maplevel.c"
#undef gp_maplevel_map
#undef gp_maplevel_unmap
#undef gp_maplevel_take
#undef gp_maplevel_give
#undef __atomic_exchange_n

#define TORTURE_THREADS 4u
#define TORTURE_PART    4096u

struct torture_api {
    bool (*take)(struct gp_maplevel *level, size_t bytes);
    void (*give)(struct gp_maplevel *level, size_t bytes, void *part, size_t part_bytes);
};

struct torture {
    struct torture_api api;
    struct gp_maplevel level;
    size_t bytes;
    uint64_t seed, x_wrong, x_takes;
    int x_stop;
};

struct torture_user {
    struct torture *torture;
    unsigned number;
};

static uint64_t torture_seed;

void gp_testpoint(const char *name)
{
    static __thread uint64_t state;
    (void)name;
    if (!state)
        state = torture_seed ^ (uint64_t)(uintptr_t)&state;
    if (random_mix(&state) % 16 == 0)
        torture_yield();
}

static void torture_use(struct torture *t, unsigned number, uint64_t value)
{
    if (!t->api.take(&t->level, t->bytes)) {
        __atomic_fetch_add(&t->x_wrong, 1, __ATOMIC_RELAXED);
        return;
    }
    uint64_t *part = (uint64_t *)((char *)t->level.memory + number * TORTURE_PART);
    bool wrong = part[0] != 0; /* as it was mapped, or as it was left */
    part[0] = value;
    GP_TESTPOINT("torture.used");
    wrong |= part[0] != value;
    part[0] = 0;
    __atomic_fetch_add(&t->x_wrong, wrong, __ATOMIC_RELAXED);
    t->api.give(&t->level, t->bytes, value % 2 ? part : NULL, TORTURE_PART);
}

static void *torture_user_main(void *arg)
{
    struct torture_user *user = arg;
    struct torture *t = user->torture;
    uint64_t random = t->seed + user->number, takes = 0;
    for (; !__atomic_load_n(&t->x_stop, __ATOMIC_RELAXED); takes++)
        torture_use(t, user->number, random_mix(&random) | 2);
    __atomic_fetch_add(&t->x_takes, takes, __ATOMIC_RELAXED);
    return NULL;
}

static uint64_t torture_run(struct torture_api api, size_t bytes, double seconds, uint64_t seed)
{
    struct torture t = {.api = api, .bytes = bytes, .seed = seed};
    struct torture_user users[TORTURE_THREADS];
    pthread_t threads[TORTURE_THREADS];
    for (unsigned i = 0; i < TORTURE_THREADS; i++) {
        users[i] = (struct torture_user){&t, i};
        pthread_create(&threads[i], NULL, torture_user_main, &users[i]);
    }
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
    __atomic_store_n(&t.x_stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < TORTURE_THREADS; i++)
        pthread_join(threads[i], NULL);
    uint64_t wrong = t.x_wrong + (t.level.users != 0 || t.level.memory);
    fprintf(stderr, "  %zu KiB: %lu takes, %lu wrong\n", bytes >> 10, (unsigned long)t.x_takes, (unsigned long)wrong);
    return wrong;
}

/* The control may crash, hang or count wrong; each counts as caught. It runs in a process of its own, before this one has
 * threads. */
static bool torture_control_is_caught(uint64_t seed)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(0);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        alarm(10);
        _exit(torture_run((struct torture_api){control_maplevel_take, control_maplevel_give}, 1 << 20, 1, seed) != 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    fprintf(stderr, "  control without a lock: status %#x\n", (unsigned)status);
    return status != 0;
}

int main(int argc, char **argv)
{
    const struct torture_api real = {gp_maplevel_take, gp_maplevel_give};
    double seconds = argc > 1 ? atof(argv[1]) : 4;
    torture_seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
    fprintf(stderr, "seed %lu\n", (unsigned long)torture_seed);
    unsigned failed = 0;
    bool caught = false; /* on a loaded machine its threads may not meet within its second */
    for (uint64_t turn = 0; turn < 10 && !caught; turn++)
        caught = torture_control_is_caught(torture_seed + turn);
    failed += !caught;
    failed += torture_run(real, 1 << 20, seconds / 2, torture_seed) != 0;
    failed += torture_run(real, GP_MAPLEVEL_HUGE, seconds / 2, torture_seed) != 0;
    printf("%u passed, %u failed\n", 3 - failed, failed);
    return failed != 0;
}
