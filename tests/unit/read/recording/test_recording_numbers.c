/* SPDX-License-Identifier: MIT
 *
 * test_recording_numbers.c: what the reader makes of samples, devices, memory from before an attach, a failed request
 * and the counts: every field, values that cannot be, and rows of older and of later versions.
 */
#include "recparts.h"

/* Of a time the lower device comes first. */
Test(recording_numbers, samples_are_in_order)
{
    static const uint64_t rows[][2] = {{50, 4}, {40, 64}, {40, 4}, {60, 4}, {40, 9}, {10, 64}, {50, 9}, {10, 4}};
    static const uint64_t order[][2] = {{10, 4}, {10, 64}, {40, 4}, {40, 64}, {40, 9}, {50, 4}, {50, 9}, {60, 4}};
    begin();
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        int64_t from = (int64_t)(rows[i][0] * 1000 + rows[i][1]);
        ROWS(rows[i][0], rows[i][1], SIGNED(from), SIGNED(from + 1), SIGNED(-2), SIGNED(0), SIGNED(INT64_MIN),
             SIGNED(from + 5));
        block(GP_BLOCK_SAMPLES, 1);
    }
    struct gp_recording *r = parse();
    cr_assert(r->sample_count == GP_COUNT(rows) && r->damaged_blocks == 0 && r->device_count == 3);
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        const struct gp_rec_sample *s = &r->samples[i];
        int64_t from = (int64_t)(order[i][0] * 1000 + order[i][1]);
        cr_expect(s->time_ns == order[i][0] && r->devices[s->device].index == order[i][1], "%zu", i);
        cr_expect(s->allocated_bytes == from && s->reserved_bytes == from + 1 && s->active_bytes == -1 &&
                      s->inactive_split_bytes == 0 && s->used_bytes == -1 && s->process_bytes == from + 5,
                  "%zu", i);
    }
    cr_expect(r->devices[0].index == 4 && r->devices[0].ordinal == 4 && r->devices[0].total_bytes == -1);
    cr_expect(r->devices[1].index == 64 && r->devices[1].ordinal == -1 && !r->devices[1].has_last);
}

static struct gp_rec_device read_device(uint64_t index, int64_t ordinal, const char *name, int64_t total,
                                        uint64_t final, size_t bytes)
{
    static uint8_t last[sizeof(struct gp_wire_device) + 9];
    struct gp_wire_device *numbers = (struct gp_wire_device *)last;
    memset(last, 7, sizeof(last));
    memset(numbers->name, 'x', sizeof(numbers->name));
    begin();
    ROWS(index, SIGNED(ordinal));
    put_text("GPU-1\n");
    put_text(name);
    PUT(SIGNED(total), final);
    gp_pack_string(pack, (const char *)last, bytes);
    block(GP_BLOCK_DEVICES_RAW, 1);
    struct gp_recording *r = parse();
    cr_assert(r->device_count == 1 && r->damaged_blocks == 0);
    struct gp_rec_device device = r->devices[0];
    return device;
}

/* A row of format 1.3, with these numbers: id, how many values, values. */
static struct gp_rec_device read_numbers(uint64_t final, const uint64_t *numbers, size_t count)
{
    begin();
    ROWS(3, SIGNED(5));
    put_text("GPU-1");
    put_text("a");
    PUT(SIGNED(7), final, 9);
    for (size_t i = 0; i < count; i++)
        PUT(numbers[i]);
    block(GP_BLOCK_DEVICES, 1);
    struct gp_recording *r = parse();
    cr_assert(r->device_count == 1 && r->damaged_blocks == 0);
    struct gp_rec_device device = r->devices[0];
    return device;
}

/* Rows and values that a later version adds are left out; what the file does not have is unknown. */
Test(recording_numbers, numbers_are_known_by_their_ids)
{
    enum { STAT = 1 << 8, NUMBER = 3 << 8, KIND = 4 << 8 };
    const uint64_t numbers[] = {5,
                                KIND + GP_KIND_VMM,
                                2,
                                SIGNED(11),
                                SIGNED(12),
                                9999,
                                3,
                                SIGNED(1),
                                SIGNED(2),
                                SIGNED(3),
                                STAT + GP_STAT_RESERVED_BYTES * GP_POOLS + GP_POOL_SMALL,
                                6,
                                SIGNED(21),
                                SIGNED(22),
                                SIGNED(23),
                                SIGNED(24),
                                SIGNED(25),
                                SIGNED(26),
                                KIND + 200,
                                1,
                                SIGNED(31),
                                NUMBER + 1,
                                1,
                                SIGNED(-4)};
    struct gp_rec_device d = read_numbers(1, numbers, GP_COUNT(numbers));
    const struct gp_wire_value *small = &d.last.stats[GP_STAT_RESERVED_BYTES][GP_POOL_SMALL];
    cr_expect(d.has_last && d.index == 3 && d.ordinal == 5 && d.total_bytes == 7 && d.last.flags == 9);
    cr_expect(d.last.kinds[GP_KIND_VMM].current_bytes == 11 && d.last.kinds[GP_KIND_VMM].peak_bytes == 12);
    cr_expect(d.last.kinds[GP_KIND_VMM].calls == -1 && d.last.kinds[GP_KIND_LINEAR].current_bytes == -1);
    cr_expect(small->current == 21 && small->peak == 22 && small->allocated == 23 && small->freed == 24);
    cr_expect(small[1].current == -1 && d.last.num_ooms == -4 && d.last.num_device_alloc == -1);
    d = read_numbers(1, (const uint64_t[]){0}, 1);
    cr_expect(!d.has_last);
    d = read_numbers(0, numbers, GP_COUNT(numbers));
    cr_expect(!d.has_last && d.last.num_ooms == -4);
}

Test(recording_numbers, devices_have_every_field)
{
    const size_t all = sizeof(struct gp_wire_device);
    struct gp_rec_device d = read_device(3, 5, "Test \x02GPU", 1 << 30, 1, all);
    cr_expect(d.index == 3 && d.ordinal == 5 && d.total_bytes == 1 << 30 && d.has_last);
    cr_expect_str_eq(d.uuid, "GPU-1?");
    cr_expect_str_eq(d.name, "Test ?GPU");
    cr_expect_str_eq(d.last.name, "Test ?GPU");
    cr_expect(d.last.num_ooms == 0x0707070707070707);
    d = read_device(64, 5, "", 0, 2, all + 9); /* of the host; a later version's */
    cr_expect(d.index == 64 && d.ordinal == -1 && d.total_bytes == 0 && !d.has_last);
    cr_expect_str_eq(d.last.name, "");
    d = read_device(0, -1, "a", -1, 1, offsetof(struct gp_wire_device, stats) + 1); /* an older version's */
    cr_expect(d.ordinal == -1 && d.total_bytes == -1 && d.has_last && d.last.total_bytes == 0x0707070707070707);
    cr_expect(d.last.stats[0][0].current == 7 && d.last.num_ooms == 0);
    d = read_device(0, -2, "a", INT64_MIN, 1, 0);
    cr_expect(d.ordinal == -1 && d.total_bytes == -1 && !d.has_last && d.last.total_bytes == 0);
    d = read_device(1, 0, "a", 1, 0, all);
    cr_expect(d.ordinal == 0 && !d.has_last && d.last.num_ooms == 0x0707070707070707);
}

Test(recording_numbers, memory_from_before_has_every_field)
{
    const int64_t most = INT64_MAX / 64;
    begin();
    ROWS(77, 2, GP_BEFORE_FRAMEWORK, SIGNED(most), SIGNED(most + 1), SIGNED(0), INT64_MAX, SIGNED(5), SIGNED(-1));
    PUT(78, 63, GP_BEFORE_DRIVER, SIGNED(0), SIGNED(9), SIGNED(8), 1ull << 63, SIGNED(-9), SIGNED(6));
    PUT(79, 63, GP_BEFORE_FRAMEWORK + 1, SIGNED(4), SIGNED(9), SIGNED(8), 3, SIGNED(1), SIGNED(6));
    PUT(80, 63, GP_BEFORE_PART, SIGNED(-1), SIGNED(9), SIGNED(8), 3, SIGNED(1), SIGNED(6));
    block(GP_BLOCK_BEFORE, 4);
    const struct gp_rec_before rows[] = {{77, 0, {most, -1, 0, INT64_MAX, 5, -1, GP_BEFORE_FRAMEWORK, 0}},
                                         {78, 1, {0, 9, 8, 0, -1, 6, GP_BEFORE_DRIVER, 0}},
                                         {79, 1, {4, 9, 8, 3, 1, 6, GP_BEFORE_NONE, 0}},
                                         {80, 1, {-1, 9, 8, 3, 1, 6, GP_BEFORE_NONE, 0}}};
    struct gp_recording *r = parse();
    cr_assert(r->before_count == 4 && r->damaged_blocks == 0 && r->device_count == 2);
    cr_expect(r->devices[0].index == 2 && r->devices[1].index == 63);
    for (int i = 0; i < 4; i++)
        cr_expect(r->befores[i].time_ns == rows[i].time_ns && r->befores[i].device == rows[i].device &&
                      memcmp(&r->befores[i].is, &rows[i].is, sizeof(rows[i].is)) == 0,
                  "%d", i);
    struct gp_wire_before_device unknown = gp_rec_before_at(r, 5, 1);
    cr_expect(unknown.bytes == -1 && unknown.at_attach_bytes == -1 && unknown.count == -1 && unknown.freed == 0 &&
              unknown.framework_allocated_bytes == -1 && unknown.framework_reserved_bytes == -1 &&
              unknown.source == GP_BEFORE_NONE);
}

/* The last row up to a time, or else the first one behind it; of equal times the last, or the first. */
Test(recording_numbers, memory_from_before_at_any_time)
{
    struct gp_rec_before rows[6];
    struct gp_recording r = {.attached = GP_REC_ATTACHED_YES, .befores = rows, .before_count = 6};
    uint64_t seed = 4;
    for (unsigned round = 0; round < 3000; round++) {
        for (int i = 0; i < 6; i++)
            rows[i] = (struct gp_rec_before){
                .time_ns = random_next(&seed) % 5 * 10,
                .device = random_next(&seed) % 5 == 0,
                .is = {.bytes = i, .source = random_next(&seed) % 4 ? GP_BEFORE_DRIVER : GP_BEFORE_NONE}};
        for (uint64_t at = 0; at < 50; at += 5) {
            int best = -1;
            for (int late = 0; late < 2 && best < 0; late++)
                for (int i = 0; i < 6; i++) {
                    if (rows[i].device || rows[i].is.source == GP_BEFORE_NONE || (rows[i].time_ns > at) != late)
                        continue;
                    if (best < 0 ||
                        (late ? rows[i].time_ns < rows[best].time_ns : rows[i].time_ns >= rows[best].time_ns))
                        best = i;
                }
            cr_assert_eq(gp_rec_before_at(&r, 0, at).bytes, best, "round %u at %llu", round, (unsigned long long)at);
        }
    }
}

/* ---- a failed request, and the counts ---------------------------------------------------------------------------- */

/* Format 1.2 has the struct of that time, which had fewer kinds of memory. */
#define RAW_KINDS 14u
#define RAW_OOM   800u

static struct gp_recording *with_oom(const struct gp_wire_oom *oom, size_t bytes)
{
    uint8_t longer[RAW_OOM + 8] = {0};
    const size_t kinds_end = offsetof(struct gp_wire_oom, kinds) + RAW_KINDS * sizeof(oom->kinds[0]);
    const size_t rest = sizeof(*oom) - offsetof(struct gp_wire_oom, limit_bytes);
    cr_assert_eq(kinds_end + rest, RAW_OOM);
    memcpy(longer, oom, kinds_end);
    memcpy(longer + kinds_end, &oom->limit_bytes, rest);
    begin();
    ROWS();
    gp_pack_string(pack, (const char *)longer, bytes);
    block(GP_BLOCK_OOM_RAW, 1);
    return parse();
}

Test(recording_numbers, a_failed_request_has_every_field)
{
    struct gp_wire_oom oom = {
        .count = 1, .device = 64, .asked_bytes = 5, .site = 1, .holder_count = GP_OOM_HOLDERS + 1};
    strcpy(oom.api, "cuMem\x01");
    memset(oom.policy, 'p', sizeof(oom.policy));
    memset(oom.conf, 'c', sizeof(oom.conf));
    for (uint32_t i = 0; i < GP_OOM_HOLDERS; i++)
        oom.holders[i] =
            (struct gp_wire_oom_holder){.block_bytes = 100 + i, .count = i, .site = i % 2, .kind = GP_KINDS - i % 2};
    oom.rest_bytes = 77;
    struct gp_recording *r = with_oom(&oom, RAW_OOM);
    cr_assert(r->has_oom && r->damaged_blocks == 0);
    cr_expect(r->oom.device == 64 && r->oom.asked_bytes == 5 && r->oom.site == 0 && r->oom.rest_bytes == 77);
    cr_expect_str_eq(r->oom.api, "cuMem?");
    cr_expect_eq(strnlen(r->oom.policy, 16), 15);
    cr_expect_eq(strnlen(r->oom.conf, 128), 127);
    cr_assert_eq(r->oom.holder_count, GP_OOM_HOLDERS);
    for (uint32_t i = 0; i < GP_OOM_HOLDERS; i++)
        cr_expect(r->oom.holders[i].kind == (i % 2 ? GP_KINDS - 1 : GP_KIND_NONE) && r->oom.holders[i].site == 0 &&
                  r->oom.holders[i].block_bytes == 100 + i && r->oom.holders[i].count == i);
    oom.device = 65, oom.holder_count = 1, oom.count = 0;
    r = with_oom(&oom, RAW_OOM + 8); /* a later version's */
    cr_expect(!r->has_oom && r->oom.device == -1 && r->oom.holder_count == 1 && r->damaged_blocks == 0);
    oom.device = -2, oom.count = 2;
    r = with_oom(&oom, RAW_OOM);
    cr_expect(r->has_oom && r->oom.device == -1);
    oom.device = 0;
    r = with_oom(&oom, RAW_OOM);
    cr_expect_eq(r->oom.device, 0);
    r = with_oom(&oom, RAW_OOM - 1);
    cr_expect(!r->has_oom && r->damaged_blocks == 1);
}

/* As format 1.3 has it, with a number, a kind and a holder more than this version knows. */
Test(recording_numbers, a_failed_request_by_ids)
{
    begin();
    ROWS(3, 1, SIGNED(2), 200, SIGNED(77), 9, SIGNED(1 << 20));
    PUT(GP_KINDS + 1);
    for (unsigned kind = 0; kind <= GP_KINDS; kind++)
        PUT(SIGNED(kind));
    put_text("cuMem\x01");
    put_text("caching");
    put_text("");
    PUT(2, 512, 3, 0, GP_KIND_POOL, 513, 4, 0, GP_KINDS);
    block(GP_BLOCK_OOM, 1);
    struct gp_recording *r = parse();
    cr_assert(r->has_oom && r->damaged_blocks == 0);
    cr_expect(r->oom.count == 2 && r->oom.asked_bytes == 1 << 20 && r->oom.device == 0);
    cr_expect(r->oom.kinds[0] == 0 && r->oom.kinds[GP_KINDS - 1] == GP_KINDS - 1);
    cr_expect_str_eq(r->oom.api, "cuMem?");
    cr_expect_str_eq(r->oom.policy, "caching");
    cr_expect(r->oom.holder_count == 2 && r->oom.holders[0].kind == GP_KIND_POOL && r->oom.holders[1].count == 4);
    cr_expect_eq(r->oom.holders[1].kind, GP_KIND_NONE);
}

/* More losses than this version knows, and more kinds of dropped events. */
static void counts(enum gp_format_type type, uint64_t drops, uint64_t losts)
{
    ROWS(1, 2, 900, 100, 60, drops);
    for (uint64_t i = 0; i < drops; i++)
        PUT(1ull << i);
    PUT(losts);
    for (uint64_t i = 0; i < losts; i++)
        PUT(1000 + i);
    (void)type;
}

Test(recording_numbers, counts_have_every_field)
{
    for (uint64_t more = 0; more < 6; more++) {
        const uint64_t drops = GP_DROP_FILE - 1 + more, losts = GP_LOSTS - 2 + more;
        bool ends = more % 2;
        begin();
        counts(GP_BLOCK_END, drops, losts);
        PUT(ENOSPC, 850, 60);
        block(ends ? GP_BLOCK_END : GP_BLOCK_COUNTS, 1);
        struct gp_recording *r = parse();
        cr_expect(r->damaged_blocks == 0 && r->complete == ends && r->end_ns == 900);
        cr_expect(r->tried == 100 && r->delivered == 60 && r->dropped == (1ull << drops) - 1);
        cr_expect_eq(r->unwritten, drops > GP_DROP_FILE ? 1ull << GP_DROP_FILE : 0);
        cr_expect(r->write_error == ENOSPC && r->write_error_ns == 850);
        for (uint64_t i = 0; i < GP_LOSTS; i++)
            cr_expect_eq(r->lost[i], i < losts ? 1000 + i : 0);
    }
}

Test(recording_numbers, counts_that_are_cut)
{
    begin();
    counts(GP_BLOCK_END, 5, 3);
    size_t first = gp_pack_bytes(pack);
    PUT(4095, 8500, 60);
    size_t whole = gp_pack_bytes(pack);
    for (size_t cut = 0; cut <= whole; cut++) {
        begin();
        counts(GP_BLOCK_END, 5, 3);
        PUT(4095, 8500, 60);
        pack->at = pack->start + cut;
        block(GP_BLOCK_END, 1);
        struct gp_recording *r = parse();
        bool sound = cut == first || cut == whole;
        cr_expect_eq(r->damaged_blocks, !sound, "%zu", cut);
        cr_expect_eq(r->complete, sound);
        cr_expect_eq(r->write_error, cut == whole ? 4095 : 0);
        cr_expect_eq(r->write_error_ns, cut == whole ? 8500 : 0);
        cr_expect_eq(r->end_ns, sound ? 900 : 0);
    }
    begin();
    counts(GP_BLOCK_END, 0, 0);
    PUT(4096, 1, 1);
    block(GP_BLOCK_END, 1);
    struct gp_recording *r = parse();
    cr_expect(r->write_error == EIO && r->dropped == 0 && r->unwritten == 0);
}
