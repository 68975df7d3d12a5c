/* SPDX-License-Identifier: MIT
 * bench_map_std.cc: std::unordered_map under a mutex, for the comparison.  Built and run by bench_map_std.sh. */
#include "bench/map_load.h"
#include <mutex>
#include <unordered_map>

struct bench_record {
    uint64_t words[8];
};

struct bench_std {
    std::mutex mutex;
    std::unordered_map<uint64_t, bench_record> map;
};

static void *bench_std_create(uint64_t)
{
    return new bench_std;
}

static void bench_std_destroy(void *map)
{
    delete static_cast<bench_std *>(map);
}

static void bench_std_insert(void *map, uint64_t key)
{
    bench_std *std_map = static_cast<bench_std *>(map);
    std::lock_guard<std::mutex> guard(std_map->mutex);
    if (!std_map->map.emplace(key, bench_record{{key, 1, 512, 500, key, 0, 0, 0}}).second)
        abort();
}

static void bench_std_take(void *map, uint64_t key)
{
    bench_std *std_map = static_cast<bench_std *>(map);
    std::lock_guard<std::mutex> guard(std_map->mutex);
    auto found = std_map->map.find(key);
    if (found == std_map->map.end() || found->second.words[4] != key)
        abort();
    std_map->map.erase(found);
}

int main(int argc, char **argv)
{
    static const struct bench_map_api api = {"unordered_map", bench_std_create, bench_std_destroy, bench_std_insert,
                                             bench_std_take};
    bench_map_all(&api, argc > 1 ? (unsigned)atoi(argv[1]) : 2);
}
