/* SPDX-License-Identifier: MIT
 *
 * test_sitemodel.c: call sites on stacks that the test makes up: which of them share a site, what each row says, how native
 * and Python frames share the room of a stack, tables at their limits, memory that cannot be had, and the numbers of each
 * site after every step, against a plain model.
 */
#include "base/kept.h"
#include "lib/standin.h"
#include "stack/internal.h"
#include "stack/python.h"
#include "stack/stack.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROWS   65536u
#define FRAMES (1u << 20)
#define SPARE  2048u

/* ---- what site.c calls ------------------------------------------------------------------------------------------- */

static struct {
    uint64_t pcs[2 * GP_SITE_FRAMES];
    struct gp_python_frame python[2 * GP_SITE_FRAMES];
    unsigned natives, pythons;     /* as deep as the stack is */
    bool native_more, python_more; /* it was not read to its end */
} now;
static unsigned native_room, native_starts, maps_left = ~0u, mapped;
static int native_error;
static const char *python_text;

STANDIN(unsigned, gp_stack_native, uint64_t *pcs, unsigned room, bool *more)
{
    native_room = room;
    unsigned n = now.natives < room ? now.natives : room;
    memcpy(pcs, now.pcs, n * sizeof(*pcs));
    *more = now.natives > room || now.native_more;
    return n;
}

STANDIN_SAYS(bool, gp_stack_has_python, now.pythons || now.python_more, bool *more);

STANDIN(unsigned, gp_stack_python, struct gp_python_frame *frames, unsigned room, bool *more)
{
    cr_assert_eq(room, GP_SITE_FRAMES);
    unsigned n = now.pythons < room ? now.pythons : room;
    memcpy(frames, now.python, n * sizeof(*frames));
    *more = now.pythons > room || now.python_more;
    return n;
}

STANDIN_SAYS(const char *, gp_python_note, python_text, void);

STANDIN(int, gp_native_start, void)
{
    native_starts++;
    return native_error;
}

STANDIN(void *, gp_kept_map, size_t bytes, int flags)
{
    if (maps_left == 0) {
        errno = ENOMEM;
        return NULL;
    }
    maps_left--;
    mapped++;
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

STANDIN(void, gp_kept_unmap, void *at, size_t bytes)
{
    cr_assert(bytes % 4096 == 0 && munmap(at, bytes) == 0);
    mapped--;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static struct gp_wire_sites *head;
static struct gp_wire_site *rows;
static struct gp_wire_frame *frames;
static const char *strings;

static void tables(void)
{
    head =
        mmap(NULL, gp_site_bytes() + 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cr_assert(head != MAP_FAILED);
}

static void tables_known(void)
{
    rows = (struct gp_wire_site *)((char *)head + head->rows_offset);
    frames = (struct gp_wire_frame *)((char *)head + head->frames_offset);
    strings = (const char *)head + head->strings_offset;
}

static void start(uint32_t modes)
{
    tables();
    cr_assert_eq(gp_site_start(head, gp_site_bytes(), modes), 0);
    tables_known();
}

static void native(unsigned count, uint64_t first)
{
    now.natives = count;
    for (unsigned i = 0; i < count; i++)
        now.pcs[i] = first + i;
}

static void python(unsigned count, unsigned first)
{
    static char names[2 * GP_SITE_FRAMES][32];
    now.pythons = count;
    for (unsigned i = 0; i < count; i++) {
        int used = snprintf(names[i], sizeof(names[i]), "function %u", first + i);
        now.python[i] = (struct gp_python_frame){.code = 16 * (first + i) + 16,
                                                 .function = {names[i], (uint32_t)used},
                                                 .file = {names[i] + 9, (uint32_t)used - 9},
                                                 .line = 7 * (first + i)};
    }
}

static uint32_t here(void)
{
    return gp_site_here(1, GP_KIND_LINEAR, true);
}

/* ---- starts ------------------------------------------------------------------------------------------------------ */

Test(sitemodel, starts_that_fail_leave_nothing)
{
    tables();
    native_error = -ENOMEM;
    cr_expect_eq(gp_site_start(head, gp_site_bytes(), GP_SITES_NATIVE), -ENOMEM);
    cr_expect_eq(gp_site_switch(head, gp_site_bytes(), GP_SITES_NATIVE), -ENOMEM);
    cr_expect_eq(native_starts, 2);
    native_error = 0;
    for (maps_left = 0; maps_left < 2; maps_left++)
        for (int late = 0; late < 2; late++) {
            unsigned left = maps_left;
            int error = late ? gp_site_switch(head, gp_site_bytes(), GP_SITES_PYTHON)
                             : gp_site_start(head, gp_site_bytes(), GP_SITES_PYTHON);
            cr_expect_eq(error, -ENOMEM);
            cr_expect_eq(mapped, 0);
            cr_expect(!gp_site_on() && !gp_site_is_partial());
            maps_left = left;
        }
    maps_left = 2;
    cr_expect_eq(gp_site_start(head, gp_site_bytes() - 1, GP_SITES_PYTHON), -EINVAL);
    cr_expect_eq(gp_site_switch(head, gp_site_bytes() - 1, GP_SITES_PYTHON), -EINVAL);
    cr_expect_eq(gp_site_switch(head, gp_site_bytes(), 0), 0, "it is off already");
    cr_expect(!gp_site_is_partial() && mapped == 0);
    cr_expect_eq(gp_site_start(head, gp_site_bytes(), GP_SITES_PYTHON), 0);
    cr_expect_eq(native_starts, 2, "Python alone needs none");
    cr_expect(gp_site_on() && mapped == 2);
    cr_expect_eq(gp_site_switch(NULL, 0, GP_SITES_NATIVE | GP_SITES_PYTHON), 0);
    cr_expect_eq(native_starts, 3);
    cr_expect_eq(head->modes, 3);
}

/* ---- stacks ------------------------------------------------------------------------------------------------------ */

static void row_is(uint32_t id, unsigned natives, unsigned pythons, bool truncated)
{
    const struct gp_wire_site *row = &rows[id];
    cr_assert_eq(row->frame_count, natives + pythons, "%u, not %u + %u", row->frame_count, natives, pythons);
    cr_assert_eq(row->truncated, truncated, "%u + %u", natives, pythons);
    cr_assert(row->device == 1 && row->kind == GP_KIND_LINEAR && row->summed == 1);
    for (unsigned i = 0; i < natives; i++) {
        const struct gp_wire_frame *frame = &frames[row->first_frame + i];
        cr_assert(frame->pc == now.pcs[i] && frame->type == GP_FRAME_NATIVE && frame->line == 0);
    }
    for (unsigned i = 0; i < pythons; i++) {
        const struct gp_wire_frame *frame = &frames[row->first_frame + natives + i];
        cr_assert(frame->type == GP_FRAME_PYTHON && frame->line == now.python[i].line);
        cr_assert_str_eq(strings + frame->function, now.python[i].function.bytes);
        cr_assert_str_eq(strings + frame->file, now.python[i].file.bytes);
    }
}

/* Python frames leave 64 native ones their room; what is left over goes to the other kind. */
Test(sitemodel, native_and_python_frames_share_the_room)
{
    static const unsigned depths[] = {0, 1, 2, 62, 63, 64, 65, 66, 127, 128, 129, 200};
    unsigned before = 0;
    start(GP_SITES_NATIVE | GP_SITES_PYTHON);
    for (unsigned i = 0; i < 12; i++)
        for (unsigned k = 0; k < 12; k++)
            for (unsigned more = 0; more < 4; more++) {
                unsigned deep = depths[i] < 128 ? depths[i] : 128, room = deep < 64 ? 128 - deep : 64;
                native(depths[k], 0x1000);
                python(depths[i], 1);
                now.native_more = more & 1;
                now.python_more = more & 2;
                uint32_t id = here();
                cr_assert_eq(native_room, room, "%u, not %u", native_room, room);
                unsigned natives = depths[k] < room ? depths[k] : room, left = 128 - natives;
                unsigned pythons = deep < left ? deep : left;
                bool truncated = more || depths[k] > natives || depths[i] > pythons;
                cr_assert_neq(id, 0);
                row_is(id, natives, pythons, natives + pythons ? truncated : 0);
                cr_assert_eq(here(), id, "it is known");
                cr_assert_eq(head->captures, before += 2);
            }
    cr_assert(head->lost_frames == 0 && head->lost_rows == 0 && head->lost_strings == 0);
}

Test(sitemodel, the_modes_choose_the_frames)
{
    start(GP_SITES_NATIVE);
    native(3, 0x1000);
    python(2, 1);
    row_is(here(), 3, 0, false);
    cr_expect_eq(native_room, GP_SITE_FRAMES);
    gp_site_switch(NULL, 0, GP_SITES_PYTHON);
    row_is(here(), 0, 2, false);
    gp_site_switch(NULL, 0, GP_SITES_PYTHON | GP_SITES_NATIVE);
    row_is(here(), 3, 2, false);
    cr_expect_eq(head->rows, 4);
}

/* Whatever differs makes another site: a frame of either kind, a name, a line, the end of a stack, device, kind, sum. */
Test(sitemodel, what_differs_is_another_site)
{
    enum { MOST = 4000 };
    static struct {
        unsigned natives, pythons, first, line, device, kind, more, summed;
    } seen[MOST];
    static uint32_t ids[MOST];
    unsigned count = 0;
    start(GP_SITES_NATIVE | GP_SITES_PYTHON);
    srand(20251123);
    for (unsigned step = 0; step < 12000; step++) {
        unsigned at = 0;
        seen[count].natives = (unsigned)rand() % 4;
        seen[count].pythons = (unsigned)rand() % 3;
        seen[count].first = (unsigned)rand() % 3;
        seen[count].line = (unsigned)rand() % 2;
        seen[count].device = (unsigned)rand() % 2;
        seen[count].kind = 1 + (unsigned)rand() % 2;
        seen[count].more = (unsigned)rand() % 2;
        seen[count].summed = (unsigned)rand() % 2;
        if (seen[count].natives + seen[count].pythons == 0) /* all of them are the one without frames */
            seen[count].first = seen[count].line = seen[count].more = 0;
        if (seen[count].pythons == 0)
            seen[count].line = 0;
        native(seen[count].natives, 0x1000 + seen[count].first);
        python(seen[count].pythons, seen[count].first);
        for (unsigned i = 0; i < seen[count].pythons; i++)
            now.python[i].line += seen[count].line;
        now.native_more = seen[count].more;
        uint32_t id = gp_site_here((int)seen[count].device, (enum gp_wire_kind)seen[count].kind, seen[count].summed);
        cr_assert_neq(id, 0);
        while (memcmp(&seen[at], &seen[count], sizeof(seen[0])) != 0)
            at++;
        if (at == count) {
            cr_assert_eq(id, count + 1, "step %u: a new one", step);
            ids[count++] = id;
        }
        cr_assert_eq(id, ids[at], "step %u", step);
        cr_assert(rows[id].device == seen[at].device && rows[id].kind == seen[at].kind &&
                  rows[id].summed == seen[at].summed && rows[id].truncated == seen[at].more);
    }
    cr_assert_gt(count, 500, "%u", count);
    cr_assert_eq(head->rows, count + 1);
}

/* Names that have no room make a stack poor, which is counted; why there are none is said once. */
Test(sitemodel, names_without_room)
{
    static char said[8], name[500];
    start(GP_SITES_PYTHON);
    gp_site_explain_to(said, sizeof(said));
    memset(name, 'n', sizeof(name));
    uint64_t poor = 0;
    for (unsigned i = 0; i < 9000; i++) {
        memcpy(name, &i, 3);
        python(1, i);
        now.python[0].function = (struct gp_python_text){name, sizeof(name)};
        uint32_t used = head->strings;
        cr_assert_neq(here(), 0);
        poor += used + 501 > head->string_limit;
        cr_assert_eq(head->lost_strings > 0, poor > 0, "%u", i);
    }
    cr_assert(poor > 100 && head->lost_strings >= poor);
    cr_assert_leq(head->strings, head->string_limit);
    cr_assert_str_eq(said, "");
    python_text = "as long";
    here();
    cr_assert_str_eq(said, "as long");
    python_text = "another";
    here();
    cr_assert_str_eq(said, "as long");
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

/* The last 2048 rows are for stacks without frames, of which the others then get those of their device, kind and sum. */
Test(sitemodel, the_last_rows, .timeout = 120)
{
    start(GP_SITES_NATIVE);
    for (uint32_t i = 1; i < ROWS - SPARE; i++) {
        native(1, 0x1000 + i);
        cr_assert_eq(here(), i);
    }
    cr_assert_eq(head->lost_rows, 0);
    native(1, 0x100);
    uint32_t nameless = here();
    cr_assert_eq(nameless, ROWS - SPARE);
    cr_assert(rows[nameless].frame_count == 0 && rows[nameless].truncated == 0 && rows[nameless].first_frame == 0);
    cr_assert_eq(head->lost_rows, 1);
    native(1, 0x101);
    cr_assert_eq(here(), nameless);
    cr_assert_eq(head->lost_rows, 2);
    native(1, 0x1001);
    cr_assert_eq(here(), 1, "it is known");
    uint32_t expected = nameless;
    native(0, 0);
    for (unsigned device = 0; device < GP_WIRE_DEVICES; device++)
        for (unsigned kind = 1; kind < GP_KINDS; kind++)
            for (int summed = 0; summed < 2; summed++) {
                bool known = device == 1 && kind == GP_KIND_LINEAR && summed;
                uint32_t id = gp_site_here((int)device, (enum gp_wire_kind)kind, summed);
                cr_assert_eq(id, known ? nameless : ++expected, "device %u kind %u", device, kind);
            }
    cr_assert_eq(head->lost_rows, 2);
    cr_assert_lt(expected, ROWS, "there is a row for each of them");
    cr_assert_eq(head->rows, expected + 1);
}

/* A stack is kept only while the deepest one would have room. */
Test(sitemodel, the_last_frames)
{
    start(GP_SITES_NATIVE);
    uint32_t used = 0, id = 0;
    for (unsigned i = 1; used <= FRAMES - GP_SITE_FRAMES; i++) {
        unsigned count = FRAMES - GP_SITE_FRAMES - used < 128 && FRAMES - GP_SITE_FRAMES - used > 0
                             ? FRAMES - GP_SITE_FRAMES - used
                             : 128;
        native(count, 0x100000 + 1000 * i);
        cr_assert_eq(here(), id = i);
        used += count;
        cr_assert_eq(head->frames, used);
    }
    cr_assert_eq(used, FRAMES, "the last one began at the last place");
    cr_assert_eq(head->lost_frames, 0);
    cr_assert_eq(here(), id, "and is known");
    native(1, 0x100);
    cr_assert_eq(here(), id + 1);
    cr_assert_eq(head->lost_frames, 1);
    cr_assert_eq(rows[id + 1].frame_count, 0);
    native(0, 0);
    cr_assert_eq(here(), id + 1);
    cr_assert_eq(head->lost_frames, 1, "it has none");
    cr_assert_eq(head->frames, FRAMES);
    gp_site_switch(NULL, 0, 0); /* nor has the name of site 0 room */
    cr_assert_eq(rows[0].frame_count, 0);
    cr_assert(gp_site_is_partial());
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

#define SITES   12
#define DEVICES 3

static struct {
    unsigned device;
    bool summed;
    int64_t live, count, peak, at_peak, allocated, calls;
} model[SITES + 1];
static struct {
    int64_t live, peak;
    uint64_t seq, ns;
} devices[DEVICES];

static void model_move(uint32_t id, int64_t bytes, int64_t count)
{
    model[id].live += bytes;
    model[id].count += count;
    model[id].peak = model[id].live > model[id].peak ? model[id].live : model[id].peak;
    devices[model[id].device].live += model[id].summed ? bytes : 0;
}

/* At a new peak, and after a reset, what each site of the device holds is what it held then. */
static void model_peak(unsigned device, bool reset)
{
    if (!reset && devices[device].live <= devices[device].peak)
        return;
    devices[device].peak = devices[device].live;
    devices[device].seq++;
    for (unsigned i = 1; i <= SITES; i++)
        if (model[i].device == device) {
            model[i].at_peak = model[i].live;
            model[i].peak = reset ? model[i].live : model[i].peak;
        }
}

static void model_is(unsigned step)
{
    for (uint32_t id = 1; id <= SITES; id++) {
        const struct gp_wire_site *row = &rows[id];
        const struct gp_wire_site_device *device = &head->devices[row->device];
        int64_t at_peak = row->peak_seq == device->peak_seq ? row->at_peak_bytes : row->live_bytes;
        cr_assert_eq(row->live_bytes, model[id].live, "step %u, site %u", step, id);
        cr_assert_eq(row->live_count, model[id].count, "step %u, site %u", step, id);
        cr_assert_eq(row->peak_bytes, model[id].peak, "step %u, site %u", step, id);
        cr_assert_eq(at_peak, model[id].at_peak, "step %u, site %u: %ld", step, id, (long)at_peak);
        cr_assert_eq(row->allocated_bytes, model[id].allocated, "step %u, site %u", step, id);
        cr_assert_eq(row->calls, model[id].calls, "step %u, site %u", step, id);
    }
    for (unsigned d = 0; d < DEVICES; d++) {
        cr_assert_eq(head->devices[d].live_bytes, devices[d].live, "step %u", step);
        cr_assert_eq(head->devices[d].peak_bytes, devices[d].peak, "step %u", step);
        cr_assert_eq(head->devices[d].peak_seq, devices[d].seq, "step %u", step);
        cr_assert_geq(head->devices[d].peak_ns, devices[d].ns, "step %u", step);
        cr_assert_eq(head->devices[d].peak_ns != 0, devices[d].seq != 0);
        devices[d].ns = head->devices[d].peak_ns;
    }
}

Test(sitemodel, the_numbers_of_each_site)
{
    start(GP_SITES_NATIVE);
    srand(20251123);
    for (uint32_t id = 1; id <= SITES; id++) {
        native(1, id);
        model[id].device = id % DEVICES;
        model[id].summed = id % 4 != 0;
        cr_assert_eq(gp_site_here((int)model[id].device, GP_KIND_POOL, model[id].summed), id);
    }
    for (unsigned step = 0; step < 30000; step++) {
        uint32_t id = 1 + (uint32_t)rand() % SITES;
        int what = rand() % 100, bytes = rand() % 3 ? rand() % 100 : 0;
        unsigned device = model[id].device;
        if (what < 50) {
            gp_site_alloc(id, (uint64_t)bytes);
            model_move(id, bytes, 1);
            model[id].allocated += bytes;
            model[id].calls++;
            model_peak(device, false);
        } else if (what < 95) {
            gp_site_free(id, (uint64_t)bytes);
            model_move(id, -bytes, -1);
        } else if (what < 97) {
            gp_site_reset((int)device);
            model_peak(device, true);
        } else if (what < 98) {
            gp_site_reset(-1);
            for (unsigned d = 0; d < DEVICES; d++)
                model_peak(d, true);
        } else if (model[id].summed) { /* all sites of the device hold so much together, in so many blocks */
            int64_t blocks = 0, total = devices[device].live + rand() % 3 * (rand() % 50 - 20), count = rand() % 9;
            bool counts = rand() % 2;
            for (unsigned i = 1; i <= SITES; i++)
                blocks += model[i].device == device && model[i].summed ? model[i].count : 0;
            gp_live_settle(id, total, count, counts);
            model_move(id, total - devices[device].live, counts ? count - blocks : 0);
            model_peak(device, false);
        }
        model_is(step);
    }
}

/* A reset reaches every row, of as many as there are. */
Test(sitemodel, a_reset_of_many_sites)
{
    start(GP_SITES_NATIVE);
    for (uint32_t id = 1; id <= 600; id++) {
        native(1, id);
        cr_assert_eq(gp_site_here((int)(id % 2), GP_KIND_POOL, true), id);
        gp_site_alloc(id, 100);
        gp_site_free(id, 40);
    }
    gp_site_reset(1);
    for (uint32_t id = 1; id <= 600; id++)
        cr_assert_eq(rows[id].peak_bytes, id % 2 ? 60 : 100, "row %u", id);
    gp_site_alloc(600, 1);
    gp_site_alloc(ROWS - 1, 1);
    gp_site_alloc(ROWS, 1);
    cr_assert_eq(rows[600].calls, 2);
}
