// SPDX-License-Identifier: MIT
// A pair of raw_delete and raw_alloc of PyTorch's own CUDA allocator, with blocks in rotation.  One line for each run: pairs are
// timed in batches; the lowest tenth and the median of the batches, in ns a pair.
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace allocator = c10::cuda::CUDACachingAllocator;

int main(int count, char **arguments) {
    const std::size_t live = count > 1 ? std::strtoul(arguments[1], nullptr, 10) : 100;
    const std::size_t batches = count > 2 ? std::strtoul(arguments[2], nullptr, 10) : 2000, pairs = 1000;
    std::vector<void *> blocks(live);
    std::vector<double> times;
    std::size_t at = 0;

    allocator::init(1);
    for (std::size_t i = 0; i < live; i++) blocks[i] = allocator::raw_alloc(512 * (1 + i % 32));
    for (std::size_t batch = 0; batch < batches + 20; batch++) {
        const auto start = std::chrono::steady_clock::now();
        for (std::size_t i = 0; i < pairs; i++) {
            allocator::raw_delete(blocks[at]);
            blocks[at] = allocator::raw_alloc(512 * (1 + at % 32));
            at = at + 1 == live ? 0 : at + 1;
        }
        const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
        if (batch >= 20) times.push_back(took.count() / static_cast<double>(pairs));
    }
    std::sort(times.begin(), times.end());
    std::printf("%.0f %.0f\n", times[times.size() / 10], times[times.size() / 2]);
}
