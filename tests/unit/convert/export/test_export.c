/* SPDX-License-Identifier: MIT
 * test_export.c: recordings in the formats of other tools. Escapes of text are tested here. Random
 * recordings with hostile names are written as whole files, which export_check.py checks: it reads each
 * format with a third-party reader and recomputes every number from the raw events. */
#include <convert/export/arrow.h>
#include <convert/export/formats.h>
#include <convert/export/out.h>
#include <gpuprof/wire.h>
#include <lib/paths.h>
#include <lib/recmake.h>
#include <read/recording/recording.h>
#include <record/modules.h>
#include <symbol/symbol.h>

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- text -------------------------------------------------------------------------------------------------------- */

static const char *spelt(void (*put)(struct gp_out *, const char *), const char *text)
{
    static struct gp_out out;
    gp_out_begin(&out, -1);
    put(&out, text);
    out.buffer[out.used] = '\0';
    return out.buffer;
}

Test(export, utf8_is_valid_whatever_comes)
{
    static const char *const pairs[][2] = {
        {"plain", "plain"},
        {"\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\x8d", "\xc3\xa4\xe2\x82\xac\xf0\x9f\x90\x8d"},
        {"\xff!", "\xef\xbf\xbd!"},
        {"cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd"},
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},                                   /* overlong '/' */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},                   /* a surrogate */
        {"\xf4\x90\x80\x80|", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd|"}, /* beyond U+10FFFF */
        {"\xf8\x88\x80\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        cr_expect_str_eq(spelt(gp_out_csv, pairs[i][0]), pairs[i][1]);
    char small[6];
    gp_utf8_copy(small, sizeof(small), "abc\xe2\x82\xac");
    cr_expect_str_eq(small, "abc", "a character that does not fit is left out whole");
}

Test(export, csv_fields_are_those_of_rfc_4180)
{
    cr_expect_str_eq(spelt(gp_out_csv, ""), "");
    cr_expect_str_eq(spelt(gp_out_csv, "plain text"), "plain text");
    cr_expect_str_eq(spelt(gp_out_csv, "a,b"), "\"a,b\"");
    cr_expect_str_eq(spelt(gp_out_csv, "say \"x\""), "\"say \"\"x\"\"\"");
    cr_expect_str_eq(spelt(gp_out_csv, "two\r\nlines"), "\"two\r\nlines\"");
    cr_expect_str_eq(spelt(gp_out_csv, "=1+2"), "\"=1+2\"", "data stays data, in quotes");
    cr_expect_str_eq(spelt(gp_out_csv, "-x"), "\"-x\"");
    cr_expect_str_eq(spelt(gp_out_csv, "@SUM"), "\"@SUM\"");
}

Test(export, json_strings_are_escaped)
{
    cr_expect_str_eq(spelt(gp_out_json, "a\"b\\c\n\x01\x7f"), "\"a\\\"b\\\\c\\u000a\\u0001\\u007f\"");
    cr_expect_str_eq(spelt(gp_out_json, "\xff"), "\"\xef\xbf\xbd\"");
}

Test(export, frames_of_collapsed_stacks_break_no_line)
{
    cr_expect_str_eq(spelt(gp_out_frame, "f (a b.c:3)"), "f (a b.c:3)");
    cr_expect_str_eq(spelt(gp_out_frame, "a;b\nc\td"), "a:b c d");
    cr_expect_str_eq(spelt(gp_out_frame, "  ends 12  "), "ends 12");
    cr_expect_str_eq(spelt(gp_out_frame, ""), "?");
    cr_expect_str_eq(spelt(gp_out_frame, "\xc2\xa0\n"), "?");
    cr_expect_str_eq(spelt(gp_out_frame, "x\xe2\x80\xa8y"), "x y", "U+2028 ends a line for some readers");
}

Test(export, numbers_are_whole)
{
    static struct gp_out out;
    gp_out_begin(&out, -1);
    gp_out_i64(&out, INT64_MIN);
    gp_out_char(&out, ' ');
    gp_out_u64(&out, UINT64_MAX);
    gp_out_char(&out, ' ');
    gp_out_hex(&out, 0);
    gp_out_hex(&out, UINT64_MAX);
    gp_out_char(&out, ' ');
    gp_out_micros(&out, 1234567);
    gp_out_char(&out, ' ');
    gp_out_micros(&out, 5);
    out.buffer[out.used] = '\0';
    cr_expect_str_eq(out.buffer, "-9223372036854775808 18446744073709551615 0x00xffffffffffffffff 1234.567 0.005");
}

Test(export, a_full_disk_is_an_error_and_ends_the_work)
{
    static struct gp_out out;
    int fd = open("/dev/full", O_WRONLY);
    cr_assert_geq(fd, 0);
    gp_out_begin(&out, fd);
    for (unsigned i = 0; i < 3 * GP_OUT_BYTES; i++)
        gp_out_char(&out, 'x');
    cr_expect_eq(gp_out_end(&out), -ENOSPC);
    close(fd);
}

/* ---- recordings -------------------------------------------------------------------------------------------------- */

static uint64_t seed;

static uint32_t chance(uint32_t below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull; /* Knuth's MMIX */
    return (uint32_t)(seed >> 33) % below;
}

static const char *const hostile[] = {"plain",
                                      "quote\"quote",
                                      "new\nline",
                                      "semi;colon",
                                      "=cmd|'/c calc'!A0",
                                      "+1",
                                      "back\\slash",
                                      "bad\xff\xfeutf8",
                                      "ends 123 ",
                                      "tab\there",
                                      "comma,comma",
                                      "\xe2\x80\xa8line separator",
                                      "</script><script>alert(1)</script>",
                                      "cut\xf0\x9f\x90",
                                      "\x1b[31mred",
                                      " [linear] 99",
                                      "DROP TABLE event; --'",
                                      "nul-free"};
#define HOSTILE (sizeof(hostile) / sizeof(hostile[0]))
#define SITES   24u

static uint32_t random_site(struct recmake *make, uint8_t kind)
{
    char names[4][64];
    struct recmake_frame frames[5] = {0};
    uint32_t count = 1 + chance(4);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof(names[i]), "%s%u", hostile[chance(HOSTILE)], chance(3));
        frames[i] = (struct recmake_frame){names[i], chance(4) ? hostile[chance(HOSTILE)] : "", chance(3) * 10};
    }
    return recmake_site(make, kind, frames);
}

static const uint8_t kinds[] = {GP_KIND_LINEAR, GP_KIND_POOL, GP_KIND_PITCHED, GP_KIND_MANAGED, GP_KIND_PINNED};

struct live {
    uint32_t device;
    uint8_t kind;
    uint64_t address;
};

/* A program of `steps` events on two GPUs and the host, with hostile marks and names. */
static struct gp_recording *random_recording(uint64_t from, unsigned steps)
{
    struct recmake *make = recmake_new(80ll << 30);
    uint32_t sites[SITES], live_count = 0;
    struct live live[256];
    uint64_t now = 1000000000ull;
    seed = from;
    recmake_device(make, 1, 40ll << 30);
    recmake_device(make, GP_WIRE_HOST, -1);
    for (unsigned i = 0; i < SITES; i++)
        sites[i] = random_site(make, kinds[i % 5]);
    for (unsigned i = 0; i < steps; i++) {
        recmake_at(make, now += chance(4) * 777); /* some have the same time */
        unsigned what = chance(20);
        if (what < 10 && live_count < 256) {
            uint32_t site = chance(SITES), device = kinds[site % 5] == GP_KIND_PINNED ? 2 : chance(2);
            struct live block = {device, kinds[site % 5], 0x7f0000000000ull + (uint64_t)i * 4096};
            recmake_alloc(make, device, block.kind, block.address, 1 + chance(1 << 24), chance(8) ? sites[site] : 0);
            live[live_count++] = block;
        } else if (what < 17 && live_count) {
            uint32_t at = chance(live_count);
            recmake_free(make, live[at].device, live[at].kind, live[at].address);
            live[at] = live[--live_count];
        } else if (what == 17) {
            recmake_mark(make, hostile[chance(HOSTILE)]);
        } else if (what == 18) {
            recmake_mark(make, chance(2) ? "nvtx:step" : "/nvtx:step");
        } else {
            recmake_free(make, 0, GP_KIND_LINEAR, 0x100 + i); /* of a block from before the recording */
        }
        if (i % 100 == 50)
            recmake_sample(make,
                           &(struct gp_rec_sample){now, 0, 1000, 2000, -1, -1, 123456789, i % 200 == 50 ? -1 : 77});
    }
    return recmake_done(make);
}

/* ---- the raw events, for the judge ------------------------------------------------------------------------------- */

static json_t *text_json(const char *text)
{
    char *clean = malloc(strlen(text) * 3 + 1);
    gp_utf8_copy(clean, strlen(text) * 3 + 1, text);
    json_t *json = json_string(clean);
    free(clean);
    cr_assert(json);
    return json;
}

static json_t *event_json(const struct gp_recording *r, size_t i)
{
    const struct gp_rec_event *e = &r->events[i];
    return json_pack("{s:I,s:i,s:i,s:i,s:I,s:I,s:I,s:i,s:I,s:o}", "time_ns", (json_int_t)e->time_ns, "type",
                     (int)e->type, "kind", (int)e->kind, "device", (int)e->device, "address", (json_int_t)e->address,
                     "bytes", (json_int_t)e->bytes, "requested", (json_int_t)gp_rec_requested(e), "site", (int)e->site,
                     "peer", r->peer[i] == GP_REC_NONE ? (json_int_t)-1 : (json_int_t)r->peer[i], "name",
                     e->type == GP_EVENT_MARK ? text_json(r->strings + e->bytes) : json_null());
}

static json_t *stack_json(struct gp_symbols *symbols, uint32_t site)
{
    const struct gp_frame_text *frames;
    uint32_t count = gp_symbols_site(symbols, site, &frames);
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++) {
        char label[512];
        gp_frame_label(&frames[i], label, sizeof(label));
        json_array_append_new(list,
                              json_pack("{s:o,s:o,s:i,s:o,s:I,s:b,s:b}", "function", text_json(frames[i].function),
                                        "file", text_json(frames[i].file), "line", (int)frames[i].line, "label",
                                        text_json(label), "pc", (json_int_t)frames[i].pc, "inlined",
                                        (int)frames[i].inlined, "python", (int)frames[i].python));
    }
    return list;
}

static json_t *name_json(struct gp_symbols *symbols, uint32_t site)
{
    const struct gp_frame_text *frames;
    gp_symbols_site(symbols, site, &frames);
    return json_integer(gp_symbols_name(symbols, site) - frames);
}

static void truth_write(const struct gp_recording *r, struct gp_symbols *symbols, const char *path)
{
    json_t *events = json_array(), *stacks = json_array(), *devices = json_array(), *names = json_array();
    for (size_t i = 0; i < r->event_count; i++)
        json_array_append_new(events, event_json(r, i));
    for (uint32_t i = 0; i < r->site_count; i++) {
        json_array_append_new(stacks, stack_json(symbols, i));
        json_array_append_new(names, name_json(symbols, i));
    }
    for (uint32_t i = 0; i < r->device_count; i++)
        json_array_append_new(devices, json_integer(r->devices[i].index));
    json_t *modules = json_array();
    for (uint32_t i = 0; i < r->module_count; i++)
        json_array_append_new(modules,
                              json_pack("[s,s]", r->strings + r->modules[i].path, r->strings + r->modules[i].build_id));
    json_t *top =
        json_pack("{s:i,s:I,s:I,s:I,s:o,s:o,s:o,s:o,s:o}", "pid", (int)r->pid, "begin_ns", (json_int_t)r->begin_ns,
                  "end_ns", (json_int_t)r->end_ns, "begin_unix_ns", (json_int_t)r->begin_unix_ns, "events", events,
                  "stacks", stacks, "devices", devices, "modules", modules, "names", names);
    cr_assert(top);
    cr_assert_eq(json_dump_file(top, path, 0), 0);
    json_decref(top);
}

/* ---- writing and judging ----------------------------------------------------------------------------------------- */

static char folder[64];

static void folder_make(void)
{
    snprintf(folder, sizeof(folder), "/tmp/gp-export.XXXXXX");
    cr_assert(mkdtemp(folder));
}

static void folder_drop(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

static const char *place(const char *name)
{
    static char path[4][128];
    static unsigned next;
    char *at = path[next++ % 4];
    snprintf(at, 128, "%s/%s", folder, name);
    return at;
}

static void write_one(struct gp_export *export, const struct gp_export_format *format, const char *path)
{
    static struct gp_out out;
    if (format->create) {
        cr_assert_eq(format->create(export, path), 0, "%s: %s", format->name, export->why);
        return;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_geq(fd, 0);
    gp_out_begin(&out, fd);
    cr_assert_eq(format->write(export, &out), 0, "%s: %s", format->name, export->why);
    cr_assert_eq(gp_out_end(&out), 0);
    close(fd);
}

static struct gp_symbols *symbols_of(const struct gp_recording *r)
{
    struct gp_symbols *symbols;
    struct gp_symbol_source source = gp_symbol_source_of(r, "");
    cr_assert_eq(gp_symbols_new(&symbols, &source), 0);
    return symbols;
}

static void judge(struct gp_recording *r, uint32_t blocks)
{
    char name[64], command[512];
    unsigned formats = 0;
    folder_make();
    const struct gp_arrow_job job = {.name = "a job", .has_rank = true, .rank = 3, .file = "x.gpuprof"};
    struct gp_export export = {.recording = r, .symbols = symbols_of(r), .job = &job};
    truth_write(r, export.symbols, place("truth.json"));
    for (; gp_export_format_at(formats); formats++) {
        const struct gp_export_format *format = gp_export_format_at(formats);
        for (unsigned weight = 0; weight < (format->weighed ? GP_EXPORT_WEIGHTS : 1); weight++) {
            export.weight = weight;
            export.block_limit = blocks;
            snprintf(name, sizeof(name), format->weighed ? "%s.%s" : "%s", format->name, gp_export_weight_name(weight));
            write_one(&export, format, place(name));
            export.full_stacks = true;
            snprintf(name, sizeof(name), "%s.full", gp_export_weight_name(weight));
            if (format->write == gp_export_pprof)
                write_one(&export, format, place(name));
            export.full_stacks = false;
            for (export.table = 1; format->write == gp_export_arrow && gp_arrow_table_name(export.table);
                 export.table++) {
                snprintf(name, sizeof(name), "arrow.%s", gp_arrow_table_name(export.table));
                write_one(&export, format, place(name));
            }
            export.table = 0;
        }
    }
    snprintf(command, sizeof(command), "python3 %s %s %u 2>&1",
             path_source("tests/unit/convert/export/export_check.py"), folder, blocks);
    FILE *judge = popen(command, "r");
    char said[4096];
    size_t length = fread(said, 1, sizeof(said) - 1, judge);
    said[length] = '\0';
    int status = pclose(judge);
    cr_expect_eq(status, 0, "%s", said);
    snprintf(name, sizeof(name), "judged %u formats", formats);
    cr_expect(strstr(said, name), "export_check.py has not one reader for each of the %u formats: %s", formats, said);
    gp_symbols_free(export.symbols);
    gp_recording_free(r);
    folder_drop();
}

Test(export, files_are_what_their_readers_expect, .timeout = 120)
{
    for (uint64_t i = 1; i <= 6; i++)
        judge(random_recording(i, 400), 20000);
}

Test(export, lifetimes_are_bounded, .timeout = 60)
{
    judge(random_recording(77, 600), 10);
    judge(random_recording(78, 100), 0);
}

Test(export, a_recording_of_nothing_is_a_valid_file, .timeout = 60)
{
    judge(recmake_done(recmake_new(-1)), 20000);
}

/* The highest value of a counter of the chrome file. */
static long long chrome_high(struct gp_recording *r, const char *counter)
{
    const struct gp_export_format *format = NULL;
    for (unsigned i = 0; gp_export_format_at(i); i++)
        if (strcmp(gp_export_format_at(i)->name, "chrome") == 0)
            format = gp_export_format_at(i);
    folder_make();
    struct gp_export export = {.recording = r, .symbols = symbols_of(r), .block_limit = 10};
    write_one(&export, format, place("chrome"));
    json_t *trace = json_load_file(place("chrome"), 0, NULL), *event;
    long long high = -1;
    size_t i;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));
        long long value = json_integer_value(json_object_get(json_object_get(event, "args"), "bytes"));
        if (name && strcmp(name, counter) == 0 && value > high)
            high = value;
    }
    json_decref(trace);
    gp_symbols_free(export.symbols);
    folder_drop();
    return high;
}

Test(export, chrome_shows_the_peak_of_reserved_within_an_interval)
{
    struct recmake *make = recmake_new(1 << 30);
    const uint64_t second = 1000000000;
    /* All at about one moment of a minute, which is in one interval: the cache grows and shrinks
     * while fewer bytes are allocated than later. */
    for (unsigned i = 0; i < 3; i++)
        recmake_event(make,
                      &(struct gp_rec_event){.time_ns = 30 * second + i,
                                             .address = 0x100000,
                                             .bytes = 4096 + (i == 2),
                                             .type = i == 1 ? GP_EVENT_SEGMENT_FREE & 15 : GP_EVENT_SEGMENT_ALLOC & 15,
                                             .kind = GP_KIND_LINEAR});
    recmake_event(make, &(struct gp_rec_event){.time_ns = 30 * second + 3,
                                               .address = 0x900000,
                                               .bytes = 1 << 20,
                                               .type = GP_EVENT_SEGMENT_ALLOC & 15,
                                               .kind = GP_KIND_LINEAR});
    recmake_event(make, &(struct gp_rec_event){.time_ns = 30 * second + 4,
                                               .address = 0x900000,
                                               .bytes = 1 << 20,
                                               .type = GP_EVENT_SEGMENT_FREE & 15,
                                               .kind = GP_KIND_LINEAR});
    recmake_at(make, 30 * second + 5);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x100000, 512, 0);
    recmake_free(make, 0, GP_KIND_LINEAR, 0x100000);
    recmake_at(make, 60 * second);
    recmake_mark(make, "end");
    struct gp_recording *r = recmake_done(make);
    cr_expect_eq(chrome_high(r, "device 0 reserved"), 4097 + (1 << 20));
    cr_expect_eq(chrome_high(r, "device 0 allocated"), 512);
    gp_recording_free(r);
}

/* ---- what stacks weigh ------------------------------------------------------------------------------------------- */

static const struct gp_export_sum *weigh(const struct gp_recording *r, enum gp_export_weight weight, uint32_t site)
{
    static struct gp_export_sums sums;
    struct gp_export export = {.recording = r, .weight = weight};
    free(sums.rows);
    cr_assert_eq(gp_export_weigh(&export, &sums), 0);
    for (uint32_t i = 0; i < sums.count; i++) {
        if (sums.rows[i].site == site)
            return &sums.rows[i];
    }
    return NULL;
}

static uint32_t named_site(struct recmake *make, const char *name)
{
    return recmake_site(make, GP_KIND_LINEAR, (struct recmake_frame[]){{name, "a.py", 1}, {NULL, NULL, 0}});
}

Test(export, where_events_were_lost_the_sites_own_numbers_stand)
{
    struct recmake *make = recmake_new(1 << 30);
    uint32_t site = named_site(make, "f");
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000, 512, site);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x2000, 256, 0);
    struct gp_recording *r = recmake_done(make);
    r->sites[site] = (struct gp_rec_site){.kind = GP_KIND_LINEAR,
                                          .live_bytes = 700,
                                          .live_count = 7,
                                          .at_peak_bytes = 900,
                                          .allocated_bytes = 5000,
                                          .calls = 50};
    const struct gp_export_sum *sum = weigh(r, GP_EXPORT_LIVE, site);
    cr_expect(sum->live_bytes == 512 && sum->allocated_count == 1, "nothing was lost: the events are the truth");
    r->dropped = 3;
    sum = weigh(r, GP_EXPORT_LIVE, site);
    cr_expect(sum->live_bytes == 700 && sum->live_count == 7 && sum->peak_bytes == 900);
    cr_expect(sum->allocated_bytes == 5000 && sum->allocated_count == 50);
    cr_expect_eq(weigh(r, GP_EXPORT_LIVE, 0)->live_bytes, 256, "what has no site keeps the sum of its events");
    gp_recording_free(r);
}

/* Two sites of one text, as a line that was inlined twice has, are one line. */
Test(export, equal_collapsed_stacks_are_one_line)
{
    static struct gp_out out;
    static const char want[] = "device 0;f (a.py:1);[linear] 768\ndevice 0;g (a.py:1);[linear] 64\n";
    struct recmake *make = recmake_new(1 << 30);
    uint32_t first = named_site(make, "f"), other = named_site(make, "g"), second = named_site(make, "f");
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x1000, 512, first);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x2000, 64, other);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x3000, 256, second);
    struct gp_recording *r = recmake_done(make);
    const struct gp_symbol_source source = gp_symbol_source_of(r, "");
    struct gp_export export = {.recording = r, .weight = GP_EXPORT_LIVE};
    cr_assert_eq(gp_symbols_new(&export.symbols, &source), 0);
    gp_out_begin(&out, -1);
    cr_assert_eq(gp_export_collapsed(&export, &out), 0);
    out.buffer[out.used] = '\0';
    cr_expect(strlen(out.buffer) == strlen(want) && strstr(out.buffer, "f (a.py:1);[linear] 768\n") &&
                  strstr(out.buffer, "g (a.py:1);[linear] 64\n"),
              "%s", out.buffer);
    gp_symbols_free(export.symbols);
    gp_recording_free(r);
}

Test(export, leaked_is_what_the_suspects_hold)
{
    struct recmake *make = recmake_new(1ll << 34);
    uint32_t leak = named_site(make, "grows"), flat = named_site(make, "flat"), model = named_site(make, "model");
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x10, 1 << 20, model);
    for (unsigned step = 0; step < 20; step++) {
        recmake_at(make, (2 + step) * 1000000000ull);
        recmake_mark(make, "step");
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x100000 + step * 0x1000, 3 << 20, leak);
        recmake_alloc(make, 0, GP_KIND_LINEAR, 0x900000, 5 << 20, flat);
        recmake_free(make, 0, GP_KIND_LINEAR, 0x900000);
    }
    struct gp_recording *r = recmake_done(make);
    cr_expect_eq(weigh(r, GP_EXPORT_LEAKED, leak)->leaked_bytes, 20 * (3 << 20));
    cr_expect_eq(weigh(r, GP_EXPORT_LEAKED, flat)->leaked_bytes, 0);
    cr_expect_eq(weigh(r, GP_EXPORT_LEAKED, model)->leaked_bytes, 0, "what stays is no leak");
    cr_expect_eq(gp_export_weight_of(weigh(r, GP_EXPORT_LEAKED, leak), GP_EXPORT_LEAKED), 20 * (3 << 20));
    gp_recording_free(r);
}

static struct gp_recording *with_baseline(void)
{
    struct recmake *make = recmake_new(1 << 30);
    recmake_free(make, 0, GP_KIND_LINEAR, 0x2000);
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x3000, 100, 0);
    struct gp_recording *r = recmake_done(make);
    r->from_start = false;
    r->baseline = calloc(2, sizeof(r->baseline[0]));
    r->baseline_count = 2;
    r->baseline[0] = (struct gp_rec_event){
        .time_ns = 900000000, .address = 0x1000, .bytes = 400, .type = GP_EVENT_ALLOC, .kind = GP_KIND_LINEAR};
    r->baseline[1] = (struct gp_rec_event){
        .time_ns = 950000000, .address = 0x2000, .bytes = 300, .type = GP_EVENT_ALLOC, .kind = GP_KIND_LINEAR};
    cr_assert_eq(gp_recording_match(r), 0);
    return r;
}

Test(export, what_lived_before_has_negative_numbers)
{
    struct gp_recording *r = with_baseline();
    struct gp_export export = {.recording = r};
    struct gp_export_rows rows;
    struct gp_export_row row;
    struct gp_export_peak peak;
    static const int64_t peers[] = {INT64_MIN, 0, -1, INT64_MIN}; /* INT64_MIN: none */
    cr_assert_eq(gp_export_rows_begin(&rows, &export), 0);
    for (int64_t i = -2; i < 2; i++) {
        cr_assert(gp_export_rows_next(&rows, &row));
        cr_expect_eq(row.number, i);
        cr_expect_eq(row.has_peer, peers[i + 2] != INT64_MIN);
        cr_expect(!row.has_peer || row.peer == peers[i + 2], "row %ld", (long)i);
    }
    cr_expect_not(gp_export_rows_next(&rows, &row));
    cr_assert_eq(gp_export_peaks(rows.flow, &peak), 0);
    cr_expect(peak.bytes == 700 && peak.event == -1, "the peak was the beginning");
    gp_export_rows_end(&rows);
    const struct gp_export_sum *sum = weigh(r, GP_EXPORT_LIVE, 0);
    cr_expect(sum->peak_bytes == 700 && sum->live_bytes == 500 && sum->live_count == 2 && sum->allocated_bytes == 800);
    gp_recording_free(r);
}

Test(export, a_database_answers_for_the_time_before_too)
{
    struct gp_recording *r = with_baseline();
    struct gp_export export = {.recording = r, .symbols = symbols_of(r)};
    sqlite3 *db;
    sqlite3_stmt *ask;
    folder_make();
    write_one(&export, gp_export_format_find("sqlite"), place("db"));
    cr_assert_eq(sqlite3_open(place("db"), &db), SQLITE_OK);
    cr_assert_eq(
        sqlite3_prepare_v2(db,
                           "SELECT (SELECT sum(bytes) FROM live_at_peak), (SELECT sum(bytes) FROM live_at_end),"
                           " (SELECT group_concat(address_hex) FROM live_at_peak)",
                           -1, &ask, NULL),
        SQLITE_OK);
    cr_assert_eq(sqlite3_step(ask), SQLITE_ROW);
    cr_expect_eq(sqlite3_column_int64(ask, 0), 700);
    cr_expect_eq(sqlite3_column_int64(ask, 1), 500);
    cr_expect_str_eq((const char *)sqlite3_column_text(ask, 2), "0x1000,0x2000");
    sqlite3_finalize(ask);
    sqlite3_close(db);
    gp_symbols_free(export.symbols);
    gp_recording_free(r);
    folder_drop();
}

/* ---- native frames ----------------------------------------------------------------------------------------------- */

extern const char export_probe[]; /* a return address: one past the instruction that is looked up */

static inline __attribute__((always_inline)) void export_inlined(void)
{
    __asm__ volatile(".globl export_probe\nnop\nexport_probe: nop");
}

__attribute__((noinline)) static void export_outer(void)
{
    export_inlined();
}

/* The mapping of this program that contains the address, as the recorder writes it. */
static struct gp_rec_module own_module(struct recmake *make, uint64_t pc)
{
    struct gp_modules modules;
    char id[2 * sizeof(modules.rows[0].build_id) + 1] = "";
    cr_assert_eq(gp_modules_read(&modules, "/proc/self", NULL), 0);
    const struct gp_module *own = gp_modules_find(&modules, pc);
    cr_assert(own, "no mapping has the probe");
    for (unsigned i = 0; i < own->build_id_bytes; i++)
        sprintf(id + 2 * i, "%02x", own->build_id[i]);
    cr_assert(id[0], "the linker makes build ids");
    struct gp_rec_module module = {own->start, own->end, own->offset, recmake_string(make, own->path),
                                   recmake_string(make, id)};
    gp_modules_free(&modules);
    return module;
}

Test(export, native_frames_have_mappings_addresses_and_inlined_lines, .timeout = 60)
{
    struct recmake *make = recmake_new(1 << 30);
    uint32_t site =
        recmake_site(make, GP_KIND_LINEAR,
                     (struct recmake_frame[]){{"one", "", 0}, {"two", "", 0}, {"py", "a.py", 3}, {NULL, NULL, 0}});
    struct gp_rec_module own = own_module(make, (uintptr_t)export_probe);
    uint32_t lost = recmake_string(make, "/nowhere/lib\"x.so"), id = recmake_string(make, "0123abcd");
    export_outer();
    recmake_alloc(make, 0, GP_KIND_LINEAR, 0x7000, 4096, site);
    struct gp_recording *r = recmake_done(make);
    r->modules = malloc(2 * sizeof(r->modules[0]));
    r->module_count = 2;
    r->modules[0] = own;
    r->modules[1] = (struct gp_rec_module){0x1000, 0x9000, 0, lost, id};
    struct gp_rec_frame *frames = &r->frames[r->sites[site].first_frame];
    frames[0] = (struct gp_rec_frame){.pc = (uintptr_t)export_probe, .module = 0};
    frames[1] = (struct gp_rec_frame){.pc = 0x1234, .module = 1};
    judge(r, 100);
}
