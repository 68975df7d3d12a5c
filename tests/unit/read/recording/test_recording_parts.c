/* SPDX-License-Identifier: MIT
 *
 * test_recording_parts.c: what the reader makes of each kind of block (tools/read/recording/payload.c, table.c, finish.c): every
 * field, the first and the last value that it takes, and what it makes of those beyond.  Events are in
 * test_recording_events.c.
 */
#include "recparts.h"

#include <gpuprof/wire.h>
#include <read/recording/internal.h>
#include <read/recording/recording.h>
#include <record/blocks.h>
#include <record/format.h>
#include <record/pack.h>

static const char *text_of(const struct gp_recording *r, uint32_t offset)
{
    cr_assert_lt(offset, r->string_bytes);
    return r->strings + offset;
}

/* ---- the process ------------------------------------------------------------------------------------------------- */

static void process(uint64_t source, uint64_t from_start, int64_t rank, int64_t local, int64_t world, uint64_t attached)
{
    begin();
    ROWS(4711, source, 12040, from_start, 5000, 6000);
    put_text("train");
    put_text("train\x01 --steps");
    put_text("");
    put_text("caching");
    PUT(SIGNED(rank), SIGNED(local), SIGNED(world), attached);
}

Test(recording_parts, the_process_has_every_field)
{
    process(GP_SOURCE_HOOKS, 1, 3, -1, 8, GP_FORMAT_ATTACHED_YES);
    block(GP_BLOCK_PROCESS, 1);
    struct gp_recording *r = parse();
    cr_expect(r->pid == 4711 && r->source == GP_SOURCE_HOOKS && r->driver_version == 12040 && r->from_start);
    cr_expect(r->begin_ns == 5000 && r->begin_unix_ns == 6000 && r->end_ns == 5000 && r->stopped_ns == 5000);
    cr_expect_str_eq(r->comm, "train");
    cr_expect_str_eq(r->command_line, "train? --steps");
    cr_expect_str_eq(r->host, "");
    cr_expect_str_eq(r->allocator, "caching");
    cr_expect(r->has_rank && r->rank == 3 && r->local_rank == -1 && r->world_size == 8);
    cr_expect(r->attached == GP_REC_ATTACHED_YES && r->damaged_blocks == 0 && !r->complete && !r->has_oom);
    cr_expect(r->site_count == 1 && r->thread_count == 0 && r->device_count == 0 && !r->ended_early);
}

Test(recording_parts, values_of_the_process_that_cannot_be)
{
    static const struct {
        uint64_t source, from_start;
        int64_t rank, local, world;
        uint64_t attached;
        uint32_t is_source;
        bool is_start, has_rank;
        int32_t is_local, is_world;
        enum gp_rec_attached is_attached;
    } rows[] = {
        {GP_SOURCE_CUPTI, 0, 0, 0, 1, 1, GP_SOURCE_CUPTI, false, true, 0, 1, GP_REC_ATTACHED_NO},
        {GP_SOURCE_HOOKS + 1, 2, -1, INT32_MAX, 1ll << 31, 3, GP_SOURCE_NONE, false, false, INT32_MAX, -1,
         GP_REC_ATTACHED_UNKNOWN},
        {GP_SOURCE_NONE, 1, INT32_MAX, INT64_MIN, INT64_MAX, 2, GP_SOURCE_NONE, true, true, -1, -1,
         GP_REC_ATTACHED_YES},
        {GP_SOURCE_NONE, 1, 1ll << 31, 1, 2, 0, GP_SOURCE_NONE, true, false, 1, 2, GP_REC_ATTACHED_UNKNOWN},
    };
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        process(rows[i].source, rows[i].from_start, rows[i].rank, rows[i].local, rows[i].world, rows[i].attached);
        block(GP_BLOCK_PROCESS, 1);
        struct gp_recording *r = parse();
        cr_expect(r->source == rows[i].is_source && r->from_start == rows[i].is_start, "%zu", i);
        cr_expect(r->has_rank == rows[i].has_rank && r->attached == rows[i].is_attached, "%zu", i);
        cr_expect(r->local_rank == rows[i].is_local && r->world_size == rows[i].is_world, "%zu", i);
    }
}

/* Without its last part it is one of an older version; cut elsewhere it is damaged, and a later one counts. */
Test(recording_parts, a_process_that_is_cut)
{
    process(1, 1, 300, 300, 300, 2);
    size_t whole = gp_pack_bytes(pack);
    for (size_t cut = 0; cut < whole; cut++) {
        process(1, 1, 300, 300, 300, 2);
        pack->at = pack->start + cut;
        block(GP_BLOCK_PROCESS, 1);
        struct gp_recording *r = parse();
        bool sound = cut == whole - 1 || cut == whole - 7; /* without `attached`; and without the three ranks */
        cr_expect_eq(r->damaged_blocks, !sound, "%zu of %zu", cut, whole);
        cr_expect_eq(r->begin_ns, sound ? 5000 : 0, "%zu", cut);
        cr_expect(r->attached == GP_REC_ATTACHED_UNKNOWN);
    }
}

/* ---- strings and frames ------------------------------------------------------------------------------------------ */

static void python_frame(uint64_t function, uint64_t source, uint64_t line)
{
    PUT(GP_FRAME_PYTHON, function, source, line);
}

static void strings(uint64_t first, const char *bytes, size_t count)
{
    ROWS(first);
    gp_pack_raw(pack, bytes, count);
    block(GP_BLOCK_STRINGS, (uint32_t)count);
}

Test(recording_parts, strings_are_cleaned_where_they_lie)
{
    static const char bytes[] = "\0plain\0b\x01t\x7f\0n\xc3\xa4h\0r\xe2\x80\xaeo\0c\xc3\0x\xffy\0end";
    static const struct {
        uint32_t offset;
        const char *text;
    } rows[] = {{0, ""},
                {1, "plain"},
                {3, "ain"},
                {6, ""},
                {7, "b?t?"},
                {12, "n\xc3\xa4h"},
                {14, "" /* inside of a character */},
                {15, "h"},
                {17, "r???o"},
                {23, "c?"},
                {26, "x?y"},
                {30, "end"},
                {32, "d"},
                {33, ""},
                {99, ""}};
    begin();
    strings(0, bytes, sizeof(bytes) - 1);
    ROWS(0);
    for (size_t i = 0; i < GP_COUNT(rows); i++)
        python_frame(rows[i].offset, rows[GP_COUNT(rows) - 1 - i].offset, i + 1);
    block(GP_BLOCK_FRAMES, GP_COUNT(rows));
    struct gp_recording *r = parse();
    cr_assert(r->frame_count == GP_COUNT(rows) && r->damaged_blocks == 0);
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        cr_expect_str_eq(text_of(r, r->frames[i].function), rows[i].text, "%zu", i);
        cr_expect_str_eq(text_of(r, r->frames[i].file), rows[GP_COUNT(rows) - 1 - i].text, "%zu", i);
        cr_expect(r->frames[i].line == i + 1 && r->frames[i].pc == 0 && r->frames[i].module == GP_REC_NONE);
    }
    cr_expect_eq(r->string_bytes, 1 + sizeof(bytes) - 1 + 1, "no byte that belongs to none");
}

/* Parts in any order, and one that overlaps: each byte is that of the last part that has it. */
Test(recording_parts, strings_come_in_parts)
{
    begin();
    strings(4, "def\0", 4);
    strings(0, "\0abc", 4);
    strings(1, "A", 1);
    ROWS(0);
    python_frame(1, 4, 1);
    block(GP_BLOCK_FRAMES, 1);
    struct gp_recording *r = parse();
    cr_expect_str_eq(text_of(r, r->frames[0].function), "Abcdef");
    cr_expect_str_eq(text_of(r, r->frames[0].file), "def");
    cr_expect_eq(r->string_bytes, 1 + 8 + 1);
}

/* Rows of a table in a file that is almost empty, with those that damaged blocks lost. */
#define TABLE (1u << 17)
/* Bytes of strings in such a file. */
#define GAP (16ull << 20)

Test(recording_parts, strings_behind_lost_ones)
{
    for (unsigned more = 0; more < 2; more++) {
        begin();
        strings(0, "\0a", 2);
        strings(GAP + more * 65536, "b", 1);
        ROWS(0);
        python_frame(GAP + more * 65536, 1, 1);
        block(GP_BLOCK_FRAMES, 1);
        struct gp_recording *r = parse();
        cr_expect_eq(r->damaged_blocks, more);
        cr_expect_str_eq(text_of(r, r->frames[0].function), more ? "" : "b");
        cr_expect_str_eq(text_of(r, r->frames[0].file), "a");
    }
}

Test(recording_parts, frames_behind_lost_ones)
{
    for (unsigned more = 0; more < 2; more++) {
        begin();
        ROWS(0);
        python_frame(0, 0, 7);
        block(GP_BLOCK_FRAMES, 1);
        ROWS(TABLE - 1 + more * 1024);
        python_frame(0, 0, 8);
        block(GP_BLOCK_FRAMES, 1);
        ROWS(0); /* again: it replaces the row, and takes away none */
        python_frame(0, 0, 9);
        block(GP_BLOCK_FRAMES, 1);
        struct gp_recording *r = parse();
        cr_expect_eq(r->damaged_blocks, more);
        cr_assert_eq(r->frame_count, more ? 1 : TABLE);
        cr_expect_eq(r->frames[0].line, 9);
        if (!more) {
            cr_expect_eq(r->frames[TABLE - 1].line, 8);
            for (uint32_t i = 1; i < TABLE - 1; i++)
                cr_assert(r->frames[i].module == GP_REC_NONE && r->frames[i].line == 0 && r->frames[i].pc == 0);
        }
    }
}

/* A block cannot have more rows than bytes. */
Test(recording_parts, more_rows_than_bytes_are_damage)
{
    static const enum gp_format_type types[] = {GP_BLOCK_FRAMES, GP_BLOCK_SITES, GP_BLOCK_SITE_NUMBERS};
    for (size_t i = 0; i < GP_COUNT(types); i++)
        for (uint32_t rows = 1; rows < 4; rows++) {
            begin();
            ROWS(0, 1, 2, 3, 4, 5, 6);
            pack->at = pack->start + 1 + rows - 1;
            block(types[i], rows);
            struct gp_recording *r = parse();
            cr_expect_eq(r->damaged_blocks, 1);
            cr_expect(r->frame_count == 0 && r->site_count == 1);
        }
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

#define PAGES 40u

static void module_row(uint64_t start, uint64_t bytes, uint64_t offset, const char *path, const char *id,
                       size_t id_bytes)
{
    PUT(start, bytes, offset);
    put_text(path);
    gp_pack_string(pack, id, id_bytes);
}

Test(recording_parts, modules_have_every_field)
{
    static const char id[] = "\x01\xab\xff\x10";
    char longest[65] = "";
    begin();
    ROWS();
    module_row(0x1000, 0x2000, 0x300, "/usr/lib/liba.so", id, 4);
    module_row(0x3000, 0x1000, 0, "/usr/lib/libb.so", "", 0);
    module_row(UINT64_MAX - 5, 5, 0, "/last", "abcdefghijklmnopqrstuvwxyz012345", 32);
    module_row(0x9000, 1, 0, "/long", "abcdefghijklmnopqrstuvwxyz0123456", 33);
    module_row(0xa000, 0, 0, "/empty", "", 0);
    module_row(UINT64_MAX - 5, 6, 0, "/beyond", "", 0);
    block(GP_BLOCK_MODULES, 6);
    for (int i = 0; i < 32; i++)
        snprintf(longest + 2 * i, 3, "%02x", "abcdefghijklmnopqrstuvwxyz012345"[i]);
    const struct {
        uint64_t start, end, offset;
        const char *path, *id;
    } rows[] = {{0x1000, 0x3000, 0x300, "/usr/lib/liba.so", "01abff10"},
                {0x3000, 0x4000, 0, "/usr/lib/libb.so", ""},
                {UINT64_MAX - 5, UINT64_MAX, 0, "/last", longest},
                {0x9000, 0x9001, 0, "/long", ""}};
    struct gp_recording *r = parse();
    cr_assert_eq(r->module_count, GP_COUNT(rows), "%u", r->module_count);
    cr_expect_eq(r->damaged_blocks, 0);
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        const struct gp_rec_module *m = &r->modules[i];
        cr_expect(m->start == rows[i].start && m->end == rows[i].end && m->offset == rows[i].offset, "%zu", i);
        cr_expect_str_eq(text_of(r, m->path), rows[i].path);
        cr_expect_str_eq(text_of(r, m->build_id), rows[i].id);
    }
}

static void name_row(uint64_t frame, const char *function, const char *outer)
{
    PUT(frame, outer ? 2 : 1);
    put_text(function);
    put_text("a.c");
    PUT(7);
    if (!outer)
        return;
    put_text(outer);
    put_text("");
    PUT(0);
}

/* Names of frames that there are not, or that are Python's, are skipped; the others are in the order of their modules
 * and addresses. */
Test(recording_parts, names_of_native_frames)
{
    begin();
    ROWS();
    module_row(100, 50, 0, "/a", "", 0);
    block(GP_BLOCK_MODULES, 1);
    ROWS(0, GP_FRAME_NATIVE, 120, GP_FRAME_PYTHON, 0, 0, 5, GP_FRAME_NATIVE, 110, GP_FRAME_NATIVE, 4000);
    block(GP_BLOCK_FRAMES, 4);
    ROWS();
    name_row(0, "late", NULL);
    name_row(1, "python", NULL);
    name_row(4, "beyond", NULL);
    name_row(UINT64_MAX, "far beyond", NULL);
    name_row(3, "nowhere", NULL);
    name_row(2, "inner", "outer");
    block(GP_BLOCK_NAMES, 6);
    ROWS(0, UINT64_MAX);
    block(GP_BLOCK_NAMES, 1);
    static const struct {
        const char *function;
        uint64_t pc;
        uint32_t module, depth, line;
    } rows[] = {
        {"inner", 110, 0, 0, 7}, {"outer", 110, 0, 1, 0}, {"late", 120, 0, 0, 7}, {"nowhere", 4000, GP_REC_NONE, 0, 7}};
    struct gp_recording *r = parse();
    cr_assert_eq(r->name_count, GP_COUNT(rows), "%u", r->name_count);
    cr_expect_eq(r->damaged_blocks, 1);
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        const struct gp_rec_name *name = &r->names[i];
        cr_expect_str_eq(text_of(r, name->function), rows[i].function);
        cr_expect_str_eq(text_of(r, name->file), rows[i].line ? "a.c" : "");
        cr_expect(name->pc == rows[i].pc && name->module == rows[i].module && name->depth == rows[i].depth &&
                      name->line == rows[i].line,
                  "%zu", i);
    }
}

/* 65 536 modules are opened; the file with one more is refused. */
Test(recording_parts, there_is_a_last_module)
{
    for (unsigned more = 0; more < 2; more++) {
        struct gp_recording *r = NULL;
        char why[256];
        begin();
        for (unsigned at = 0; at < 65536 + more; at += 4096) {
            unsigned count = at < 65536 ? 4096 : more;
            ROWS();
            for (unsigned i = 0; i < count; i++)
                module_row(at + i, 1, 0, "", "", 0);
            block(GP_BLOCK_MODULES, count);
        }
        cr_expect_eq(gp_recording_parse(&r, file.at, file.size, why, sizeof(why)), more ? -EFBIG : 0);
        if (more)
            cr_expect_str_eq(why, "more events or sites than this version opens (268435456 events)");
        else
            cr_expect(r->module_count == 65536 && r->damaged_blocks == 0);
        gp_recording_free(more ? NULL : r);
    }
}

/* A frame lies in the mapping that was there when it was recorded; if there was none, in the next one there.  A new mapping
 * removes those that it overlaps. */
Test(recording_parts, frames_lie_in_the_mapping_of_their_time)
{
    uint64_t seed = 9;
    for (unsigned round = 0; round < 300; round++) {
        uint32_t owner[PAGES], wanted[400], pages[400], modules = 0, frames = 0, late = 0;
        memset(owner, 0xff, sizeof(owner));
        begin();
        for (unsigned step = 0; step < 12; step++) {
            unsigned count = 1 + (unsigned)(random_next(&seed) % 4);
            ROWS();
            for (unsigned i = 0; i < count; i++, modules++) {
                unsigned start = (unsigned)(random_next(&seed) % (PAGES - 1)),
                         bytes = 1 + (unsigned)(random_next(&seed) % (PAGES - start > 9 ? 9 : PAGES - start));
                module_row(100 + start, bytes, 0, "/x", "", 0);
                for (unsigned page = start; page < start + bytes; page++)
                    for (unsigned other = 0, old = owner[page]; other < PAGES && old != GP_REC_NONE; other++)
                        owner[other] = owner[other] == old ? GP_REC_NONE : owner[other];
                for (unsigned page = start; page < start + bytes; page++)
                    owner[page] = modules;
            }
            block(GP_BLOCK_MODULES, count);
            for (; late < frames; late++)
                if (wanted[late] == GP_REC_NONE && pages[late] >= 1 && pages[late] <= PAGES)
                    wanted[late] = owner[pages[late] - 1];
            ROWS(frames);
            for (unsigned i = 0; i < 30; i++) {
                unsigned page = (unsigned)(random_next(&seed) % (PAGES + 2));
                PUT(GP_FRAME_NATIVE, 99 + page);
                pages[frames] = page;
                wanted[frames++] = page >= 1 && page <= PAGES ? owner[page - 1] : GP_REC_NONE;
            }
            block(GP_BLOCK_FRAMES, 30);
        }
        struct gp_recording *r = parse();
        cr_assert(r->module_count == modules && r->frame_count == frames && r->damaged_blocks == 0);
        for (uint32_t i = 0; i < frames; i++)
            cr_assert_eq(r->frames[i].module, wanted[i], "round %u, frame %u at %llu: %u instead of %u", round, i,
                         (unsigned long long)r->frames[i].pc, r->frames[i].module, wanted[i]);
    }
}

/* ---- sites ------------------------------------------------------------------------------------------------------- */

static void frames_of(uint32_t count)
{
    ROWS(0);
    for (uint32_t i = 0; i < count; i++)
        python_frame(0, 0, i);
    block(GP_BLOCK_FRAMES, count);
}

Test(recording_parts, sites_have_every_field)
{
    static const struct {
        uint64_t first, count, kind, device, truncated;
        struct gp_rec_site is;
    } rows[] = {
        {7,
         1,
         GP_KIND_LINEAR,
         3,
         1,
         {.first_frame = 7, .frame_count = 1}}, /* the unknown one has no more than a name */
        {2, 3, GP_KIND_LINEAR, 0, 0, {.first_frame = 2, .frame_count = 3, .kind = GP_KIND_LINEAR}},
        {0, 200, GP_KIND_MODULE, 64, 1, {.kind = GP_KIND_MODULE, .device = 64, .truncated = true}},
        {0, GP_SITE_FRAMES, GP_KINDS, 65, 2, {.frame_count = GP_SITE_FRAMES, .device = 255}},
        {5, GP_SITE_FRAMES + 1, 1, 1, 1, {.kind = 1, .device = 1, .truncated = true}},
        {140 - GP_SITE_FRAMES,
         GP_SITE_FRAMES,
         1,
         1,
         0,
         {.first_frame = 12, .frame_count = 128, .kind = 1, .device = 1}},
        {141 - GP_SITE_FRAMES, GP_SITE_FRAMES, 1, 1, 0, {.kind = 1, .device = 1}},
        {140, 0, 1, 1, 0, {.first_frame = 140, .kind = 1, .device = 1}},
        {141, 0, 1, 1, 0, {.kind = 1, .device = 1}},
        {139, 1, 1, 1, 0, {.first_frame = 139, .frame_count = 1, .kind = 1, .device = 1}},
        {1ull << 24, 1, 1, 1, 0, {.kind = 1, .device = 1}},
        {(1ull << 32) + 2, 1, 1, 1, 0, {.kind = 1, .device = 1}},
    };
    begin();
    frames_of(140);
    ROWS(0);
    for (size_t i = 0; i < GP_COUNT(rows); i++)
        PUT(rows[i].first, rows[i].count, rows[i].kind, rows[i].device, rows[i].truncated);
    block(GP_BLOCK_SITES, GP_COUNT(rows));
    struct gp_recording *r = parse();
    cr_assert(r->site_count == GP_COUNT(rows) && r->damaged_blocks == 0);
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        const struct gp_rec_site *site = &r->sites[i], *is = &rows[i].is;
        cr_expect(site->first_frame == is->first_frame && site->frame_count == is->frame_count &&
                      site->kind == is->kind && site->device == is->device && site->truncated == is->truncated,
                  "%zu: %u + %u, kind %u, device %u, %d", i, site->first_frame, site->frame_count, site->kind,
                  site->device, site->truncated);
    }
}

Test(recording_parts, the_unknown_site_has_one_frame_at_most)
{
    for (uint64_t count = 0; count < 3; count++) {
        begin();
        frames_of(3);
        ROWS(0, 1, count, 1, 1, 1);
        block(GP_BLOCK_SITES, 1);
        struct gp_recording *r = parse();
        cr_expect(r->sites[0].first_frame == 1 && r->sites[0].frame_count == (count == 1));
    }
}

static void numbers(uint64_t first, uint32_t count, int64_t from)
{
    ROWS(first);
    for (uint32_t i = 0; i < count; i++)
        for (int64_t k = 0; k < 6; k++)
            gp_pack_signed(pack, from + 10 * (int64_t)i + k);
    block(GP_BLOCK_SITE_NUMBERS, count);
}

static void expect_numbers(const struct gp_rec_site *site, int64_t from)
{
    cr_expect(site->live_bytes == from && site->live_count == from + 1 && site->peak_bytes == from + 2 &&
                  site->at_peak_bytes == from + 3 && site->allocated_bytes == from + 4 && site->calls == from + 5,
              "%lld instead of %lld", (long long)site->live_bytes, (long long)from);
}

/* Numbers may come before the sites, behind a gap, and again. */
Test(recording_parts, sites_and_their_numbers_in_any_order)
{
    begin();
    frames_of(9);
    numbers(0, 3, -1000);
    ROWS(1);
    for (uint64_t i = 0; i < 5; i++)
        PUT(i, 1, 1, 0, 0);
    block(GP_BLOCK_SITES, 5);
    numbers(4, 2, 500);
    numbers(4, 1, 700);
    ROWS(1, 3, 1, 2, 0, 1); /* site 1 again: what is known of the others stays */
    block(GP_BLOCK_SITES, 1);
    struct gp_recording *r = parse();
    cr_assert(r->site_count == 6 && r->damaged_blocks == 0);
    expect_numbers(&r->sites[1], -990);
    expect_numbers(&r->sites[2], -980);
    cr_expect_eq(r->sites[3].calls, 0);
    expect_numbers(&r->sites[4], 700);
    expect_numbers(&r->sites[5], 510);
    cr_expect(r->sites[1].first_frame == 3 && r->sites[1].kind == 2 && r->sites[1].truncated);
    cr_expect(r->sites[5].first_frame == 4 && r->sites[5].frame_count == 1);
    cr_expect(r->sites[0].calls == 0 && r->sites[0].live_bytes == 0);
}

Test(recording_parts, sites_behind_lost_ones)
{
    for (unsigned more = 0; more < 4; more++) {
        begin();
        frames_of(3);
        if (more % 2 == 0) {
            ROWS(TABLE - 1 + more / 2 * 1024, 1, 2, 1, 0, 0);
            block(GP_BLOCK_SITES, 1);
        } else {
            numbers(TABLE - 1 + more / 2 * 1024, 1, 60);
        }
        struct gp_recording *r = parse();
        cr_expect_eq(r->damaged_blocks, more / 2);
        cr_assert_eq(r->site_count, more / 2 ? 1 : TABLE);
        if (more == 0)
            cr_expect(r->sites[TABLE - 1].frame_count == 2 && r->sites[TABLE - 2].frame_count == 0);
        if (more == 1)
            expect_numbers(&r->sites[TABLE - 1], 60);
    }
}

/* ---- threads, samples, devices ----------------------------------------------------------------------------------- */

Test(recording_parts, threads_have_their_last_name)
{
    static const struct {
        uint64_t tid;
        const char *name;
    } rows[] = {{7, "one"}, {8, "two"}, {7, "three"}, {9, ""}, {8, ""}, {10, "one"}};
    begin();
    ROWS();
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        PUT(rows[i].tid);
        put_text(rows[i].name);
    }
    block(GP_BLOCK_THREADS, GP_COUNT(rows));
    struct gp_recording *r = parse();
    cr_assert(r->thread_count == 4 && r->damaged_blocks == 0);
    for (uint32_t i = 0; i < 4; i++) {
        cr_expect_eq(r->threads[i].tid, 7 + i);
        cr_expect_str_eq(text_of(r, r->threads[i].name), i == 0 ? "three" : i == 3 ? "one" : "");
    }
    cr_expect_eq(r->string_bytes, 1 + 4 + 4 + 6, "each text once");
}

/* ---- memory from before an attach -------------------------------------------------------------------------------- */

/* Rows of device 3 at the times 1000, 2000, ... */
static struct gp_recording *befores(uint64_t attached, const struct gp_wire_before_device *rows, uint32_t count)
{
    process(1, 1, -1, -1, -1, attached);
    block(GP_BLOCK_PROCESS, 1);
    ROWS();
    for (uint32_t i = 0; i < count; i++)
        gp_block_before(pack, 1000 * (i + 1), 3, &rows[i]);
    block(GP_BLOCK_BEFORE, count);
    struct gp_recording *r = parse();
    cr_assert(r->damaged_blocks == 0 && r->before_count == count);
    return r;
}

/* Of an unknown source, and numbers that cannot be. */
Test(recording_parts, what_cannot_have_been_before_the_attach_is_unknown)
{
    static const int64_t most = INT64_MAX / 64;
    static const struct {
        struct gp_wire_before_device row, is;
    } rows[] = {
        {{1, 2, 3, 4, 5, 6, GP_BEFORE_FRAMEWORK, 0}, {1, 2, 3, 4, 5, 6, GP_BEFORE_FRAMEWORK, 0}},
        {{most, most, most, INT64_MAX, most, most, GP_BEFORE_PART, 0},
         {most, most, most, INT64_MAX, most, most, GP_BEFORE_PART, 0}},
        {{0, most + 1, most + 1, 1ull << 63, most + 1, most + 1, GP_BEFORE_DRIVER, 0},
         {0, -1, -1, 0, -1, -1, GP_BEFORE_DRIVER, 0}},
        {{5, 5, 5, 5, 5, 5, GP_BEFORE_FRAMEWORK + 1, 0}, {5, 5, 5, 5, 5, 5, GP_BEFORE_NONE, 0}},
        {{most + 1, 5, 5, 5, 5, 5, GP_BEFORE_DRIVER, 0}, {-1, 5, 5, 5, 5, 5, GP_BEFORE_NONE, 0}},
        {{INT64_MIN, 5, 5, 5, 5, 5, GP_BEFORE_DRIVER, 0}, {-1, 5, 5, 5, 5, 5, GP_BEFORE_NONE, 0}},
    };
    for (size_t i = 0; i < GP_COUNT(rows); i++) {
        struct gp_recording *r = befores(GP_FORMAT_ATTACHED_YES, &rows[i].row, 1);
        cr_expect(memcmp(&r->befores[0].is, &rows[i].is, sizeof(rows[i].is)) == 0 && r->befores[0].time_ns == 1000,
                  "row %zu", i);
        cr_expect_eq(r->devices[r->befores[0].device].index, 3);
        cr_expect_eq(gp_rec_before_at(r, 0, 1000).bytes, rows[i].is.source ? rows[i].is.bytes : -1, "row %zu", i);
    }
}

Test(recording_parts, memory_from_before_the_attach_is_that_of_the_moment)
{
    static const struct gp_wire_before_device rows[] = {
        {.source = GP_BEFORE_NONE}, {.bytes = 90, .source = GP_BEFORE_PART}, {.bytes = 80, .source = GP_BEFORE_DRIVER}};
    struct gp_recording *r = befores(GP_FORMAT_ATTACHED_YES, rows, GP_COUNT(rows));
    cr_expect_eq(gp_rec_before_at(r, 0, 3001).bytes, 80);
    cr_expect_eq(gp_rec_before_at(r, 0, 3000).bytes, 80);
    cr_expect_eq(gp_rec_before_at(r, 0, 2999).bytes, 90);
    cr_expect_eq(gp_rec_before_at(r, 0, 0).bytes, 90, "the first time at which it is known");
    cr_expect_eq(gp_rec_before_at(r, 99, 3000).bytes, -1, "another device");
    r->devices[0].index = GP_WIRE_HOST;
    cr_expect_eq(gp_rec_before_at(r, 0, 3000).bytes, 0);
    r = befores(0, rows, GP_COUNT(rows));
    cr_expect_eq(gp_rec_before_at(r, 0, 3000).bytes, 80, "an older version did not say");
    r = befores(1, rows, GP_COUNT(rows));
    cr_expect_eq(gp_rec_before_at(r, 0, 3000).bytes, 0, "it was there from the start");
}

/* ---- memory of other processes ----------------------------------------------------------------------------------- */

/* The event of an import comes before its size, which comes with a second one or only with the free. */
Test(recording_parts, an_import_has_the_size_that_was_learned_later)
{
    enum { OPEN = GP_EVENT_ALLOC, CLOSE = GP_EVENT_FREE, OTHER = GP_KIND_LINEAR, IMPORT = GP_KIND_IMPORTED };
    struct gp_rec_event before[] = {{.address = 0x10, .type = OPEN, .kind = IMPORT}};
    struct gp_rec_event events[] = {
        {.address = 0x20, .type = OPEN, .kind = IMPORT},
        {.address = 0x30, .type = OPEN, .kind = IMPORT},
        {.address = 0x20, .type = OPEN, .kind = OTHER, .bytes = 5},
        {.address = 0x20, .type = OPEN, .kind = IMPORT, .bytes = 100, .device = 1}, /* another device's */
        {.address = 0x20, .type = OPEN, .kind = IMPORT, .bytes = 7},                /* the first one's size */
        {.address = 0x10, .type = CLOSE, .kind = IMPORT, .bytes = 9},
        {.address = 0x30, .type = CLOSE, .kind = IMPORT, .bytes = 11},
        {.address = 0x20, .type = CLOSE, .kind = IMPORT, .bytes = 7},
        {.address = 0x20, .type = OPEN, .kind = IMPORT}, /* again, and never learned */
        {.address = 0x30, .type = OPEN, .kind = IMPORT, .bytes = 3},
    };
    static const uint64_t bytes[] = {7, 11, 5, 100, 9, 11, 7, 0, 3};
    struct gp_recording r = {
        .events = events, .event_count = GP_COUNT(events), .baseline = before, .baseline_count = 1};
    cr_assert_eq(gp_read_imports(&r), 0);
    cr_assert_eq(r.event_count, GP_COUNT(bytes));
    cr_expect_eq(before[0].bytes, 9);
    for (size_t i = 0; i < GP_COUNT(bytes); i++)
        cr_expect_eq(events[i].bytes, bytes[i], "event %zu: %llu", i, (unsigned long long)events[i].bytes);
}
