/* SPDX-License-Identifier: MIT
 *
 * test_sites_limits.c: the reader of call sites (tools/read/collect/sites.c) with tables of every size: what it fetches in pieces,
 * the last place where a table may lie, and why it refuses.
 */
#include <base/compiler.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <lib/session.h>
#include <read/collect/peer.h>
#include <read/collect/sites.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define UP(_x) (((_x) + 4095u) & ~(uint64_t)4095u)

static struct gp_test_session session;
static struct gp_wire_sites *head;
static struct gp_wire_site *rows;
static struct gp_wire_frame *frames;
static char *strings;
static struct gp_peer peer;
static struct gp_sites *sites;
static char problem[GP_PROBLEM_BYTES];
static uint64_t area; /* where the tables begin in the file */

/* Tables with these limits, the one behind the other. */
static void tables(uint32_t row_limit, uint32_t frame_limit, uint32_t string_limit)
{
    uint64_t to_frames = UP(sizeof(*head)) + (uint64_t)row_limit * sizeof(*rows);
    uint64_t to_strings = to_frames + (uint64_t)frame_limit * sizeof(*frames), bytes = to_strings + string_limit;
    cr_assert_eq(gp_test_session_make(&session, 64, false), 0);
    area = UP(session.bytes);
    cr_assert_eq(ftruncate(session.fd, (off_t)(area + bytes)), 0);
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, session.fd, (off_t)area);
    cr_assert_neq(map, MAP_FAILED);
    head = (void *)map, rows = (void *)(map + UP(sizeof(*head))), frames = (void *)(map + to_frames),
    strings = map + to_strings;
    session.header->total_bytes = area + bytes;
    session.header->sites_offset = area;
    session.header->sites_bytes = bytes;
    *head = (struct gp_wire_sites){.row_bytes = sizeof(*rows),
                                   .frame_bytes = sizeof(*frames),
                                   .row_limit = row_limit,
                                   .frame_limit = frame_limit,
                                   .string_limit = string_limit,
                                   .modes = GP_SITES_PYTHON,
                                   .rows_offset = UP(sizeof(*head)),
                                   .frames_offset = to_frames,
                                   .strings_offset = to_strings,
                                   .rows = 1};
    for (unsigned i = 0; i < GP_WIRE_DEVICES; i++)
        head->devices[i].peak_seq = 1;
    cr_assert_eq(gp_peer_load(&peer, dup(session.fd), problem), 0, "%s", problem);
}

static int load(void)
{
    gp_sites_close(sites);
    sites = NULL;
    return gp_sites_open_peer(&sites, &peer, getpid(), "/nonexistent", problem);
}

static void expect(int rc, int wanted, const char *text, const char *what)
{
    cr_expect_eq(rc, wanted, "%s: %d, %s", what, rc, problem);
    cr_expect_str_eq(problem, text, "%s: %s", what, problem);
}

static void one_row(void)
{
    tables(8, 8, 64);
    frames[0] = (struct gp_wire_frame){.type = GP_FRAME_PYTHON, .line = 7};
    rows[1] = (struct gp_wire_site){
        .frame_count = 1, .kind = GP_KIND_LINEAR, .live_bytes = 100, .at_peak_bytes = 500, .peak_seq = 1, .calls = 1};
    head->rows = 2, head->frames = 1;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

/* Rows are fetched 512 at a time, frames 1024; each update takes what is new. */
Test(sites_limits, tables_of_any_size)
{
    static const uint32_t counts[] = {1, 2, 511, 512, 513, 1023, 1024, 1025, 1026, 2047, 2048, 2049, 3000};
    tables(3000, 3000, 40000);
    for (uint32_t i = 0; i < 3000; i++) {
        memcpy(strings + 12 * i, "function", 9);
        snprintf(strings + 12 * i, 12, "f%u", i);
        frames[i] =
            (struct gp_wire_frame){.function = 12 * i, .file = 12 * (i / 2), .line = i, .type = GP_FRAME_PYTHON};
        rows[i] = (struct gp_wire_site){.first_frame = i,
                                        .frame_count = 1,
                                        .kind = 1 + i % (GP_KINDS - 1),
                                        .device = i % GP_WIRE_DEVICES,
                                        .truncated = i % 2,
                                        .live_bytes = i,
                                        .live_count = i + 1,
                                        .peak_bytes = i + 2,
                                        .at_peak_bytes = i + 3,
                                        .peak_seq = i % 3 ? 1 : 2,
                                        .allocated_bytes = i + 4,
                                        .calls = i + 5};
    }
    for (unsigned fresh = 0; fresh < 2; fresh++)
        for (size_t n = 0; n < GP_COUNT(counts); n++) {
            head->rows = head->frames = counts[n];
            head->strings = 12 * counts[n];
            if (fresh || n == 0)
                cr_assert_eq(load(), 0, "%s", problem);
            else
                cr_assert_eq(gp_sites_update(sites, problem), 0, "%s", problem);
            cr_assert(sites->site_count == counts[n] && sites->frame_count == counts[n] && sites->ended &&
                      sites->module_count == 0);
            for (uint32_t i = 0; i < counts[n]; i++) {
                const struct gp_rec_frame *f = &sites->frames[i];
                char name[12], parent[12];
                snprintf(name, sizeof(name), "f%u", i);
                snprintf(parent, sizeof(parent), "f%u", i / 2);
                cr_assert_str_eq(sites->strings + f->function, name);
                cr_assert_str_eq(sites->strings + f->file, parent);
                cr_assert(f->line == i && f->pc == 0 && f->module == GP_REC_NONE);
                const struct gp_rec_site *s = &sites->sites[i];
                cr_assert(s->first_frame == i && s->frame_count == 1);
                cr_assert(i == 0 || (s->kind == 1 + i % (GP_KINDS - 1) && s->device == i % GP_WIRE_DEVICES &&
                                     s->truncated == i % 2));
                cr_assert(i == 0 || (s->live_bytes == i && s->live_count == i + 1 && s->peak_bytes == i + 2 &&
                                     s->allocated_bytes == i + 4 && s->calls == i + 5));
                cr_assert(i == 0 || s->at_peak_bytes == (i % 3 ? i + 3 : i), "%u", i);
            }
        }
    cr_expect(sites->string_bytes == 40002 && sites->pid == getpid() && sites->modes == GP_SITES_PYTHON);
}

/* Sixteen times what a library creates: 2^20 rows, 2^24 frames, 2^26 bytes of strings. */
Test(sites_limits, tables_as_large_as_allowed)
{
    static const uint32_t most[3] = {1u << 20, 1u << 24, 1u << 26};
    for (int which = -1; which < 3; which++) {
        char text[100] = "";
        tables(most[0] + (which == 0), most[1] + (which == 1), most[2] + (which == 2));
        if (which >= 0)
            snprintf(text, sizeof(text), "call sites: a table is larger than any library creates (%u)",
                     head->row_limit);
        expect(load(), which < 0 ? 0 : -EPROTO, text, "largest");
        gp_peer_close(&peer);
        munmap(head, session.header->sites_bytes);
        gp_test_session_free(&session);
    }
}

Test(sites_limits, tables_lie_inside_their_area)
{
    static const char outside[] = "call sites: a table lies outside its area (0)";
    one_row();
    const struct gp_wire_sites good = *head;
    const uint64_t room = session.header->sites_bytes;
    const uint64_t bytes[3] = {8 * sizeof(*rows), 8 * sizeof(*frames), 64};
    for (int which = 0; which < 3; which++) {
        uint64_t *offset = which == 0 ? &head->rows_offset : which == 1 ? &head->frames_offset : &head->strings_offset;
        uint64_t last = (room - bytes[which]) / 8 * 8;
        head->rows = 1, head->frames = head->strings = 0; /* nothing is in use */
        *offset = last;
        expect(load(), 0, "", "last");
        *offset = last + 8;
        expect(load(), -EPROTO, outside, "behind");
        *offset = last - 4;
        expect(load(), -EPROTO, outside, "not aligned");
        *offset = sizeof(*head) / 8 * 8;
        expect(load(), 0, "", "first");
        *offset -= 8;
        expect(load(), -EPROTO, outside, "in the head");
        *offset = room / 8 * 8 + 8;
        expect(load(), -EPROTO, outside, "beyond");
        *head = good;
    }
    uint32_t *sizes[] = {&head->row_bytes, &head->frame_bytes};
    for (int which = 0; which < 2; which++) {
        char text[100];
        ++*sizes[which];
        snprintf(text, sizeof(text), "call sites: sizes are not those of this version (%u)", head->row_bytes);
        expect(load(), -EPROTO, text, "size");
        *head = good;
    }
    uint32_t *counts[] = {&head->rows, &head->frames, &head->strings}, limits[] = {8, 8, 64};
    for (int which = 0; which < 3; which++) {
        char text[100];
        *counts[which] = limits[which] + 1;
        snprintf(text, sizeof(text), "call sites: more entries are in use than the limit (%u)", head->rows);
        expect(load(), -EPROTO, text, "count");
        *head = good;
    }
    head->modes = 0;
    expect(load(), 0, "", "off now");
    head->row_bytes = 0;
    expect(load(), -ENOENT, "", "never on");
    cr_expect_null(sites);
}

Test(sites_limits, the_area_lies_inside_the_session)
{
    static const char outside[] = "call sites: the tables do not fit inside the session (0)";
    one_row();
    struct gp_wire_header *h = session.header;
    const struct gp_wire_header good = *h;
    h->sites_bytes = sizeof(*head) - 1;
    expect(load(), -EPROTO, outside, "less than a head");
    h->sites_bytes = good.sites_bytes + 1;
    expect(load(), -EPROTO, outside, "beyond the end");
    h->sites_bytes = good.sites_bytes, h->sites_offset += 4;
    expect(load(), -EPROTO, outside, "not aligned");
    h->sites_offset = sizeof(*h) / 8 * 8 - 8;
    expect(load(), -EPROTO, outside, "in the header");
    h->sites_offset = UP(h->total_bytes) + 8;
    expect(load(), -EPROTO, outside, "behind the session");
    h->sites_offset = good.sites_offset;
    expect(load(), 0, "", "good");
    h->sites_offset += 8, h->sites_bytes -= 8;
    expect(gp_sites_update(sites, problem), -EPROTO, "call sites: the tables moved (0)", "moved");
    *h = good;
    expect(gp_sites_update(sites, problem), 0, "", "good");
}

Test(sites_limits, tables_only_grow)
{
    one_row();
    head->strings = 20;
    cr_assert_eq(load(), 0, "%s", problem);
    const struct gp_wire_sites good = *head;
    head->strings = 19;
    expect(gp_sites_update(sites, problem), -EPROTO, "call sites: strings disappeared (19)", "strings");
    *head = good, head->frames = 0;
    expect(gp_sites_update(sites, problem), -EPROTO, "call sites: frames disappeared (0)", "frames");
    *head = good, head->rows = 1;
    expect(gp_sites_update(sites, problem), -EPROTO, "call sites: rows disappeared (1)", "rows");
    *head = good, head->string_limit = 63;
    expect(gp_sites_update(sites, problem), -EPROTO, "call sites: a table changed its size (63)", "limit");
    *head = good;
    rows[1].live_bytes = 55;
    expect(gp_sites_update(sites, problem), 0, "", "good again");
    cr_expect(sites->sites[1].live_bytes == 55 && sites->site_count == 2);
}

/* ---- rows and frames --------------------------------------------------------------------------------------------- */

Test(sites_limits, numbers_of_rows_and_devices)
{
    const int64_t most = 1ll << 60;
    static const int64_t values[] = {INT64_MIN, -1, 0, (1ll << 60) - 1, 1ll << 60, (1ll << 60) + 1, INT64_MAX};
    one_row();
    head->captures = 4, head->lost_rows = 5, head->lost_frames = 6, head->lost_strings = 7;
    for (size_t i = 0; i < GP_COUNT(values); i++) {
        int64_t v = values[i], is = v < 0 ? 0 : v > most ? most : v;
        rows[1].live_bytes = rows[1].live_count = rows[1].peak_bytes = rows[1].at_peak_bytes = rows[1].allocated_bytes =
            rows[1].calls = v;
        head->devices[64] = (struct gp_wire_site_device){v, v, 9, 11};
        cr_assert_eq(load(), 0);
        const struct gp_rec_site *s = &sites->sites[1];
        cr_expect(s->live_bytes == is && s->live_count == is && s->peak_bytes == is && s->at_peak_bytes == is &&
                  s->allocated_bytes == is && s->calls == is);
        const struct gp_wire_site_device *d = &sites->devices[64];
        cr_expect(d->live_bytes == is && d->peak_bytes == is && d->peak_seq == 9 && d->peak_ns == 11);
    }
    cr_expect(sites->captures == 4 && sites->lost_rows == 5 && sites->lost_frames == 6 && sites->lost_strings == 7 &&
              sites->unsteady == 0);
    char root[32];
    snprintf(root, sizeof(root), "/proc/%d/root", (int)getpid());
    cr_expect_str_eq(sites->root, root);
}

Test(sites_limits, rows_at_their_limits)
{
    static const char bad[] = "call sites: a row is invalid (1)";
    tables(8, 200, 64);
    for (int i = 0; i < 200; i++)
        frames[i].type = GP_FRAME_PYTHON;
    head->rows = 2, head->frames = 200;
    const struct gp_wire_site good = {.first_frame = 72,
                                      .frame_count = GP_SITE_FRAMES,
                                      .kind = GP_KINDS - 1,
                                      .device = GP_WIRE_DEVICES - 1,
                                      .truncated = 1};
    const struct gp_wire_site rest[] = {good,
                                        {.first_frame = 200},
                                        {.first_frame = 199, .frame_count = 1},
                                        {.first_frame = 71, .frame_count = GP_SITE_FRAMES + 1},
                                        {.first_frame = 73, .frame_count = GP_SITE_FRAMES},
                                        {.first_frame = 201},
                                        {.first_frame = 200, .frame_count = 1},
                                        {.kind = GP_KINDS},
                                        {.device = GP_WIRE_DEVICES},
                                        {.truncated = 2}};
    for (size_t i = 0; i < GP_COUNT(rest); i++) {
        rows[1] = rest[i];
        expect(load(), i < 3 ? 0 : -EPROTO, i < 3 ? "" : bad, "row");
    }
    rows[1] = good;
    for (uint32_t count = 0; count < 3; count++) /* the unknown site: a name at most */
        for (uint64_t first = 198; first < 202; first++) {
            rows[0] = (struct gp_wire_site){
                .first_frame = first, .frame_count = count, .kind = 1, .live_bytes = 5, .calls = 5};
            cr_assert_eq(load(), 0, "%s", problem);
            bool named = count == 1 && first < 200;
            cr_expect(sites->sites[0].first_frame == (named ? first : 0) && sites->sites[0].frame_count == named);
            cr_expect(sites->sites[0].live_bytes == 0 && sites->sites[0].calls == 0 && sites->sites[0].kind == 0);
        }
}

Test(sites_limits, frames_name_strings_that_are_there)
{
    one_row();
    strcpy(strings + 1, "abc");
    for (uint32_t count = 0; count < 7; count++)
        for (uint32_t offset = 0; offset < 8; offset++)
            for (int which = 0; which < 2; which++) {
                head->strings = count;
                frames[0] = (struct gp_wire_frame){.type = GP_FRAME_PYTHON};
                *(which ? &frames[0].file : &frames[0].function) = offset;
                bool good = count ? offset < count : offset == 0;
                expect(load(), good ? 0 : -EPROTO, good ? "" : "call sites: a frame is invalid (0)", "frame");
                if (!good)
                    continue;
                uint32_t at = which ? sites->frames[0].file : sites->frames[0].function;
                char text[8] = "";
                for (uint32_t i = offset; i < count && strings[i]; i++)
                    text[i - offset] = strings[i];
                cr_expect_str_eq(sites->strings + at, text, "%u of %u", offset, count);
            }
    for (uint32_t type = 0; type < 5; type++) {
        frames[0] = (struct gp_wire_frame){.type = type};
        bool good = type == GP_FRAME_PYTHON || type == GP_FRAME_NATIVE;
        expect(load(), good ? 0 : -EPROTO, good ? "" : "call sites: a frame is invalid (0)", "type");
    }
}

/* ---- modes ------------------------------------------------------------------------------------------------------- */

Test(sites_limits, which_stacks_are_taken_now)
{
    uint32_t modes;
    one_row();
    cr_assert_eq(fcntl(session.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    for (uint32_t way = 0; way < 8; way++) {
        head->modes = way, modes = 99;
        cr_expect_eq(gp_sites_modes(getpid(), &modes, problem), 0, "%s", problem);
        cr_expect_eq(modes, way & 3);
    }
    head->row_bytes++, modes = 99;
    expect(gp_sites_modes(getpid(), &modes, problem), -EPROTO, "call sites: sizes are not those of this version (129)",
           "size");
    cr_expect_eq(modes, 0);
    head->row_bytes = head->modes = 0, modes = 99;
    expect(gp_sites_modes(getpid(), &modes, problem), 0, "", "never on");
    cr_expect_eq(modes, 0);
    session.header->sites_offset = 0, modes = 99;
    expect(gp_sites_modes(getpid(), &modes, problem), 0, "", "no tables");
    cr_expect_eq(modes, 0);
    modes = 99;
    expect(gp_sites_modes(0x3fffffff, &modes, problem), -ESRCH, "", "no process");
    cr_expect_eq(modes, 0);
}
