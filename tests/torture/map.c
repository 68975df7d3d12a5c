/* SPDX-License-Identifier: MIT
 *
 * map.c: many threads change one pointer map. Run by hand and by `make check`; usage: map
 * [seconds] [seed].
 *
 * Every address of a small universe has a word that says which operation is allowed on it, so
 * each operation has one right answer although any thread may free what another allocated.
 * Meanwhile one walker reads every entry, a second one removes entries, and the load swings so
 * that every shard's tables grow and shrink. The control is the same map without its lock: the
 * test is valid only if the control fails.
 */
#include "base/map.h"
#include "base/compiler.h"
#include "lib/random.h"
#include "torture/yield.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The control: the map compiled a second time, with an exchange that always finds the lock free. */
#define gp_map_new               control_map_new
#define gp_map_free              control_map_free
#define gp_map_prefetch          control_map_prefetch
#define gp_map_insert            control_map_insert
#define gp_map_insert_hold       control_map_insert_hold
#define gp_map_release           control_map_release
#define gp_map_take_hashed       control_map_take_hashed
#define gp_map_take              control_map_take
#define gp_map_find              control_map_find
#define gp_map_update            control_map_update
#define gp_map_each              control_map_each
#define gp_map_each_rest         control_map_each_rest
#define gp_map_count             control_map_count
#define gp_map_walked            control_map_walked
#define __atomic_exchange_n(...) 0
int control_map_new(struct gp_map **out, uint64_t limit);
void control_map_free(struct gp_map *map);
int control_map_insert(struct gp_map *map, const struct gp_record *record, struct gp_record *old);
int control_map_insert_hold(struct gp_map *map, uint64_t hash, const struct gp_record *record, struct gp_record *old,
                            struct gp_map_hold *hold);
void control_map_release(const struct gp_map_hold *hold);
int control_map_take_hashed(struct gp_map *map, uint64_t hash, uint8_t space, uint64_t key, struct gp_record *out);
int control_map_take(struct gp_map *map, uint8_t space, uint64_t key, struct gp_record *out);
uint64_t control_map_prefetch(struct gp_map *map, uint8_t space, uint64_t key);
int control_map_find(struct gp_map *map, uint8_t space, uint64_t key, struct gp_record *out);
int control_map_update(struct gp_map *map, uint8_t space, uint64_t key, gp_map_fn fn, void *arg);
uint64_t control_map_each(struct gp_map *map, gp_map_fn fn, void *arg);
uint64_t control_map_each_rest(struct gp_map *map, gp_map_fn fn, void (*rest)(void *arg), void *arg);
uint64_t control_map_count(struct gp_map *map);
uint64_t control_map_walked(struct gp_map *map);
#include "../../core/base/map.c"
#undef gp_map_new
#undef gp_map_free
#undef gp_map_prefetch
#undef gp_map_insert
#undef gp_map_insert_hold
#undef gp_map_release
#undef gp_map_take_hashed
#undef gp_map_take
#undef gp_map_find
#undef gp_map_update
#undef gp_map_each
#undef gp_map_each_rest
#undef gp_map_count
#undef gp_map_walked
#undef __atomic_exchange_n

struct torture_api {
    int (*new)(struct gp_map **, uint64_t);
    int (*insert)(struct gp_map *, const struct gp_record *, struct gp_record *);
    int (*take)(struct gp_map *, uint8_t, uint64_t, struct gp_record *);
    int (*find)(struct gp_map *, uint8_t, uint64_t, struct gp_record *);
    int (*update)(struct gp_map *, uint8_t, uint64_t, gp_map_fn, void *);
    uint64_t (*each)(struct gp_map *, gp_map_fn, void *);
    uint64_t (*count)(struct gp_map *);
    void (*free)(struct gp_map *);
};
static const struct torture_api torture_real = {gp_map_new,    gp_map_insert, gp_map_take,  gp_map_find,
                                                gp_map_update, gp_map_each,   gp_map_count, gp_map_free};
static const struct torture_api torture_control = {control_map_new,   control_map_insert, control_map_take,
                                                   control_map_find,  control_map_update, control_map_each,
                                                   control_map_count, control_map_free};

#define TORTURE_THREADS 4
#define TORTURE_KEYS    60000u /* enough for every shard to grow past its first table */
#define TORTURE_PINNED  500u
enum { SPACE_SHARED = 1, SPACE_PINNED, SPACE_VICTIM };
enum { WORD_ABSENT, WORD_LIVE, WORD_BUSY }; /* low two bits of a word; the rest is the version */

struct torture {
    const struct torture_api *api;
    struct gp_map *map;
    uint64_t seed;
    int x_stop;
    uint64_t x_wrong, x_ops, x_touched, x_victims, x_removed, x_walks;
    uint64_t x_words[TORTURE_KEYS];
};

static uint64_t torture_seed;

/* Yields the CPU in one window of many, so that the scheduler visits all of them. */
void gp_testpoint(const char *name)
{
    static __thread uint64_t state;
    (void)name;
    if (!state)
        state = torture_seed ^ (uint64_t)(uintptr_t)&state;
    if (random_mix(&state) % 256 == 0)
        torture_yield();
}

static void torture_expect(struct torture *t, bool right, const char *what)
{
    if (right)
        return;
    if (__atomic_fetch_add(&t->x_wrong, 1, __ATOMIC_RELAXED) < 3 && t->api == &torture_real)
        fprintf(stderr, "wrong: %s\n", what);
}

static struct gp_record torture_record(uint8_t space, uint64_t key, uint64_t version)
{
    return (struct gp_record){
        .key = key, .space = space, .bytes = version, .time_ns = ~version, .handle.mapped = key ^ version * 77};
}

static bool torture_whole(const struct gp_record *r)
{
    return r->time_ns == ~r->bytes && r->handle.mapped == (r->key ^ r->bytes * 77);
}

/* One address: the thread that sets its word to BUSY owns it for one operation, whose result is
 * then known. */
static void torture_shared(struct torture *t, uint64_t r, unsigned insert_percent)
{
    uint32_t index = (uint32_t)(r % TORTURE_KEYS);
    uint64_t key = 0x7f0000000000ull + index * 512ull, version;
    uint64_t word = __atomic_load_n(&t->x_words[index], __ATOMIC_RELAXED);
    struct gp_record out = {0};
    if ((word & 3) == WORD_BUSY || !__atomic_compare_exchange_n(&t->x_words[index], &word, (word & ~3ull) | WORD_BUSY,
                                                                false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return;
    version = word >> 2;
    bool live = (word & 3) == WORD_LIVE;
    unsigned what = (unsigned)((r >> 32) % 100);
    if (what < insert_percent) {
        struct gp_record record = torture_record(SPACE_SHARED, key, ++version);
        int rc = t->api->insert(t->map, &record, &out);
        torture_expect(t, rc == live, "insert: result");
        torture_expect(t, !live || (out.bytes == version - 1 && torture_whole(&out)), "insert: replaced record");
        live = true;
    } else if (what < 92) {
        int rc = t->api->take(t->map, SPACE_SHARED, key, &out);
        torture_expect(t, rc == (live ? 0 : -ENOENT), "take: result");
        torture_expect(t, !live || (out.bytes == version && torture_whole(&out)), "take: record");
        live = false;
    } else {
        int rc = t->api->find(t->map, SPACE_SHARED, key, &out);
        torture_expect(t, rc == (live ? 0 : -ENOENT), "find: result");
        torture_expect(t, !live || (out.bytes == version && torture_whole(&out)), "find: record");
    }
    __atomic_store_n(&t->x_words[index], version << 2 | (live ? WORD_LIVE : WORD_ABSENT), __ATOMIC_RELEASE);
}

static bool torture_touch(struct gp_record *record, void *arg)
{
    (void)arg;
    record->handle.uses++;
    return false;
}

static void *torture_worker(void *arg)
{
    struct torture *t = arg;
    static uint64_t x_next_id;
    uint64_t id = __atomic_add_fetch(&x_next_id, 1, __ATOMIC_RELAXED), random = t->seed + id * 1000003;
    uint64_t touched = 0, victims = 0, ops = 0;
    while (!__atomic_load_n(&t->x_stop, __ATOMIC_RELAXED)) {
        /* All threads swing together, by the number of operations: they grow the load for a
         * while, then shrink it. */
        unsigned percent = __atomic_fetch_add(&t->x_ops, 64, __ATOMIC_RELAXED) / 400000 % 2 ? 8 : 85;
        for (unsigned i = 0; i < 64; i++, ops++) {
            uint64_t r = random_mix(&random);
            torture_shared(t, r, percent);
            if (i % 8 == 0) {
                int rc = t->api->update(t->map, SPACE_PINNED, r % TORTURE_PINNED * 4096, torture_touch, NULL);
                torture_expect(t, rc == 0, "update: a pinned record is gone");
                touched++;
            }
            if (i % 16 == 0) {
                struct gp_record record = torture_record(SPACE_VICTIM, id << 40 | victims++, r);
                torture_expect(t, t->api->insert(t->map, &record, NULL) == 0, "insert: victim");
            }
        }
    }
    __atomic_fetch_add(&t->x_touched, touched, __ATOMIC_RELAXED);
    __atomic_fetch_add(&t->x_victims, victims, __ATOMIC_RELAXED);
    return NULL;
}

struct torture_walk {
    struct torture *t;
    uint8_t pinned[TORTURE_PINNED];
};

static bool torture_look(struct gp_record *record, void *arg)
{
    struct torture_walk *walk = arg;
    torture_expect(walk->t, torture_whole(record), "each: torn record");
    if (record->space == SPACE_PINNED)
        walk->pinned[record->key / 4096 % TORTURE_PINNED]++;
    return false;
}

static bool torture_reap(struct gp_record *record, void *arg)
{
    (void)arg;
    return record->space == SPACE_VICTIM;
}

static void *torture_walker(void *arg)
{
    struct torture *t = arg;
    while (!__atomic_load_n(&t->x_stop, __ATOMIC_RELAXED)) {
        struct torture_walk walk = {.t = t};
        t->api->each(t->map, torture_look, &walk);
        unsigned once = 0;
        for (unsigned i = 0; i < TORTURE_PINNED; i++)
            once += walk.pinned[i] == 1;
        torture_expect(t, once == TORTURE_PINNED, "each: a pinned record was not seen exactly once");
        __atomic_fetch_add(&t->x_walks, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void *torture_reaper(void *arg)
{
    struct torture *t = arg;
    while (!__atomic_load_n(&t->x_stop, __ATOMIC_RELAXED))
        __atomic_fetch_add(&t->x_removed, t->api->each(t->map, torture_reap, NULL), __ATOMIC_RELAXED);
    return NULL;
}

static void torture_settle(struct torture *t)
{
    uint64_t live = 0, uses = 0;
    t->x_removed += t->api->each(t->map, torture_reap, NULL);
    torture_expect(t, t->x_removed == t->x_victims, "victims: inserted and removed differ");
    for (uint32_t i = 0; i < TORTURE_KEYS; i++) {
        struct gp_record out;
        bool have = t->api->take(t->map, SPACE_SHARED, 0x7f0000000000ull + i * 512ull, &out) == 0;
        torture_expect(t, have == ((t->x_words[i] & 3) == WORD_LIVE), "at rest: presence");
        live += have;
    }
    for (uint32_t i = 0; i < TORTURE_PINNED; i++) {
        struct gp_record out = {0};
        t->api->take(t->map, SPACE_PINNED, i * 4096ull, &out);
        uses += out.handle.uses;
    }
    torture_expect(t, uses == t->x_touched, "updates were lost");
    torture_expect(t, t->api->count(t->map) == 0, "count at rest");
    fprintf(stderr, "  %lu operations, %lu walks, %lu victims, %lu live at the end\n", (unsigned long)t->x_ops,
            (unsigned long)t->x_walks, (unsigned long)t->x_victims, (unsigned long)live);
}

static uint64_t torture_run(const struct torture_api *api, double seconds, uint64_t seed)
{
    struct torture *t = calloc(1, sizeof *t);
    pthread_t threads[TORTURE_THREADS + 2];
    t->api = api;
    t->seed = seed;
    api->new (&t->map, 1 << 20);
    for (uint32_t i = 0; i < TORTURE_PINNED; i++) {
        struct gp_record record = torture_record(SPACE_PINNED, i * 4096ull, i);
        api->insert(t->map, &record, NULL);
    }
    for (unsigned i = 0; i < GP_COUNT(threads); i++)
        pthread_create(&threads[i], NULL, i == 0 ? torture_walker : i == 1 ? torture_reaper : torture_worker, t);
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
    __atomic_store_n(&t->x_stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < GP_COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    torture_settle(t);
    uint64_t wrong = t->x_wrong;
    api->free(t->map);
    free(t);
    return wrong;
}

/* ---- the limit under contention ---------------------------------------------------------------------------------- */

#define LIMIT 1000u
struct torture_limit {
    struct gp_map *map;
    uint64_t x_over, x_id, x_refused, seed;
};

static void *torture_limit_worker(void *arg)
{
    struct torture_limit *t = arg;
    uint64_t id = __atomic_add_fetch(&t->x_id, 1, __ATOMIC_RELAXED), random = t->seed + id, head = 0, tail = 0;
    for (unsigned i = 0; i < 60000; i++) {
        if (random_mix(&random) % 100 < (i / 5000 % 2 ? 30 : 70)) {
            struct gp_record record = torture_record(1, id << 40 | head, head);
            gp_map_prefetch(t->map, record.space, record.key);
            if (gp_map_insert(t->map, &record, NULL) == 0)
                head++;
            else
                __atomic_fetch_add(&t->x_refused, 1, __ATOMIC_RELAXED);
        } else if (tail < head) {
            gp_map_take(t->map, 1, id << 40 | tail++, NULL);
        }
    }
    while (tail < head)
        if (gp_map_take(t->map, 1, id << 40 | tail++, NULL))
            __atomic_fetch_add(&t->x_over, 1, __ATOMIC_RELAXED);
    return NULL;
}

static bool torture_limit_holds(uint64_t seed)
{
    struct torture_limit t = {.seed = seed};
    pthread_t threads[TORTURE_THREADS];
    uint64_t most = 0;
    gp_map_new(&t.map, LIMIT);
    for (unsigned i = 0; i < GP_COUNT(threads); i++)
        pthread_create(&threads[i], NULL, torture_limit_worker, &t);
    for (unsigned i = 0; i < GP_COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    /* At rest all room must be available again, however the shards traded it. */
    for (struct gp_record record = torture_record(1, 0, 0); gp_map_insert(t.map, &record, NULL) == 0; record.key += 256)
        most++;
    bool right = most == LIMIT && t.x_over == 0 && t.x_refused > 0;
    fprintf(stderr, "  limit %u: %lu fit at rest, %lu refusals under load\n", LIMIT, (unsigned long)most,
            (unsigned long)t.x_refused);
    gp_map_free(t.map);
    return right;
}

/* The control may crash, hang or count wrong; each counts as caught. It runs in a process of its
 * own, before this one has threads. */
static bool torture_control_is_caught(uint64_t seed)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(0);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        alarm(10);
        _exit(torture_run(&torture_control, 2, seed) != 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    fprintf(stderr, "  control without a lock: status %#x\n", (unsigned)status);
    return status != 0;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 8;
    torture_seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
    fprintf(stderr, "seed %lu\n", (unsigned long)torture_seed);
    unsigned failed = 0;
    bool caught = false; /* on a loaded machine its threads may not meet within its two seconds */
    for (uint64_t turn = 0; turn < 10 && !caught; turn++)
        caught = torture_control_is_caught(torture_seed + turn);
    failed += !caught;
    failed += torture_run(&torture_real, seconds, torture_seed) != 0;
    failed += !torture_limit_holds(torture_seed);
    printf("%u passed, %u failed\n", 3 - failed, failed);
    return failed != 0;
}
