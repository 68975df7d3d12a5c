/* SPDX-License-Identifier: MIT
 *
 * test_site.c: call sites through stack.h, on real stacks: which share a site, what each site holds, and sites that are
 * switched on late.  test_sitemodel.c has made-up stacks and full tables.
 */
#include "stack/python.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define APART __attribute__((noinline, noclone, optimize("no-optimize-sibling-calls", "no-crossjumping")))

static struct gp_wire_sites *head;
static struct gp_wire_site *rows;
static struct gp_wire_frame *frames;
static volatile int sink;

static void start(void)
{
    uint64_t bytes = gp_site_bytes();
    head = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(head != MAP_FAILED);
    cr_assert_eq(gp_site_start(head, bytes, GP_SITES_NATIVE), 0);
    rows = (struct gp_wire_site *)((char *)head + head->rows_offset);
    frames = (struct gp_wire_frame *)((char *)head + head->frames_offset);
}

static int64_t at_peak(uint32_t id)
{
    const struct gp_wire_site *row = &rows[id];
    return row->peak_seq == head->devices[row->device].peak_seq ? row->at_peak_bytes : row->live_bytes;
}

APART static uint32_t ask(int device, enum gp_wire_kind kind)
{
    uint32_t id = gp_site_here(device, kind, true);
    sink++;
    return id;
}

/* Four call sites at each of `depth` levels: the bits of `way` choose one. */
APART static uint32_t ways(unsigned depth, uint32_t way, int device)
{
    uint32_t id = 0;
    if (depth == 0)
        return ask(device, GP_KIND_LINEAR);
    switch (way & 3) {
    case 0:
        id = ways(depth - 1, way >> 2, device);
        sink = 0;
        break;
    case 1:
        id = ways(depth - 1, way >> 2, device);
        sink = 1;
        break;
    case 2:
        id = ways(depth - 1, way >> 2, device);
        sink = 2;
        break;
    default:
        id = ways(depth - 1, way >> 2, device);
        sink = 3;
    }
    return id;
}

Test(site, off_until_started)
{
    cr_assert_not(gp_site_on());
    cr_assert_eq(gp_site_here(0, GP_KIND_LINEAR, true), 0);
    gp_site_alloc(1, 10);
    gp_site_free(1, 10);
    gp_site_reset(-1);
    char small[4096];
    cr_assert_eq(gp_site_start(small, sizeof small, GP_SITES_NATIVE), -EINVAL);
    cr_assert_eq(gp_site_start(small, gp_site_bytes(), 0), -EINVAL);
    cr_assert_eq(gp_site_start(small, gp_site_bytes(), 8), -EINVAL);
    cr_assert_not(gp_site_on());
}

Test(site, layout)
{
    start();
    cr_assert_eq(gp_site_start(head, gp_site_bytes(), GP_SITES_NATIVE), -EBUSY);
    cr_assert_eq(head->modes, GP_SITES_NATIVE);
    cr_assert_eq(head->row_bytes, sizeof(struct gp_wire_site));
    cr_assert_eq(head->frame_bytes, sizeof(struct gp_wire_frame));
    cr_assert_eq(head->rows, 1);
    cr_assert_eq(head->frames, 0);
    cr_assert_eq(head->strings, 1);
    cr_assert_eq(head->rows_offset, (sizeof *head + 4095) / 4096 * 4096);
    cr_assert_eq(head->frames_offset, head->rows_offset + (uint64_t)head->row_limit * head->row_bytes);
    cr_assert_eq(head->strings_offset, head->frames_offset + (uint64_t)head->frame_limit * head->frame_bytes);
    cr_assert_eq(head->strings_offset + head->string_limit, gp_site_bytes());
}

Test(site, one_stack_one_number)
{
    uint32_t id[4] = {0}, other;
    start();
    for (unsigned turn = 0; turn < 3; turn++)
        for (uint32_t way = 0; way < 4; way++) {
            uint32_t got = ways(3, way, 1);
            cr_assert_neq(got, 0);
            cr_assert(turn == 0 || got == id[way]);
            id[way] = got;
        }
    for (unsigned i = 0; i < 4; i++)
        for (unsigned j = 0; j < i; j++)
            cr_assert_neq(id[i], id[j]);
    cr_assert_eq(head->rows, 5);
    cr_assert_eq(head->captures, 12);
    for (unsigned turn = 0; turn < 2; turn++) { /* the very same line */
        other = ask(turn ? 3 : 2, turn ? GP_KIND_POOL : GP_KIND_LINEAR);
        cr_assert_eq(other, 5 + turn);
        cr_assert_eq(rows[other].device, turn ? 3 : 2);
        cr_assert_eq(rows[other].kind, turn ? GP_KIND_POOL : GP_KIND_LINEAR);
    }
    cr_assert_eq(rows[5].frame_count, rows[6].frame_count);
    cr_assert_eq(
        memcmp(&frames[rows[5].first_frame], &frames[rows[6].first_frame], rows[5].frame_count * sizeof *frames), 0);
}

Test(site, frames_are_return_addresses)
{
    start();
    uint32_t id = ways(5, 0x155, 0);
    const struct gp_wire_site *row = &rows[id];
    unsigned in_ways = 0;
    cr_assert_eq(row->truncated, 0);
    cr_assert(row->frame_count > 8 && row->frame_count < 40, "%u frames", row->frame_count);
    for (uint32_t i = 0; i < row->frame_count; i++) {
        const struct gp_wire_frame *frame = &frames[row->first_frame + i];
        cr_assert_eq(frame->type, GP_FRAME_NATIVE);
        cr_assert_eq(frame->line, 0);
        in_ways += frame->pc - (uint64_t)(uintptr_t)ways < 512;
    }
    cr_assert_eq(in_ways, 6);
    id = ways(200, 7, 0);
    cr_assert_eq(rows[id].truncated, 1);
    cr_assert_eq(rows[id].frame_count, GP_SITE_FRAMES);
}

Test(site, why_python_frames_are_missing_is_said)
{
    static char said[64], name[64];
    gp_site_explain_to(said, sizeof said);
    cr_assert_eq(gp_site_start(mmap(NULL, gp_site_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
                               gp_site_bytes(), GP_SITES_NATIVE | GP_SITES_PYTHON),
                 0);
    ask(0, GP_KIND_LINEAR);
    cr_assert_str_empty(said, "a program without Python has no reason");
    for (unsigned i = 0; !gp_python_note() && i < 200000; i++)
        gp_python_keep(name, (uint32_t)snprintf(name, sizeof name, "one more of too many names %u", i));
    ask(0, GP_KIND_LINEAR);
    cr_assert_eq(strlen(said), sizeof said - 1, "cut, and with an end: %s", said);
    cr_assert_eq(strncmp(said, gp_python_note(), sizeof said - 1), 0);
    memset(said, 0, sizeof said);
    ask(0, GP_KIND_LINEAR);
    cr_assert_str_empty(said, "once");
}

Test(site, what_is_not_a_place)
{
    start();
    cr_assert_eq(ask(-1, GP_KIND_LINEAR), 0);
    cr_assert_eq(ask(GP_WIRE_DEVICES, GP_KIND_LINEAR), 0);
    cr_assert_eq(ask(255, GP_KIND_LINEAR), 0);
    cr_assert_eq(ask(0, GP_KIND_NONE), 0);
    cr_assert_eq(ask(0, GP_KINDS), 0);
    cr_assert_eq(head->rows, 1);
    cr_assert_neq(ask(GP_WIRE_HOST, GP_KIND_PINNED), 0);
    gp_site_alloc(0, 100);
    gp_site_alloc(UINT32_MAX, 100);
    gp_site_free(head->row_limit, 100);
    gp_site_reset(-2);
    gp_site_reset(GP_WIRE_DEVICES);
    for (unsigned d = 0; d < GP_WIRE_DEVICES; d++)
        cr_assert_eq(head->devices[d].live_bytes, 0);
}

/* Sites a and b on device 2, c on another device: checks the bytes at the peak step by step. */
Test(site, who_held_it_at_the_peak)
{
    start();
    uint32_t a = ways(2, 1, 2), b = ways(2, 2, 2), c = ways(2, 1, 4);
    struct gp_wire_site_device *device = &head->devices[2];
    gp_site_alloc(a, 60);
    gp_site_alloc(a, 40);
    gp_site_alloc(b, 50);
    gp_site_alloc(c, 7000);
    cr_assert_eq(device->peak_bytes, 150);
    cr_assert(at_peak(a) == 100 && at_peak(b) == 50 && at_peak(c) == 7000);
    gp_site_free(a, 60);
    gp_site_alloc(b, 20);
    cr_assert(device->live_bytes == 110 && device->peak_bytes == 150);
    cr_assert(at_peak(a) == 100 && at_peak(b) == 50);
    gp_site_alloc(b, 41);
    cr_assert(device->live_bytes == 151 && device->peak_bytes == 151);
    cr_assert(at_peak(a) == 40 && at_peak(b) == 111);
    gp_site_free(b, 41);
    gp_site_free(b, 20);
    gp_site_free(a, 40);
    cr_assert(at_peak(a) == 40 && at_peak(b) == 111 && rows[a].live_bytes == 0 && rows[b].live_bytes == 50);
    cr_assert(rows[a].peak_bytes == 100 && rows[b].peak_bytes == 111);
    cr_assert(rows[b].calls == 3 && rows[b].allocated_bytes == 111 && rows[b].live_count == 1);
    uint64_t seq = device->peak_seq, ns = device->peak_ns;
    cr_assert(seq == 4 && ns > 0);
    gp_site_reset(2);
    cr_assert(device->peak_bytes == 50 && device->live_bytes == 50 && device->peak_seq > seq && device->peak_ns > ns);
    cr_assert(at_peak(a) == 0 && at_peak(b) == 50 && rows[a].peak_bytes == 0 && rows[b].peak_bytes == 50);
    cr_assert(at_peak(c) == 7000 && rows[c].peak_bytes == 7000);
    gp_site_free(c, 7000);
    gp_site_reset(-1);
    cr_assert(head->devices[4].peak_bytes == 0 && at_peak(c) == 0);
    /* A free that is counted before its allocation, as two threads can cause. */
    gp_site_free(a, 30);
    cr_assert(rows[a].live_bytes == -30 && device->live_bytes == 20);
    gp_site_alloc(a, 30);
    cr_assert(rows[a].live_bytes == 0 && rows[a].live_count == 0 && device->live_bytes == 50);
}

/* Viewers map the session: whatever one of them writes there, the program goes on. */
static void damage(uint32_t seed)
{
    uint32_t *words = (uint32_t *)head;
    uint64_t random = seed * 0x9e3779b97f4a7c15ull + 1;
    for (size_t i = 0; i < sizeof *head / 4; i++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        words[i] = (uint32_t)(random >> (random >> 59)) | (seed % 3 ? 0 : 0xfff00000u);
    }
    for (uint32_t id = 0; id < 4096; id++)
        rows[id] = (struct gp_wire_site){.first_frame = random ^ id, .frame_count = 7, .device = (uint8_t)(id * 31)};
}

Test(site, a_viewer_that_writes_into_the_session, .timeout = 60)
{
    start();
    for (uint32_t i = 0; i < 500; i++) {
        ways(6, i % 16, 0);
        damage(i);
        for (uint32_t k = 0; k < 16; k++) {
            uint32_t id = ways(6, i * 5 + k, (int)(k % 3));
            gp_site_alloc(id, 100);
            gp_site_free(id, 100);
        }
        gp_site_reset(-1);
    }
}

/* What the sites of a device hold, summed over the rows. */
static int64_t sum_of(unsigned device)
{
    int64_t sum = 0;
    for (uint32_t id = 1; id < head->rows; id++)
        sum += rows[id].device == device && rows[id].summed ? rows[id].live_bytes : 0;
    cr_assert_eq(sum, head->devices[device].live_bytes);
    return sum;
}

static uint32_t before_of(unsigned device)
{
    for (uint32_t id = 1; id < head->rows; id++)
        if (rows[id].device == device && rows[id].kind == GP_KIND_NONE)
            return id;
    return 0;
}

static const char *name_of(uint32_t id)
{
    const struct gp_wire_frame *frame = &frames[rows[id].first_frame];
    cr_assert(rows[id].frame_count == 1 && frame->type == GP_FRAME_PYTHON && frame->file == 0 && frame->line == 0);
    return (const char *)head + head->strings_offset + frame->function;
}

static void tables_late(uint32_t modes)
{
    uint64_t bytes = gp_site_bytes();
    head = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_eq(gp_site_switch(head, bytes, modes), 0);
    rows = (struct gp_wire_site *)((char *)head + head->rows_offset);
    frames = (struct gp_wire_frame *)((char *)head + head->frames_offset);
}

Test(site, on_late_what_was_there_is_before_stacks)
{
    gp_site_settle(3, 1000, 2); /* off: without effect */
    cr_assert_not(gp_site_is_partial());
    tables_late(GP_SITES_NATIVE);
    cr_assert(gp_site_on() && gp_site_is_partial());
    cr_assert_eq(head->modes, GP_SITES_NATIVE);
    cr_assert_str_eq(name_of(0), "before stacks");
    gp_site_plain_free(3, 400); /* before the first correction: not known yet */
    gp_site_settle(3, 600, 1);
    uint32_t before = before_of(3), a = ask(3, GP_KIND_LINEAR);
    cr_assert_neq(before, 0);
    cr_assert_eq(before_of(2), 0);
    uint32_t count = head->rows;
    gp_site_settle(2, 0, 0); /* nothing was there: no row */
    cr_assert(before_of(2) == 0 && head->rows == count);
    cr_assert_str_eq(name_of(before), "before stacks");
    cr_assert(rows[before].live_bytes == 600 && rows[before].live_count == 1 && sum_of(3) == 600);
    gp_site_settle(3, 580, 1); /* each correction counts: a call may have been under way at the first */
    cr_assert(rows[before].live_bytes == 580 && rows[before].live_count == 1 && sum_of(3) == 580);
    gp_site_settle(3, 600, 1);
    cr_assert(rows[before].live_bytes == 600 && sum_of(3) == 600);
    gp_site_alloc(a, 50);
    gp_site_settle(3, 650, 2);
    cr_assert(rows[before].live_bytes == 600 && rows[a].live_bytes == 50 && sum_of(3) == 650);
    cr_assert(at_peak(before) == 600 && at_peak(a) == 50 && head->devices[3].peak_bytes == 650);
    gp_site_plain_free(3, 600);
    cr_assert(rows[before].live_bytes == 0 && rows[before].live_count == 0 && sum_of(3) == 50);
    cr_assert(at_peak(before) == 600 && head->devices[3].peak_bytes == 650);
}

Test(site, off_and_on_again)
{
    start();
    uint32_t a = ask(1, GP_KIND_LINEAR);
    gp_site_alloc(a, 100);
    cr_assert_eq(gp_site_switch(head, gp_site_bytes(), GP_SITES_NATIVE | GP_SITES_PYTHON), 0);
    cr_assert_not(gp_site_is_partial(), "every block has a site");
    cr_assert_eq(rows[0].frame_count, 0);
    cr_assert_eq(gp_site_switch(NULL, 0, 8), -EINVAL);
    for (int64_t turn = 1; turn <= 3; turn++) {
        cr_assert_eq(gp_site_switch(NULL, 0, 0), 0);
        cr_assert(!gp_site_on() && head->modes == 0);
        cr_assert_str_eq(name_of(0), "before stacks");
        cr_assert_eq(ask(1, GP_KIND_LINEAR), 0);
        gp_site_plain_alloc(1, 7);
        gp_site_settle(1, 100 + 7 * turn, 1 + turn);
        cr_assert(rows[before_of(1)].live_bytes == 7 * turn && rows[before_of(1)].live_count == turn);
        gp_site_free(a, 100); /* it has its site, although stacks are off */
        cr_assert(rows[a].live_bytes == 0 && sum_of(1) == 7 * turn);
        gp_site_reset(1);
        cr_assert_eq(head->devices[1].peak_bytes, 7 * turn);
        cr_assert_eq(gp_site_switch(NULL, 0, GP_SITES_NATIVE), 0);
        uint32_t again = ask(1, GP_KIND_LINEAR);
        cr_assert(again && again != before_of(1));
        gp_site_alloc(a, 100);
        cr_assert_eq(sum_of(1), 100 + 7 * turn);
    }
    cr_assert_eq(head->rows, 4, "%u rows: none, two lines of this function, before stacks", head->rows);
}
