/* SPDX-License-Identifier: MIT
 *
 * test_record_parts.c: the small parts of the recorder: names of recordings and ranks (core/record/name.c), the checksum
 * (crc.c), the order of events (order.c), and numbers of varying length (pack.h). Each against a plain model.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <gpuprof/wire.h>
#include <lib/random.h>
#include <record/pack.h>
#include <record/recorder.h>
#include <record/ringread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(record_parts, .timeout = 60);

static uint64_t draw(void)
{
    static uint64_t state = RANDOM_SEED;
    return random_next(&state);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static const struct gp_rank no_rank = {-1, -1, -1};

static const char *name_of(const char *pattern, struct gp_rank rank, bool second)
{
    static char out[256];
    memset(out, 'x', sizeof(out));
    cr_assert_eq(gp_record_name(out, sizeof(out), pattern, 1234, &rank, second), 0, "%s", pattern);
    return out;
}

Test(record_parts, names_of_recordings)
{
    const struct gp_rank alone = {0, 0, 1}, first = {0, 0, 2}, last = {7, 3, 8}, lost = {-1, 0, 8};
    static const struct {
        const char *pattern, *plain, *second, *ranked, *both;
    } names[] = {
        {"a.gpuprof", "a.gpuprof", "a.1234.gpuprof", "a.rank7.gpuprof", "a.rank7.1234.gpuprof"},
        {"a", "a", "a.1234", "a.rank7", "a.rank7.1234"},
        {"a-%p.gpuprof", "a-1234.gpuprof", "a-1234.1234.gpuprof", "a-1234.gpuprof", "a-1234.1234.gpuprof"},
        {"%p", "1234", "1234.1234", "1234", "1234.1234"},
        {"%%p", "%p", "%p.1234", "%p.rank7", "%p.rank7.1234"},
        {"%%%p%", "%1234%", "%1234%.1234", "%1234%", "%1234%.1234"},
        {"%q%", "%q%", "%q%.1234", "%q%.rank7", "%q%.rank7.1234"},
        {".gpuprof", ".gpuprof", ".gpuprof.1234", ".gpuprof.rank7", ".gpuprof.rank7.1234"},
        {"b.gpuprof/c", "b.gpuprof/c", "b.gpuprof/c.1234", "b.gpuprof/c.rank7", "b.gpuprof/c.rank7.1234"},
    };
    cr_assert_str_eq(GP_NAME_SUFFIX, ".gpuprof");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        cr_expect_str_eq(name_of(names[i].pattern, no_rank, false), names[i].plain);
        cr_expect_str_eq(name_of(names[i].pattern, alone, false), names[i].plain);
        cr_expect_str_eq(name_of(names[i].pattern, lost, false), names[i].plain);
        cr_expect_str_eq(name_of(names[i].pattern, no_rank, true), names[i].second);
        cr_expect_str_eq(name_of(names[i].pattern, last, false), names[i].ranked);
        cr_expect_str_eq(name_of(names[i].pattern, last, true), names[i].both);
    }
    cr_expect_str_eq(name_of("a", first, false), "a.rank0");
    cr_expect_str_eq(name_of("a.gpuprof", (struct gp_rank){999999999, -1, 999999999}, true),
                     "a.rank999999999.1234.gpuprof");
}

/* A name that may be too long with all that is added is refused, and what is behind the buffer stays. */
Test(record_parts, names_that_are_too_long)
{
    char pattern[300], out[200], want[400];
    for (size_t bytes = 66; bytes < 100; bytes++)
        for (size_t length = 0; length < 80; length++) {
            memset(pattern, 'n', length);
            pattern[length] = '\0';
            memset(out, '#', sizeof(out));
            int error =
                gp_record_name(out, bytes, pattern, UINT32_MAX, &(struct gp_rank){999999999, 0, 999999999}, true);
            cr_expect_eq(error,
                         length == 0           ? -EINVAL
                         : length > bytes - 64 ? -ENAMETOOLONG
                                               : 0,
                         "%zu in %zu", length, bytes);
            cr_expect_eq(out[bytes], '#');
            snprintf(want, sizeof(want), "%s.rank999999999.4294967295", pattern);
            if (!error)
                cr_expect_str_eq(out, want);
        }
    cr_expect_eq(gp_record_name(out, sizeof(out), "", 1, &no_rank, false), -EINVAL);
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

static const char *variables[16];

static const char *variable(void *arg, const char *name)
{
    cr_assert_eq(arg, variables);
    for (unsigned i = 0; i + 1 < 16 && variables[i]; i += 2)
        if (strcmp(variables[i], name) == 0)
            return variables[i + 1];
    return NULL;
}

#define EXPECT_RANK(_rank, _local, _world, ...)                                                                        \
    do {                                                                                                               \
        static const char *const set_[16] = {__VA_ARGS__};                                                             \
        struct gp_rank is_ = {5, 5, 5};                                                                                \
        memcpy(variables, set_, sizeof(set_));                                                                         \
        gp_rank_read(&is_, variable, variables);                                                                       \
        cr_expect(is_.rank == (_rank) && is_.local == (_local) && is_.world == (_world), "%d %d %d", is_.rank,         \
                  is_.local, is_.world);                                                                               \
    } while (0)

Test(record_parts, ranks_of_each_launcher)
{
    EXPECT_RANK(-1, -1, -1, NULL);
    EXPECT_RANK(3, 1, 8, "RANK", "3", "LOCAL_RANK", "1", "WORLD_SIZE", "8");
    EXPECT_RANK(4, 2, 9, "OMPI_COMM_WORLD_RANK", "4", "OMPI_COMM_WORLD_LOCAL_RANK", "2", "OMPI_COMM_WORLD_SIZE", "9");
    EXPECT_RANK(5, 3, 10, "PMI_RANK", "5", "MPI_LOCALRANKID", "3", "PMI_SIZE", "10");
    EXPECT_RANK(6, 4, 11, "SLURM_PROCID", "6", "SLURM_LOCALID", "4", "SLURM_STEP_NUM_TASKS", "11");
    EXPECT_RANK(0, -1, -1, "RANK", "0", "SLURM_PROCID", "6", "SLURM_LOCALID", "4");
    EXPECT_RANK(6, -1, 2, "RANK", "x", "LOCAL_RANK", "1", "WORLD_SIZE", "8", "SLURM_PROCID", "6",
                "SLURM_STEP_NUM_TASKS", "2");
    EXPECT_RANK(-1, -1, -1, "LOCAL_RANK", "1", "WORLD_SIZE", "8");
    EXPECT_RANK(123456789, 987654321, -1, "RANK", "123456789", "LOCAL_RANK", "987654321", "WORLD_SIZE", "1234567890");
    EXPECT_RANK(90, -1, -1, "RANK", "90", "LOCAL_RANK", "9:", "WORLD_SIZE", "/9");
    EXPECT_RANK(10, -1, -1, "RANK", "010", "LOCAL_RANK", "", "WORLD_SIZE", "-1");
}

/* ---- checksum ---------------------------------------------------------------------------------------------------- */

static uint32_t plain_crc(uint32_t before, const uint8_t *bytes, size_t count)
{
    uint32_t crc = ~before;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

Test(record_parts, checksum)
{
    uint8_t bytes[64];
    cr_expect_eq(gp_file_crc32c(0, "123456789", 9), 0xe3069283u); /* of RFC 3720 */
    for (unsigned turn = 0; turn < 20000; turn++) {
        uint32_t before = (uint32_t)draw();
        size_t start = draw() % 8, count = draw() % 56;
        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = (uint8_t)(draw() >> 13);
        cr_assert_eq(gp_file_crc32c(before, bytes + start, count), plain_crc(before, bytes + start, count), "%zu",
                     count);
    }
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

static int by_time(const void *x, const void *y)
{
    const struct gp_wire_event *a = x, *b = y;
    if (a->time_ns != b->time_ns)
        return a->time_ns < b->time_ns ? -1 : 1;
    return a->seq < b->seq ? -1 : a->seq > b->seq;
}

/* Events of any order: sorted, reversed, of several threads, with equal times. */
Test(record_parts, order_of_events)
{
    static struct gp_wire_event events[300], want[300], guard;
    static struct gp_order_key keys[600];
    for (unsigned turn = 0; turn < 6000; turn++) {
        size_t count = turn < 900 ? turn % 9 : draw() % 299;
        uint64_t times = 1 + draw() % (turn % 3 ? 5 : 1000), runs = 1 + draw() % 5, reversed = draw() % 4 == 0;
        for (size_t i = 0; i < count; i++) {
            uint64_t ordered = reversed ? count - i : i % (count / runs + 1);
            events[i] = (struct gp_wire_event){
                .time_ns = turn % 2 ? draw() % times : ordered, .seq = i * 7919 % 301, .address = i};
        }
        memset(&guard, 0x55, sizeof(guard));
        events[count] = guard;
        memcpy(want, events, sizeof(want));
        qsort(want, count, sizeof(want[0]), by_time);
        gp_ring_order_events(events, count, keys);
        cr_assert_eq(memcmp(events, want, (count + 1) * sizeof(want[0])), 0, "turn %u, %zu events", turn, count);
    }
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

Test(record_parts, numbers_come_back)
{
    uint8_t bytes[32];
    for (unsigned turn = 0; turn < 4000; turn++) {
        unsigned bits = turn % 65;
        uint64_t edge = bits < 64 ? 1ull << bits : 0,
                 number = turn < 195 ? edge - 1 + turn / 65 : draw() >> draw() % 64;
        struct gp_pack pack = {.at = bytes, .start = bytes, .end = bytes + sizeof(bytes)};
        gp_pack_number(&pack, number);
        size_t length = 1;
        for (uint64_t left = number; left >= 128; left >>= 7)
            length++;
        cr_assert_eq(gp_pack_bytes(&pack), length, "%lu", number);
        gp_pack_signed(&pack, (int64_t)number);
        gp_pack_signed(&pack, -(int64_t)(number >> 1));
        struct gp_unpack unpack = {bytes, pack.at, false};
        cr_assert_eq(gp_unpack_number(&unpack), number);
        cr_assert_eq(gp_unpack_signed(&unpack), (int64_t)number);
        cr_assert_eq(gp_unpack_signed(&unpack), -(int64_t)(number >> 1));
        cr_assert(!unpack.bad && gp_unpack_left(&unpack) == 0);
        unpack = (struct gp_unpack){bytes, bytes + length - 1, false};
        cr_assert_eq(gp_unpack_number(&unpack), 0);
        cr_assert(unpack.bad, "%lu", number);
    }
}

/* Numbers of more than 64 bits are malformed, and nothing is read after an error. */
Test(record_parts, numbers_that_are_malformed)
{
    static const struct {
        uint8_t bytes[12];
        unsigned length;
        bool good;
    } cases[] = {
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, 10, true},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2}, 10, false},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0}, 11, false},
        {{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0}, 12, false},
        {{0x80, 0}, 2, true},
        {{0}, 0, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gp_unpack unpack = {cases[i].bytes, cases[i].bytes + cases[i].length, false};
        uint64_t number = gp_unpack_number(&unpack);
        cr_expect_eq(unpack.bad, !cases[i].good, "%zu", i);
        cr_expect(unpack.at == unpack.end, "%zu", i);
        cr_expect_eq(number, i == 0 ? UINT64_MAX : 0, "%zu", i);
        cr_expect_eq(gp_unpack_raw(&unpack, 0) != NULL, cases[i].good, "%zu", i);
    }
}

/* What does not fit is left out as a whole, and so is all that follows. */
Test(record_parts, what_does_not_fit)
{
    uint8_t bytes[32];
    for (size_t room = 0; room < 30; room++) {
        struct gp_pack pack = {.at = bytes, .start = bytes, .end = bytes + room};
        memset(bytes, 0xaa, sizeof(bytes));
        gp_pack_raw(&pack, "abcdefghijkl", 12);
        cr_expect(pack.full == (room < 12) && gp_pack_bytes(&pack) == (room < 12 ? 0 : 12), "%zu", room);
        gp_pack_number(&pack, 5);
        cr_expect(pack.full == (room < 22) && gp_pack_bytes(&pack) == (room < 12   ? 0
                                                                       : room < 22 ? 12
                                                                                   : 13),
                  "%zu", room);
        gp_pack_raw(&pack, "", 0);
        gp_pack_string(&pack, "xyz", 3);
        cr_expect(pack.full == (room < 23) && gp_pack_bytes(&pack) == (room < 12   ? 0
                                                                       : room < 22 ? 12
                                                                       : room < 23 ? 13
                                                                                   : 17),
                  "%zu", room);
        cr_expect_eq(bytes[room], 0xaa);
        struct gp_unpack unpack = {bytes, bytes + 12, false};
        cr_expect_eq(gp_unpack_raw(&unpack, 12), bytes);
        unpack = (struct gp_unpack){bytes, bytes + 12, false};
        cr_expect_null(gp_unpack_raw(&unpack, 13));
        cr_expect(unpack.bad && unpack.at == unpack.end);
    }
}
