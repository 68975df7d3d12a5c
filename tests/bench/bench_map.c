/* SPDX-License-Identifier: MIT
 * bench_map.c: the pointer map beside glibc's tsearch under a mutex.  map_load.h defines the load
 * and the names; bench_map_std.sh runs the C++ peer.  Usage: bench_map [threads] [map|tsearch] */
#include "base/map.h"
#include "bench/map_load.h"
#include <search.h>
#include <stdlib.h>
#include <string.h>

static void *bench_own_create(uint64_t limit)
{
    struct gp_map *map = NULL;
    if (gp_map_new(&map, limit) < 0)
        abort();
    return map;
}

static void bench_own_destroy(void *map)
{
    gp_map_free(map);
}

static void bench_own_insert(void *map, uint64_t key)
{
    struct gp_record record = {.key = key, .space = 1, .bytes = 512, .requested_bytes = 500, .time_ns = key};
    if (gp_map_insert(map, &record, NULL) != 0)
        abort();
}

static void bench_own_take(void *map, uint64_t key)
{
    struct gp_record record;
    if (gp_map_take(map, 1, key, &record) != 0 || record.time_ns != key)
        abort();
}

struct bench_tree {
    pthread_mutex_t mutex;
    void *root;
};

static int bench_tree_order(const void *a, const void *b)
{
    const struct gp_record *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

static void *bench_tree_create(uint64_t limit)
{
    struct bench_tree *tree = calloc(1, sizeof *tree);
    (void)limit;
    pthread_mutex_init(&tree->mutex, NULL);
    return tree;
}

static void bench_tree_destroy(void *map)
{
    struct bench_tree *tree = map;
    while (tree->root) {
        struct gp_record *record = *(struct gp_record **)tree->root;
        tdelete(record, &tree->root, bench_tree_order);
        free(record);
    }
    free(tree);
}

static void bench_tree_insert(void *map, uint64_t key)
{
    struct bench_tree *tree = map;
    struct gp_record *record = malloc(sizeof *record);
    *record = (struct gp_record){.key = key, .space = 1, .bytes = 512, .requested_bytes = 500, .time_ns = key};
    pthread_mutex_lock(&tree->mutex);
    if (*(struct gp_record **)tsearch(record, &tree->root, bench_tree_order) != record)
        abort();
    pthread_mutex_unlock(&tree->mutex);
}

static void bench_tree_take(void *map, uint64_t key)
{
    struct bench_tree *tree = map;
    struct gp_record probe = {.key = key};
    pthread_mutex_lock(&tree->mutex);
    struct gp_record **found = tfind(&probe, &tree->root, bench_tree_order);
    if (!found || (*found)->time_ns != key)
        abort();
    struct gp_record *record = *found;
    tdelete(record, &tree->root, bench_tree_order);
    pthread_mutex_unlock(&tree->mutex);
    free(record);
}

int main(int argc, char **argv)
{
    static const struct bench_map_api own = {"map", bench_own_create, bench_own_destroy, bench_own_insert,
                                             bench_own_take};
    static const struct bench_map_api tree = {"tsearch", bench_tree_create, bench_tree_destroy, bench_tree_insert,
                                              bench_tree_take};
    unsigned threads = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    if (argc < 3 || strcmp(argv[2], "map") == 0)
        bench_map_all(&own, threads);
    if (argc < 3 || strcmp(argv[2], "tsearch") == 0)
        bench_map_all(&tree, threads);
    return 0;
}
