/* SPDX-License-Identifier: MIT
 * bench_map_std.cc: hash maps of C++ under a mutex, for the comparison: the standard library's, and those of Abseil and
 * robin-map where their headers are. Built and run by bench_map_std.sh. */
#include "bench/map_load.h"
#include <mutex>
#include <unordered_map>
#if __has_include(<absl/container/flat_hash_map.h>)
#include <absl/container/flat_hash_map.h>
#define BENCH_ABSL
#endif
#if __has_include(<tsl/robin_map.h>)
#include <tsl/robin_map.h>
#define BENCH_ROBIN
#endif

namespace
{

struct bench_record {
    uint64_t words[8];
};

/* Of the standard library the hash of a number is the number, and a map of a power of two would have all these keys in a
 * few places. */
struct bench_hash {
    size_t operator()(uint64_t key) const
    {
        return bench_random(&key);
    }
};

template <typename Map> struct bench_std {
    std::mutex mutex;
    Map map;

    static void *create(uint64_t)
    {
        return new bench_std;
    }

    static void destroy(void *map)
    {
        delete static_cast<bench_std *>(map);
    }

    static void insert(void *map, uint64_t key)
    {
        bench_std *std_map = static_cast<bench_std *>(map);
        std::lock_guard<std::mutex> guard(std_map->mutex);
        if (!std_map->map.emplace(key, bench_record{{key, 1, 512, 500, key, 0, 0, 0}}).second)
            abort();
    }

    static void take(void *map, uint64_t key)
    {
        bench_std *std_map = static_cast<bench_std *>(map);
        std::lock_guard<std::mutex> guard(std_map->mutex);
        auto found = std_map->map.find(key);
        if (found == std_map->map.end() || found->second.words[4] != key)
            abort();
        std_map->map.erase(found);
    }

    static void run(const char *name, unsigned threads)
    {
        const struct bench_map_api api = {name, create, destroy, insert, take};
        bench_map_all(&api, threads);
    }
};

} // namespace

int main(int argc, char **argv)
{
    unsigned threads = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    bench_std<std::unordered_map<uint64_t, bench_record>>::run("unordered_map", threads);
#ifdef BENCH_ABSL
    bench_std<absl::flat_hash_map<uint64_t, bench_record>>::run("flat_hash_map", threads);
#else
    puts("# missing: Abseil's flat_hash_map (libabsl-dev)");
#endif
#ifdef BENCH_ROBIN
    bench_std<tsl::robin_map<uint64_t, bench_record, bench_hash>>::run("robin_map", threads);
#else
    puts("# missing: robin_map (robin-map-dev)");
#endif
}
