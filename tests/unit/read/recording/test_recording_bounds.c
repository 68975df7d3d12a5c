/* SPDX-License-Identifier: MIT
 *
 * test_recording_bounds.c: rows of a recording's blocks that end too early, or that name a device which cannot be, make
 * their block damaged; the last number that can be does not.
 */
#include "record/format.h"
#include "record/pack.h"
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <gpuprof/wire.h>
#include <read/recording/recording.h>
#include <record/blocks.h>
#include <record/file.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(recording_bounds, .timeout = 60);

static void sample(struct gp_pack *pack, uint32_t device)
{
    gp_block_sample(pack, &(struct gp_block_sample){9, device, 300, 400, -1, 500, 600, 700});
}

static void device(struct gp_pack *pack, uint32_t index)
{
    static struct gp_wire_device numbers;
    gp_block_device(pack, index, 3, "GPU-1", "Test GPU", 1 << 30, &numbers, true);
}

static void before(struct gp_pack *pack, uint32_t index)
{
    gp_block_before(pack, 77, index, &(struct gp_wire_before_device){.bytes = 300, .source = GP_BEFORE_DRIVER});
}

static void thread(struct gp_pack *pack, uint32_t number)
{
    gp_block_thread(pack, 300 + number, "a thread");
}

static void module(struct gp_pack *pack, uint32_t number)
{
    static const uint8_t id[] = {1, 2, 3};
    gp_block_module(pack, 4096 + number, 8192 + number, 0, "/usr/lib/libexample.so", id, sizeof(id));
}

static const struct {
    enum gp_format_type type;
    void (*row)(struct gp_pack *pack, uint32_t number);
    uint32_t most; /* number; UINT32_MAX: any */
} rows[] = {
    {GP_BLOCK_SAMPLES, sample, GP_WIRE_DEVICES - 1}, {GP_BLOCK_DEVICES, device, GP_WIRE_DEVICES - 1},
    {GP_BLOCK_BEFORE, before, GP_WIRE_GPUS - 1},     {GP_BLOCK_THREADS, thread, UINT32_MAX},
    {GP_BLOCK_MODULES, module, UINT32_MAX},
};

/* Reads a file with one block of one row, whose last `cut` bytes are missing. Returns how many blocks were damaged;
 * *bytes: of the whole row. */
static uint64_t damaged(unsigned way, uint32_t number, size_t cut, size_t *bytes, uint32_t *found)
{
    char path[] = "/tmp/gpuprof-test-bounds-XXXXXX", why[256];
    struct gp_recording *r = NULL;
    struct gp_file *file;
    cr_assert_eq(gp_file_new(&file, mkstemp(path), &(struct gp_file_who){.pid = 7}), 0);
    struct gp_pack *pack = gp_file_pack(file);
    rows[way].row(pack, number);
    *bytes = gp_pack_bytes(pack);
    pack->at -= cut;
    cr_assert_eq(gp_file_block(file, rows[way].type, 1, false), 0);
    cr_assert_eq(gp_file_end(file), 0);
    int rc = gp_recording_open(&r, path, why, sizeof(why), NULL, NULL);
    unlink(path);
    cr_assert_eq(rc, 0, "%s", why);
    uint64_t count = r->damaged_blocks;
    *found = (uint32_t)r->sample_count + (uint32_t)r->before_count + r->module_count + r->thread_count;
    for (uint32_t i = 0; i < r->device_count; i++)
        *found += r->devices[i].has_last;
    gp_recording_free(r);
    return count;
}

Test(recording_bounds, a_row_that_ends_too_early_is_damage)
{
    for (unsigned way = 0; way < GP_COUNT(rows); way++) {
        size_t bytes = 1, ignored;
        uint32_t found;
        cr_assert_eq(damaged(way, 0, 0, &bytes, &found), 0, "way %u", way);
        cr_assert_eq(found, 1, "way %u: %u rows", way, found);
        for (size_t cut = 1; cut <= bytes; cut += bytes > 200 && cut > 20 && cut + 30 < bytes ? 97 : 1)
            cr_assert_eq(damaged(way, 0, cut, &ignored, &found), 1, "way %u without %zu of %zu bytes", way, cut, bytes);
    }
}

Test(recording_bounds, a_device_that_cannot_be_is_damage)
{
    size_t bytes;
    uint32_t found;
    for (unsigned way = 0; way < GP_COUNT(rows); way++) {
        uint32_t most = rows[way].most;
        cr_assert_eq(damaged(way, most == UINT32_MAX ? 100000 : most, 0, &bytes, &found), 0, "way %u", way);
        cr_assert_eq(found, 1, "way %u", way);
        if (most == UINT32_MAX)
            continue;
        cr_assert_eq(damaged(way, most + 1, 0, &bytes, &found), 1, "way %u", way);
        cr_assert_eq(found, 0, "way %u", way);
    }
}
