/* SPDX-License-Identifier: MIT
 * test_replay_verify.c: checks that the replay's verification (verify.c) detects an allocator that is
 * wrong in known ways. The driver is simulated with host memory. */
#include <convert/replay/internal.h>

#include <criterion/criterion.h>
#include <string.h>

static uint8_t memory[1 << 20] __attribute__((aligned(4096)));
static struct gp_replay_result result;
static struct gp_replay_verify *verify;
static void *context;

static int yes(void)
{
    return 0;
}

static int set32(uint64_t pointer, unsigned value, size_t count, void *stream)
{
    (void)stream;
    cr_assert(pointer >= (uint64_t)memory && pointer + 4 * count <= (uint64_t)memory + sizeof(memory));
    for (size_t i = 0; i < count; i++)
        memcpy((void *)(pointer + 4 * i), &value, 4);
    return 0;
}

static int copy_out(void *host, uint64_t pointer, size_t bytes, void *stream)
{
    (void)stream;
    memcpy(host, (const void *)pointer, bytes);
    return 0;
}

static void begin(void)
{
    static struct gp_replay_driver driver;
    *(void **)&driver.cuCtxSetCurrent = (void *)yes;
    *(void **)&driver.cuCtxSynchronize = (void *)yes;
    *(void **)&driver.cuEventCreate = (void *)yes;
    *(void **)&driver.cuEventRecord = (void *)yes;
    *(void **)&driver.cuStreamWaitEvent = (void *)yes;
    driver.cuMemsetD32Async = set32;
    driver.cuMemcpyDtoHAsync_v2 = copy_out;
    memset(&result, 0, sizeof(result));
    verify = gp_replay_verify_new(&driver, &result, &context, 1);
    cr_assert(verify);
}

static void end(void)
{
    gp_replay_verify_free(verify);
}

static void born(uint32_t block, uint64_t offset, uint64_t bytes)
{
    gp_replay_verify_alloc(verify, block, (uint64_t)memory + offset, bytes, NULL);
}

static void dies(uint32_t block, uint64_t offset, uint64_t bytes)
{
    gp_replay_verify_release(verify, block, (uint64_t)memory + offset, bytes, NULL);
}

static void is(uint64_t checked, uint64_t damaged, uint64_t overlaps, uint64_t misaligned)
{
    gp_replay_verify_settle(verify);
    cr_assert(result.checked == checked && result.damaged == damaged && result.overlaps == overlaps &&
                  result.misaligned == misaligned,
              "checked %lu damaged %lu overlaps %lu misaligned %lu", (unsigned long)result.checked,
              (unsigned long)result.damaged, (unsigned long)result.overlaps, (unsigned long)result.misaligned);
}

Test(verify, neighbours_are_fine, .init = begin, .fini = end)
{
    born(0, 0, 512);
    born(1, 512, 100000);
    born(2, 101376, 3);
    born(3, 101888, 1);
    dies(1, 512, 100000);
    born(4, 512, 50000); /* its address again */
    gp_replay_verify_use(verify, 4, (uint64_t)memory + 512, 50000, NULL, &context);
    dies(0, 0, 512);
    dies(2, 101376, 3);
    dies(3, 101888, 1);
    dies(4, 512, 50000);
    is(6, 0, 0, 0);
}

Test(verify, overlaps_of_every_kind, .init = begin, .fini = end)
{
    static const struct {
        uint64_t offset, bytes;
    } others[] = {{8192, 4096}, {8192, 512}, {7680, 1024}, {11776, 1024}, {9216, 512}, {4096, 65536}};
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t before = result.overlaps;
        born(2 * i, 8192, 4096);
        born(2 * i + 1, others[i].offset, others[i].bytes);
        cr_assert_eq(result.overlaps, before + 1, "case %u", i);
        dies(2 * i + 1, others[i].offset, others[i].bytes);
        dies(2 * i, 8192, 4096);
    }
    born(90, 8192, 4096);
    born(91, 4096, 4096);
    born(92, 12288, 4096);
    cr_assert_eq(result.overlaps, 6, "neighbours do not overlap");
}

Test(verify, damage_is_seen, .init = begin, .fini = end)
{
    static const uint64_t places[] = {0, 1023, 32768, 65535};
    for (uint32_t i = 0; i < 4; i++) {
        born(i, 0, 65536);
        memory[places[i]] ^= 1;
        dies(i, 0, 65536);
        is(i + 1, i + 1, 0, 0);
    }
    born(9, 0, 4); /* the pattern of another block counts as damage too */
    set32((uint64_t)memory, 1, 1, NULL);
    dies(9, 0, 4);
    is(5, 5, 0, 0);
}

Test(verify, alignment, .init = begin, .fini = end)
{
    born(0, 256, 512);
    dies(0, 256, 512);
    is(1, 0, 0, 0);
    born(0, 128, 512);
    dies(0, 128, 512);
    is(2, 0, 0, 1);
}

/* More reads than the ring has entries: no read is compared with the bytes of another. */
Test(verify, many, .init = begin, .fini = end)
{
    for (uint32_t i = 0; i < 5000; i++) {
        born(i, 4096ull * (i % 16), 4096);
        dies(i, 4096ull * (i % 16), 4096);
    }
    is(5000, 0, 0, 0);
}
