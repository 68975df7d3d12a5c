// SPDX-License-Identifier: MIT
// pools.cpp: random requests to RMM's pools, on the simulated GPU under gpuprof.  After each step gpuprof's allocated bytes have to
// be what RMM's own statistics say, and its reserved bytes what RMM took from the driver; so do their peaks.
//
//   pools KIND [SEED]     KIND: pool, arena, fixed, binning, nested, threads, two
#include <gpuprof/gpuprof.h>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/fixed_size_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/mr/statistics_resource_adaptor.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

using resource = rmm::mr::statistics_resource_adaptor;
static constexpr std::size_t MiB = 1 << 20;

static decltype(&gpuprof_memory_allocated) allocated, allocated_peak, reserved, reserved_peak;

template <typename T> static void look_up(void *library, T &function, char const *name)
{
    function = reinterpret_cast<T>(dlsym(library, name));
    if (function)
        return;
    std::fprintf(stderr, "pools: gpuprof has no %s\n", name);
    std::exit(2);
}

struct piece {
    void *at;
    std::size_t bytes;
};

// What the pieces of one of RMM's resources add up to, and what that took from the driver.
struct bench {
    resource driver; // below the pool
    resource pool;   // what the program asks
    std::vector<piece> pieces;
};

static std::int64_t sum(resource const &of)
{
    return of.get_bytes_counter().value;
}

static bool same(char const *what, std::int64_t ours, std::int64_t theirs, int step)
{
    if (ours == theirs)
        return true;
    std::fprintf(stderr, "pools: step %d: %s: gpuprof says %lld, RMM %lld\n", step, what, (long long)ours, (long long)theirs);
    return false;
}

static void step(bench &b, std::mt19937 &random, std::size_t most)
{
    cuda::stream_ref stream{cudaStream_t{nullptr}};
    if (!b.pieces.empty() && random() % 5 < 2) {
        std::size_t at = random() % b.pieces.size();
        b.pool.deallocate(stream, b.pieces[at].at, b.pieces[at].bytes, 256);
        b.pieces[at] = b.pieces.back();
        b.pieces.pop_back();
        return;
    }
    // Of whole units: RMM's statistics have the bytes as asked for.
    std::size_t bytes = (1 + random() % (most / 256)) * 256;
    try {
        b.pieces.push_back({b.pool.allocate(stream, bytes, 256), bytes});
    } catch (std::exception const &) { // the pool has no room
        return;
    }
}

static bool check(std::vector<bench *> const &all, int step)
{
    std::int64_t pieces = 0, driver = 0;
    for (auto *b : all)
        pieces += sum(b->pool), driver += sum(b->driver);
    return same("allocated", allocated(0), pieces, step) && same("reserved", reserved(0), driver, step);
}

static void end(bench &b)
{
    for (auto const &p : b.pieces)
        b.pool.deallocate(cuda::stream_ref{cudaStream_t{nullptr}}, p.at, p.bytes, 256);
    b.pieces.clear();
}

static resource make(std::string const &kind, resource const &driver)
{
    if (kind == "arena")
        return resource{rmm::mr::arena_memory_resource{driver, 512 * MiB}};
    if (kind == "fixed")
        return resource{rmm::mr::fixed_size_memory_resource{driver, MiB, 64}};
    if (kind == "binning")
        return resource{rmm::mr::binning_memory_resource{rmm::mr::pool_memory_resource{driver, 256 * MiB}, 18, 20}};
    if (kind == "nested")
        return resource{rmm::mr::pool_memory_resource{rmm::mr::pool_memory_resource{driver, 512 * MiB}, 64 * MiB}};
    return resource{rmm::mr::pool_memory_resource{driver, 64 * MiB}};
}

// A pool above a pool: what the lower one has handed out is allocated.
static bool at_least(std::vector<bench *> const &all, int step)
{
    std::int64_t pieces = sum(all[0]->pool), driver = sum(all[0]->driver), ours = allocated(0);
    if (ours < pieces || ours > driver)
        std::fprintf(stderr, "pools: step %d: allocated: gpuprof says %lld, RMM %lld of %lld\n", step, (long long)ours, (long long)pieces,
                     (long long)driver);
    return ours >= pieces && ours <= driver && same("reserved", reserved(0), driver, step);
}

static bool threads(bench &b, unsigned seed)
{
    std::vector<std::thread> all;
    for (unsigned i = 0; i < 4; i++)
        all.emplace_back([&b, seed, i] {
            bench mine{b.driver, b.pool, {}};
            std::mt19937 random(seed + i);
            for (int n = 0; n < 3000; n++)
                step(mine, random, 2 * MiB);
            end(mine);
        });
    for (auto &one : all)
        one.join();
    // RMM's statistics change after the pool did, so their peak may be off by the pieces of the threads.
    std::int64_t off = allocated_peak(0) - b.pool.get_bytes_counter().peak, most = 4 * 2 * (std::int64_t)MiB;
    return check({&b}, 12000) && (off <= most && off >= -most ? true : same("allocated peak", off, 0, 12000));
}

int main(int argc, char **argv)
{
    std::string kind = argc > 1 ? argv[1] : "pool";
    unsigned seed = argc > 2 ? (unsigned)std::atoi(argv[2]) : 1;
    char const *path = std::getenv("CUDA_INJECTION64_PATH");
    cudaFree(nullptr);
    void *library = path ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
    if (!library) {
        std::fprintf(stderr, "pools: not under gpuprof\n");
        return 2;
    }
    look_up(library, allocated, "gpuprof_memory_allocated");
    look_up(library, allocated_peak, "gpuprof_max_memory_allocated");
    look_up(library, reserved, "gpuprof_memory_reserved");
    look_up(library, reserved_peak, "gpuprof_max_memory_reserved");
    std::mt19937 random(seed);
    bool good = true, nested = kind == "nested" || kind == "binning";
    {
        resource driver{rmm::mr::cuda_memory_resource{}};
        bench b{driver, make(kind, driver), {}};
        resource second_driver{rmm::mr::cuda_memory_resource{}};
        std::optional<bench> second;
        std::vector<bench *> all{&b};
        if (kind == "two") // what an arena takes at its start is its pool from its first piece on
            all.push_back(&second.emplace(bench{second_driver, make("arena", second_driver), {}}));
        for (auto *one : all)
            step(*one, random, MiB);
        if (kind == "threads")
            good = threads(b, seed);
        for (int n = 0; good && n < 3000 && kind != "threads"; n++) {
            step(*all[random() % all.size()], random, kind == "fixed" ? MiB : 4 * MiB);
            good = nested ? at_least(all, n) : check(all, n);
        }
        if (good && !nested && kind != "threads" && all.size() == 1)
            good = same("allocated peak", allocated_peak(0), b.pool.get_bytes_counter().peak, 3000) &&
                   same("reserved peak", reserved_peak(0), b.driver.get_bytes_counter().peak, 3000);
        if (std::getenv("POOLS_WAIT"))
            std::getchar();
        for (auto *one : all)
            end(*one);
        good = good && (nested || same("allocated at the end", allocated(0), 0, 3000));
    }
    good = good && same("reserved after the pools", reserved(0), 0, 3000);
    std::printf("%s %s\n", kind.c_str(), good ? "ok" : "FAILED");
    return good ? 0 : 1;
}
