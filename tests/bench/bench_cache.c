/* SPDX-License-Identifier: MIT
 *
 * bench_cache.c: ns of an allocation and a free that the cache serves, beside cub's caching
 * allocator (cxx/bench_cub.cc: cub.so beside this program; left out where it is missing).  All
 * contenders run in one process, interleaved by repetition.  stdout: TSV
 * `name<TAB>threads<TAB>value`:
 *
 *      NAME.SIZES.LIVE[.own].p50      ns of a pair on one thread, median over repetitions, wall time
 *                          .best      minimum over repetitions, least disturbed by other work
 *                          .calls     driver calls that moved memory during the measurement
 *      cub_over_caching.SIZES.LIVE[.own].p50 .best   how many times faster ours is
 *      caching_bare...                the same cache with counters that count nothing (cache_bare.so)
 *      gauges.SIZES.LIVE[.own]        cost of the statistics per operation: half the difference of the
 *                                     two medians
 *      statistics...                  only the gauges of a pair, on a counter set of their own
 *
 * SIZES: pow2 (512 B .. 512 KiB) or uniform (1 B .. 1 MiB).  own: each thread uses a stream of its
 * own; otherwise all threads use the same stream.  Under `gpuprof run --sim` there is one contender
 * more, "public": gpuprof_alloc and gpuprof_free of the library that is loaded, all on one stream
 * (bench_cache_public.sh).  Arguments: pairs per repetition and thread, repetitions, contenders by
 * name (default: all).
 */
#include "base/compiler.h"
#include "base/gauge.h"
#include "bench/cache_own.h"
#include "bench/count.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

enum { REPS_MAX = 99, CONTENDERS_MAX = 8, THREADS_MAX = 2, SHARDS = 16 };

/* ---- contenders ------------------------------------------------------------------------------------------------- */

/* The load without an allocator; slots keep sizes, so "statistics" knows the bytes of a free. */
static void *empty_create(void)
{
    return &bump_calls;
}

static void empty_destroy(void *cache)
{
    (void)cache;
}

static uint64_t empty_alloc(void *cache, uint64_t bytes, uint64_t stream, unsigned thread)
{
    __asm__ volatile("" ::"r"(cache), "r"(stream), "r"(thread) : "memory");
    return bytes;
}

static void empty_free(void *cache, uint64_t address, uint64_t stream, unsigned thread)
{
    __asm__ volatile("" ::"r"(cache), "r"(address), "r"(stream), "r"(thread) : "memory");
}

static uint64_t empty_calls(void *cache)
{
    (void)cache;
    return 0;
}

static void *statistics_create(void)
{
    struct gp_counter *set;
    if (gp_counter_new(&set, GP_GAUGES, SHARDS) != 0)
        abort();
    return set;
}

static void statistics_destroy(void *set)
{
    gp_counter_free((struct gp_counter *)set);
}

static void statistics_move(void *set, uint64_t bytes, enum gp_counter_op op, unsigned thread)
{
    struct gp_delta deltas[GP_DELTAS];
    int64_t rounded = (int64_t)((bytes + 511) / 512 * 512);
    struct gp_move move = {.kind = GP_KIND_LINEAR,
                           .parts = GP_PART_ALLOCATED | GP_PART_KIND,
                           .bytes = rounded,
                           .requested_bytes = (int64_t)bytes,
                           .class_bytes = rounded,
                           .count = 1};
    gp_counter_apply((struct gp_counter *)set, thread, op, deltas, gp_gauge_deltas(&move, deltas));
}

static uint64_t statistics_alloc(void *set, uint64_t bytes, uint64_t stream, unsigned thread)
{
    (void)stream;
    statistics_move(set, bytes, GP_ADD, thread);
    return bytes;
}

static void statistics_free(void *set, uint64_t bytes, uint64_t stream, unsigned thread)
{
    (void)stream;
    statistics_move(set, bytes, GP_SUB, thread);
}

static struct {
    int (*alloc)(void **pointer, size_t bytes, int device, void *stream);
    int (*free)(void *pointer);
    int64_t (*calls)(int device);
} public_api;

static void *public_create(void)
{
    return &public_api;
}

static uint64_t public_alloc(void *cache, uint64_t bytes, uint64_t stream, unsigned thread)
{
    void *pointer;
    (void)cache, (void)stream, (void)thread;
    if (public_api.alloc(&pointer, bytes, 0, NULL) != 0)
        abort();
    return (uint64_t)(uintptr_t)pointer;
}

static void public_free(void *cache, uint64_t address, uint64_t stream, unsigned thread)
{
    (void)cache, (void)stream, (void)thread;
    if (public_api.free((void *)(uintptr_t)address) != 0)
        abort();
}

static uint64_t public_calls(void *cache)
{
    (void)cache;
    return (uint64_t)public_api.calls(0);
}

static struct bench_cache_api contenders[CONTENDERS_MAX] = {
    {"empty", empty_create, empty_destroy, empty_alloc, empty_free, empty_calls},
    {"statistics", statistics_create, statistics_destroy, statistics_alloc, statistics_free, empty_calls},
    {"caching", caching_create, cache_destroy, cache_alloc, cache_free, cache_calls},
    {"pytorch", pytorch_create, cache_destroy, cache_alloc, cache_free, cache_calls},
};
static unsigned contender_count = 4;

/* Peers are libraries in the folder of this program. */
static void contender_load(const char *file)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);
    char *slash = n > 0 ? (path[n] = 0, strrchr(path, '/')) : NULL;
    if (!slash)
        return;
    strcpy(slash + 1, file);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct bench_cache_api *peer = library ? dlsym(library, BENCH_CACHE_PEER) : NULL;
    if (peer)
        contenders[contender_count++] = *peer;
    else
        printf("# missing: %s (%s)\n", file, dlerror());
}

/* The library that `gpuprof run` has put into this process. */
static void contender_public(void)
{
    void *library = dlopen("libgpuprof.so", RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return;
    *(void **)&public_api.alloc = dlsym(library, "gpuprof_alloc");
    *(void **)&public_api.free = dlsym(library, "gpuprof_free");
    *(void **)&public_api.calls = dlsym(library, "gpuprof_driver_calls");
    contenders[contender_count++] =
        (struct bench_cache_api){"public", public_create, empty_destroy, public_alloc, public_free, public_calls};
}

static void contender_choose(char **names, int count)
{
    unsigned kept = 0;
    for (unsigned c = 0; c < contender_count; c++)
        for (int i = 0; i < count; i++)
            if (!strcmp(contenders[c].name, names[i])) {
                contenders[kept++] = contenders[c];
                break;
            }
    contender_count = kept;
}

/* ---- one place: a load on all contenders ------------------------------------------------------------------------ */

struct place {
    unsigned threads, reps;
    uint32_t pairs;
    uint64_t live;
    int uniform, own;
    char name[48];
    struct bench_cache_hand hands[CONTENDERS_MAX][THREADS_MAX];
    double figures[CONTENDERS_MAX][REPS_MAX];
    uint64_t calls[CONTENDERS_MAX];
};

static double place_measure(struct place *place, unsigned c)
{
    pthread_barrier_t gate;
    pthread_t ids[THREADS_MAX];
    double sum = 0;
    pthread_barrier_init(&gate, NULL, place->threads);
    for (unsigned t = 0; t < place->threads; t++) {
        place->hands[c][t].gate = &gate;
        if (pthread_create(&ids[t], NULL, bench_cache_hand_main, &place->hands[c][t]))
            abort();
    }
    for (unsigned t = 0; t < place->threads; t++) {
        pthread_join(ids[t], NULL);
        sum += place->hands[c][t].ns;
    }
    pthread_barrier_destroy(&gate);
    return sum / place->threads;
}

/* Fills, then runs until sizes and places are steady, so that only service from the cache is
 * measured. */
static void place_warm(struct place *place, unsigned c)
{
    const struct bench_cache_api *api = &contenders[c];
    void *cache = api->create();
    for (unsigned t = 0; t < place->threads; t++) {
        struct bench_cache_hand *hand = &place->hands[c][t];
        *hand = (struct bench_cache_hand){.api = api,
                                          .cache = cache,
                                          .live = place->live,
                                          .stream = place->own ? 16 + t : 16,
                                          .random = 7 + t,
                                          .pairs = place->pairs,
                                          .thread = t,
                                          .uniform = place->uniform};
        hand->slots = malloc(place->live * sizeof hand->slots[0]);
        bench_cache_fill(hand);
        bench_cache_pairs(hand, BENCH_COUNT(50000u, 100u) + (uint32_t)place->live * 20);
    }
    place_measure(place, c);
}

static void place_drop(struct place *place, unsigned c)
{
    for (unsigned t = 0; t < place->threads; t++) {
        struct bench_cache_hand *hand = &place->hands[c][t];
        for (uint64_t i = 0; i < hand->live; i++)
            hand->api->free(hand->cache, hand->slots[i], hand->stream, t);
        free(hand->slots);
    }
    contenders[c].destroy(place->hands[c][0].cache);
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void place_print(struct place *place)
{
    double caching = 0, bare = 0, cub = 0, least_caching = 0, least_cub = 0;
    for (unsigned c = 0; c < contender_count; c++) {
        const char *name = contenders[c].name;
        double *figures = place->figures[c];
        qsort(figures, place->reps, sizeof figures[0], compare);
        double p50 = figures[place->reps / 2];
        printf("%s.%s.p50\t%u\t%.1f\n", name, place->name, place->threads, p50);
        printf("%s.%s.best\t%u\t%.1f\n", name, place->name, place->threads, figures[0]);
        if (contenders[c].driver_calls != empty_calls)
            printf("%s.%s.calls\t%u\t%llu\n", name, place->name, place->threads, (unsigned long long)place->calls[c]);
        caching = strcmp(name, "caching") ? caching : p50;
        bare = strcmp(name, "caching_bare") ? bare : p50;
        cub = strcmp(name, "cub") ? cub : p50;
        least_caching = strcmp(name, "caching") ? least_caching : figures[0];
        least_cub = strcmp(name, "cub") ? least_cub : figures[0];
    }
    if (caching > 0 && bare > 0)
        printf("gauges.%s\t%u\t%.1f\n", place->name, place->threads, (caching - bare) / 2);
    if (caching > 0 && cub > 0) {
        printf("cub_over_caching.%s.p50\t%u\t%.2f\n", place->name, place->threads, cub / caching);
        printf("cub_over_caching.%s.best\t%u\t%.2f\n", place->name, place->threads, least_cub / least_caching);
    }
    fflush(stdout);
}

static void place_run(struct place *place)
{
    snprintf(place->name, sizeof place->name, "%s.%llu%s", place->uniform ? "uniform" : "pow2",
             (unsigned long long)place->live, place->own ? ".own" : "");
    memset(place->calls, 0, sizeof place->calls);
    for (unsigned c = 0; c < contender_count; c++)
        place_warm(place, c);
    for (unsigned r = 0; r < place->reps; r++)
        for (unsigned c = 0; c < contender_count; c++) {
            uint64_t before = contenders[c].driver_calls(place->hands[c][0].cache);
            place->figures[c][r] = place_measure(place, c);
            place->calls[c] += contenders[c].driver_calls(place->hands[c][0].cache) - before;
        }
    place_print(place);
    for (unsigned c = 0; c < contender_count; c++)
        place_drop(place, c);
}

int main(int argc, char **argv)
{
    static struct place place;
    static const uint64_t lives[] = {16, BENCH_COUNT(256, 17), BENCH_COUNT(4096, 18)};
    place.pairs = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 100000;
    place.reps = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 0) : 9;
    place.reps = place.reps < 1 ? 1 : place.reps > REPS_MAX ? REPS_MAX : place.reps;
    contender_load("cache_bare.so");
    contender_load("cub.so");
    contender_public();
    if (argc > 3)
        contender_choose(argv + 3, argc - 3);
    for (place.threads = 1; place.threads <= THREADS_MAX; place.threads++)
        for (place.own = 0; place.own < (int)place.threads; place.own++)
            for (place.uniform = 0; place.uniform < 2; place.uniform++)
                for (unsigned i = 0; i < GP_COUNT(lives); i++) {
                    place.live = lives[i];
                    place_run(&place);
                }
    return 0;
}
