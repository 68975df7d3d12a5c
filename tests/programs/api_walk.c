/* SPDX-License-Identifier: MIT
 *
 * gpuprof_walk: the pieces of a device add up to its statistics, whatever the memory came from, and
 * hang together while other threads allocate.  Leaves 3 MiB linear, one step of physical memory
 * (and a mapped one) and 6 MiB of the cache's.
 */
#include <cuda.h>

#include "api.h"
#include "threads.h"
#include "vmm.h"

#define WORKERS 3u
#define ROUNDS  3000
#define ROOM    4096

static struct gpuprof_piece pieces[ROOM];
static unsigned x_workers = WORKERS;

/* How many places are wrong: blocks that do not cover their segment, or stand in none. */
static int holes(int64_t count)
{
    uint64_t at = 0, end = 0;
    int wrong = 0;
    int64_t i;
    for (i = 0; i < count; i++) {
        if (pieces[i].what == GPUPROF_SEGMENT) {
            wrong += at != end;
            at = pieces[i].address;
            end = at + pieces[i].bytes;
        } else {
            wrong += pieces[i].address != at || pieces[i].bytes == 0;
            at += pieces[i].bytes;
        }
    }
    return wrong + (at != end);
}

static void sums(const char *what)
{
    int64_t count = api_gpuprof_walk(0, pieces, ROOM), reserved = 0, live = 0, requested = 0, blocks = 0, i;
    for (i = 0; i < count; i++) {
        if (pieces[i].what == GPUPROF_SEGMENT) {
            reserved += (int64_t)pieces[i].bytes;
        } else if (pieces[i].state == GPUPROF_LIVE) {
            live += (int64_t)pieces[i].bytes;
            requested += (int64_t)pieces[i].requested_bytes;
            blocks++;
        } else if (pieces[i].state == GPUPROF_UNMAPPED) {
            reserved -= (int64_t)pieces[i].bytes; /* of a growable segment: only addresses */
        }
    }
    printf("%s: %d holes, live %lld KiB; as in the statistics: %d %d %d %d\n", what, holes(count), api_kib(live),
           reserved == api_gpuprof_memory_reserved(0), live == api_gpuprof_memory_allocated(0),
           requested == api_stat(0, "requested_bytes.all.current"), blocks == api_stat(0, "allocation.all.current"));
}

static void thread_work(unsigned number)
{
    void *mine[4] = {NULL};
    unsigned random = number + 1, i;
    for (i = 0; i < ROUNDS; i++) {
        random = random * 1103515245u + 12345u;
        CHECK(api_gpuprof_free(mine[i % 4]));
        CHECK(api_gpuprof_alloc(&mine[i % 4], (1 + (random >> 16) % 64) * 16 * KIB, 0, NULL));
    }
    for (i = 0; i < 4; i++)
        CHECK(api_gpuprof_free(mine[i]));
    __atomic_sub_fetch(&x_workers, 1, __ATOMIC_ACQ_REL);
}

int main(void)
{
    struct thread_arg threads[WORKERS];
    void *cached = NULL, *freed = NULL;
    int wrong = 0, walks = 0;
    CUdeviceptr range = 0;
    int64_t count;
    program_start();
    if (!api_load())
        return 3;
    program_alloc(3 * MIB);
    sums("linear");
    vmm_create(0, STEP);
    sums("physical");
    range = vmm_reserve(STEP);
    CHECK(cuMemMap(range, STEP, 0, vmm_create(0, STEP), 0));
    sums("mapped");
    CHECK(api_gpuprof_alloc(&cached, 6 * MIB, 0, NULL));
    CHECK(api_gpuprof_alloc(&freed, 100 * KIB, 0, NULL));
    sums("cached");
    CHECK(api_gpuprof_free(freed));
    sums("freed");
    count = api_gpuprof_walk(0, NULL, 0);
    memset(pieces, 0x77, sizeof(pieces));
    REPORT("room for fewer", api_gpuprof_walk(0, pieces, 3) == count);
    printf("only so many are written: %d\n",
           pieces[2].address != 0x7777777777777777 && pieces[3].address == 0x7777777777777777);
    printf("no such device: %lld %lld\n", (long long)api_gpuprof_walk(9, pieces, ROOM),
           (long long)api_gpuprof_walk(-2, pieces, ROOM));
    threads_start(threads, WORKERS, thread_work);
    while (__atomic_load_n(&x_workers, __ATOMIC_ACQUIRE) != 0 || walks == 0) {
        count = api_gpuprof_walk(0, pieces, ROOM);
        wrong += count < 0 || count > ROOM || holes(count) != 0;
        walks++;
    }
    threads_join(threads, WORKERS);
    printf("meanwhile: %d wrong\n", wrong);
    sums("then");
    return finish();
}
