/* SPDX-License-Identifier: MIT
 *
 * test_extentnest.c: segments and blocks in any order come out as a list in which each segment is followed by its blocks and
 * by the idle memory between them, against a plain model on some hundred bytes of two devices.
 */
#include "account/tap.h"
#include "lib/mappings.h"
#include "session/internal.h"
#include <criterion/criterion.h>
#include <gpuprof/gpuprof.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BYTES 256u
#define MOST  65536u

static struct gp_wire_extent in[MOST], out[2 * MOST], want[2 * MOST];
static unsigned in_count, out_count, want_count, rests;

static void see(void *arg, const struct gp_wire_extent *extent)
{
    cr_assert_eq(arg, &rests);
    out[out_count++] = *extent;
}

static void rest(void *arg)
{
    cr_assert_eq(arg, &rests);
    rests++;
}

static void add(uint8_t what, uint32_t device, uint64_t address, uint64_t bytes, uint8_t flags)
{
    in[in_count] = (struct gp_wire_extent){.what = what,
                                           .device = device,
                                           .address = address,
                                           .bytes = bytes,
                                           .flags = flags,
                                           .kind = (uint8_t)(1 + device),
                                           .state = GPUPROF_LIVE,
                                           .time_ns = in_count + 1};
    in_count++;
}

static void run(void)
{
    struct gp_nest nest = {0};
    out_count = rests = 0;
    for (unsigned i = in_count; i > 1; i--) {
        unsigned k = (unsigned)rand() % i;
        struct gp_wire_extent one = in[k];
        in[k] = in[i - 1];
        in[i - 1] = one;
    }
    for (unsigned i = 0; i < in_count; i++) {
        if (i % GP_TAP_REST == 0)
            gp_extent_nest_rest(&nest);
        gp_extent_nest_add(&nest, &in[i]);
    }
    cr_assert_eq(nest.missed, 0);
    gp_extent_nest_end(&nest, &rests, see, rest);
    cr_assert_null(nest.segments.items);
    cr_assert_null(nest.blocks.items);
}

static void check(unsigned round)
{
    run();
    cr_assert_eq(out_count, want_count, "round %u: %u, not %u", round, out_count, want_count);
    for (unsigned i = 0; i < out_count; i++) {
        out[i].time_ns = want[i].time_ns ? out[i].time_ns : 0; /* a joined segment has the time of its first part */
        cr_assert_eq(memcmp(&out[i], &want[i], sizeof(out[i])), 0, "round %u, number %u: %llx, not %llx", round, i,
                     (unsigned long long)out[i].address, (unsigned long long)want[i].address);
    }
}

static void want_idle(uint32_t device, uint64_t from, uint64_t to)
{
    if (from < to)
        want[want_count++] = (struct gp_wire_extent){.address = from,
                                                     .bytes = to - from,
                                                     .what = GP_EXTENT_BLOCK,
                                                     .state = GPUPROF_IDLE,
                                                     .kind = (uint8_t)(1 + device),
                                                     .device = device};
}

/* Segments without overlap, some of which grow into each other; blocks inside and between them. */
static void model_device(uint32_t device, uint64_t base)
{
    uint64_t at = base + (uint64_t)rand() % 3;
    unsigned whole = 0;
    bool growable = false;
    while (at < base + BYTES) {
        uint64_t bytes = 1 + (uint64_t)rand() % 24, end = at + bytes, gap = rand() % 2 ? 0 : 1 + (uint64_t)rand() % 9;
        bool now = rand() % 2, joined = growable && now && want_count > whole && rand() % 100 < 100;
        joined = joined && want[whole].address + want[whole].bytes == at && want[whole].device == device;
        add(GP_EXTENT_SEGMENT, device, at, bytes, now ? GPUPROF_GROWABLE : 0);
        if (joined) {
            want[whole].bytes += bytes;
        } else {
            whole = want_count;
            want[want_count++] = in[in_count - 1];
        }
        uint64_t idle = at;
        while (at < end) {
            uint64_t block = 1 + (uint64_t)rand() % 6;
            if (at + block <= end && rand() % 2) {
                want_idle(device, idle, at);
                add(GP_EXTENT_BLOCK, device, at, block, 0);
                want[want_count++] = in[in_count - 1];
                idle = at + block;
            }
            at += block;
        }
        want_idle(device, idle, end);
        growable = now;
        for (uint64_t between = end; between + 2 < end + gap; between += 2)
            add(GP_EXTENT_BLOCK, device, between, 2, 0); /* in no segment: left out */
        at = end + gap;
    }
}

/* Idle memory at the end of one part and at the start of the next is one piece. */
static void want_join(void)
{
    unsigned count = 0;
    for (unsigned i = 0; i < want_count; i++) {
        struct gp_wire_extent *last = count ? &want[count - 1] : NULL;
        bool idle = want[i].what == GP_EXTENT_BLOCK && want[i].state == GPUPROF_IDLE;
        if (idle && last && last->what == GP_EXTENT_BLOCK && last->state == GPUPROF_IDLE &&
            last->address + last->bytes == want[i].address)
            last->bytes += want[i].bytes;
        else
            want[count++] = want[i];
    }
    want_count = count;
}

Test(extentnest, random_lists)
{
    static const uint64_t bases[] = {0x1000, 0x7f1234500000, 0xfffffffff000, 0xfffff0000000f0};
    srand(20251123);
    for (unsigned round = 0; round < 3000; round++) {
        in_count = want_count = 0;
        model_device(0, bases[round % 4]);
        model_device(1, bases[round / 4 % 4]);
        want_join();
        check(round);
    }
}

/* A block that overlaps the one before it, or the segment's end, was freed or allocated meanwhile. */
Test(extentnest, what_changed_meanwhile_is_left_out)
{
    in_count = want_count = 0;
    add(GP_EXTENT_SEGMENT, 0, 100, 50, 0);
    want[want_count++] = in[in_count - 1];
    want_idle(0, 100, 110);
    add(GP_EXTENT_BLOCK, 0, 110, 10, 0);
    want[want_count++] = in[in_count - 1];
    add(GP_EXTENT_BLOCK, 0, 119, 5, 0); /* begins in the one before */
    want_idle(0, 120, 140);
    add(GP_EXTENT_BLOCK, 0, 140, 10, 0);
    want[want_count++] = in[in_count - 1];
    add(GP_EXTENT_BLOCK, 0, 141, 10, 0); /* ends outside */
    add(GP_EXTENT_BLOCK, 0, 150, 1, 0);  /* behind the segment */
    add(GP_EXTENT_BLOCK, 0, 99, 1, 0);   /* before it */
    add(GP_EXTENT_BLOCK, 1, 120, 5, 0);  /* on another device */
    check(0);
}

Test(extentnest, nothing_and_many)
{
    in_count = want_count = 0;
    check(0);
    add(GP_EXTENT_BLOCK, 0, 5, 1, 0);
    check(1);
    in_count = 0;
    for (unsigned i = 0; i < 5000; i++)
        add(GP_EXTENT_SEGMENT, 0, 0x10000 + 16 * i, 16, 0);
    for (unsigned i = 0; i < 9000; i++)
        add(GP_EXTENT_BLOCK, 0, 0x10000 + 8 * i, 8, 0);
    run();
    cr_assert_eq(out_count, 5000 + 9000 + 500);
    cr_assert_eq(rests, 5000 + 9000);
    for (unsigned i = 1; i < out_count; i++)
        cr_assert_geq(out[i].address, out[i - 1].address);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

STANDIN(void *, mremap, void *at, size_t old_bytes, size_t bytes, int flags, ...)
{
    if (mappings_refuse(bytes))
        return MAP_FAILED;
    mappings_add((long long)bytes - (long long)old_bytes);
    return __real_mremap(at, old_bytes, bytes, flags);
}

/* A segment for each third block, so that both lists grow. */
static uint64_t fill(struct gp_nest *nest, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (i % GP_TAP_REST == 0)
            gp_extent_nest_rest(nest);
        gp_extent_nest_add(nest, &(struct gp_wire_extent){.what = i % 3 ? GP_EXTENT_BLOCK : GP_EXTENT_SEGMENT,
                                                          .address = 0x100000 - i / 3 * 64 + i % 3 * 8,
                                                          .bytes = i % 3 ? 8 : 64});
    }
    return nest->missed;
}

/* Any mapping fails: what finds no place is counted, at most those up to the next try, and nothing stays mapped. */
Test(extentnest, without_memory)
{
    const unsigned count = 15000;
    unsigned total = 1;
    for (unsigned n = 0; n <= total; n++) {
        struct gp_nest nest = {0};
        mappings.bytes = mappings.made = out_count = rests = 0;
        mappings.fail = n;
        uint64_t missed = fill(&nest, count);
        cr_expect_eq(nest.segments.count + nest.blocks.count + missed, count);
        cr_expect_leq(missed, n ? GP_TAP_REST : 0);
        gp_extent_nest_end(&nest, &rests, see, rest);
        total = n ? total : mappings.made;
        cr_expect_eq(mappings.bytes, 0, "mapping %u: %lld", n, mappings.bytes);
        cr_expect(n != 0 || out_count == count + 2 * 5000, "%u", out_count);
        cr_expect(nest.segments.items == NULL && nest.blocks.items == NULL && nest.segments.count == 0);
        mappings.fail = 0;
    }
    cr_expect_geq(total, 6);
}
